"""Exponential integrals, and the zeta functions of Riemann and Hurwitz."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.errors import GradientError
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Missing
from eagerflow.ops.special.family import MANY_TERMS, special
from eagerflow.primitives.special import integrals as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace
from eagerflow.tensor import Tensor

__all__ = ["exp1", "expi", "zeta"]


@special(
    kernels.exp1,
    partials=(in_float32(lambda y, x: -exp(-x) / x),),
    saves="x",
    singular=True,
    onnx=MANY_TERMS,
)
def exp1(xp: Namespace, x: Array, /) -> Array:
    """Exponential integral E1 of each element: the integral of exp(-t)/t from x to infinity.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives infinity, negative
    numbers NaN. Computed in float64 by the power series and the continued fraction (DLMF 6.6, 6.9),
    with a relative error below 5e-15. Raises DTypeError for complex.

    >>> ef.exp1(ef.tensor([0.0, 1.0]))
    Tensor([   inf, 0.2194], float32, cpu:0)
    """
    return in_double(kernels.exp1)(xp, x)


@special(
    kernels.expi,
    partials=(in_float32(lambda y, x: exp(x) / x),),
    saves="x",
    singular=True,
    onnx=MANY_TERMS,
)
def expi(xp: Namespace, x: Array, /) -> Array:
    """Exponential integral Ei of each element: that of exp(t)/t up to x, its principal value.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives -infinity. Computed
    in float64 by the power series, the continued fraction, and from 40 on the asymptotic series
    (DLMF 6.6, 6.9, 6.12); at its zero, 0.3725, the error is absolute. Raises DTypeError for
    complex.

    >>> ef.expi(ef.tensor([0.0, 1.0, -1.0]))
    Tensor([   -inf,  1.8951, -0.2194], float32, cpu:0)
    """
    return in_double(kernels.expi)(xp, x)


# Zeta ---------------------------------------------------------------------------------------------


def _by_exponent(*values: Any) -> Any:
    raise GradientError(
        "the zeta function has no gradient by its exponent here: its series is not written",
        op="hurwitz_zeta",
        argument="x",
        expected="a gradient by q",
    )


@special(
    kernels.zeta,
    partials=(_by_exponent, in_float32(lambda y, x, q: -x * hurwitz_zeta(x + 1, q))),
    saves="x q",
    singular=True,
    onnx=MANY_TERMS,
)
def hurwitz_zeta(xp: Namespace, x: Array, q: Array, /) -> Array:
    """Sum of (q + k)^-x over all k from 0 on.

    ``x`` and ``q`` are real tensors, arrays or numbers of shapes that broadcast. Raises ShapeError
    where the shapes do not broadcast, DTypeError for complex, GradientError for a gradient by x.

    >>> ef.zeta(2.0, ef.tensor([1.0, 2.0])), np.pi**2 / 6
    (Tensor([1.6449, 0.6449], float32, cpu:0), 1.6449340668482264)
    """
    return in_double(kernels.zeta)(xp, x, q)


@special(
    kernels.riemann,
    partials=Missing("the derivative of zeta is no closed form, and its series is not written"),
    onnx=MANY_TERMS,
)
def riemann_zeta(xp: Namespace, x: Array, /) -> Array:
    """Riemann's zeta function of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.zeta(ef.tensor([2.0, 0.0, -1.0]))
    Tensor([ 1.6449, -0.5   , -0.0833], float32, cpu:0)
    """
    return in_double(kernels.riemann)(xp, x)


@composed(
    dtypes=FLOATS,
    singular=True,
)
def zeta(x: Any, q: Any = None, /) -> Tensor:
    """Hurwitz' zeta function, the sum of (q + k)^-x over all k from 0 on; without q, Riemann's.

    ``x`` and ``q`` are real tensors, arrays or numbers of shapes that broadcast. With ``q``, x is
    more than 1, and negative noninteger ``q`` need an integer x; elsewhere the result is NaN.
    Computed in float64 by Euler and Maclaurin's sum (DLMF 25.11.5), with a relative error below
    1e-14. A gradient passes by ``q`` alone. Raises ShapeError where the shapes do not broadcast,
    DTypeError for complex.

    >>> ef.zeta(ef.tensor([2.0, 0.0])), ef.zeta(2.0, ef.tensor(2.0))
    (Tensor([ 1.6449, -0.5   ], float32, cpu:0), Tensor(0.6449, float32, cpu:0))
    """
    return riemann_zeta(x) if q is None else hurwitz_zeta(x, q)
