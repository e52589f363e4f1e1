"""Checks of the values of ops: against references, specs, scalar rules, and themselves."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import eagerflow as ef
from eagerflow.codegen.instructions import INSTRUCTIONS, NUMPY, RowInstructions
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.op import Missing, declared
from eagerflow.ops.family import Rows
from eagerflow.spec import TensorSpec, normalize_axes
from tests.cases import cases_of
from tests.contract.cases import (
    FLOAT32,
    FLOAT64,
    SMALL,
    about,
    as_tensors,
    check_all_close,
    check_same_bits,
    computable,
    dtypes_of,
    forget,
    inexact,
    main_dtype,
    no_small_floats,
    prepared,
    results,
    run,
    samples,
    seeded,
    tolerance,
)
from tests.contract.registry import NotApplicable, check, either, no_data, no_reference

__all__ = ["seeded"]


def expected(op, data, attributes):
    """The reference's results as a list of arrays."""
    with np.errstate(all="ignore"):
        out = cases_of(op).reference(*data, **attributes)
    return [np.asarray(y) for y in (out if isinstance(out, tuple) else (out,))]


def bound(op, sample):
    """Data arguments as NumPy arrays, and all attributes, as references get them."""
    data, attributes = op.bind(sample.args, sample.attributes)
    return [x.numpy() if isinstance(x, ef.Tensor) else x for x in data], attributes


@check(excuse=no_reference)
def reference(op):
    """The kernel computes what an independent reference does, in every dtype family."""
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                actual = run(op, sample)
                wanted = expected(op, *bound(op, sample))
                rtol = max(tolerance(y.dtype) for y in actual)
                check_all_close(actual, wanted, rtol, "the result")


def not_float32(op):
    """An excuse: accuracy in units in the last place is stated for float32, element by element."""
    if op.family != "elementwise":
        return "not element-wise"
    return None if dtypes_of(op, (FLOAT32,)) else "takes no float32"


@check(excuse=either(no_reference, not_float32), step=2)
def accuracy(op):
    """In float32 each element is within the stated units of the reference in float64."""
    for sample in samples(op, FLOAT32):
        data, attributes = bound(op, sample)
        wide = [x.astype(FLOAT64) if inexact(x) else x for x in data]
        with about(op, sample):
            for y, wanted in zip(run(op, sample), expected(op, wide, attributes), strict=True):
                if y.dtype != FLOAT32 or wanted.dtype != FLOAT64:
                    continue
                with np.errstate(all="ignore"):
                    unit = np.spacing(np.abs(wanted).astype(FLOAT32)).astype(FLOAT64)
                    off = np.abs(y.astype(FLOAT64) - wanted) / unit
                off = np.where(np.isfinite(off), off, 0)
                worst = off.max(initial=0)
                assert worst <= op.ulp, f"off by {worst:.1f} units in the last place, not {op.ulp}"


@check(excuse=either(no_data, no_small_floats), step=3)
def small_floats(op):
    """float16 and bfloat16 agree with float32, roughly, and keep their dtype as infer says."""
    for dtype in dtypes_of(op, SMALL):
        for sample in samples(op, dtype):
            with about(op, sample):
                actual = run(op, sample)
                wide = [
                    x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == dtype else x
                    for x in sample.args
                ]
                wanted = run(op, sample._replace(args=tuple(wide)))
                rtol = tolerance(dtype)
                check_all_close(actual, list(map(computable, wanted)), rtol, "the result")


def as_results(specs):
    """The results of infer, as a list of specs."""
    return list(specs) if isinstance(specs, tuple) else [specs]


@check(step=3)
def infer(op):
    """Inferred shapes and dtypes are those that come out."""
    for dtype in [*dtypes_of(op), *dtypes_of(op, SMALL)] or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                _, attributes, specs = prepared(op, sample)
                try:
                    found = as_results(op.infer(*specs, **attributes))
                except CaptureError as error:  # the shape depends on values
                    assert op.family not in ("elementwise", "reduction"), error
                    continue
                wanted = [(y.shape, y.dtype) for y in found]
                actual = [(y.shape, y.dtype) for y in run(op, sample)]
                assert actual == wanted, f"the result is {actual}, infer says {wanted}"


