"""All contract checks, by name, and those that read facts rather than values.

Each check takes an Op and raises AssertionError, or the error that the op itself raised by mistake.
"""

import math
import pickle
import re

import numpy as np

from eagerflow import GradientTape, Tensor
from eagerflow.dispatch import compute
from eagerflow.errors import EagerflowError
from eagerflow.op import REQUIRED, Cost, Missing, Onnx, freeze
from eagerflow.recorder import process, recorder_state
from tests.cases import cases_of
from tests.contract import derivatives, passes, values
from tests.contract.cases import about, dtypes_of, main_dtype, prepared, samples
from tests.contract.registry import CHECKS, check

__all__ = ["CHECKS", "derivatives", "passes", "values"]

FACTS = "kernel infer partials vjp jvp batch split cost onnx scalar".split()
LEAST_SAMPLES = {True: 12, False: 3}  # of differentiable and of other ops
LEAST_ERRORS = 3


@check()
def facts(op):
    """Every fact is there and fits the others; what is missing has a reason."""
    assert op.doc, f"{op.name} has no docstring"
    stated = {fact: getattr(op, fact) for fact in FACTS} | cases_of(op)._asdict()
    for fact, value in stated.items():
        assert value is not None, f"{op.name}: {fact} is absent; say Missing(why)"
        if isinstance(value, Missing):
            assert len(value.reason.split()) > 1, f"{op.name}: {fact} is missing without a reason"
    unknown = op.saves - {*op.data, "y"}
    assert not unknown, f"{op.name}: saves {unknown}, which are neither arguments nor 'y'"
    for fact in ("partials", "vjp"):
        rules = getattr(op, fact)
        if isinstance(rules, tuple) and not op.variadic:
            assert len(rules) == len(op.data), (
                f"{op.name}: {len(rules)} {fact} for the {len(op.data)} arguments {op.data}"
            )
    if op.differentiable:
        assert not isinstance(op.jvp, Missing), f"{op.name} has a gradient, but no forward mode"
    known = op.onnx == "body" or isinstance(op.onnx, Onnx | Missing) or callable(op.onnx)
    assert known, f"{op.name}: onnx is {op.onnx!r}"
    assert 1 <= len(op.dtypes) <= max(len(op.data), 1), f"{op.name}: dtypes fit no argument list"
    assert all(op.dtypes), f"{op.name}: an argument for which no dtype is allowed"


@check()
def enough_samples(op):
    """12 samples of a differentiable op, 3 of any other."""
    count, least = len(samples(op, main_dtype(op))), LEAST_SAMPLES[op.differentiable]
    assert count >= least, f"{op.name}: {count} samples, at least {least}"


@check(step=4)
def effects(op):
    """What shares memory says so; views show what they are given; what fills gives one number."""
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                data, attributes, _ = prepared(op, sample)
                try:
                    out = compute(op, data, attributes)
                except EagerflowError:  # a graph is missing
                    continue
                given = [x.numpy() for x in data if isinstance(x, Tensor)]
                for made in values.results(out) if op.aliases is False or op.views else ():
                    shared = any(np.shares_memory(made, x) for x in given)
                    assert op.aliases or not shared, "shares memory, though it does not say so"
                    whole = op.views == "all" and made.size == given[0].size
                    assert not whole or made.tobytes() == given[0].tobytes(), "shows others"
                if op.fills:
                    (made,) = values.results(out)
                    assert made.size == 0 or (made == made.flat[0]).all(), "several numbers"


@check(lambda op: None if op.keeps_order else "says nothing of the order in memory", step=2)
def memory_order(op):
    """Results of row-major arrays are row-major; what writes into memory gives the same bits."""
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                args = [
                    np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x
                    for x in sample.args
                ]
                data, attributes, specs = prepared(op, sample._replace(args=tuple(args)))
                out = values.results(compute(op, data, attributes))
                assert all(made.flags.c_contiguous for made in out), "not row-major"
                into = op.into(*specs, **attributes) if op.into is not None else None
                if into is not None and dtype.char in "fd":
                    written = np.empty_like(out[0])
                    into.call(*[x.numpy() for x in data], written)
                    assert written.tobytes() == out[0].tobytes(), "other bits in given memory"


@check(lambda op: None if op.writes else "gives no copy of an argument")
def parts_written(op):
    """What an op says that it writes over a copy of its first argument is all that it does."""
    found = 0
    for dtype in dtypes_of(op):
        for sample in samples(op, dtype):
            with about(op, sample):
                data, attributes, specs = prepared(op, sample)
                (out,) = values.results(compute(op, data, attributes))
                part = op.writes(*specs, **attributes)
                if part is not None:
                    x = data[0].numpy().copy(order="C")
                    places, rows = part(x, *(t.numpy() for t in data[1:]))
                    for place, row in zip(places, rows, strict=True):
                        x.reshape(-1)[place : place + len(row)] = row
                    assert x.tobytes() == out.tobytes(), "another result"
                    found += 1
    assert found, "no sample is written so"


