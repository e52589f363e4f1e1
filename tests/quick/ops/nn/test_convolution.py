"""Convolution and pooling beyond the contract tests: large kernels' paths, bits, infinities."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.runtime import threads

# x, w, attributes: Winograd, columns, planes, strides, depthwise, groups, 1 by 1, signals.
CASES = (
    ((20, 8, 8, 32), (3, 3, 32, 16), {}),
    ((2, 13, 11, 16), (3, 3, 16, 20), {"padding": "valid"}),
    ((4, 28, 28, 1), (5, 5, 1, 32), {}),
    ((4, 16, 16, 3), (3, 3, 3, 24), {"dilation": 2}),
    ((4, 15, 16, 24), (3, 3, 24, 32), {"strides": 2}),
    ((4, 24, 24, 32), (3, 3, 1, 32), {"groups": 32}),
    ((2, 12, 12, 24), (3, 3, 8, 24), {"groups": 3}),
    ((8, 14, 14, 64), (1, 1, 64, 32), {}),
    ((16, 100, 16), (5, 16, 32), {}),
)


@pytest.fixture(autouse=True, params=[True, False], ids=["generated", "numpy"])
def _way(request, monkeypatch):
    if request.param and not generated.enabled():
        pytest.skip("needs llvmlite")
    monkeypatch.setattr(generated, "enabled", lambda: request.param)


def arrays(case, dtype):
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in case[:2])
    return x, w, case[2]


def all_three(case, dtype="float32"):
    """The convolution, and both gradients of a sum of its elements, as NumPy arrays."""
    x, w, more = arrays(case, dtype)
    y = ef.conv(x, w, **more)
    g = (y * 0.5).numpy()
    dx = ef.conv_input_gradient(g, w, size=x.shape[1:-1], **more)
    dw = ef.conv_filter_gradient(x, g, size=w.shape[:-2], **more)
    return [y.numpy(), dx.numpy(), dw.numpy()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_numpy_kernels_against_the_portable_ones(case):
    x, w, more = arrays(case, "float64")
    more = {"strides": 1, "padding": "same", "dilation": 1, "groups": 1} | more
    y = ef.conv.op.kernel(np, x, w, **more)
    g = y * 0.5
    dx = ef.conv_input_gradient.op.kernel(np, g, w, size=x.shape[1:-1], **more)
    dw = ef.conv_filter_gradient.op.kernel(np, x, g, size=w.shape[:-2], **more)
    for dtype, bound in (("float64", 1e-13), ("float32", 4e-6)):
        for found, expected in zip(all_three(case, dtype), (y, dx, dw), strict=True):
            error = np.abs(found - expected).max() / np.abs(expected).max()
            print(f"{dtype} {error:.1e}")
            assert error < bound


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_threads_gives_the_same_bits(case):
    results = []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            results.append(all_three(case))
    finally:
        threads.set_thread_count(None)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def test_infinities_stay_in_the_windows_that_see_them():
    x, w, _ = arrays(CASES[0], "float32")
    x[3, 4, 4, 5], x[10, 0, 0, 0] = np.inf, np.nan
    bad = ~np.isfinite(ef.conv(x, w).numpy()).all(axis=-1)
    expected = np.zeros_like(bad)
    expected[3, 3:6, 3:6] = expected[10, :2, :2] = True
    assert (bad == expected).all()


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_transposed_convolution_is_the_transpose(stride, kernel, padding):
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 5, 3)), rng.standard_normal((kernel, 2, 3))
    y = ef.conv_transpose(x, w, stride, padding)
    longer = stride if padding == "same" else max(kernel, stride)
    assert y.shape == (2, 4 * stride + longer, 2)
    z = rng.standard_normal(y.shape)
    back = ef.conv(z, w, stride, padding)
    assert back.shape == x.shape
    assert float((y * z).sum()) == pytest.approx(float((back * x).sum()))


@pytest.mark.parametrize("window", [2, 3])
def test_pooling_gradients_in_blocks(window):
    x = np.random.default_rng(5).standard_normal((40, 16, 16, 32)).astype(np.float32)
    tensor = ef.tensor(x)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(tensor)
        largest = ef.max_pool(tensor, window, 2, "same")
        mean = ef.avg_pool(tensor, window, 2, "same")
    for name, y in (("max_pool_gradient", largest), ("avg_pool_gradient", mean)):
        dx = tape.gradient(y, tensor, y)
        # <dx, x> = <g, y> as both ops are homogeneous of degree one.
        assert float((dx * tensor).sum()) == pytest.approx(float((y * y).sum()), rel=1e-4), name


def test_of_equal_elements_the_first_gets_the_gradient():
    g = ef.max_pool_gradient(ef.ones((1, 2, 2, 1)), ef.ones((1, 1, 1, 1)), 2)
    assert g.numpy().ravel().tolist() == [1, 0, 0, 0]
