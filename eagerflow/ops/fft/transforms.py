"""Discrete Fourier transforms along one axis: complex, of real numbers, and back to these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from eagerflow.dtypes import COMPLEX, FLOATS, INEXACT, DType, complex64, complex128, real_dtype
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import Size
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.elementwise.comparison import logical_and, not_equal
from eagerflow.ops.elementwise.complexes import real
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import batch_along_axis, define, split_others
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import reshape, sized
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis

__all__ = ["DUAL", "fft", "ifft", "irfft", "rfft"]

DUAL = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""From a norm of the transform to the norm of the inverse transform with the same factor."""
USUAL_LEVELS = 10  # of a transform of unknown length: that of 1024 elements


def complex_dtype(dtype: DType) -> DType:
    """The dtype of complex numbers with such parts, or with wider ones if there is none."""
    if dtype in COMPLEX:
        return dtype
    return complex128 if dtype.itemsize == 8 else complex64


def checked_norm(norm: Any) -> str:
    """``norm`` if it is valid; otherwise ArgumentError."""
    if not isinstance(norm, str) or norm not in DUAL:
        raise ArgumentError(
            f"{short_repr(norm)} is not a norm", argument="norm", expected=f"one of {list(DUAL)}"
        )
    return str(norm)


def _planned(x: TensorSpec, n: Any, axis: int, norm: str, usual: Any) -> tuple[int, Any]:
    """The axis counted from the front, and the length: ``n``, or by default ``usual(size)``."""
    at = normalize_axis(axis, x.ndim)
    checked_norm(norm)
    length = usual(x.shape[at]) if n is None else sized((n,), "n")[0]
    if isinstance(length, int) and length < 1:
        raise ShapeError(
            f"a transform of {length} elements", argument="n", expected="at least one element"
        )
    return at, length


def _resized(x: TensorSpec, at: int, size: Any, dtype: DType) -> TensorSpec:
    return x.like(sized((*x.shape[:at], size, *x.shape[at + 1 :]), "n"), dtype)


def _cost(share: float, usual: Any) -> Callable[..., Cost]:
    """5 n log2(n) operations for each transform of n complex numbers, ``share`` of it here."""

    def cost(x: TensorSpec, n: Any, axis: int, norm: str) -> Cost:
        at, length = _planned(x, n, axis, norm, usual)
        levels = max(1, length.bit_length()) if isinstance(length, int) else USUAL_LEVELS
        size = x.shape[at]
        others = x.size // size if not isinstance(size, int) or size else 0
        moved = x.size * x.dtype.itemsize + others * length * 8
        return Cost(others * length * int(5 * share * levels), moved)

    return cost


def _fitted(g: Any, x: Any, axis: int) -> Any:
    """``g`` truncated or zero-padded along an axis to the size of ``x``, and in its dtype."""
    at = normalize_axis(axis, x.ndim)
    have, wanted = g.shape[at], x.shape[at]
    if have != wanted:
        if not isinstance(wanted, int) or not isinstance(have, int) or have < wanted:
            g = pad(g, tuple((0, wanted - have if i == at else 0) for i in range(x.ndim)))
        else:
            g = g[(*(slice(None),) * at, slice(0, wanted))]
    return astype(g if x.dtype in COMPLEX else real(g), x.dtype)


def _inner(x: Any, factor: float, n: Any, axis: int) -> Any:
    """Half of the spectrum of n real numbers, times a factor where the other half mirrors it.

    That is everywhere but at frequency 0 and, where n is even, at n / 2.
    """
    at = normalize_axis(axis, x.ndim)
    place = arange(x.shape[at], device=str(x.device))
    mirrored = logical_and(not_equal(place, 0), not_equal(multiply(place, 2), n))
    weights = where(mirrored, factor, 1.0)
    return multiply(x, reshape(weights, (x.shape[at], *(1,) * (x.ndim - 1 - at))))


# Facts of all transforms -------------------------------------------------------------------------


def _transform(**facts: Any) -> Callable[[Any], Any]:
    return define(
        "fft",
        jvp="linear",
        aliases=False,
        batch=batch_along_axis,
        split=lambda x, axis, **more: split_others(x, axis=axis),
        onnx=Missing("its results are complex, for which ONNX has no operators"),
        **facts,
    )


# The transforms ----------------------------------------------------------------------------------


def _same(size: Any) -> Any:
    return size


def _to_complex(xp: Namespace, x: Any) -> Any:
    return x if x.dtype.kind == "c" else xp.astype(x, complex_dtype(x.dtype))


def _complex_spec(x: TensorSpec, n: Any = None, axis: int = -1, norm: str = "backward") -> Any:
    at, length = _planned(x, n, axis, norm, _same)
    return _resized(x, at, length, complex_dtype(x.dtype))


def _complex_rule(g: Any, y: Any, x: Any, n: Any, axis: int, norm: str) -> Any:
    return _fitted(ifft(g, axis=axis, norm=DUAL[norm]), x, axis)


_COMPLEX: dict[str, Any] = {"dtypes": INEXACT, "infer": _complex_spec, "cost": _cost(1, _same)}


