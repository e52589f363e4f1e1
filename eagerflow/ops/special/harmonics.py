"""Associated Legendre functions and spherical harmonics, by Gegenbauer polynomials (DLMF 18.11.1).

The m-th derivative of a Legendre polynomial is (2m - 1)!! times the Gegenbauer polynomial of order
n - m and parameter m + 1/2, so all derivatives follow from those of polynomials and powers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import ArgumentError
from eagerflow.handlers import raised_here
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.bits import complex
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.powers import power
from eagerflow.ops.elementwise.trigonometric import cos, sin
from eagerflow.ops.operands import floating, whole_number
from eagerflow.ops.shapes.reshaping import broadcast_arrays
from eagerflow.ops.special.polynomials import eval_gegenbauer
from eagerflow.tensor import Tensor

__all__ = ["assoc_legendre_p", "sph_harm_y"]

MOST = 700  # Gegenbauer polynomials of higher orders leave the range of float64


def _order(n: Any, m: Any) -> tuple[int, int]:
    n, m = whole_number(n, "n", 0), whole_number(m, "m")
    if n > MOST:
        raise ArgumentError(
            f"{n} is not taken", argument="n", expected=f"an integer from 0 to {MOST}"
        )
    return n, m


@lru_cache(maxsize=1024)
def _factor(n: int, m: int, norm: bool) -> float:
    """The factor of (1 - x²)^(|m|/2) and the polynomial, with Condon and Shortley's sign."""
    size = abs(m)
    odd = math.prod(range(1, 2 * size, 2))
    ratio = Fraction(math.factorial(n - size), math.factorial(n + size))
    sign = -1 if m > 0 and m % 2 else 1
    try:
        if norm:
            return sign * math.sqrt(Fraction(2 * n + 1, 2) * ratio * odd * odd)
        return sign * float(odd * ratio if m < 0 else Fraction(odd))
    except raised_here(OverflowError):
        raise ArgumentError(
            f"functions of order {m} are too large for float64",
            argument="m",
            hint="norm=True",
        ) from None


def _legendre(x: Any, sine: Any, n: int, m: int, norm: bool) -> Any:
    """The function at x, with the power |m| of sqrt(1 - x²)."""
    polynomial = eval_gegenbauer(x, n - abs(m), abs(m) + 0.5)
    return multiply(multiply(polynomial, sine), _factor(n, m, norm))


@composed(
    dtypes=FLOATS,
)
def assoc_legendre_p(x: Any, /, n: Any, m: Any, norm: bool = False) -> Tensor:
    """Associated Legendre function of degree ``n`` and order ``m`` of each element.

    ``x`` is a real tensor of any shape with numbers from -1 to 1; beyond them functions of odd
    order are NaN. ``n`` is an integer from 0 to 700, ``m`` any integer: functions of orders above
    ``n`` are 0. ``norm=True`` scales them so that the integral of the square from -1 to 1 is 1. The
    sign is Condon and Shortley's, as in SciPy, whose function takes ``n`` and ``m`` first. Computed
    in float64; with ``norm``, the error is below 2e-15 times n + 1. Raises DTypeError for complex,
    ArgumentError for other ``n`` and ``m``, and for functions without ``norm`` that float64 cannot
    hold (from m = 151). Source: DLMF 14.3.

    >>> ef.assoc_legendre_p(ef.tensor([0.0, 0.6]), 2, 1)
    Tensor([-0.  , -1.44], float32, cpu:0)
    """
    n, m = _order(n, m)
    x = floating(x)
    wide = astype(x, "float64")
    if abs(m) > n:
        return astype(multiply(wide, 0), x.dtype)
    inside = multiply(subtract(1, wide), add(1, wide))
    sine = power(inside, abs(m) // 2 if m % 2 == 0 else abs(m) / 2)
    return astype(_legendre(wide, sine, n, m, norm), x.dtype)


@composed(
    dtypes=FLOATS,
    small=Missing("there are no complex numbers of 16-bit floats"),
)
def sph_harm_y(theta: Any, phi: Any, /, n: Any, m: Any) -> Tensor:
    """Spherical harmonic of degree ``n`` and order ``m``, with an integral of 1 over the sphere.

    ``theta`` is the angle from the pole, from 0 to π, and ``phi`` that around it, in radians: real
    tensors of shapes that broadcast, with 16-bit floats taken as float32. ``n`` is an integer from
    0 to 700, ``m`` any integer: harmonics of orders above ``n`` are 0. The sign is Condon and
    Shortley's, as in SciPy, whose function takes ``n`` and ``m`` first. The result is complex.
    Computed in float64. Gradients are right at the poles as well. Raises ShapeError where the
    shapes do not broadcast, DTypeError for complex, ArgumentError for other ``n`` and ``m``.
    Source: DLMF 14.30.1.

    >>> ef.sph_harm_y(ef.tensor([0.0, 0.5]), 0.0, 1, 0)
    Tensor([0.4886+0.j, 0.4288+0.j], complex64, cpu:0)
    """
    n, m = _order(n, m)
    theta, phi = broadcast_arrays(floating(theta, "theta"), floating(phi, "phi"))
    dtype = promote(promote(theta.dtype, phi.dtype), np.dtype("complex64"))
    theta, phi = astype(theta, "float64"), astype(phi, "float64")
    if abs(m) > n:
        return astype(multiply(complex(theta, phi), 0), dtype)
    size = _legendre(cos(theta), power(sin(theta), abs(m)), n, m, norm=True)
    size, turn = multiply(size, 1 / math.sqrt(2 * math.pi)), multiply(phi, m)
    return astype(complex(multiply(size, cos(turn)), multiply(size, sin(turn))), dtype)
