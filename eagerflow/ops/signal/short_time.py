"""Spectra of short pieces of a signal, one after the other, and signals from such spectra."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dtypes import COMPLEX, INEXACT, NARROW, DType, float32, real_dtype
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.fft.transforms import fft, ifft, irfft, rfft
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.indexing.indices import ALL
from eagerflow.ops.shapes.padding import crop, pad
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape, swapaxes
from eagerflow.ops.signal.windows import WINDOWS
from eagerflow.tensor import Operators, Tensor

__all__ = ["istft", "stft"]

LEAST = 1e-11  # smaller sums of squared weights carry no information on the signal


# Arguments ---------------------------------------------------------------------------------------


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ShapeError(
            f"{short_repr(value)} is not a length", argument=name, expected="an integer from 1 on"
        )
    return value


def frame_of(n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    length = _positive(n_fft, "n_fft")
    hop = max(1, length // 4) if hop_length is None else _positive(hop_length, "hop_length")
    width = length if win_length is None else _positive(win_length, "win_length")
    if width > length:
        raise ShapeError(
            f"a window of {width} in {length} elements",
            argument="win_length",
            expected="at most n_fft",
        )
    return length, hop, width


def window_weights(window: Any, width: int, length: int, dtype: DType, device: Any = None) -> Any:
    """The window, centered in ``length`` weights and zero-padded; None if all are 1."""
    if isinstance(window, str):
        if window not in WINDOWS:
            raise ArgumentError(
                f"there is no window {window!r}",
                argument="window",
                expected="a tensor, or one of " + ", ".join(sorted(WINDOWS)),
            )
        window = WINDOWS[window](width, sym=False, dtype=dtype, device=device)
    if window is None:
        if width == length:
            return None
        window = ones((width,), dtype, device)
    window = as_tensor(window, None, None if isinstance(window, Operators) else device)
    if window.shape != (width,) or window.dtype not in INEXACT:
        raise ShapeError(
            f"a window of shape {window.shape}, {window.dtype.name}",
            argument="window",
            expected=f"shape ({width},), a real or complex float",
        )
    before = (length - width) // 2
    return pad(window, (before, length - width - before))


def _places(count: Any, hop: int, length: int, device: str) -> Any:
    """Where the elements of each piece are in the signal: (count, length)."""
    starts = multiply(arange(count, device=device), hop)
    return add(reshape(starts, (count, 1)), arange(length, device=device))


# Pieces to spectra -------------------------------------------------------------------------------


@composed(dtypes=INEXACT)
def stft(
    x: Any,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> Tensor:
    """Short-time Fourier transform: the spectra of pieces of a signal, (..., frequencies, pieces).

    ``x`` (..., time) is a real or complex tensor. Each piece has ``n_fft`` elements and begins
    ``hop_length`` after the previous one, by default a quarter of that. ``window`` are its
    ``win_length`` weights, by default ``n_fft``, zero-padded on both sides if less: a tensor, or a
    name such as ``"hann"`` for a periodic window, or None for ones. With ``center``, n_fft//2
    elements are added on both sides, by ``ef.pad`` with ``pad_mode``, so that piece i is centered
    at element i * hop_length. ``normalized`` divides by √n_fft. ``onesided`` selects the
    frequencies from 0 to half, by default for real signals. The arguments are those of PyTorch.
    Raises ShapeError for lengths that do not fit, ArgumentError for an unknown window, DTypeError
    for half of a complex signal's spectrum.

    >>> ef.signal.stft(ef.ones((100,)), n_fft=16, window="hann").shape
    (9, 26)
    """
    length, hop, width = frame_of(n_fft, hop_length, win_length)
    if x.ndim == 0:
        raise ShapeError("a signal has no axis", argument="x", expected="(..., time)")
    half = x.dtype not in COMPLEX if onesided is None else bool(onesided)
    if half and x.dtype in COMPLEX:
        raise DTypeError(
            "half of the spectrum of a complex signal", argument="onesided", expected="False"
        )
    if x.dtype in NARROW:
        x = astype(x, float32)
    weights = window_weights(window, width, length, real_dtype(x.dtype), str(x.device))
    if center:
        sides = (length // 2, length // 2)
        x = pad(x, (*((0, 0),) * (x.ndim - 1), sides), mode=pad_mode)
    time = x.shape[-1]
    if isinstance(time, int) and time < length:
        raise ShapeError(
            f"pieces of {length} elements of a signal of {time}",
            argument="n_fft",
            expected="at most the length of the signal",
        )
    pieces = take(x, _places(1 + (time - length) // hop, hop, length, str(x.device)), axis=-1)
    if weights is not None:
        pieces = multiply(pieces, weights)
    transform = rfft if half and pieces.dtype not in COMPLEX else fft
    return swapaxes(transform(pieces, norm="ortho" if normalized else "backward"), -1, -2)


# Spectra to a signal -----------------------------------------------------------------------------


def _overlapped(pieces: Any, places: Any, total: Any) -> Any:
    """The overlap-add of pieces (..., count, length) on an axis of ``total`` elements."""
    lead = pieces.shape[:-2]
    index = (*(ALL,) * len(lead), "array")
    return index_scatter(pieces, places, shape=(*lead, total), index=index)


@composed(dtypes=INEXACT)
def istft(
    x: Any,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
) -> Tensor:
    """Inverse of ``ef.signal.stft``: the signal whose spectra are closest to the given ones.

    ``x`` (..., frequencies, pieces) is a complex or real tensor. Pieces are weighted by the window
    again, overlap-added, and divided by the sum of the squared weights, the least-squares solution
    (Griffin and Lim, 1984); where that sum is 0, so is the signal. Other arguments are as there;
    ``onesided`` is inferred from the number of frequencies, and False gives a complex signal.
    ``length`` is that of the result, which is truncated or zero-padded. Raises ShapeError for
    mismatched lengths, ArgumentError for an unknown window.

    >>> x = ef.cos(ef.arange(40) * 0.7)
    >>> y = ef.signal.istft(ef.signal.stft(x, 8, window="hann"), 8, window="hann")
    >>> float(ef.max(ef.abs(y - x))) < 1e-5
    True
    """
    size, hop, width = frame_of(n_fft, hop_length, win_length)
    half = _is_half(x, size, onesided)
    count = x.shape[-1]
    if length is not None:
        _positive(length, "length")
    if x.dtype in NARROW:
        x = astype(x, float32)
    weights = window_weights(window, width, size, real_dtype(x.dtype), str(x.device))
    spectra = swapaxes(x, -1, -2)
    pieces = (irfft if half else ifft)(spectra, n=size, norm="ortho" if normalized else "backward")
    places, total = _places(count, hop, size, str(x.device)), (count - 1) * hop + size
    if weights is None:
        weights = ones((size,), real_dtype(x.dtype), str(x.device))
    found = _overlapped(multiply(pieces, weights), places, total)
    squares = broadcast_to(multiply(weights, weights), (count, size))
    sums = _overlapped(squares, places, total)
    found = divide(found, where(greater(magnitude(sums), LEAST), sums, 1))
    return _trimmed(found, size // 2 if center else 0, total, length)


def _is_half(x: Any, size: int, onesided: bool | None) -> bool:
    """Whether spectra of pieces of ``size`` elements are halves; ShapeError for other sizes."""
    if x.ndim < 2:
        raise ShapeError(
            "spectra have two axes", argument="x", expected="(..., frequencies, pieces)"
        )
    if x.shape[-1] == 0:
        raise ShapeError("there are no pieces", argument="x", expected="at least one")
    have, half = x.shape[-2], size // 2 + 1
    wanted = (half, size) if onesided is None else (half if onesided else size,)
    if isinstance(have, int) and have not in wanted:
        raise ShapeError(
            f"{have} frequencies of pieces of {size} elements",
            argument="x",
            expected=" or ".join(map(str, wanted)) + " in the last axis but one",
        )
    if onesided is None and not isinstance(have, int):
        raise CaptureError(
            f"{have} frequencies, which may be all or half of them",
            argument="onesided",
            hint="onesided=True, or a number in the TensorSpec",
        )
    return have == half if onesided is None else bool(onesided)


def _trimmed(x: Any, cut: int, total: Any, length: int | None) -> Any:
    """``x``, of ``total`` elements, without the leading padding, and with the right length."""
    if length is None:
        return crop(x, (*((0, 0),) * (x.ndim - 1), (cut, cut))) if cut else x
    have = total - cut
    if isinstance(have, int) and have < length:
        x = pad(x, (*((0, 0),) * (x.ndim - 1), (0, length - have)))
    return x[..., cut : cut + length]
