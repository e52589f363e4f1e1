"""Polynomials, as vectors of coefficients, the highest power first."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import INEXACT, complex64, is_complex, promote
from eagerflow.errors import KeywordError
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import eye, ones, zeros
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, negative, subtract
from eagerflow.ops.elementwise.complexes import real
from eagerflow.ops.elementwise.powers import sqrt, square
from eagerflow.ops.family import as_operands
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul
from eagerflow.ops.linear_algebra.decompositions import qr
from eagerflow.ops.linear_algebra.eigenvalues import eigvals
from eagerflow.ops.linear_algebra.products import vander
from eagerflow.ops.linear_algebra.systems import solve
from eagerflow.ops.operands import floating, vector, whole_number
from eagerflow.ops.reductions.neighbours import convolve
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import reshape

__all__ = ["FUNCTIONS"]


def _vectors(*given: Any) -> list[Any]:
    return [vector(reshape(x, (1,)) if x.ndim == 0 else x) for x in as_operands(*given)]


def _aligned(join: Callable[..., Any]) -> Callable[..., Any]:
    def call(a1: Any, a2: Any) -> Any:
        parts = _vectors(a1, a2)
        size = max(x.shape[0] for x in parts)
        return join(*(pad(x, ((size - x.shape[0], 0),)) for x in parts))

    return call


def _polymul(a1: Any, a2: Any) -> Any:
    return convolve(*_vectors(a1, a2))


def _polydiv(u: Any, v: Any) -> Any:
    u, v = (floating(x, "u", INEXACT) for x in _vectors(u, v))
    n, m = u.shape[0], v.shape[0]
    if n < m:
        return zeros((1,), u.dtype, str(u.device)), u
    quotient, rest = [], u
    for _ in range(n - m + 1):
        factor = divide(rest[:1], v[:1])
        quotient.append(factor)
        rest = concat([subtract(rest[:m], multiply(factor, v)), rest[m:]], axis=0)[1:]
    # Of degree 0 at least; leading zeros depend on values, and stay.
    return concat(quotient, axis=0), rest if m > 1 else zeros((1,), u.dtype, str(u.device))


def _polyder(p: Any, m: int = 1) -> Any:
    (p,) = _vectors(p)
    for _ in range(whole_number(m, "m", 0)):
        size = p.shape[0]
        p = multiply(p[:-1], arange(size - 1, 0, -1, device=str(p.device)))
    return p


def _polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    p = floating(_vectors(p)[0], "p", INEXACT)
    times = whole_number(m, "m", 0)
    constants = as_tensor(0 if k is None else k, p.dtype, p.device)
    constants = reshape(constants, (-1,))
    for i in range(times):
        powers = arange(p.shape[0], 0, -1, device=str(p.device))
        last = constants[min(i, constants.shape[0] - 1) :][:1]
        p = concat([divide(p, powers), last], axis=0)
    return p


def _poly(seq_of_zeros: Any) -> Any:
    """The polynomial with these zeros, or the characteristic one of a square matrix."""
    given = floating(as_tensor(seq_of_zeros), "seq_of_zeros", INEXACT)
    if given.ndim == 2:
        found = _poly(eigvals(given))
        return found if is_complex(given.dtype) else real(found)
    zeros_of = vector(given, "seq_of_zeros")
    one = ones((1,), zeros_of.dtype, str(zeros_of.device))
    factors = [
        concat([one, negative(zeros_of[i : i + 1])], axis=0) for i in range(zeros_of.shape[0])
    ]
    return reduce(convolve, factors, one)


def _roots(p: Any) -> Any:
    """The eigenvalues of the companion matrix; their number depends on zeros at the ends."""
    p = floating(_vectors(p)[0], "p", INEXACT)
    (places,) = np.nonzero(p._values("p"))
    first, last = (places[0], places[-1]) if places.size else (0, 0)
    at_zero = p.shape[0] - 1 - last if places.size else 0
    p = p[first : last + 1]
    size = p.shape[0] - 1
    if size < 1:
        found = zeros((0,), promote(p.dtype, complex64), str(p.device))
    else:
        below = eye(size - 1, size, dtype=p.dtype, device=str(p.device))
        top = negative(divide(p[1:], p[:1]))
        found = eigvals(concat([reshape(top, (1, size)), below], axis=0))
    return pad(found, ((0, at_zero),))


def _polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    if full or cov:
        raise KeywordError("the coefficients alone are given", op="polyfit", argument="full")
    x, y = (floating(part, "x", INEXACT) for part in as_operands(x, y))
    powers = vander(vector(x), whole_number(deg, "deg", 0) + 1)
    target = reshape(y, (-1, 1)) if y.ndim == 1 else y
    if w is not None:
        weights = reshape(as_tensor(w, x.dtype, x.device), (-1, 1))
        powers, target = multiply(powers, weights), multiply(target, weights)
    scale = sqrt(sum(square(powers), axis=0))
    q, r = qr(divide(powers, scale))
    q, r = (astype(part, promote(part.dtype, target.dtype)) for part in (q, r))
    found = divide(solve(r, matmul(adjoint(q), target)), reshape(scale, (-1, 1)))
    return reshape(found, (-1,)) if y.ndim == 1 else found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "poly": _poly,
    "polyadd": _aligned(add),
    "polyder": _polyder,
    "polydiv": _polydiv,
    "polyfit": _polyfit,
    "polyint": _polyint,
    "polymul": _polymul,
    "polysub": _aligned(subtract),
    "roots": _roots,
}
