"""Fourier transforms: identities at many lengths, float32, NumPy's functions, captured sizes."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError

LENGTHS = [1, 2, 3, 8, 30, 64, 97, 143, 510, 1021]  # small, composite and prime


def signal(*shape, dtype="complex128"):
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (x if "complex" in dtype else x.real).astype(dtype)


@pytest.mark.parametrize("length", LENGTHS)
def test_back_and_forth_at_any_length(length):
    x = signal(2, length)
    for norm in ("backward", "ortho", "forward"):
        y = ef.fft.fft(x, norm=norm)
        np.testing.assert_allclose(ef.fft.ifft(y, norm=norm), x, atol=1e-12)
        half = ef.fft.rfft(x.real, norm=norm)
        assert half.shape == (2, length // 2 + 1)
        np.testing.assert_allclose(ef.fft.irfft(half, n=length, norm=norm), x.real, atol=1e-12)
        real = ef.fft.hfft(half, n=length, norm=norm)
        np.testing.assert_allclose(ef.fft.ihfft(real, norm=norm), half, atol=1e-12)
    energy = (np.abs(x) ** 2).sum()
    assert float((ef.abs(ef.fft.fft(x, norm="ortho")) ** 2).sum()) == pytest.approx(energy)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_error_in_float32_is_small(length):
    x = signal(4, length)
    for f, given in ((ef.fft.fft, x), (ef.fft.rfft, x.real)):
        exact = f(given).numpy()
        found = f(given.astype("complex64" if given.dtype.kind == "c" else "float32"))
        assert found.dtype == ef.complex64
        assert np.abs(found.numpy() - exact).max() <= 1e-6 * np.abs(exact).max()


def test_numpys_order_of_arguments():
    x = signal(3, 8)
    found = np.fft.fftn(ef.tensor(x), (4, 4), (1, 0), "ortho")
    np.testing.assert_allclose(found, np.fft.fftn(x, (4, 4), (1, 0), "ortho"), atol=1e-12)
    np.testing.assert_allclose(ef.fft.fft(x, 5, 0, "forward"), np.fft.fft(x, 5, 0, "forward"))


@pytest.mark.parametrize("n", [1, 2, 7, 8])
@pytest.mark.parametrize("d", [1.0, 0.25, 3])
def test_frequencies(n, d):
    for name in ("fftfreq", "rfftfreq"):
        found = getattr(ef.fft, name)(n, d=d, dtype="float64")
        np.testing.assert_allclose(found, getattr(np.fft, name)(n, d), rtol=1e-15)
        assert getattr(ef.fft, name)(n).dtype == ef.float32
    x = np.exp(2j * np.pi * np.arange(8) * 3 / 8)
    assert float(ef.fft.fftfreq(8)[int(ef.argmax(ef.abs(ef.fft.fft(x))))]) == 0.375


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.fft.fftfreq(0), ShapeError, "fftfreq: n: 0 is not a length"),
    (lambda: ef.fft.fftfreq(2.5), ShapeError, "fftfreq: n: "),
    (lambda: ef.fft.rfftfreq(4, d=0), ArgumentError, "rfftfreq: d: 0 is not a spacing"),
    (lambda: ef.fft.fftfreq(4, dtype="int32"), DTypeError, "fftfreq: dtype: .* no int32s"),
    (lambda: ef.fft.fftn(ef.ones((2, 2)), norm="L2"), ArgumentError, "fftn: norm: 'L2'"),
    (lambda: ef.fft.rfftn(ef.ones((2, 2)), axes=()), ShapeError, "rfftn: axes: no axis"),
    (lambda: ef.fft.rfft2(ef.ones((2,))), ShapeError, "rfft2: axes: axis -2 does not exist"),
])  # fmt: skip
def test_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_free_sizes():
    spec = ef.TensorSpec(("n", "m"), "float64")

    def f(x):
        return ef.fft.irfft(ef.fft.rfft(x), n=x.shape[-1]) + ef.real(ef.fft.ifft(ef.fft.fft(x)))

    graph = ef.capture.trace(f, spec)
    gradient = ef.capture.trace(ef.grad(lambda x: (ef.abs(ef.fft.rfft(x)) ** 2).sum()), spec)
    for shape in ((2, 6), (3, 7)):
        x = signal(*shape, dtype="float64")
        np.testing.assert_allclose(graph(x), 2 * x, atol=1e-12)
        wanted = ef.grad(lambda x: (ef.abs(ef.fft.rfft(x)) ** 2).sum())(ef.tensor(x))
        np.testing.assert_allclose(gradient(x), wanted, atol=1e-12)
    with pytest.raises(CaptureError, match="half of a size that is not known"):
        ef.capture.trace(ef.fft.fftshift, spec)


def test_circular_convolution_and_its_gradient():
    x, w = signal(7, dtype="float64"), signal(7, dtype="float64") * 2

    def convolved(x, w):
        return ef.fft.irfft(ef.fft.rfft(x) * ef.fft.rfft(w), n=7)

    circulant = np.array([[w[(i - k) % 7] for k in range(7)] for i in range(7)])
    np.testing.assert_allclose(convolved(x, w), circulant @ x, atol=1e-12)
    jacobian = ef.jacobian(lambda x: convolved(x, ef.tensor(w)))(ef.tensor(x))
    np.testing.assert_allclose(jacobian, circulant, atol=1e-12)
