"""Fourier transforms along several axes, and those with real spectra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.dtypes import FLOATS, INEXACT
from eagerflow.errors import ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.fft.transforms import DUAL, checked_norm, complex_dtype, fft, ifft, irfft, rfft
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = [
    "fft2",
    "fftn",
    "hfft",
    "ifft2",
    "ifftn",
    "ihfft",
    "irfft2",
    "irfftn",
    "rfft2",
    "rfftn",
]


def lengths_of(x: Any, s: Any, axes: Any) -> list[tuple[int, Any]]:
    """Each transformed axis, and its given length, or None."""
    if s is not None and not isinstance(s, list | tuple):
        raise ShapeError(
            f"{short_repr(s)} is not a sequence of lengths",
            argument="s",
            expected="a tuple of lengths",
        )
    if axes is not None and not isinstance(axes, list | tuple):
        raise ShapeError(
            f"{short_repr(axes)} is not a sequence of axes",
            argument="axes",
            expected="a tuple of axes",
        )
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    found = normalize_axes(tuple(axes), x.ndim, "axes")
    if s is not None and len(s) != len(found):
        raise ShapeError(
            f"{len(s)} lengths for {len(found)} axes", argument="s", expected="one for each axis"
        )
    whole = (None,) * len(found) if s is None else s
    return [(at, None if n == -1 else n) for at, n in zip(found, whole, strict=True)]


def _last(pairs: list[tuple[int, Any]]) -> tuple[int, Any]:
    if not pairs:
        raise ShapeError("no axis is named", argument="axes", expected="at least one axis")
    return pairs[-1]


def _along(transform: Callable[..., Any], x: Any, pairs: Any, norm: str) -> Any:
    for at, n in reversed(pairs):
        x = transform(x, n=n, axis=at, norm=norm)
    return x


def _complex(transform: Callable[..., Any], x: Any, s: Any, axes: Any, norm: str) -> Any:
    checked_norm(norm)
    pairs = lengths_of(x, s, axes)
    return _along(transform, x, pairs, norm) if pairs else astype(x, complex_dtype(x.dtype))


def _to_half(x: Any, s: Any, axes: Any, norm: str) -> Any:
    pairs = lengths_of(x, s, axes)
    at, n = _last(pairs)
    return _along(fft, rfft(x, n=n, axis=at, norm=norm), pairs[:-1], norm)


def _from_half(x: Any, s: Any, axes: Any, norm: str) -> Any:
    pairs = lengths_of(x, s, axes)
    at, n = _last(pairs)
    return irfft(_along(ifft, x, pairs[:-1], norm), n=n, axis=at, norm=norm)


# Along several axes ------------------------------------------------------------------------------


@composed(dtypes=INEXACT)
def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Discrete Fourier transform along several axes.

    ``x`` is a complex or real tensor. ``axes`` is a tuple of axes, by default all, or the last ones
    if ``s`` has their lengths (-1: unchanged). ``norm`` is as for ``ef.fft.fft``, along each axis.
    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.fftn(ef.tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]], shape=(2, 2), complex64, cpu:0)
    """
    return _complex(fft, x, s, axes, norm)


@composed(dtypes=INEXACT)
def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Inverse of ``ef.fft.fftn``, along several axes.

    ``x``, ``s`` and ``axes`` are as there, ``norm`` as for ``ef.fft.ifft``, along each axis.
    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.ifftn(ef.tensor([[10 + 0j, -2], [-4, 0]]))
    Tensor([[1.+0.j, 2.+0.j],
            [3.+0.j, 4.+0.j]], shape=(2, 2), complex64, cpu:0)
    """
    return _complex(ifft, x, s, axes, norm)


@composed(dtypes=FLOATS)
def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Discrete Fourier transform of real numbers along several axes.

    ``x`` is a real tensor; ``s``, ``axes`` and ``norm`` are as for ``ef.fft.fftn``. Along the
    last of the axes are the frequencies from 0 to n/2 alone. Raises ShapeError for axes and
    lengths that do not fit, ArgumentError for another norm, DTypeError for complex tensors.

    >>> ef.fft.rfftn(ef.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    (2, 2)
    """
    return _to_half(x, s, axes, norm)


@composed(dtypes=INEXACT)
def irfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Inverse of ``ef.fft.rfftn``: the real numbers that have this half of a spectrum.

    ``x`` is a complex or real tensor. ``axes`` and ``norm`` are as for ``ef.fft.ifftn``; ``s`` are
    the lengths of the result, by default those of ``x``, along the last of the axes twice that,
    minus 2. Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.irfftn(ef.tensor([[10 + 0j, -2], [-4, 0]]))
    Tensor([[1., 2.],
            [3., 4.]], shape=(2, 2), float32, cpu:0)
    """
    return _from_half(x, s, axes, norm)


# Along two axes ----------------------------------------------------------------------------------


@composed(dtypes=INEXACT)
def fft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.fftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.fft2(ef.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return _complex(fft, x, s, axes, norm)


@composed(dtypes=INEXACT)
def ifft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.ifftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.ifft2(ef.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return _complex(ifft, x, s, axes, norm)


@composed(dtypes=FLOATS)
def rfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.rfftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm,
    DTypeError for complex tensors.

    >>> ef.fft.rfft2(ef.ones((5, 2, 4))).shape
    (5, 2, 3)
    """
    return _to_half(x, s, axes, norm)


@composed(dtypes=INEXACT)
def irfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.irfftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.irfft2(ef.ones((5, 2, 3))).shape
    (5, 2, 4)
    """
    return _from_half(x, s, axes, norm)


# Real spectra -------------------------------------------------------------------------------------


@composed(
    dtypes=INEXACT,
)
def hfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The real spectrum of a signal whose second half mirrors the first, complex conjugated.

    ``x`` is the first half of the signal, complex or real, ``n`` the length of the whole and of
    the result: by default twice that of ``x``, less 2. ``norm`` is as for ``ef.fft.fft``. Raises
    ShapeError for an axis that does not exist and for a length below 1, ArgumentError for another
    norm.

    >>> ef.fft.hfft(ef.tensor([1 + 0j, 2 + 1j, 3 + 0j]))
    Tensor([ 8.,  0.,  0., -4.], float32, cpu:0)
    """
    return irfft(conj(x), n=n, axis=axis, norm=DUAL[checked_norm(norm)])


@composed(
    dtypes=FLOATS,
)
def ihfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Inverse of ``ef.fft.hfft``: the first half of the signal that has a real spectrum.

    ``x`` is a real tensor, ``n`` the number of its elements that are used, zero-padded, by default
    all; ``norm`` is as for ``ef.fft.ifft``. The axis has n//2 + 1 elements in the result. Raises
    ShapeError for an axis that does not exist and for a length below 1, ArgumentError for another
    norm, DTypeError for complex tensors.

    >>> ef.fft.ihfft(ef.tensor([8.0, 0.0, 0.0, -4.0]))
    Tensor([1.-0.j, 2.+1.j, 3.-0.j], complex64, cpu:0)
    """
    return conj(rfft(x, n=n, axis=axis, norm=DUAL[checked_norm(norm)]))
