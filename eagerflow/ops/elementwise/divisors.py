"""Remainders rounded towards 0, common divisors and multiples."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import INTEGERS, REAL
from eagerflow.ops.elementwise.arithmetic import divide, negative
from eagerflow.ops.elementwise.rounding import trunc
from eagerflow.ops.family import Missing, Onnx, ufunc
from eagerflow.spec import Array, Namespace

__all__ = ["fmod", "gcd", "lcm"]

_WHOLE = Missing("the result is an integer, which does not change smoothly")
_LOOP = Missing("Euclid's algorithm is a loop whose end depends on values")


def _rest(w: Any, a: Any, b: Any) -> Any:
    """The rule of ONNX; integers divided by 0 leave 0."""
    if a.dtype.kind == "f":
        return w.Mod(a, b, fmod=1)
    zero = w.constant(0, a.dtype)
    by_zero = w.Equal(b, zero, dtype=bool)
    return w.either(by_zero, zero, w.Mod(a, w.either(by_zero, w.constant(1, a.dtype), b), fmod=1))


@ufunc(
    partials=(1, lambda y, a, b: negative(trunc(divide(a, b)))),
    saves="x1 x2",
    singular=True,
    dtypes=REAL,
    scalar="fmod",
    onnx=Onnx("Mod", rule=_rest),
)
def fmod(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The remainder of a division rounded towards 0; it has the sign of the dividend.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. The
    remainder by 0 is 0 for integers and NaN for floats. ``ef.remainder`` has the sign of the
    divisor. Raises ShapeError where the shapes do not broadcast, DTypeError for bools and complex.

    >>> ef.fmod(ef.tensor([7, -7]), 3)
    Tensor([ 1, -1], int64, cpu:0)
    """
    left = xp.remainder(x1, x2)
    # Of another sign than x1, it is one divisor too far.
    return xp.where((left != 0) & ((left < 0) != (x1 < 0)), left - x2, left)


@ufunc(partials=_WHOLE, dtypes=INTEGERS, onnx=_LOOP)
def gcd(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Greatest common divisor of two integers, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of integers, of shapes that broadcast; their
    signs do not count, and of 0 and another it is the other. Raises ShapeError where the shapes do
    not broadcast, DTypeError for non-integer dtypes.

    >>> ef.gcd(ef.tensor([12, 18]), 8)
    Tensor([4, 2], int64, cpu:0)
    """
    a, b = xp.broadcast_arrays(xp.abs(x1), xp.abs(x2))
    while bool(xp.any(b != 0)):
        a, b = xp.where(b == 0, a, b), xp.where(b == 0, b, xp.remainder(a, xp.where(b == 0, 1, b)))
    return a


@ufunc(partials=_WHOLE, dtypes=INTEGERS, onnx=_LOOP)
def lcm(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Least common multiple of two integers, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of integers, of shapes that broadcast; their
    signs do not count, and of 0 and another it is 0. Results beyond the dtype wrap around. Raises
    ShapeError where the shapes do not broadcast, DTypeError for non-integer dtypes.

    >>> ef.lcm(ef.tensor([4, 6]), 10)
    Tensor([20, 30], int64, cpu:0)
    """
    divisor = gcd.op.kernel(xp, x1, x2)  # type: ignore[attr-defined]
    return xp.abs(x1) // xp.where(divisor == 0, 1, divisor) * xp.abs(x2)
