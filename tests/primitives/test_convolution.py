"""Convolutions, pooling and batch normalization in machine code: shapes, bits, infinities, CPUs."""

import os
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.ops.nn.convolution import of_conv, windows_for
from eagerflow.primitives import batch_normalization, compiled_convolution, convolution, pooling
from eagerflow.primitives.compiled_convolution import DIRECT, WINOGRAD
from eagerflow.primitives.llvm import staged_kernel
from eagerflow.primitives.llvm.max_pooling import MaxPoolConfig, MaxPoolWriter
from eagerflow.primitives.windows import window_of
from eagerflow.runtime import threads

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")

# Images, filters, padding: whole vectors and tails, odd sizes, bands of an image, many images.
WINOGRAD_CASES = (
    ((9, 8, 8, 32), 64, "same"),
    ((2, 7, 9, 20), 23, "same"),
    ((3, 6, 11, 16), 17, "valid"),
    ((1, 40, 42, 18), 33, "same"),
    ((2, 5, 6, 48), 16, ((3, 2), (0, 4))),
    ((5, 2, 2, 35), 144, "same"),
)
# Images, filters (*window, filters), strides, dilation, padding.
DIRECT_CASES = (
    ((5, 8, 8, 1), (3, 3, 32), 1, 1, "same"),
    ((2, 9, 7, 1), (5, 5, 40), 1, 1, "same"),
    ((2, 12, 13, 3), (7, 7, 19), 2, 1, "same"),
    ((2, 11, 12, 5), (3, 2, 24), (1, 3), 1, "valid"),
    ((2, 10, 14, 6), (3, 3, 16), 1, (1, 2), "same"),
    ((1, 70, 60, 8), (3, 3, 9), 1, 1, "same"),
    ((3, 4, 4, 33), (2, 4, 50), 1, 1, ((2, 1), (0, 5))),
    ((4, 37, 12), (5, 20), 1, 1, "same"),
    ((2, 50, 3), (4, 8), 3, 2, "valid"),
)


def arrays(x, w, windows, dtype="float32"):
    """Images, filters, and a weight for each result."""
    rng = np.random.default_rng(11)
    g = (x[0], *(a.out for a in windows), w[-1])
    return [rng.standard_normal(shape).astype(dtype) for shape in (x, w, g)]


def winograd_case(case):
    x, filters, padding = case
    w = (3, 3, x[-1], filters)
    windows = windows_for(of_conv, x, w, 1, padding, 1, 1)
    return (*arrays(x, w, windows), windows, {"padding": padding})


def direct_case(case, dtype="float32"):
    x, (*window, filters), strides, dilation, padding = case
    w = (*window, x[-1], filters)
    windows = windows_for(of_conv, x, w, strides, padding, dilation, 1)
    more = {"strides": strides, "dilation": dilation, "padding": padding}
    return (*arrays(x, w, windows, dtype), windows, more)


