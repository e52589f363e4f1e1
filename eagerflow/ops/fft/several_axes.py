"""Fourier transforms along several axes, and those with real spectra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, INEXACT, DType
from eagerflow.errors import ArgumentError, AxisError, ShapeError, short_repr
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import P, R, composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.family import op_of
from eagerflow.ops.fft.transforms import DUAL, checked_norm, complex_dtype, fft, ifft, irfft, rfft
from eagerflow.ops.samples import make
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


def _lengths(x: Any, s: Any, axes: Any) -> list[tuple[int, Any]]:
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
    pairs = _lengths(x, s, axes)
    return _along(transform, x, pairs, norm) if pairs else astype(x, complex_dtype(x.dtype))


def _to_half(x: Any, s: Any, axes: Any, norm: str) -> Any:
    pairs = _lengths(x, s, axes)
    at, n = _last(pairs)
    return _along(fft, rfft(x, n=n, axis=at, norm=norm), pairs[:-1], norm)


def _from_half(x: Any, s: Any, axes: Any, norm: str) -> Any:
    pairs = _lengths(x, s, axes)
    at, n = _last(pairs)
    return irfft(_along(ifft, x, pairs[:-1], norm), n=n, axis=at, norm=norm)


# Facts -------------------------------------------------------------------------------------------


def _samples(names: str, *rows: Any) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        norms = ("backward", "ortho", "forward")
        found = []
        for i, (shape, *given) in enumerate(rows):
            attributes = dict(zip(names.split(), given, strict=False)) | {"norm": norms[i % 3]}
            found.append(Sample((make(rng, dtype, shape),), attributes))
        return found

    return samples


_many = _samples(
    "s axes",
    ((4,), None, None),
    ((2, 3), None, None),
    ((2, 3, 4), None, (0, 2)),
    ((2, 3, 4), (3, 5), (-1, 0)),
    ((3, 4), (2, -1), (1, 0)),
    ((3, 4), (4, 6), None),
    ((2, 0, 3), None, (0, 2)),
)
_two = _samples(
    "s axes",
    ((2, 3), None, (-2, -1)),
    ((2, 3, 4), None, (-2, -1)),
    ((2, 3, 4), (3, 3), (0, 1)),
    ((3, 4), (2, 6), (1, 0)),
    ((4, 3), (-1, 5), (-2, -1)),
    ((0, 2, 3), None, (-2, -1)),
)
_one = _samples(
    "n axis",
    ((4,), None, -1),
    ((2, 3), None, 0),
    ((2, 3), 5, 1),
    ((3, 4), 3, -1),
    ((2, 3, 2), 4, 1),
    ((0, 3), None, 1),
)


def _errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axes": (0, 2)}, AxisError, "axis 2 does not exist"),
        ErrorSample((x,), {"axes": (0, 0)}, ShapeError, "repeat"),
        ErrorSample((x,), {"axes": 1}, ShapeError, "is not a sequence of axes"),
        ErrorSample((x,), {"s": 4}, ShapeError, "is not a sequence of lengths"),
        ErrorSample((x,), {"s": (4,), "axes": (0, 1)}, ShapeError, "1 lengths for 2 axes"),
        ErrorSample((x,), {"s": (0, 3), "axes": (0, 1)}, ShapeError, "a transform of 0 elements"),
        ErrorSample((x,), {"norm": "unitary"}, ArgumentError, "is not a norm"),
    ]


def _one_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x,), {"n": 0}, ShapeError, "a transform of 0 elements"),
        ErrorSample((x,), {"norm": "unitary"}, ArgumentError, "is not a norm"),
    ]


def defined(transform: Any) -> Callable[..., Any]:
    """The reference of a transform: sums, by definition."""
    reference: Any = op_of(transform).reference
    return reference


def _reference(last: Any, others: Any, back: bool = False) -> Callable[..., Any]:
    """By definition along one axis after the other: ``last`` is for the last axis.

    That is the first one, or the last one if ``back``.
    """

    def reference(x: Any, s: Any, axes: Any, norm: str) -> Any:
        pairs = _lengths(x, s, axes)
        turn = [(others, pair) for pair in pairs[:-1]]
        turn.insert(len(turn) if back else 0, (last, pairs[-1]))
        for transform, (at, n) in turn:
            x = defined(transform)(x, n, at, norm)
        return x

    return reference


def _several(
    last: Any, others: Any, back: bool = False, **facts: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    own: dict[str, Any] = {
        "samples": _many,
        "errors": _errors,
        "reference": _reference(last, others, back),
        "dtypes": INEXACT,
    }
    return composed(**own | facts)


# Along several axes ------------------------------------------------------------------------------


@_several(fft, fft)
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


@_several(ifft, ifft)
def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Inverse of ``ef.fft.fftn``, along several axes.

    ``x``, ``s`` and ``axes`` are as there, ``norm`` as for ``ef.fft.ifft``, along each axis.
    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.ifftn(ef.tensor([[10 + 0j, -2], [-4, 0]]))
    Tensor([[1.+0.j, 2.+0.j],
            [3.+0.j, 4.+0.j]], shape=(2, 2), complex64, cpu:0)
    """
    return _complex(ifft, x, s, axes, norm)


@_several(rfft, fft, dtypes=FLOATS)
def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """Discrete Fourier transform of real numbers along several axes.

    ``x`` is a real tensor; ``s``, ``axes`` and ``norm`` are as for ``ef.fft.fftn``. Along the
    last of the axes are the frequencies from 0 to n/2 alone. Raises ShapeError for axes and
    lengths that do not fit, ArgumentError for another norm, DTypeError for complex tensors.

    >>> ef.fft.rfftn(ef.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    (2, 2)
    """
    return _to_half(x, s, axes, norm)


@_several(irfft, ifft, back=True)
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


@_several(fft, fft, samples=_two)
def fft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.fftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.fft2(ef.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return _complex(fft, x, s, axes, norm)


@_several(ifft, ifft, samples=_two)
def ifft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.ifftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.ifft2(ef.ones((5, 2, 3))).shape
    (5, 2, 3)
    """
    return _complex(ifft, x, s, axes, norm)


@_several(rfft, fft, samples=_two, dtypes=FLOATS)
def rfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.rfftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm,
    DTypeError for complex tensors.

    >>> ef.fft.rfft2(ef.ones((5, 2, 4))).shape
    (5, 2, 3)
    """
    return _to_half(x, s, axes, norm)


@_several(irfft, ifft, back=True, samples=_two)
def irfft2(x: Any, /, *, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """``ef.fft.irfftn`` along two axes: by default the last.

    Raises ShapeError for axes and lengths that do not fit, ArgumentError for another norm.

    >>> ef.fft.irfft2(ef.ones((5, 2, 3))).shape
    (5, 2, 4)
    """
    return _from_half(x, s, axes, norm)


# Real spectra -------------------------------------------------------------------------------------


@composed(
    samples=_one,
    errors=_one_errors,
    dtypes=INEXACT,
    reference=lambda x, n, axis, norm: defined(irfft)(np.conj(x), n, axis, DUAL[norm]),
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
    samples=_one,
    errors=_one_errors,
    dtypes=FLOATS,
    reference=lambda x, n, axis, norm: np.conj(defined(rfft)(x, n, axis, DUAL[norm])),
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
