"""The basis of the contract checks: the ops, their samples in each dtype, and comparisons."""

import os
import zlib
from contextlib import contextmanager

import ml_dtypes
import numpy as np

import eagerflow as ef
import eagerflow.capture.control
from eagerflow.dispatch import canonical
from eagerflow.op import ops, spec_of
from eagerflow.tensor import Tensor
from tests.cases import cases_of
from tests.cases.samples import Sample

SOAK = os.environ.get("EAGERFLOW_SOAK") == "1"

FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
COMPLEX128 = np.dtype("complex128")
SMALL = (np.dtype("float16"), np.dtype(ml_dtypes.bfloat16))
FAMILIES = tuple(map(np.dtype, ("float32", "float64", "int32", "bool", "complex64", "complex128")))

# How far apart two ways of computing the same may be, relative to the largest element.
CLOSE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def shipped():
    """All ops of the package; not those that a test has registered."""
    own = (op for op in ops.values() if op.kernel.__module__.startswith("eagerflow."))
    # Models whose graphs are made when they run are no data: tests/onnx has them.
    return [op for op in own if not op.kernel.__module__.startswith("eagerflow.onnx.")]


def lead(op):
    """The position of the argument whose dtype the samples follow."""
    return op.together[0] if op.together else 0


def dtypes_of(op, among=FAMILIES):
    """Those of ``among`` that the op takes as they are."""
    allowed = op.allowed(lead(op))
    return [dtype for dtype in among if dtype in allowed]


def no_small_floats(op):
    """An excuse: no 16-bit floats are taken, or not where float32 is."""
    if op.on_tensors:
        return "its graphs say of which dtype each operand is"
    if op.name == "view":
        return "bits of narrow floats are not those of wider ones"
    return None if dtypes_of(op, SMALL) else "takes no 16-bit floats"


def main_dtype(op):
    """float64 where the op takes it, else some dtype that it takes."""
    return next(iter(dtypes_of(op, (FLOAT64, *FAMILIES))), None) or min(op.allowed(0), key=str)


def seeded(op, *more):
    """A generator that depends on the op's name alone, and on ``more``."""
    return np.random.default_rng(zlib.crc32(repr((op.name, *more)).encode()))


def samples(op, dtype, variant=0):
    """The op's samples; variants differ in their values and agree in everything else."""
    found = cases_of(op).samples(seeded(op, variant), dtype)
    assert found, f"{op.name}: no samples for {dtype}"
    return [Sample(tuple(s.args), dict(s.attributes)) for s in found]


def spread(items, count):
    """``count`` items from all over a list; all of them in the soak run."""
    items = list(items)
    if SOAK or len(items) <= count:
        return items
    return [items[i * (len(items) - 1) // (count - 1)] for i in range(count)]


def arrays_of(sample):
    """The arrays among a sample's arguments, also those within lists."""
    found = []
    for x in sample.args:
        parts = x if isinstance(x, list | tuple) else (x,)
        found += [part for part in parts if isinstance(part, np.ndarray)]
    return found


def inexact(x):
    """Whether a gradient may flow into ``x``."""
    return isinstance(x, np.ndarray) and ef.dtypes.is_inexact(x.dtype)


def moving(sample):
    """The positions of the arguments that a gradient may flow into."""
    return [i for i, x in enumerate(sample.args) if inexact(x)]


def on_arrays(op, sample):
    """The op as a function of the arrays among a sample's arguments, and these."""
    where = [i for i, x in enumerate(sample.args) if isinstance(x, np.ndarray)]

    def f(*xs):
        args = list(sample.args)
        for i, x in zip(where, xs, strict=True):
            args[i] = x
        return op.call(*args, **sample.attributes)

    return f, [sample.args[i] for i in where]


def as_tensors(sample):
    """The sample's arguments with arrays as tensors, each an object of its own."""
    return tuple(ef.asarray(x) if isinstance(x, np.ndarray) else x for x in sample.args)


def run(op, sample):
    """All results of the op as NumPy arrays."""
    return results(op.call(*as_tensors(sample), **sample.attributes))


def forget(op):
    """Clear the op's caches, so that its next call takes the slow path of a first one."""
    op.table.clear()
    op.kernels.clear()


def results(out):
    """A result, or a tuple of several, as a list of NumPy arrays."""
    return [y.numpy() for y in (out if isinstance(out, tuple) else (out,))]


def prepared(op, sample):
    """Arguments and attributes as kernel, infer and split see them, and the specs of the former."""
    data, attributes = op.bind(as_tensors(sample), sample.attributes)
    data = canonical(op, data)
    return data, attributes, [spec_of(x) if type(x) is Tensor else x for x in data]


def describe(sample):
    """A sample in one line."""
    shown = [
        f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else repr(x)[:60] for x in sample.args
    ]
    shown += [f"{name}={value!r}"[:60] for name, value in sample.attributes.items()]
    return f"({', '.join(shown)})"


@contextmanager
def about(op, sample):
    """Says in every error which op and which sample it is about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {op.name}{describe(sample)}")
        raise


def computable(array):
    """Values that NumPy compares and subtracts: small floats as float32, others as they are."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype in SMALL or array.dtype.kind == "V" else array


def tolerance(*dtypes):
    """How close results of these dtypes should be; 0 where they must be equal."""
    real = [ef.dtypes.real_dtype(np.dtype(dtype)).name for dtype in dtypes]
    return max((CLOSE.get(name, 0.0) for name in real), default=0.0)


def check_close(actual, expected, rtol, what):
    """Equal shapes and NaNs, and a difference below ``rtol`` of the largest element."""
    actual, expected = computable(actual), computable(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}"
    if not actual.size:
        return
    if actual.dtype.kind in "biu" and expected.dtype.kind in "biu":
        assert np.array_equal(actual, expected), f"{what}: {actual} instead of {expected}"
        return
    kind = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    a, b = actual.astype(kind), expected.astype(kind)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
        wrong = ~(same | (np.abs(a - b) <= rtol * scale))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise AssertionError(
            f"{what}: {a[at]} instead of {b[at]} at {at}; {wrong.sum()} of {a.size} are off by "
            f"more than {rtol * scale:.1e}"
        )


def check_all_close(actual, expected, rtol, what):
    """``check_close`` for each of several results."""
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, not {len(expected)}"
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        check_close(a, b, rtol, f"{what}, result {i}" if len(actual) > 1 else what)


def check_same_bits(actual, expected, what):
    """The same dtype, shape and bytes in every result."""
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, not {len(expected)}"
    for a, b in zip(actual, expected, strict=True):
        facts = (a.dtype, a.shape), (b.dtype, b.shape)
        assert facts[0] == facts[1], f"{what}: {facts[0]} instead of {facts[1]}"
        assert a.tobytes() == b.tobytes(), f"{what}: other bits: {a} instead of {b}"