def expected(x, w, g, more):
    """The convolution and both gradients, by the kernels for any library, in float64."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    more = {"strides": 1, "padding": "same", "dilation": 1, "groups": 1} | more
    return (
        ef.conv.op.kernel(np, x, w, **more),
        ef.conv_input_gradient.op.kernel(np, g, w, size=x.shape[1:-1], **more),
        ef.conv_filter_gradient.op.kernel(np, x, g, size=w.shape[:-2], **more),
    )


def back(windows):
    """The windows of the convolution that leads back to the images."""
    return tuple(a.back for a in windows)


def finite(method, x, w, windows, turned):
    """A convolution of which nothing has to be computed again."""
    y, again = compiled_convolution.forward(method, x, w, windows, turned)
    assert not again
    return y


def winograd_results(x, w, g, windows):
    found = [
        finite(WINOGRAD, x, w, windows, False),
        finite(WINOGRAD, g, w, back(windows), True),
        compiled_convolution.filter_gradient(WINOGRAD, x, g, windows),
    ]
    assert found[2] is not None
    return found


def direct_results(x, w, g, windows):
    if all(a.stride == 1 for a in windows):
        of_x = finite(DIRECT, g, w, back(windows), True)
    elif all(a.dilation == 1 for a in windows):
        of_x = compiled_convolution.strided_input_gradient(g, w, windows)
    else:
        of_x = None
    return [
        finite(DIRECT, x, w, windows, False),
        of_x,
        compiled_convolution.filter_gradient(DIRECT, x, g, windows),
    ]


def check(found, wanted, steps):
    for result, reference in zip(found, wanted, strict=True):
        if result is None:
            continue
        assert result.shape == reference.shape
        error = np.abs(result - reference).max() / np.abs(reference).max()
        assert error < steps * np.finfo(result.dtype).eps


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", WINOGRAD_CASES, ids=str)
def test_winograd(case):
    *given, windows, more = winograd_case(case)
    check(winograd_results(*given, windows), expected(*given, more), 20)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", DIRECT_CASES, ids=str)
def test_direct_sums(case, dtype):
    *given, windows, more = direct_case(case, dtype)
    check(direct_results(*given, windows), expected(*given, more), 30)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("padding", ["same", "valid", ((1, 2), (6, 1))])
@pytest.mark.parametrize("stride", [2, (4, 1), (3, 7)])
@pytest.mark.parametrize("window", [(3, 3), (1, 2), (4, 5)])
def test_gradient_by_the_images_with_strides(window, stride, padding, monkeypatch):
    monkeypatch.setattr(generated, "pays", lambda *_: True)
    x, w, g, windows, more = direct_case(((2, 9, 12, 8), (*window, 5), stride, 1, padding))
    assert compiled_convolution.scatters(g, windows, 8)
    found = convolution.input_gradient(g, w, windows, 1)
    check([found], expected(x, w, g, more)[1:2], 30)


def test_arrays_in_any_order_in_memory():
    x, w, g, windows, more = winograd_case(WINOGRAD_CASES[0])
    turned = [np.asfortranarray(x), w.transpose(1, 0, 2, 3), g[:, ::-1]]
    check(winograd_results(*turned, windows), expected(*turned, more), 20)
    x, w, g, windows, more = direct_case(DIRECT_CASES[0])
    turned = [np.asfortranarray(x), w.transpose(1, 0, 2, 3), g[:, ::-1]]
    check(direct_results(*turned, windows), expected(*turned, more), 30)


def in_threads(work):
    """What ``work()`` gives with one, two and three threads."""
    found = []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            found.append(work())
    finally:
        threads.set_thread_count(None)
    return found


@pytest.fixture(name="shared")
def fixture_shared(monkeypatch):
    """Small arrays are shared among threads as large ones are."""
    for method in (WINOGRAD, DIRECT):
        monkeypatch.setattr(method, "min_shared_products", 0)
    for module in (batch_normalization, pooling):
        monkeypatch.setattr(module, "MIN_SHARED_ELEMENTS", 0)


def same_bits(results):
    return all(
        a.tobytes() == b.tobytes()
        for other in results[1:]
        for a, b in zip(results[0], other, strict=True)
        if a is not None
    )


@pytest.mark.usefixtures("shared")
def test_any_number_of_threads_gives_the_same_bits():
    for case, results in (
        (winograd_case(WINOGRAD_CASES[0]), winograd_results),
        (winograd_case(WINOGRAD_CASES[3]), winograd_results),
        (direct_case(DIRECT_CASES[0]), direct_results),
        (direct_case(DIRECT_CASES[5]), direct_results),
    ):
        given = case[:4]
        assert same_bits(in_threads(lambda given=given, results=results: results(*given)))
    x = np.random.default_rng(2).standard_normal((40, 31, 32)).astype(np.float32)
    line = np.linspace(1, 2, 32, dtype=np.float32)
    images = x.reshape(20, 31, 2, 32)
    windows = pool_windows(images.shape, (2, 2))
    assert same_bits(
        in_threads(
            lambda: [
                *batch_normalization.training(x, line, line, 2, 0.1),
                *batch_normalization.gradient(x, x * x, line, line, line, at=2, epsilon=0.1),
                pooling.max_pool(images, windows),
                pooling.max_pool_gradient(images, pooling.max_pool(images, windows), windows),
            ]
        )
    )


def test_infinities_stay_in_the_windows_that_see_them():
    x, w, g, windows, _ = winograd_case(WINOGRAD_CASES[3])
    x[0, 4, 4, 5], x[0, 39, 41, 0] = np.inf, np.nan
    found = convolution.compiled(WINOGRAD, x, w, windows, turned=False)
    bad = ~np.isfinite(found).all(axis=-1)
    seen = np.zeros_like(bad)
    seen[0, 3:6, 3:6] = seen[0, 38:, 40:] = True
    assert (bad == seen).all()
    assert compiled_convolution.filter_gradient(WINOGRAD, x, g, windows) is None
    found = convolution.filter_gradient(x, g, windows, 1)
    assert not np.isfinite(found[:, :, 5]).any()
    assert np.isfinite(found[:, :, 1:5]).all()


def test_a_sum_that_overflows_in_a_tile_only_is_computed_directly():
    x, w, _, windows, _ = winograd_case(WINOGRAD_CASES[0])
    x, w = np.full_like(x, 2e38), np.zeros_like(w)
    w[1, 1] = 1 / 1024
    found = convolution.compiled(WINOGRAD, x, w, windows, turned=False)
    np.testing.assert_allclose(found, np.float32(2e38 / 32), rtol=1e-6)


# Pooling ------------------------------------------------------------------------------------------


def pool_windows(shape, window):
    return tuple(
        window_of(size, kernel, kernel, 1, "valid")
        for size, kernel in zip(shape[1:-1], window, strict=True)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("window", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("shape", [(3, 8, 8, 32), (2, 9, 11, 5), (4, 6, 4, 19)])
def test_pooling(shape, window, dtype, monkeypatch):
    monkeypatch.setattr(generated, "MIN_COMPILED_ELEMENTS", 1)
    monkeypatch.setattr(generated, "pays", lambda *_: True)
    rng = np.random.default_rng(8)
    x = rng.integers(-3, 3, shape).astype(dtype)  # with many ties
    windows = pool_windows(shape, window)
    assert pooling.takes(x, windows)
    y = pooling.max_pool(x, windows)
    assert (y == pooling.portable_max_pool(np, x, windows)).all()
    g = rng.standard_normal(y.shape).astype(dtype)
    found = pooling.max_pool_gradient(x, g, windows)
    assert (found == pooling.portable_max_pool_gradient(np, x, g, windows)).all()


def test_pooling_of_infinities_and_nan(monkeypatch):
    monkeypatch.setattr(generated, "pays", lambda *_: True)
    x = np.random.default_rng(9).standard_normal((2, 4, 4, 16)).astype(np.float32)
    for i, (value, at) in enumerate(
        [(np.nan, (0, 0)), (np.nan, (1, 1)), (-np.inf, (0, 1)), (np.inf, (1, 0))]
    ):
        x[0, *at, i] = value
    x[1, :2, :2, 3] = -np.inf
    windows = pool_windows(x.shape, (2, 2))
    y = pooling.max_pool(x, windows)
    np.testing.assert_array_equal(y, pooling.portable_max_pool(np, x, windows))
    g = np.ones_like(y)
    found = pooling.max_pool_gradient(x, g, windows)
    np.testing.assert_array_equal(found, pooling.portable_max_pool_gradient(np, x, g, windows))
    assert found.reshape(2, 2, 2, 2, 2, 16).sum((2, 4)).tolist() == g.tolist()


# Batch normalization ------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [32, 24, 8])
def test_statistics_of_numbers_far_from_zero(channels):
    """One long array, whose first rows tell little about the others."""
    x = np.random.default_rng(4).standard_normal((9000, channels)).astype(np.float32)
    x[4000:] += 3e4
    y, mean, variance = batch_normalization.training(x, None, None, 1, 0.0)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, exact.var(0), rtol=1e-5)
    np.testing.assert_allclose(y, (exact - exact.mean(0)) / exact.std(0), atol=2e-5)


# Objects on disk ----------------------------------------------------------------------------------


def test_objects_of_other_writers_are_not_used(monkeypatch, tmp_path):
    """The key of an object changes with the code of the primitives' writers."""
    launch, keys = staged_kernel.machine().launch, []
    compiled = launch.compiled
    monkeypatch.setattr(
        launch, "compiled", lambda own, *more: keys.append(own) or compiled(own, *more)
    )
    config = MaxPoolConfig("float32", 4, 4, 16, 2, 2, 2, 2, gradient=False)
    staged_kernel.StagedKernel(MaxPoolWriter, config, 4)
    assert launch.source_digest(os.path.dirname(staged_kernel.__file__)) in keys[0]
    digests = []
    for text in ("1", "2"):
        (tmp_path / "writer.py").write_text(text)
        digests.append(launch.source_digest.__wrapped__(str(tmp_path)))
    assert digests[0] != digests[1]


# Other processors ---------------------------------------------------------------------------------

CHECKS = """
from tests.primitives import test_convolution as own
for case in own.WINOGRAD_CASES[:3]:
    own.test_winograd(case)
for case in own.DIRECT_CASES[1:5] + own.DIRECT_CASES[7:]:
    own.test_direct_sums(case, "float32")
own.test_direct_sums(own.DIRECT_CASES[2], "float64")
own.test_statistics_of_numbers_far_from_zero(24)
print(*own.compiled_convolution.processor("float32"))
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("features", "shape"), [("-avx512*", "8 16"), ("-avx* -fma", "4 16")], ids=["avx2", "sse"]
)
def test_code_for_processors_with_shorter_vectors(features, shape):
    environment = os.environ | {"EAGERFLOW_LLVM_FEATURES": features, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if os.uname().machine == "x86_64":
        assert done.stdout.split() == shape.split()
