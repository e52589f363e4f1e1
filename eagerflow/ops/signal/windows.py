"""Windows: weights that fade a piece of a signal in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import FLOATS, as_dtype, default_dtype
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, ShapeError, short_repr
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.reshaping import sized
from eagerflow.tensor import Tensor

__all__ = ["WINDOWS", "bartlett", "blackman", "hamming", "hann", "kaiser"]


def _window(
    name: str, values: Callable[[Any], Any], size: Any, sym: bool, dtype: Any, device: Any
) -> Any:
    """The tensor of ``values`` at positions from -1 to 1, the ends of the window."""
    made = default_dtype(float) if dtype is None else as_dtype(dtype)
    try:
        (count,) = sized((size,), "size")
        if not isinstance(count, int):
            raise ShapeError(f"{short_repr(size)} is not a number", argument="size")
        if made not in FLOATS:
            raise DTypeError(
                f"weights are no {made.name}s", argument="dtype", expected="a real float"
            )
    except EagerflowError as error:
        error.op = name
        raise
    spaces = count - (sym or count == 1)  # a periodic window leaves out its last element
    places = (2 * np.arange(count) - spaces) / max(spaces, 1)
    return as_tensor(values(places), made, device)


def _cosines(*terms: float) -> Callable[[Any], Any]:
    def values(places: Any) -> Any:
        return np.sum([a * np.cos(k * np.pi * places) for k, a in enumerate(terms)], axis=0)

    return values


@plain
def hann(size: Any, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Von Hann's window: half a period of a squared sine.

    ``size`` is the number of weights. With ``sym`` they are symmetric; otherwise they are periodic,
    as is best for spectra. ``dtype`` defaults to float32. Raises ShapeError for invalid sizes,
    DTypeError for dtypes other than real floats.

    >>> ef.signal.hann(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ], float32, cpu:0)
    """
    return _window("hann", _cosines(0.5, 0.5), size, sym, dtype, device)


@plain
def hamming(size: Any, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Hamming's window: a cosine from 0.08 to 1 and back.

    ``size``, ``sym``, ``dtype`` and ``device`` are as for ``ef.signal.hann``, and so are the
    errors.

    >>> ef.signal.hamming(5)
    Tensor([0.08, 0.54, 1.  , 0.54, 0.08], float32, cpu:0)
    """
    return _window("hamming", _cosines(0.54, 0.46), size, sym, dtype, device)


@plain
def blackman(size: Any, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Blackman's window: a sum of two cosines that falls off faster than von Hann's.

    ``size``, ``sym``, ``dtype`` and ``device`` are as for ``ef.signal.hann``, and so are the
    errors.

    >>> ef.signal.blackman(4, sym=False)[1:]
    Tensor([0.34, 1.  , 0.34], float32, cpu:0)
    """
    return _window("blackman", _cosines(0.42, 0.5, 0.08), size, sym, dtype, device)


@plain
def bartlett(size: Any, *, sym: bool = True, dtype: Any = None, device: Any = None) -> Tensor:
    """Bartlett's window: a triangle from 0 to 1 and back.

    ``size``, ``sym``, ``dtype`` and ``device`` are as for ``ef.signal.hann``, and so are the
    errors.

    >>> ef.signal.bartlett(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ], float32, cpu:0)
    """
    return _window("bartlett", lambda places: 1 - np.abs(places), size, sym, dtype, device)


@plain
def kaiser(
    size: Any, beta: float, *, sym: bool = True, dtype: Any = None, device: Any = None
) -> Tensor:
    """Kaiser's window: the most of the energy around frequency 0 that windows can have, nearly.

    ``beta`` is the rate of its decay; with 0 all weights are 1. ``size``, ``sym``, ``dtype`` and
    ``device`` are as for ``ef.signal.hann``, and so are the errors; ArgumentError for a ``beta``
    that is not a finite number.

    >>> ef.signal.kaiser(3, 6.0)
    Tensor([0.0149, 1.    , 0.0149], float32, cpu:0)
    """
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not np.isfinite(beta):
        raise ArgumentError(
            f"{short_repr(beta)} is not a number",
            op="kaiser",
            argument="beta",
            expected="a finite number",
        )

    def values(places: Any) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(0, 1 - places**2))) / np.i0(beta)

    return _window("kaiser", values, size, sym, dtype, device)


WINDOWS = {"bartlett": bartlett, "blackman": blackman, "hamming": hamming, "hann": hann}
"""Windows without a parameter, by name."""
