"""``keras.ops.math`` on eagerflow: segments, transforms of signals, and special functions."""

import math

import numpy as np

import eagerflow as ef
from eagerflow.keras.backend.operands import axes_of, floating, promoted, unary
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "cdist",
    "erf",
    "erfc",
    "erfinv",
    "extract_sequences",
    "fft",
    "fft2",
    "ifft2",
    "in_top_k",
    "irfft",
    "istft",
    "logdet",
    "logsumexp",
    "rfft",
    "rsqrt",
    "segment_max",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "stft",
    "top_k",
]

rsqrt = unary("rsqrt", "floats")
erf = unary("erf", "floats")
erfc = unary("erfc", "floats")
erfinv = unary("erfinv", "floats")

# Segments -----------------------------------------------------------------------------------------


def segment_sum(data, segment_ids, num_segments=None, sorted=False):
    return _segments(ef.segment_sum, data, segment_ids, num_segments)


def segment_max(data, segment_ids, num_segments=None, sorted=False):
    return _segments(ef.segment_max, data, segment_ids, num_segments)


def segment_min(data, segment_ids, num_segments=None, sorted=False):
    return _segments(ef.segment_min, data, segment_ids, num_segments)


def segment_prod(data, segment_ids, num_segments=None, sorted=False):
    return _segments(ef.segment_prod, data, segment_ids, num_segments)


def _segments(reduced, data, segment_ids, num_segments):
    ids = cast(segment_ids, "int64")
    count = 1 + int(ef.max(ids)) if num_segments is None else num_segments
    known = ef.logical_and(ef.greater_equal(ids, 0), ef.less(ids, count))
    return reduced(convert_to_tensor(data), ef.where(known, ids, count), count + 1)[:count]


# Orders and distances -----------------------------------------------------------------------------


def top_k(x, k, sorted=True):
    values, places = ef.top_k(convert_to_tensor(x), k)
    return values, cast(places, "int32")


def in_top_k(targets, predictions, k):
    predictions = convert_to_tensor(predictions)
    own = ef.expand_dims(cast(targets, "int64"), axis=-1)
    own = ef.take_along_axis(predictions, own, axis=-1)
    own = ef.where(ef.isnan(own), -math.inf, own)
    better = ef.sum(ef.astype(ef.greater(predictions, own), "int32"), axis=-1)
    return ef.less(better, k)


def logsumexp(x, axis=None, keepdims=False):
    return ef.logsumexp(floating(x), axis=axes_of(axis), keepdims=keepdims)


def cdist(x, y):
    x, y = promoted(convert_to_tensor(x), convert_to_tensor(y), also=(float,))
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError("`cdist` inputs must have rank >= 2")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("Last dimension of inputs to `cdist` must match")
    difference = ef.subtract(ef.expand_dims(x, axis=-2), ef.expand_dims(y, axis=-3))
    return ef.sqrt(ef.sum(ef.square(difference), axis=-1))


def logdet(x):
    return ef.linalg.slogdet(floating(x))[1]


# Signals ------------------------------------------------------------------------------------------


def extract_sequences(x, sequence_length, sequence_stride):
    x = convert_to_tensor(x)
    count = (x.shape[-1] - sequence_length) // sequence_stride + 1
    first = ef.expand_dims(ef.arange(count) * sequence_stride, axis=1)
    return ef.take(x, ef.add(first, ef.arange(sequence_length)), axis=-1)


def _get_complex_tensor_from_tuple(x):
    """The complex tensor of a real and an imaginary part; also called by Keras's own code."""
    if not isinstance(x, tuple | list) or len(x) != 2:
        raise ValueError(
            f"Input `x` should be a tuple of two tensors - real and imaginary.Received: x={x}"
        )
    real, imag = convert_to_tensor(x[0]), convert_to_tensor(x[1])
    if real.shape != imag.shape:
        raise ValueError(
            "Input `x` should be a tuple of two tensors - real and imaginary."
            "Both the real and imaginary parts should have the same shape. "
            f"Received: x[0].shape = {real.shape}, x[1].shape = {imag.shape}"
        )
    if not all("float" in part.dtype.name for part in (real, imag)):
        raise ValueError(f"At least one tensor in input `x` is not of type float.Received: x={x}.")
    return ef.complex(real, imag)


