"""Checks of how ops pass through vmap, and of how their work may be cut."""

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.op import ops
from tests.cases import cases_of
from tests.contract import values
from tests.contract.cases import (
    about,
    arrays_of,
    check_all_close,
    main_dtype,
    prepared,
    results,
    run,
    samples,
    spread,
    tolerance,
)
from tests.contract.registry import check, either, lacks, no_data

EXAMPLES = 3


def variants(op, count):
    """Samples in groups that agree in all but their values: the examples of one batch."""
    dtype = main_dtype(op)
    groups = zip(*(samples(op, dtype, variant) for variant in range(count)), strict=True)
    for group in groups:
        shapes = {tuple(x.shape for x in arrays_of(s)) for s in group}
        attributes = {repr(s.attributes) for s in group}
        yield group if len(shapes) == len(attributes) == 1 else (group[0],) * count


def batches(sample, random=False):
    """Which arguments hold examples: each alone, then all.

    The state of a random op is among them: one that examples share gives each its own numbers.
    """
    where = [i for i, x in enumerate(sample.args) if isinstance(x, np.ndarray)]
    alone = [[i] for i in where] if len(where) > 1 else []
    if random:
        alone = alone[:1]
    return [*alone, where] if where else []


def mapped(op, sample, axes):
    """The op under vmap; arguments whose axis is None stay as they are."""
    fixed = [(i, x) for i, x in enumerate(sample.args) if axes[i] is None]
    free = [i for i, axis in enumerate(axes) if axis is not None]

    def f(*xs):
        args = dict(fixed) | dict(zip(free, xs, strict=True))
        return op.call(*(args[i] for i in range(len(axes))), **sample.attributes)

    return f, free


@check(excuse=either(lacks("batch"), no_data), step=3)
def batch(op):
    """vmap computes what a loop over the examples does, whichever arguments are batched.

    It refuses examples that the op refuses.
    """
    for group in spread(variants(op, EXAMPLES), 4):
        for where in batches(group[0], op.family == "random"):
            with about(op, group[0]):
                check_batch(op, group, where)
    for sample in cases_of(op).errors(values.seeded(op)):
        with about(op, sample):
            check_refused_batch(op, sample)


def check_refused_batch(op, sample):
    """Two examples of arguments that the op refuses are refused as well."""
    axes = [0 if isinstance(x, np.ndarray) else None for x in sample.args]
    f, free = mapped(op, sample, axes)
    if not free:
        return
    try:
        ef.vmap(f)(*[np.stack([sample.args[i]] * 2) for i in free])
    except EagerflowError:
        return
    raise AssertionError("vmap takes what is refused for one example")


def check_batch(op, group, where):
    """One batch of examples that differ in the arguments ``where``."""
    axes = [0 if i in where else None for i in range(len(group[0].args))]
    f, free = mapped(op, group[0], axes)
    stacked = [np.stack([s.args[i] for s in group]) for i in free]
    actual = results(ef.vmap(f)(*stacked))
    each = [run(op, replaced(group[0], s, where)) for s in group]
    wanted = [np.stack(parts) for parts in zip(*each, strict=True)]
    assert [y.dtype for y in actual] == [y.dtype for y in wanted], "vmap changes the dtype"
    rtol = max(tolerance(y.dtype) for y in wanted) * 100
    check_all_close(actual, wanted, rtol, f"batched arguments {where}")


def replaced(sample, other, where):
    """A sample with the arguments ``where`` of another one."""
    args = [
        o if i in where else x for i, (x, o) in enumerate(zip(sample.args, other.args, strict=True))
    ]
    return sample._replace(args=tuple(args))


@check(excuse=either(lacks("batch"), no_data), step=3)
def nested_batch(op):
    """Two levels of vmap compute what two loops do, also with one argument in each level."""
    for group in spread(variants(op, 2 * EXAMPLES), 2):
        where = batches(group[0], op.family == "random")
        if not where:
            continue
        with about(op, group[0]):
            check_nested(op, group, where[-1])


