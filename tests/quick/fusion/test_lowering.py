"""Regions on numbers that rules forget, and on axes of size 1 and 0: as eager calls have them."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.fusion import groups
from eagerflow.fusion.groups import fuse
from eagerflow.op import ops
from eagerflow.ops.family import Rows
from tests.contract.cases import about, check_close, dtypes_of, samples, tolerance
from tests.fusion.region_programs import run_steps
from tests.fusion.test_groups import FUSIBLE, check_against_eager, traced

DTYPES = [np.dtype("float32"), np.dtype("float64")]


@pytest.fixture
def greedy(monkeypatch):
    """Everything that can be a region becomes one, however small."""
    monkeypatch.setattr(groups, "MIN_SHARED_ELEMENTS", 0)


ALONE = [
    name
    for name in FUSIBLE
    if ops[name].family == "elementwise"
    and not name.endswith("_update")
    and not isinstance(ops[name].scalar, Rows)
]


def special_numbers(dtype, count):
    """Numbers that rules forget: of each dtype alone, and fewer of them where they are combined."""
    info = ef.finfo(dtype)
    tiny = float(info.smallest_normal)
    found = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, float(info.max), tiny / 32, -2.0, -1.0, 0.5]
    found += [-float(info.max), tiny, -tiny, -tiny / 32, 3.0, 2.5, -0.5, 5.0, -5.0]
    return np.array(found[: 8 if count > 2 else None]).astype(dtype)


def with_special_numbers(sample, dtype):
    """A sample whose floating arguments hold all combinations of special numbers."""
    at = [i for i, x in enumerate(sample.args) if getattr(x, "dtype", None) == dtype]
    numbers = special_numbers(dtype, len(at))
    grid = np.stack(np.meshgrid(*[numbers] * len(at), indexing="ij")).reshape(len(at), -1)
    args = list(sample.args)
    for i, x in zip(at, grid, strict=True):
        args[i] = x
    for i, x in enumerate(args):
        if i not in at and isinstance(x, np.ndarray):
            args[i] = np.resize(x, grid.shape[1])
    return sample._replace(args=tuple(args))


def check_special_numbers(name, dtype, way):
    op, seen = ops[name], set()
    for sample in samples(op, dtype):
        kinds = [getattr(x, "dtype", x) for x in sample.args]
        key = repr((kinds, sample.attributes))
        whole = name == "astype" and ef.dtypes.as_dtype(sample.attributes["dtype"]).kind in "iu"
        root = name == "power" and 0.5 in kinds[1:]  # NumPy takes a root, NaN of -infinity
        if key in seen or whole or root or dtype not in kinds:  # NaN is not an integer
            continue
        seen.add(key)
        sample = with_special_numbers(sample, dtype)
        if name == "fma":  # its product is not rounded: one that overflows differs from eager
            far = np.sqrt(ef.finfo(dtype).max)
            sample = sample._replace(
                args=[
                    np.where(np.isfinite(x), np.clip(x, -far, far), x).astype(dtype)
                    for x in sample.args
                ]
            )
        with about(op, sample):
            graph, tensors = traced(op, sample)
            check_against_eager(graph, [t.numpy() for t in tensors], way, rtol=tolerance(dtype))
    return seen


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", ["numpy", "llvm"])
@pytest.mark.parametrize("name", ALONE)
def test_every_rule_keeps_special_numbers(name, way, greedy):
    if way not in kernel.ways():
        pytest.skip("machine code needs llvmlite")
    dtypes = dtypes_of(ops[name], DTYPES)
    seen = [check_special_numbers(name, dtype, way) for dtype in dtypes]
    assert all(seen) or name == "astype"


def test_neighbours_of_float16_are_not_those_of_float32(greedy):
    x = ef.tensor([1.0, 0.0, np.inf], dtype="float16")
    f = lambda x: ef.nextafter(x, -1.0) * 1
    np.testing.assert_array_equal(ef.function(f)(x), f(x))


def with_columns(x, axis, keepdims):
    h = ef.tanh(x)
    return [h * x, *(op(h, axis=axis, keepdims=keepdims) for op in (ef.sum, ef.mean, ef.max))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [
    ((300, 200, 1), 0), ((300, 200, 1), (0, 2)), ((300, 1, 200), 0), ((16, 1, 50, 60), (0, 3)),
    ((1, 300, 200), 1), ((20_000, 1), 0), ((1, 20_000), 0), ((1, 1, 30_000), (0, 1)),
    ((300, 200, 1), None), ((0, 1), 1), ((4, 0, 1), (0, 2)), ((1, 1), 0), ((300, 200, 1), 2),
])  # fmt: skip
def test_columns_of_axes_of_size_1_and_0(shape, axis, keepdims, dtype):
    """In plans, whose arrays keep axes of size 1 that their regions lack."""
    x = ef.tensor(np.random.default_rng(0).standard_normal(shape), dtype=dtype)
    captured = ef.function(with_columns, static=("axis", "keepdims"))
    for _ in range(2):
        found, expected = captured(x, axis, keepdims), with_columns(x, axis, keepdims)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            check_close(one.numpy(), other.numpy(), tolerance(other.dtype), "the result")


@pytest.mark.parametrize("n", [-2, -1, 2, 3, 4])
def test_small_powers_of_far_numbers_are_the_same_by_each_way(n, greedy):
    """Also of numbers whose square, but not the result, is beyond what a dtype holds."""
    x = np.array([1e160, 1e-160, -1e-170, 3.0, np.inf, 0.0, -0.5, np.nan])
    graph = ef.capture.trace(lambda x: ef.tanh(x) + (x + 0.0) ** n, ef.TensorSpec((8,), "float64"))
    with np.errstate(all="ignore"):
        expected = np.tanh(x) + x**n
    for way in ("numpy", "llvm"):
        if way in kernel.ways():
            for program in (graph, graph.optimized()):
                (found,) = run_steps(program, fuse(program, 1), [x], way)
                np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("x", [0.0, -1.0])
@pytest.mark.parametrize("size", [3, 20_000])
def test_gradient_of_relu_where_it_is_0(x, size):
    g = ef.full((size,), np.inf)
    assert not np.any(ops["relu_gradient"].call(ef.full((size,), x), g).numpy())


def test_rows_of_any_scale_are_divided_by_their_largest():
    """By one reciprocal for a row, which would be infinite for the smallest numbers."""
    scales = np.array([2e-44, 1e-42, 1e-38, 1e-20, 1, 1e20, 3e38], "float32")[:, None]
    x = (np.random.default_rng(0).uniform(0.5, 1, (7, 1000)) * scales).astype("float32")
    f = ef.function(lambda x: x / ef.max(x, axis=1, keepdims=True), numerics="fast")
    wanted = x.astype("float64") / x.max(axis=1, keepdims=True)
    np.testing.assert_allclose(f(ef.tensor(x)).numpy(), wanted, rtol=4e-7)