@check(excuse=no_data, step=2)
def symbolic(op):
    """With named sizes, infer gives shapes that become the real ones when sizes are filled in."""
    succeeded = refused = 0
    for sample in samples(op, main_dtype(op)):
        _, attributes, specs = prepared(op, sample)
        actual = [(y.shape, y.dtype) for y in run(op, sample)]
        for named, also, sizes in named_sizes(specs, attributes):
            with about(op, sample):
                try:
                    found = as_results(op.infer(*named, **also))
                except EagerflowError as error:
                    if op.family in ("elementwise", "reduction"):
                        raise
                    succeeded += isinstance(error, CaptureError)
                    refused += 1
                    continue
                shapes = [(tuple(known(d, sizes) for d in y.shape), y.dtype) for y in found]
                assert shapes == actual, f"{found} with {sizes} is {shapes}, not {actual}"
                succeeded += 1
    assert succeeded or not refused, f"{op.name}: no named size was taken, nor a reason given"


def named_sizes(specs, attributes):
    """Specs and attributes with all sizes above 1 named, or those of first axes only; the names.

    A ``shape`` among the attributes is named alike, as it would be if it came from a tensor.
    """
    tensors = [s for s in specs if isinstance(s, TensorSpec)]
    every = {n for s in tensors for n in s.shape if n > 1}
    leading = every - {n for s in tensors for n in s.shape[1:]}
    for sizes in (every, leading):
        if not sizes:
            continue
        names = {n: Dim(f"n{n}") for n in sizes}
        named = [
            s.like([names.get(n, n) for n in s.shape]) if isinstance(s, TensorSpec) else s
            for s in specs
        ]
        meaning = {f"n{n}": n for n in sizes}
        yield named, attributes, meaning
        if isinstance(shape := attributes.get("shape"), tuple):
            yield named, {**attributes, "shape": tuple(names.get(n, n) for n in shape)}, meaning


def known(dim, sizes):
    """The number that a size stands for."""
    return dim.evaluate(sizes) if isinstance(dim, Dim) else dim


@check(step=3)
def inputs_untouched(op):
    """Kernels change no input, also read-only ones, and give out nothing that can be changed."""
    for sample in samples(op, main_dtype(op)):
        with about(op, sample):
            writable = sample._replace(args=tuple(copied(x, True) for x in sample.args))
            frozen = sample._replace(args=tuple(copied(x, False) for x in sample.args))
            for case in (sample, writable, writable, frozen):
                args = as_tensors(case)  # which may be copies
                before = contents(case.args), contents(args)
                out = op.call(*args, **case.attributes)
                after = contents(case.args), contents(args)
                assert after == before, "the kernel changed an argument"
                for y in out if isinstance(out, tuple) else (out,):
                    assert not y.numpy().flags.writeable, "the result's numpy() can be changed"
                    assert not np.asarray(y).flags.writeable, "np.asarray(result) can be changed"


def contents(args):
    """The bytes of all arrays and tensors."""
    return [np.asarray(x).tobytes() for x in args if isinstance(x, np.ndarray | ef.Tensor)]


def copied(x, writeable):
    """A copy of an array in the same memory order."""
    if not isinstance(x, np.ndarray):
        return x
    copy = x.copy(order="K")
    copy.flags.writeable = writeable
    return copy


@check(step=3)
def forms_of_call(op):
    """First and later calls agree, with tensors, arrays and Variables, with defaults left out."""
    positional = positional_attributes(op)
    for sample in samples(op, main_dtype(op)):
        with about(op, sample):
            forget(op)
            wanted = run(op, sample)
            short = {
                name: value
                for name, value in sample.attributes.items()
                if not (name in op.attributes and same(op.attributes[name], value))
            }
            forms = {
                "a second call": run(op, sample),
                "a call without defaults": run(op, sample._replace(attributes=short)),
            }
            names = list(sample.attributes)
            complete = len(sample.args) == len(op.data) and not op.variadic
            if names and names == positional[: len(names)] and complete:
                values = sample.attributes.values()
                forms["attributes by position"] = results(op.call(*as_tensors(sample), *values))
            for form, actual in forms.items():
                check_same_bits(actual, wanted, form)
            # Variables and arrays are copied, and another memory layout may round otherwise.
            for form, convert in (("arrays", lambda x: x), ("Variables", as_variable)):
                actual = results(op.call(*map(convert, sample.args), **sample.attributes))
                assert [y.dtype for y in actual] == [y.dtype for y in wanted], f"with {form}"
                check_all_close(actual, wanted, 1e-12, f"a call with {form}")


