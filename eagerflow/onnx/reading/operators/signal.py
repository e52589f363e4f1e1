"""Fourier transforms, as products with matrices of roots of unity, and what goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.dtypes import NARROW
from eagerflow.onnx.reading.calls import Call, known, known_number, operator
from eagerflow.onnx.reading.element_types import dtype_of

# Transforms --------------------------------------------------------------------------------------


def _roots(rows: int, columns: int, length: int, sign: int) -> Any:
    """exp(sign * 2 pi i * row * column / length), exact up to the rounding of one cosine."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * np.pi / length * turns)


def _matrix(rows: int, parts: int, length: int, inverse: bool, onesided: bool) -> Any:
    """The transform of (rows, parts) numbers into (columns, parts), as one real array.

    ``parts`` is 1 for real numbers and 2 for complex ones. From half a spectrum comes a real
    signal, whose other half is the mirrored conjugate; from a signal, half a spectrum.
    """
    half = length // 2 + 1
    if inverse and onesided:
        rows = min(rows, half)
    roots = _roots(rows, half if onesided and not inverse else length, length, 1 if inverse else -1)
    if inverse:
        roots = roots / length
    if inverse and onesided:
        twice = np.full(rows, 2.0)
        twice[0] = 1
        if length % 2 == 0 and rows == half:
            twice[-1] = 1
        roots = roots * twice[:, None]
    # (rows, real or imaginary part of what comes in, columns, of what goes out)
    made = np.stack([roots, 1j * roots], axis=1)[:, :parts]
    whole = np.stack([made.real, made.imag], axis=-1)
    return whole[..., :1] if inverse and onesided else whole


def transform(
    call: Call, x: Any, axis: int, length: int | None, inverse: bool, onesided: bool
) -> Any:
    """The Fourier transform of x (..., 1 or 2: real or complex) along ``axis``."""
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        call.refuse(f"axis {axis} of a signal with {x.ndim} axes, the last of which are its parts")
    axis %= x.ndim
    size, parts = x.shape[axis], x.shape[-1]
    if not isinstance(size, int):
        call.refuse("a transform along an axis of unknown size")
    if parts not in (1, 2):
        call.refuse(f"the last axis has {parts} elements, where numbers have 1 or 2 parts")
    if length is None:
        length = 2 * (size - 1) if inverse and onesided else size
    if length < 1:
        call.refuse(f"a transform of {length} elements")
    matrix = _matrix(min(size, length), parts, length, inverse, onesided)
    dtype = "float32" if x.dtype in NARROW else x.dtype
    x_last = ef.astype(ef.moveaxis(x, axis, -2), dtype)
    if matrix.shape[0] < size:
        x_last = x_last[..., : matrix.shape[0], :]
    y = ef.tensordot(x_last, ef.tensor(matrix, dtype=dtype), axes=2)
    return ef.astype(ef.moveaxis(y, -2, axis), x.dtype)


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
    """The Fourier transforms of pieces of a signal (batch, length, parts), weighted by a window."""
    step, length = known_number(frame_step), known_number(frame_length)
    if length is None:
        length = signal.shape[1] if window is None else window.shape[0]
    if not isinstance(signal.shape[1], int):
        call.refuse("frames of a signal of unknown length")
    if step < 1 or not 1 <= length <= signal.shape[1]:
        call.refuse(f"frames of {length} every {step} of a signal of {signal.shape[1]}")
    count = 1 + (signal.shape[1] - length) // step
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames = ef.take(signal, places, axis=1)
    if window is not None:
        frames = frames * ef.reshape(window, (1, 1, -1, 1))
    return transform(call, frames, 2, length, False, bool(onesided))


# Windows -----------------------------------------------------------------------------------------


def _window(call: Call, size: Any, periodic: int, output_datatype: int, *terms: float) -> Any:
    """A sum of cosines with whole periods over ``size`` elements, the last of them the first again.

    ``periodic`` windows leave that last one out.
    """
    count = known_number(size)
    if count < 0:
        call.refuse(f"a window of {count} elements")
    span = count if periodic else max(count - 1, 1)
    turn = 2 * np.pi / max(span, 1) * np.arange(count)
    values = sum(term * np.cos(k * turn) for k, term in enumerate(terms))
    return ef.tensor(np.asarray(values, "float64"), dtype=dtype_of(output_datatype))


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
    """Weights (frequencies, mel bins): triangles whose corners lie evenly on the mel scale."""
    bins, length, rate = map(known_number, (num_mel_bins, dft_length, sample_rate))
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
    return ef.tensor(weights, dtype=dtype_of(output_datatype))
