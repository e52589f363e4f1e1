"""Fourier transforms as products with matrices of roots of unity; windows; mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dtypes import NARROW
from eagerflow.onnx.reading.calls import Call, known, known_number, operator
from eagerflow.onnx.reading.element_types import dtype_of
from eagerflow.onnx.reading.operators.limits import check_elements

# Transforms --------------------------------------------------------------------------------------
#
# Complex numbers are pairs (..., 2) of real ones, which every graph and file supports. A length p *
# m is transformed as m times p elements and then p times m (Cooley and Tukey, 1965); lengths
# without small factors are one product with the matrix of all roots.

_SMALL = 8
"""Factors are merged up to this product."""
_LARGEST = 4096
"""A larger prime factor would need a matrix that is too large."""


def _factor(length: int) -> int:
    """The product of the smallest prime factors, or the length itself if it is small or prime."""
    product, rest, prime = 1, length, 2
    while rest > 1 and length > _SMALL:
        while rest % prime and prime * prime <= rest:
            prime += 1
        prime = prime if rest % prime == 0 else rest
        if product > 1 and product * prime > _SMALL:
            return product
        product, rest = product * prime, rest // prime
    return length


def _roots(rows: int, columns: int, length: int, sign: int) -> Any:
    """exp(sign * 2 pi i * row * column / length), exact at quarters of a turn."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    roots = np.exp(sign * 2j * np.pi / length * turns)
    return np.where(turns * 4 % length == 0, np.round(roots), roots)


def _matrix(length: int, parts: int, sign: int) -> Any:
    """The transform of (length, parts) numbers into (length, 2), as one real matrix."""
    roots = _roots(length, length, length, sign)
    made = np.stack([roots, 1j * roots], axis=1)[:, :parts]
    return np.stack([made.real, made.imag], axis=-1)


def _fourier(x: Any, length: int, sign: int) -> Any:
    """The transform of x (..., length, 1 or 2) as (..., length, 2), unscaled."""
    count = _factor(length)
    matrix = as_tensor(_matrix(count, x.shape[-1], sign), dtype=x.dtype)
    if count == length:
        return ops.tensordot(x, matrix, axes=2)
    lead, rest = tuple(x.shape[:-2]), length // count
    x = ops.reshape(x, (*lead, count, rest, x.shape[-1]))
    y = ops.tensordot(x, matrix, axes=((x.ndim - 3, x.ndim - 1), (0, 1)))
    turns = _roots(rest, count, length, sign)
    c, s = (as_tensor(t, dtype=x.dtype) for t in (turns.real, turns.imag))
    real, imaginary = y[..., 0], y[..., 1]
    y = ops.stack([real * c - imaginary * s, real * s + imaginary * c], axis=-1)
    y = _fourier(ops.swapaxes(y, -3, -2), rest, sign)
    return ops.reshape(ops.swapaxes(y, -3, -2), (*lead, length, 2))


