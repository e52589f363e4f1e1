"""The frequencies of Fourier transforms, and spectra with frequency 0 in the middle."""

from __future__ import annotations

from typing import Any

from eagerflow.dims import symbolic
from eagerflow.dtypes import FLOATS, STANDARD, DType, as_dtype, default_dtype
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import divide, subtract
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import roll
from eagerflow.ops.shapes.reshaping import sized
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def _told(op: str, n: Any, d: Any, dtype: Any) -> tuple[int, DType]:
    """The length and the dtype, where all is as it should be."""
    try:
        (length,) = sized((n,), "n")
        if not isinstance(length, int) or length < 1:
            raise ShapeError(
                f"{short_repr(n)} is not a length", argument="n", expected="an integer from 1 on"
            )
        made = default_dtype(float) if dtype is None else as_dtype(dtype)
        if made not in FLOATS:
            raise DTypeError(
                f"frequencies are no {made.name}s", argument="dtype", expected="a real float"
            )
        if isinstance(d, bool) or not isinstance(d, int | float) or d == 0:
            raise ArgumentError(
                f"{short_repr(d)} is not a spacing", argument="d", expected="a number, not 0"
            )
    except (ArgumentError, DTypeError, ShapeError) as error:
        error.op = op
        raise
    return length, made


def fftfreq(n: Any, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``ef.fft.fft``: those from 0 on, and then the negative ones.

    ``n`` is the length of the transform, ``d`` the time between two elements: frequencies are in
    cycles per unit of that. ``dtype`` defaults to float32. Raises ShapeError for a length below
    1, DTypeError for dtypes other than real floats, ArgumentError for another ``d``.

    >>> ef.fft.fftfreq(4, d=0.1)
    Tensor([ 0. ,  2.5, -5. , -2.5], float32, cpu:0)
    """
    length, made = _told("fftfreq", n, d, dtype)
    places = arange(length, dtype="float64", device=device)
    middle = (length + 1) // 2
    whole = concat([places[:middle], subtract(places[middle:], length)])
    return astype(divide(whole, length * d), made)


def rfftfreq(n: Any, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``ef.fft.rfft``, from 0 to half of 1/d.

    ``n`` is the length of the transform, ``d`` the time between two elements: frequencies are in
    cycles per unit of that. ``dtype`` defaults to float32. Raises ShapeError for a length below
    1, DTypeError for dtypes other than real floats, ArgumentError for another ``d``.

    >>> ef.fft.rfftfreq(4, d=0.1)
    Tensor([0. , 2.5, 5. ], float32, cpu:0)
    """
    length, made = _told("rfftfreq", n, d, dtype)
    places = arange(length // 2 + 1, dtype="float64", device=device)
    return astype(divide(places, length * d), made)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    """``x`` with half of each axis moved: rounded down with ``sign`` 1, up and back with -1."""
    found = normalize_axes(axes, x.ndim, "axes")
    sizes = [x.shape[at] for at in found]
    if symbolic(sizes):
        raise CaptureError(
            "half of a size that is not known", argument="axes", hint="a number in the TensorSpec"
        )
    if not found:
        return x
    return roll(x, tuple(sign * (size // 2) for size in sizes), axis=found)


@composed(dtypes=STANDARD)
def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """A spectrum with frequency 0 in the middle of its axes.

    ``x`` is any tensor, ``axes`` an axis, a tuple of axes, or None for all. Raises ShapeError for
    axes that do not exist or repeat.

    >>> ef.fft.fftshift(ef.tensor([0, 1, 2, -2, -1]))
    Tensor([-2, -1,  0,  1,  2], int64, cpu:0)
    """
    return _shifted(x, axes, 1)


@composed(dtypes=STANDARD)
def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """Inverse of ``ef.fft.fftshift``: a spectrum with frequency 0 at the beginning of its axes.

    ``x`` is any tensor, ``axes`` an axis, a tuple of axes, or None for all. Raises ShapeError for
    axes that do not exist or repeat.

    >>> ef.fft.ifftshift(ef.tensor([-2, -1, 0, 1, 2]))
    Tensor([ 0,  1,  2, -2, -1], int64, cpu:0)
    """
    return _shifted(x, axes, -1)