def _parts(x):
    return ef.real(x), ef.imag(x)


def fft(x):
    return _parts(ef.fft.fft(_get_complex_tensor_from_tuple(x)))


def fft2(x):
    return _parts(ef.fft.fftn(_get_complex_tensor_from_tuple(x), axes=(-2, -1)))


def ifft2(x):
    return _parts(ef.fft.ifftn(_get_complex_tensor_from_tuple(x), axes=(-2, -1)))


def rfft(x, fft_length=None):
    return _parts(ef.fft.rfft(floating(x), n=fft_length))


def irfft(x, fft_length=None):
    return ef.fft.irfft(_get_complex_tensor_from_tuple(x), n=fft_length)


def stft(x, sequence_length, sequence_stride, fft_length, window="hann", center=True):
    x = convert_to_tensor(x)
    if x.dtype.name not in {"float32", "float64"}:
        raise TypeError(
            f"Invalid input type. Expected `float32` or `float64`. Received: input type={x.dtype}"
        )
    if fft_length < sequence_length:
        raise ValueError(
            "`fft_length` must equal or larger than `sequence_length`. "
            f"Received: sequence_length={sequence_length}, fft_length={fft_length}"
        )
    weights = _window(window, sequence_length, fft_length, x.dtype)
    if center:  # padded by reflection at both ends
        half = fft_length // 2
        before = ef.flip(x[..., 1 : half + 1], axis=-1)
        x = ef.concat([before, x, ef.flip(x[..., -half - 1 : -1], axis=-1)], axis=-1)
    rows = extract_sequences(x, fft_length, sequence_stride)
    return _parts(ef.fft.rfft(ef.multiply(rows, weights)))


def _window(window, length, fft_length, dtype):
    """The weights of one transform: a window, centered and padded with zeros."""
    if window is None:
        return ef.ones((fft_length,), dtype=dtype)
    if isinstance(window, str):
        if window not in {"hann", "hamming"}:
            raise ValueError(
                "If a string is passed to `window`, it must be one of "
                f'`"hann"`, `"hamming"`. Received: window={window}'
            )
        low = 0.5 if window == "hann" else 0.54
        turn = 2 * np.pi * np.arange(length) / length
        window = low - (1 - low) * np.cos(turn)
    window = convert_to_tensor(window, dtype)
    if window.shape != (length,):
        raise ValueError(
            "The shape of `window` must be equal to [sequence_length]."
            f"Received: window shape={window.shape}"
        )
    left = (fft_length - length) // 2
    return ef.pad(window, [(left, fft_length - length - left)])


def istft(
    x,
    sequence_length,
    sequence_stride,
    fft_length,
    length=None,
    window="hann",
    center=True,
):
    x = _get_complex_tensor_from_tuple(x)
    if x.ndim < 2:
        raise ValueError(f"Input `x` must have at least 2 dimensions. Received shape: {x.shape}")
    dtype = ef.real(x).dtype
    weights = _window(window, sequence_length, fft_length, dtype)
    rows = ef.fft.irfft(x, n=fft_length)
    if window is not None:
        rows = ef.multiply(rows, ef.divide(weights, _cover(weights, sequence_stride)))
    total = fft_length + sequence_stride * (x.shape[-2] - 1)
    found = _overlapped(rows, sequence_stride, total)
    start = fft_length // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = total - fft_length // 2 if center else total
    return found[..., start:end]


def _cover(weights, stride):
    """The sum of the squares of all overlapping windows at each position, away from the ends."""
    length = weights.shape[0]
    count = -(-length // stride)
    squares = ef.pad(ef.square(weights), [(0, count * stride - length)])
    sums = ef.sum(ef.reshape(squares, (count, stride)), axis=0)
    return ef.tile(sums, count)[:length]


def _overlapped(rows, stride, total):
    """The sum of overlapping rows, each beginning ``stride`` elements after the previous one."""
    count, width = rows.shape[-2:]
    places = ef.add(ef.expand_dims(ef.arange(count) * stride, axis=1), ef.arange(width))
    front = rows.shape[:-2]
    flat = ef.moveaxis(ef.reshape(rows, (*front, count * width)), -1, 0)
    found = ef.segment_sum(flat, ef.reshape(places, (-1,)), total)
    return ef.moveaxis(found, 0, -1)