@_transform(
    vjp=(_complex_rule,),
    **_COMPLEX,
)
def fft(
    xp: Namespace,
    x: Array,
    /,
    *,
    n: Size = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] = "backward",
) -> Array:
    """Discrete Fourier transform along an axis.

    Element k of the result is the sum over i of ``x[i] exp(-2πj i k / n)``. ``x`` is a complex or
    real tensor; 16-bit floats are transformed in float32. ``n`` is the length, to which ``x`` is
    truncated or zero-padded; by default its own. ``norm`` selects the factor: 1 for ``"backward"``,
    1/√n for ``"ortho"``, 1/n for ``"forward"``. Raises ShapeError for an axis that does not exist
    and for a length below 1, ArgumentError for another norm.

    >>> ef.fft.fft(ef.tensor([1.0, 2.0, 3.0, 4.0]))
    Tensor([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], complex64, cpu:0)
    """
    return xp.fft.fft(_to_complex(xp, x), n=n, axis=axis, norm=norm)


@_transform(
    vjp=(lambda g, y, x, n, axis, norm: _fitted(fft(g, axis=axis, norm=DUAL[norm]), x, axis),),
    **_COMPLEX,
)
def ifft(
    xp: Namespace,
    x: Array,
    /,
    *,
    n: Size = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] = "backward",
) -> Array:
    """Inverse of ``ef.fft.fft``: discrete Fourier transform with the other sign of the angles.

    ``x`` and ``n`` are as there. ``norm`` selects the factor: 1/n for ``"backward"``, 1/√n for
    ``"ortho"``, 1 for ``"forward"``. Raises ShapeError for an axis that does not exist and for a
    length below 1, ArgumentError for another norm.

    >>> ef.fft.ifft(ef.tensor([10 + 0j, -2 + 2j, -2 + 0j, -2 - 2j]))
    Tensor([1.+0.j, 2.+0.j, 3.+0.j, 4.+0.j], complex64, cpu:0)
    """
    return xp.fft.ifft(_to_complex(xp, x), n=n, axis=axis, norm=norm)


def _half_spec(x: TensorSpec, n: Any = None, axis: int = -1, norm: str = "backward") -> Any:
    at, length = _planned(x, n, axis, norm, _same)
    return _resized(x, at, length // 2 + 1, complex_dtype(x.dtype))


def _half_rule(g: Any, y: Any, x: Any, n: Any, axis: int, norm: str) -> Any:
    length = x.shape[axis] if n is None else n
    half = _inner(g, 0.5, length, axis)
    return _fitted(irfft(half, n=length, axis=axis, norm=DUAL[norm]), x, axis)


@_transform(
    dtypes=FLOATS,
    infer=_half_spec,
    cost=_cost(0.5, _same),
    vjp=(_half_rule,),
)
def rfft(
    xp: Namespace,
    x: Array,
    /,
    *,
    n: Size = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] = "backward",
) -> Array:
    """Discrete Fourier transform of real numbers along an axis: the frequencies from 0 to n/2.

    The rest are their complex conjugates. ``x`` is a real tensor; ``n`` and ``norm`` are as for
    ``ef.fft.fft``. The axis has n//2 + 1 elements in the result. Raises ShapeError for an axis that
    does not exist and for a length below 1, ArgumentError for another norm, DTypeError for complex
    tensors.

    >>> ef.fft.rfft(ef.tensor([1.0, 2.0, 3.0, 4.0]))
    Tensor([10.+0.j, -2.+2.j, -2.+0.j], complex64, cpu:0)
    """
    return xp.fft.rfft(x, n=n, axis=axis, norm=norm)


def _twice(size: Any) -> Any:
    return 2 * (size - 1)


def _back_spec(x: TensorSpec, n: Any = None, axis: int = -1, norm: str = "backward") -> Any:
    at, length = _planned(x, n, axis, norm, _twice)
    return _resized(x, at, length, real_dtype(x.dtype))


def _back_rule(g: Any, y: Any, x: Any, n: Any, axis: int, norm: str) -> Any:
    length = _twice(x.shape[axis]) if n is None else n
    half = rfft(g, n=length, axis=axis, norm=DUAL[norm])
    return _fitted(_inner(half, 2.0, length, axis), x, axis)


@_transform(
    dtypes=INEXACT,
    infer=_back_spec,
    cost=_cost(0.5, _twice),
    vjp=(_back_rule,),
)
def irfft(
    xp: Namespace,
    x: Array,
    /,
    *,
    n: Size = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] = "backward",
) -> Array:
    """Inverse of ``ef.fft.rfft``: the real numbers that have these frequencies from 0 to n/2.

    ``x`` is a complex or real tensor; the imaginary parts at 0 and, where n is even, at n/2 count
    as 0. ``n`` is the length of the result, by default twice that of ``x``, less 2; ``norm`` is
    as for ``ef.fft.ifft``. Raises ShapeError for an axis that does not exist and for a length
    below 1, ArgumentError for another norm.

    >>> ef.fft.irfft(ef.tensor([10 + 0j, -2 + 2j, -2 + 0j]))
    Tensor([1., 2., 3., 4.], float32, cpu:0)
    """
    return xp.fft.irfft(_to_complex(xp, x), n=n, axis=axis, norm=norm)
