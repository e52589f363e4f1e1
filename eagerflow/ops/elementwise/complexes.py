"""Complex numbers: parts, conjugates and angles."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import is_complex
from eagerflow.op import Missing
from eagerflow.ops.family import INEXACT, elementwise
from eagerflow.spec import Array, Namespace

__all__ = ["angle", "conj", "imag", "real"]

_NOT_ANALYTIC = Missing("not complex-differentiable: see vjp")


@elementwise(
    partials=_NOT_ANALYTIC,
    vjp=(lambda g, y, x: conj(g),),
    jvp="linear",
    method=True,
)
def conj(xp: Namespace, x: Array, /) -> Array:
    """Complex conjugate; a real number is its own.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> ef.conj(ef.tensor([1 + 2j]))
    Tensor([1.-2.j], complex64, cpu:0)
    """
    return xp.conj(x) if x.dtype.kind == "c" else x


def _complex(g: Any, x: Any) -> Any:
    """A real gradient in the dtype of the argument."""
    return g.astype(x.dtype)


@elementwise(
    partials=_NOT_ANALYTIC,
    vjp=(lambda g, y, x: _complex(g, x),),
    jvp="linear",
    saves="x",
    result="real",
    keeps_order=False,  # every other number of complex ones
    method=True,
)
def real(xp: Namespace, x: Array, /) -> Array:
    """Real part of each element; a real number is its own.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> ef.real(ef.tensor([1 + 2j]))
    Tensor([1.], float32, cpu:0)
    """
    return xp.real(x) if x.dtype.kind == "c" else x


@elementwise(
    partials=_NOT_ANALYTIC,
    vjp=(lambda g, y, x: _complex(g, x) * 1j if is_complex(x.dtype) else g * 0,),
    jvp="linear",
    saves="x",
    result="real",
    keeps_order=False,  # every other number of complex ones
    method=True,
)
def imag(xp: Namespace, x: Array, /) -> Array:
    """Imaginary part of each element; 0 for real numbers.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> ef.imag(ef.tensor([1 + 2j]))
    Tensor([2.], float32, cpu:0)
    """
    return xp.imag(x) if x.dtype.kind == "c" else xp.zeros_like(x)


def _turn(g: Any, x: Any) -> Any:
    # The angle grows fastest across the direction of x, and the slower the longer x is.
    length = real(x * conj(x))
    return _complex(g / length, x) * 1j * x


@elementwise(
    partials=_NOT_ANALYTIC,
    vjp=(lambda g, y, x: _turn(g, x) if is_complex(x.dtype) else g * 0,),
    jvp=lambda tangents, y, x: imag(tangents[0] / x) if is_complex(x.dtype) else tangents[0] * 0,
    saves="x",
    singular=True,
    dtypes=INEXACT,
    result="real",
    scalar=Missing("regions have no complex numbers"),
)
def angle(xp: Namespace, x: Array, /) -> Array:
    """Angle of each complex number to the positive real axis, in radians from -π to π.

    ``x`` is a tensor of any shape; real numbers have the angle 0, or π if negative. Raises
    DTypeError for non-numeric dtypes.

    >>> ef.angle(ef.tensor([1j, -1.0]))
    Tensor([1.5708, 3.1416], float32, cpu:0)
    """
    if x.dtype.kind == "c":
        return xp.atan2(xp.imag(x), xp.real(x))
    return xp.atan2(xp.zeros_like(x), x)
