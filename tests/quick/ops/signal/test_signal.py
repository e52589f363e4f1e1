"""Windows and short-time spectra, against SciPy, and in the form that Keras has."""

import numpy as np
import pytest
import scipy.signal

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError, ShapeError

NAMES = ["bartlett", "blackman", "hamming", "hann"]


def noise(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("sym", [True, False])
def test_windows(name, size, sym):
    found = getattr(ef.signal, name)(size, sym=sym, dtype="float64")
    wanted = getattr(scipy.signal.windows, name)(size, sym=sym)
    np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize("beta", [0, 3.5, 14.0])
@pytest.mark.parametrize("sym", [True, False])
def test_kaisers_window(beta, sym):
    found = ef.signal.kaiser(9, beta, sym=sym, dtype="float64")
    np.testing.assert_allclose(found, scipy.signal.windows.kaiser(9, beta, sym=sym), rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ef.signal.hann(-1), ShapeError, "hann: size: size -1 is negative"),
        (lambda: ef.signal.hann(2.5), ShapeError, "hann: size"),
        (lambda: ef.signal.hamming(4, dtype="int8"), DTypeError, "hamming: dtype: .* no int8s"),
        (lambda: ef.signal.kaiser(4, float("nan")), ArgumentError, "kaiser: beta: nan"),
    ],
)
def test_windows_that_are_none(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(("n_fft", "hop", "width"), [(16, 4, 16), (15, 5, 11), (32, 10, 20)])
def test_stft_is_scipys(n_fft, hop, width):
    x = noise(2, 90)
    window = np.zeros(n_fft)
    before = (n_fft - width) // 2
    window[before : before + width] = scipy.signal.get_window("hamming", width)
    found = ef.signal.stft(x, n_fft, hop, width, "hamming", center=False)
    theirs = scipy.signal.ShortTimeFFT(window, hop, fs=1.0, phase_shift=None)
    first = -(-(n_fft // 2) // hop)  # theirs start before the signal does
    pieces = [x[:, i * hop : i * hop + n_fft] * window for i in range(found.shape[-1])]
    np.testing.assert_allclose(found, np.stack(np.fft.rfft(pieces), -1), atol=1e-12)
    if (first * hop) == n_fft // 2:
        wanted = theirs.stft(x, p0=first, p1=first + found.shape[-1])
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("window", [None, "hann", np.linspace(0.5, 1, 12)])
@pytest.mark.parametrize("onesided", [True, False])
def test_there_and_back(window, onesided):
    x = noise(2, 3, 50)
    options = {"n_fft": 12, "hop_length": 3, "window": window, "onesided": onesided}
    y = ef.signal.stft(x, **options)
    assert y.shape == (2, 3, 7 if onesided else 12, 50 // 3 + 1)
    back = ef.signal.istft(y, **options, length=50)
    np.testing.assert_allclose(ef.real(back)[..., :48], x[..., :48], atol=1e-12)


def in_the_form_of_keras(x, length, stride, fft_length, window="hann", center=True):
    """``keras.ops.stft``: real and imaginary parts of (..., pieces, frequencies)."""
    width = fft_length if window is None else length
    y = ef.signal.stft(x, fft_length, stride, width, window, center).mT
    return ef.real(y), ef.imag(y)


@pytest.mark.parametrize("window", ["hann", "hamming", None])
@pytest.mark.parametrize("center", [True, False])
def test_the_form_of_keras(window, center):
    x, length, stride, fft_length = noise(40), 10, 4, 16
    padded = np.pad(x, 8, "reflect") if center else x
    taper = np.ones(16) if window is None else np.zeros(16)
    if window is not None:
        taper[3:13] = scipy.signal.get_window(window, length)
    starts = range(0, padded.size - 15, stride)
    wanted = np.fft.rfft([padded[i : i + 16] * taper for i in starts])
    found = in_the_form_of_keras(x, length, stride, fft_length, window, center)
    np.testing.assert_allclose(found[0], wanted.real, atol=1e-12)
    np.testing.assert_allclose(found[1], wanted.imag, atol=1e-12)


def test_a_window_that_learns():
    x, w = ef.tensor(noise(30)), ef.tensor(np.linspace(0.5, 1, 8))

    def energy(w):
        return (ef.abs(ef.signal.stft(x, 8, 4, window=w)) ** 2).sum()

    ef.testing.check_gradients(energy, (w,))