def same(default, value):
    """Whether an attribute has its default, also in type."""
    return type(default) is type(value) and default == value


def positional_attributes(op):
    """Names of the attributes that may be given by position."""
    function, first = declared(op.kernel)
    code = function.__code__
    return list(code.co_varnames[max(code.co_posonlyargcount, first) : code.co_argcount])


def as_variable(x):
    """A Variable with an array's value; anything else as it is."""
    return ef.Variable(x) if inexact(x) else x


@check(step=6)
def recording(op):
    """A tape changes no bit of the results, and three runs and another thread give the same."""
    dtypes = dtypes_of(op, (FLOAT32, FLOAT64)) or [main_dtype(op)]
    with ThreadPoolExecutor(1) as pool:
        for dtype in dtypes:
            for sample in samples(op, dtype):
                with about(op, sample):
                    wanted = run(op, sample)
                    check_same_bits(recorded(op, sample), wanted, "under a tape")
                    check_same_bits(run(op, sample), wanted, "in another run")
                    threaded = pool.submit(run, op, sample).result()
                    check_same_bits(threaded, wanted, "in another thread")


def recorded(op, sample):
    """The op's results while a tape watches all arguments."""
    args = as_tensors(sample)
    with ef.GradientTape() as tape:
        tape.watch([x for x, own in zip(args, sample.args, strict=True) if inexact(own)])
        out = op.call(*args, **sample.attributes)
    return results(out)


def no_scalar_rule(op):
    """An excuse: there is no rule for one element or row, or NumPy cannot compute it."""
    if isinstance(op.scalar, Missing):
        return op.scalar.reason
    if isinstance(op.scalar, str) and not hasattr(NUMPY, op.scalar):
        return f"NumPy has no instruction {op.scalar}"
    return None


@check(excuse=no_scalar_rule, step=2)
def scalar_rule(op):
    """The scalar rule, run with NumPy's instructions, computes what the kernel does."""
    rule = op.scalar
    if isinstance(rule, str):
        assert INSTRUCTIONS[rule].operands == len(op.data), f"{rule} takes other operands"
        name = rule
        rule = lambda s, *xs: getattr(s, name)(*xs)
    rows = rule if isinstance(rule, Rows) else None
    if op.family == "rows" and rows is None:
        rows = Rows(rule, ("mn",) * len(op.data), ("mn",))
    for sample in samples(op, main_dtype(op)):
        data, attributes, _ = prepared(op, sample)
        arrays = [x.numpy() if isinstance(x, ef.Tensor) else x for x in data]
        if rows is not None and not arrays[0].size:
            continue  # for ops to say; a region has elements
        with about(op, sample), np.errstate(all="ignore"):
            try:
                if rows is None:
                    out = rule(NUMPY, *arrays, **attributes)
                else:
                    out = by_rows(rows, arrays, attributes)
            except AttributeError as error:
                if "scalar instruction that NumPy computes" in str(error):
                    raise NotApplicable(str(error)) from None
                raise
            actual = run(op, sample)
            found = [np.asarray(x) for x in (out if isinstance(out, tuple) else (out,))]
            check_all_close(found, actual, tolerance(actual[0].dtype), "the rule")


def by_rows(rule, arrays, attributes):
    """The results of a rule of rows, in the shapes of the op's results."""
    x = arrays[0]
    axes = normalize_axes(attributes.pop("axis", -1), x.ndim)
    keepdims = attributes.pop("keepdims", False)
    others = tuple(i for i in range(x.ndim) if i not in axes)
    order = np.argsort(axes)  # of a parameter's axes where they lie in x

    def placed(a, along):
        if a is None or along == "mn":
            return a
        return np.expand_dims(*((a, axes) if along == "m" else (a.transpose(order), others)))

    def own(y, along):
        if along == "mn" or (along == "m" and keepdims):
            return y
        return y.squeeze(axes) if along == "m" else y.squeeze(others).transpose(np.argsort(order))

    s = RowInstructions(np, x, axes)
    out = rule.body(s, *map(placed, arrays, rule.along), **attributes)
    return tuple(map(own, out if isinstance(out, tuple) else (out,), rule.gives))