EXTREMES = {"f": (np.nan, np.inf, -1.0, 0.0), "i": (-100, 100), "u": (100,), "c": (np.nan, 0)}


def extreme_calls(op):
    """Samples with one array all of whose elements are the same odd number."""
    dtype = main_dtype(op)
    for sample in samples(op, dtype):
        for position, x in enumerate(sample.args):
            for number in EXTREMES.get(getattr(x, "dtype", dtype).kind, ()):
                if isinstance(x, np.ndarray):
                    given = sample.args[:position], sample.args[position + 1 :]
                    yield sample._replace(args=(*given[0], np.full_like(x, number), *given[1]))


@check(lambda op: "whether its graphs fail is theirs" if op.on_tensors else None, step=4)
def refusals(op):
    """What an op refuses for the numbers in its arguments, it says that it ``fails`` for."""
    refused = []
    for sample in extreme_calls(op):
        with about(op, sample):
            data, attributes, _ = prepared(op, sample)
            try:
                compute(op, data, attributes)
            except EagerflowError as error:
                assert op.fails, f"fails, though it does not say so: {error}"
                refused.append(error)
    assert bool(refused) == op.fails, "never fails, though it says so"


@check()
def errors(op):
    """Calls that must be refused are, with the stated class and words, and leave no trace."""
    found = cases_of(op).errors(values.seeded(op))
    assert len(found) >= LEAST_ERRORS, f"{op.name}: {len(found)} error samples, at least 3"
    for sample in found:
        sample = completed(op, sample)
        with about(op, sample):
            before = recorder_state(), len(process.recorders)
            check_refused(op, sample)
            with GradientTape():
                check_refused(op, sample)
            assert (recorder_state(), len(process.recorders)) == before, (
                "the refused call left the state changed"
            )


def completed(op, sample):
    """An error sample with what it leaves out and the signature demands, from the first sample."""
    if op.arrange is not None or op.variadic:
        return sample
    good = samples(op, main_dtype(op))[0]
    absent = [
        x
        for i, x in enumerate(good.args)
        if i >= len(sample.args) and i not in op.optional and op.data[i] not in sample.attributes
    ]
    given = dict(zip(op.attributes, sample.args[len(op.data) :], strict=False)) | sample.attributes
    demanded = {
        name: good.attributes[name]
        for name, default in op.attributes.items()
        if default is REQUIRED and name not in given and name in good.attributes
    }
    return sample._replace(
        args=(*sample.args, *absent), attributes={**demanded, **sample.attributes}
    )


def check_refused(op, sample):
    """One call raises what its error sample says."""
    try:
        result = op.call(*sample.args, **sample.attributes)
    except EagerflowError as error:
        assert type(error) is sample.error, f"raised {type(error).__name__}: {error}"
        text = str(error)
        assert sample.words in text, f"the message lacks {sample.words!r}:\n{text}"
        assert op.name in text, f"the message does not name {op.name}:\n{text}"
        names = "|".join(map(re.escape, [*op.data, *op.attributes]))
        assert re.search(rf"\b({names})\b", text), f"the message names no argument:\n{text}"
        assert "received: " in text or "expected: " in text, (
            f"the message says neither what was received nor what was expected:\n{text}"
        )
        pickle.loads(pickle.dumps(error))
    else:
        raise AssertionError(f"was not refused, but gave {result!r}")


@check(step=3)
def attributes(op):
    """Attributes of all samples can be recorded, printed, hashed and pickled."""
    for sample in samples(op, main_dtype(op)):
        with about(op, sample):
            data, bound = op.bind(sample.args, sample.attributes)
            assert tuple(bound) == tuple(op.attributes), f"attributes {list(bound)}"
            for name, value in bound.items():
                assert freeze(value) == value, f"{name}={value!r} changes when recorded"
                hash(printable(value))
                assert pickle.loads(pickle.dumps(value)) == value, f"{name}={value!r}"
            again = op.bind(data, bound)[1] if op.arrange is None else bound
            assert again == bound, f"bound again, {bound} becomes {again}"


def printable(value):
    """Slices, which Python 3.11 does not hash, as their parts."""
    if isinstance(value, tuple):
        return tuple(map(printable, value))
    return (value.start, value.stop, value.step) if isinstance(value, slice) else value


@check(step=3)
def cost(op):
    """Costs are finite numbers of at least 0."""
    for dtype in dtypes_of(op)[:1] or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                _, attributes, specs = prepared(op, sample)
                found = op.cost(*specs, **attributes)
                assert isinstance(found, Cost), f"the cost is {found!r}"
                for number in found:
                    assert 0 <= number < math.inf, f"the cost is {found!r}"