def _of_real(x: Any, length: int, sign: int, half: bool) -> Any:
    """The transform of real numbers (..., length, 1), or its first half.

    An even number of them is viewed as half as many complex numbers z. The transforms of the even
    and the odd elements are (z[k] + z*[-k]) / 2 and (z[k] - z*[-k]) / 2i; so values that are
    mathematically real are exactly real.
    """
    if length % 2:
        y = _fourier(x, length, sign)
        return y[..., : length // 2 + 1, :] if half else y
    middle = length // 2
    z = _fourier(ops.reshape(x, (*x.shape[:-2], middle, 2)), middle, sign)
    z = ops.concat([z, z[..., :1, :]], axis=-2)
    back = ops.flip(z, axis=-2)
    a, b, c, d = z[..., 0], z[..., 1], back[..., 0], back[..., 1]
    turns = _roots(middle + 1, 2, length, sign)[:, 1]
    cos, sin = (as_tensor(t, dtype=x.dtype) for t in (turns.real, turns.imag))
    odd_real, odd_imaginary = (b + d) / 2, (c - a) / 2
    real = (a + c) / 2 + odd_real * cos - odd_imaginary * sin
    imaginary = (b - d) / 2 + odd_real * sin + odd_imaginary * cos
    y = ops.stack([real, imaginary], axis=-1)
    return y if half else _whole(y, length)


def _fitted(x: Any, length: int) -> Any:
    """The first ``length`` elements of the second last axis, padded with zeros."""
    size = x.shape[-2]
    if size < length:
        return ops.pad(x, (*[(0, 0)] * (x.ndim - 2), (0, length - size), (0, 0)))
    return x if size == length else x[..., :length, :]


def _whole(x: Any, length: int) -> Any:
    """The full spectrum from its first half, by conjugate symmetry."""
    if x.shape[-1] == 1:
        x = ops.concat([x, ops.zeros_like(x)], axis=-1)
    half = _fitted(x, length // 2 + 1)
    mirrored = ops.flip(half[..., 1 : (length + 1) // 2, :], axis=-2)
    return ops.concat([half, mirrored * as_tensor([1, -1], dtype=x.dtype)], axis=-2)


def transform(
    call: Call, x: Any, axis: int, length: int | None, inverse: bool, onesided: bool
) -> Any:
    """The Fourier transform of x (..., 1 or 2: real or complex) along ``axis``.

    With ``onesided``, half a spectrum becomes a real signal, and a signal half a spectrum.
    """
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1 or x.shape[-1] not in (1, 2):
        call.refuse(f"axis {axis} of a signal of shape {x.shape}, whose last axis is 1 or 2 parts")
    axis %= x.ndim
    size = x.shape[axis]
    if not isinstance(size, int):
        call.refuse("a transform along an axis of unknown size")
    if length is None:
        length = 2 * (size - 1) if inverse and onesided else size
    check_elements(call, length)
    if length < 1 or _largest_prime(length) > _LARGEST:
        call.refuse(f"a transform of {length} elements")
    y = ops.astype(ops.moveaxis(x, axis, -2), "float32" if x.dtype in NARROW else x.dtype)
    y = _whole(y, length) if inverse and onesided else _fitted(y, length)
    sign, half = (1 if inverse else -1), onesided and not inverse
    if y.shape[-1] == 1:
        y = _of_real(y, length, sign, half)
    else:
        y = _fourier(y, length, sign)
        y = y[..., : length // 2 + 1, :] if half else y
    if inverse:
        y = y / length
    if onesided and inverse:
        y = y[..., :1]
    return ops.astype(ops.moveaxis(y, -2, axis), x.dtype)


def _largest_prime(length: int) -> int:
    prime = 2
    while prime * prime <= length:
        if length % prime:
            prime += 1
        else:
            length //= prime
    return length


@operator("DFT")
def dft(
    call: Call,
    x: Any,
    dft_length: Any = None,
    axis: Any = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Any:
    """The Fourier transform along an axis, an attribute before version 20."""
    along = -2 if axis is None else known_number(axis)
    length = known_number(dft_length)
    return transform(call, x, along, length, bool(inverse), bool(onesided))


@operator("STFT")
def stft(
    call: Call,
    signal: Any,
    frame_step: Any,
    window: Any = None,
    frame_length: Any = None,
    *,
    onesided: int = 1,
) -> Any:
    """The Fourier transforms of windowed segments of a signal (batch, length, parts)."""
    step, length = known_number(frame_step), known_number(frame_length)
    if length is None:
        length = signal.shape[1] if window is None else window.shape[0]
    if not isinstance(signal.shape[1], int):
        call.refuse("frames of a signal of unknown length")
    if step < 1 or not 1 <= length <= signal.shape[1]:
        call.refuse(f"frames of {length} every {step} of a signal of {signal.shape[1]}")
    count = 1 + (signal.shape[1] - length) // step
    check_elements(call, count, length)
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames = ops.take(signal, places, axis=1)
    if window is not None:
        frames = frames * ops.reshape(window, (1, 1, -1, 1))
    return transform(call, frames, 2, length, False, bool(onesided))


# Windows -----------------------------------------------------------------------------------------


def _window(call: Call, size: Any, periodic: int, output_datatype: int, *terms: float) -> Any:
    """A sum of cosines with whole periods over ``size`` elements, with equal first and last ones.

    ``periodic`` windows omit the last one.
    """
    count = known_number(size)
    if count < 0:
        call.refuse(f"a window of {count} elements")
    check_elements(call, count)
    span = count if periodic else max(count - 1, 1)
    turn = 2 * np.pi / max(span, 1) * np.arange(count)
    values = sum(term * np.cos(k * turn) for k, term in enumerate(terms))
    return as_tensor(np.asarray(values, "float64"), dtype=dtype_of(output_datatype))


@operator("HannWindow")
def hann_window(call: Call, size: Any, *, periodic: int = 1, output_datatype: int = 1) -> Any:
    """The window of von Hann."""
    return _window(call, size, periodic, output_datatype, 0.5, -0.5)


@operator("HammingWindow")
def hamming_window(call: Call, size: Any, *, periodic: int = 1, output_datatype: int = 1) -> Any:
    """Hamming's window, with the coefficients 25/46 and 21/46."""
    return _window(call, size, periodic, output_datatype, 25 / 46, -21 / 46)


@operator("BlackmanWindow")
def blackman_window(call: Call, size: Any, *, periodic: int = 1, output_datatype: int = 1) -> Any:
    """Blackman's window."""
    return _window(call, size, periodic, output_datatype, 0.42, -0.5, 0.08)


# Mel ---------------------------------------------------------------------------------------------


@operator("MelWeightMatrix")
def mel_weight_matrix(
    call: Call,
    num_mel_bins: Any,
    dft_length: Any,
    sample_rate: Any,
    lower_edge_hertz: Any,
    upper_edge_hertz: Any,
    *,
    output_datatype: int = 1,
) -> Any:
    """Weights (frequencies, mel bins): triangles, evenly spaced on the mel scale."""
    bins, length, rate = [known_number(x) for x in (num_mel_bins, dft_length, sample_rate)]
    check_elements(call, bins, length // 2 + 1)
    edges = np.array([known(e).item() for e in (lower_edge_hertz, upper_edge_hertz)])
    low, high = 2595 * np.log10(1 + edges / 700)
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = ((length + 1) * hertz // rate).astype("int64")
    rows = length // 2 + 1
    if bins < 1 or corners.min(initial=0) < 0 or corners.max(initial=0) >= rows:
        call.refuse(f"{bins} mel bins up to {edges[1]:g} Hz for a transform of {length} elements")
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    row = np.arange(rows)[:, None]
    rising = (row - left) / np.maximum(middle - left, 1)
    rising = np.where((row >= left) & (row <= middle), rising, 0)
    rising = np.where((middle == left) & (row == middle), 1, rising)
    falling = (right - row) / np.maximum(right - middle, 1)
    weights = np.where((row >= middle) & (row < right), falling, rising)
    return as_tensor(weights, dtype=dtype_of(output_datatype))