def check_nested(op, group, where):
    """Batches of batches; the arguments take turns in which level they skip."""
    sample = group[0]
    axes = [0 if i in where else None for i in range(len(sample.args))]
    f, free = mapped(op, sample, axes)
    whole = [np.stack([s.args[i] for s in group]) for i in free]
    nested = [x.reshape(2, EXAMPLES, *x.shape[1:]) for x in whole]
    actual = results(ef.vmap(ef.vmap(f))(*nested))
    each = [run(op, replaced(sample, s, where)) for s in group]
    wanted = [np.stack(p).reshape(2, EXAMPLES, *p[0].shape) for p in zip(*each, strict=True)]
    rtol = max(tolerance(y.dtype) for y in wanted) * 100
    check_all_close(actual, wanted, rtol, "two levels")
    # The first argument has examples in the outer level, the rest in the inner.
    if len(free) > 1 and op.family != "random":
        outer, *inner = (x[:2] for x in whole)
        level = ef.vmap(f, in_axes=(None, *(0 for _ in inner)))
        crossed = results(ef.vmap(level, in_axes=(0, *(None for _ in inner)))(outer, *inner))
        rows = [
            [run(op, crossed_sample(sample, free, group[a], group[b])) for b in range(2)]
            for a in range(2)
        ]
        wanted = [
            np.stack([np.stack([cell[k] for cell in row]) for row in rows])
            for k in range(len(crossed))
        ]
        check_all_close(crossed, wanted, rtol, "one argument in each level")


def crossed_sample(sample, free, first, rest):
    """The first free argument from one sample, the others from another."""
    return replaced(replaced(sample, rest, free[1:]), first, free[:1])


@check(excuse=either(lacks("split"), no_data), step=2)
def split(op):
    """The work, cut in the middle in each way that Split allows, joins to the whole."""
    cuts = 0
    for sample in samples(op, main_dtype(op)):
        with about(op, sample):
            data, attributes, specs = prepared(op, sample)
            wanted = run(op, sample)
            for way in op.split(*specs, **attributes):
                cuts += check_split(op, data, attributes, way, wanted)
    assert cuts, f"{op.name}: no sample can be cut in any way that split gives"


def check_split(op, data, attributes, way, wanted):
    """One way to cut; 0 where there is nothing to cut."""
    assert len(way.inputs) == len(data), f"{way} is for {len(way.inputs)} arguments"
    exist = [a is None or -x.ndim <= a < x.ndim for x, a in zip(data, way.inputs, strict=True)]
    assert all(exist), f"{way} cuts an axis that does not exist"
    lengths = {x.shape[a] for x, a in zip(data, way.inputs, strict=True) if a is not None}
    assert len(lengths) <= 1, f"{way} cuts axes of different lengths {lengths}"
    if not lengths or min(lengths) < 2:
        return 0
    middle = lengths.pop() // 2
    parts = []
    for chosen in (slice(None, middle), slice(middle, None)):
        args = [
            x
            if axis is None
            else ef.asarray(x.numpy()[(slice(None),) * (axis % x.ndim) + (chosen,)])
            for x, axis in zip(data, way.inputs, strict=True)
        ]
        parts.append(results(op.call(*args, **attributes)))
    joined = [join(way, a, b) for a, b in zip(*parts, strict=True)]
    check_all_close(joined, wanted, max(tolerance(y.dtype) for y in wanted) * 100, f"{way}")
    return 1


def part_of(x, axis, chosen):
    """A slice of an argument along an axis; all of it where the axis is None."""
    if axis is None:
        return x
    return ef.asarray(x.numpy()[(slice(None),) * (axis % x.ndim) + (chosen,)])


def join(way, a, b):
    """Two partial results as one."""
    if way.combine == "concat":
        return np.concatenate([a, b], way.axis)
    return ops[way.combine].call(a, b).numpy()
