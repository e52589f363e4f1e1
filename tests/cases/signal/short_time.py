"""Cases of eagerflow/ops/signal/short_time.py."""

import numpy as np

from eagerflow.dtypes import real_dtype
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.ops.signal.short_time import LEAST, frame_of, window_weights
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    taper = make(rng, real_dtype(dtype), (8,), 0.5, 1)
    return [
        Sample((make(rng, dtype, shape),), attributes)
        for shape, attributes in (
            ((16,), {"n_fft": 8}),
            ((20,), {"n_fft": 8, "hop_length": 3, "window": "hann", "center": False}),
            ((2, 12), {"n_fft": 6, "hop_length": 2, "win_length": 4, "window": "hamming"}),
            ((13,), {"n_fft": 5, "hop_length": 4, "normalized": True, "onesided": False}),
            ((2, 2, 9), {"n_fft": 4, "pad_mode": "constant", "win_length": 3}),
            ((16,), {"n_fft": 8, "hop_length": 8, "window": taper, "center": False}),
            ((0, 8), {"n_fft": 4}),
        )
    ]


def _errors(rng):
    x = rng.standard_normal(12)
    return [
        ErrorSample((x, 0), {}, ShapeError, "0 is not a length"),
        ErrorSample((x, 4, 0), {}, ShapeError, "0 is not a length"),
        ErrorSample((x, 4, 2, 5), {}, ShapeError, "a window of 5 in 4 elements"),
        ErrorSample((x, 4), {"window": "sharp"}, ArgumentError, "there is no window 'sharp'"),
        ErrorSample((x, 4), {"window": np.ones(3)}, ShapeError, "a window of shape"),
        ErrorSample((x, 16), {"center": False}, ShapeError, "16 elements of a signal of 12"),
        ErrorSample((x[0], 4), {}, ShapeError, "no axis"),
        ErrorSample((x * 1j, 4), {"onesided": True}, DTypeError, "complex"),
    ]


def _reference(
    x,
    n_fft,
    hop_length,
    win_length,
    window,
    center,
    pad_mode,
    normalized,
    onesided,
):
    """Piece by piece, by NumPy."""
    length, hop, width = frame_of(n_fft, hop_length, win_length)
    x = x.astype("complex128" if x.dtype.kind == "c" else "float64")
    weights = window_weights(window, width, length, np.dtype("float64"))
    taper = 1 if weights is None else weights.numpy()
    if center:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(length // 2, length // 2)], pad_mode)
    starts = range(0, x.shape[-1] - length + 1, hop)
    norm = "ortho" if normalized else "backward"
    half = onesided is not False and x.dtype.kind == "f"
    transform = np.fft.rfft if half else np.fft.fft
    return np.stack([transform(x[..., i : i + length] * taper, norm=norm) for i in starts], -1)


def _back_samples(rng, dtype):
    taper = make(rng, real_dtype(dtype), (6,), 0.5, 1)
    return [
        Sample((make(rng, dtype, shape),), attributes)
        for shape, attributes in (
            ((5, 4), {"n_fft": 8}),
            ((5, 3), {"n_fft": 8, "hop_length": 3, "window": "hamming", "center": False}),
            ((2, 4, 5), {"n_fft": 6, "hop_length": 2, "window": taper, "length": 7}),
            ((5, 4), {"n_fft": 5, "hop_length": 2, "normalized": True, "onesided": False}),
            ((3, 2), {"n_fft": 4, "hop_length": 6, "center": False, "length": 12}),
            ((4, 2), {"n_fft": 6, "hop_length": 2, "win_length": 4, "window": "hamming"}),
            ((0, 3, 3), {"n_fft": 4}),
        )
    ]


def _back_errors(rng):
    x = rng.standard_normal((3, 4))
    return [
        ErrorSample((x, 0), {}, ShapeError, "0 is not a length"),
        ErrorSample((x, 4), {"length": -1}, ShapeError, "-1 is not a length"),
        ErrorSample((x, 8), {}, ShapeError, "3 frequencies"),
        ErrorSample((x[0], 4), {}, ShapeError, "two axes"),
        ErrorSample((x[:, :0], 4), {}, ShapeError, "no pieces"),
        ErrorSample((x, 4), {"window": "sharp"}, ArgumentError, "there is no window 'sharp'"),
    ]


def _back_reference(
    x,
    n_fft,
    hop_length,
    win_length,
    window,
    center,
    normalized,
    onesided,
    length,
):
    """Piece by piece, by NumPy."""
    size, hop, width = frame_of(n_fft, hop_length, win_length)
    weights = window_weights(window, width, size, np.dtype("float64"))
    taper = np.ones(size) if weights is None else weights.numpy()
    norm = "ortho" if normalized else "backward"
    transform = np.fft.ifft if onesided is False else np.fft.irfft
    count = x.shape[-1]
    sums = np.zeros((2, *x.shape[:-2], (count - 1) * hop + size), "complex128")
    for i in range(count):
        sums[0, ..., i * hop : i * hop + size] += transform(x[..., i], size, norm=norm) * taper
        sums[1, ..., i * hop : i * hop + size] += taper**2
    found = sums[0] / np.where(np.abs(sums[1]) > LEAST, sums[1], 1)
    cut = size // 2 if center else 0
    found = found[..., cut : found.shape[-1] - cut if length is None else cut + length]
    if length is not None:
        found = np.pad(found, [(0, 0)] * (x.ndim - 2) + [(0, length - found.shape[-1])])
    return found if onesided is False else found.real


CASES = {
    "stft": Cases(samples=_samples, errors=_errors, reference=_reference),
    "istft": Cases(samples=_back_samples, errors=_back_errors, reference=_back_reference),
}
