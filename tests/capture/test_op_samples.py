"""R4 on the ops' own samples: eager, captured, loaded and partitioned give the same bits.

By default, with ``numerics="fast"``, results stay close, as they do between eager calls of ops
that compute the same in another order.
"""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError
from eagerflow.ops.creation.parametric_draws import no_second
from eagerflow.plan.replay import Replay
from eagerflow.tensor import Tensor
from tests.contract.cases import (
    FLOAT32,
    SMALL,
    about,
    check_all_close,
    check_same_bits,
    dtypes_of,
    inexact,
    main_dtype,
    prepared,
    results,
    samples,
    shipped,
    spread,
    tolerance,
)
from tests.contract.values import accuracy, bound, expected

OPS = [op for op in shipped() if op.kernel.__module__.startswith("eagerflow.ops.")]
SMOOTH = [op for op in OPS if op.differentiable and op.vjp is not no_second]
BY_VALUE = {"nonzero", "unique_values", "unique_counts", "unique_inverse", "unique_all"}
"""The shapes of their results depend on values: they cannot be captured, and say so."""


def of_tensors(op, sample):
    """The op as a function of the sample's tensors alone, and these."""
    data, attributes, _ = prepared(op, sample)
    where = [i for i, x in enumerate(data) if isinstance(x, Tensor)]

    def f(*xs):
        args = list(data)
        for i, x in zip(where, xs, strict=True):
            args[i] = x
        return op.call(*args, **attributes)

    f.__name__ = op.name
    return f, [data[i] for i in where]


def gradients_of(f, args):
    """A function that gives the gradients of the results of ``f``, weighted, by its arguments."""
    smooth = [i for i, x in enumerate(args) if ef.dtypes.is_inexact(x.dtype)]

    def g(*xs):
        with ef.GradientTape() as tape:
            for i in smooth:
                tape.watch(xs[i])
            out = f(*xs)
            out = out if isinstance(out, tuple) else (out,)
            real = [y for y in out if ef.dtypes.is_inexact(y.dtype)]
            loss = sum((ef.sum(ef.abs(y * 1.5)) for y in real), ef.tensor(0.0))
        return tape.gradient(loss, [xs[i] for i in smooth], unconnected="zero")

    g.__name__ = f"gradient of {f.__name__}"
    return g


def arrays(out):
    return results(tuple(out) if isinstance(out, list | tuple) else out)


def compare(f, args, folder, factor):
    """Eager against captured, twice, and loaded, exact; and against the default, twice."""
    wanted = arrays(f(*args))
    exact = ef.function(f, numerics="exact")
    for turn in ("first", "second"):
        check_same_bits(arrays(exact(*args)), wanted, f"{turn} captured call")
    exact.graph(*args).save(folder / "graph.ef")
    loaded = ef.capture.load(folder / "graph.ef")
    check_same_bits(results(tuple(Replay(loaded, "exact").run(list(args)))), wanted, "loaded")
    fast = ef.function(f)
    found = arrays(fast(*args))
    rtol = factor * max((tolerance(y.dtype) for y in wanted), default=0.0)
    check_all_close(found, wanted, rtol, "fast")
    check_same_bits(arrays(fast(*args)), found, "the second fast run")


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_values(op, tmp_path):
    wide, small = dtypes_of(op) or [main_dtype(op)], dtypes_of(op, SMALL)
    for dtype in (*spread(wide, 3), *small):
        for sample in spread(samples(op, dtype), 4 if dtype == wide[0] else 2):
            with about(op, sample):
                f, args = of_tensors(op, sample)
                if op.name in BY_VALUE:
                    with pytest.raises(CaptureError, match="value"):
                        ef.function(f)(*args)
                    continue
                compare(f, args, tmp_path, 10.0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "op", [op for op in OPS if accuracy.excuse(op) is None], ids=lambda op: op.name
)
def test_units(op):
    """Compiled, each element is within the op's stated units of the reference in float64."""
    for sample in samples(op, FLOAT32):
        data, attributes = bound(op, sample)
        wide = [x.astype(np.float64) if inexact(x) else x for x in data]
        f, args = of_tensors(op, sample)
        with about(op, sample):
            found = arrays(ef.function(f)(*args))
            for y, wanted in zip(found, expected(op, wide, attributes), strict=True):
                if y.dtype != FLOAT32 or wanted.dtype != np.float64:
                    continue
                with np.errstate(all="ignore"):
                    unit = np.spacing(np.abs(wanted).astype(FLOAT32)).astype(np.float64)
                    off = np.abs(y.astype(np.float64) - wanted) / unit
                    same_kind = np.isfinite(y) == np.isfinite(wanted.astype(FLOAT32))
                worst = np.where(np.isfinite(off), off, 0).max(initial=0)
                assert worst <= op.ulp, f"off by {worst:.1f} units, not {op.ulp}"
                assert same_kind.all(), f"{y} in place of {wanted}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_gradients(op, tmp_path):
    checked = 0
    for sample in spread(samples(op, main_dtype(op)), 2):
        with about(op, sample):
            f, args = of_tensors(op, sample)
            if not any(ef.dtypes.is_inexact(x.dtype) for x in args):
                continue
            compare(gradients_of(f, args), args, tmp_path, 50.0)
            checked += 1
    assert checked, f"{op.name}: no gradient was compared"
