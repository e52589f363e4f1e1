"""The scaled and inverse error functions, the normal distribution, and terms of entropies."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.ops.elementwise.comparison import isnan
from eagerflow.ops.elementwise.exponential import exp, log, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import minimum, where
from eagerflow.ops.family import FLOATS, Missing, pointwise
from eagerflow.ops.special.family import special
from eagerflow.primitives.special import errors as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["entr", "erfcinv", "erfcx", "log_ndtr", "ndtr", "ndtri", "rel_entr"]

_ROOT_PI = math.sqrt(math.pi)
ROOT_HALF = math.sqrt(0.5)
_PIECES = Missing("a choice among formulas by where its argument lies")


def _erfcx_slope(y: Any, x: Any) -> Any:
    # From 10 on 2 x y and 2/√π are nearly equal; of the asymptotic series the first cancels.
    z = 0.5 / where(x > 10, x * x, 100.0)
    series = 1 - z * (3 - z * (15 - z * (105 - z * (945 - z * (10395 - z * 135135)))))
    return where(x > 10, series * z * (-2 / _ROOT_PI), x * y * 2 - 2 / _ROOT_PI)


@special(
    kernels.erfcx,
    partials=(in_float32(_erfcx_slope),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
)
def erfcx(xp: Namespace, x: Array, /) -> Array:
    """Scaled complementary error function, exp(x²) erfc(x), without underflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64 after
    W. J. Cody, Math. Comp. 23 (1969), with a relative error below 1e-15. Raises DTypeError for
    complex.

    >>> ef.erfcx(ef.tensor([0.0, 100.0])), 1 / (100 * np.sqrt(np.pi))
    (Tensor([1.    , 0.0056], float32, cpu:0), np.float64(0.005641895835477563))
    """
    return in_double(kernels.erfcx)(xp, x)


@special(
    kernels.erfcinv,
    partials=(in_float32(lambda y, x: exp(y * y) * (-_ROOT_PI / 2)),),
    saves="y",
    singular=True,
    onnx=_PIECES,
)
def erfcinv(xp: Namespace, x: Array, /) -> Array:
    """The inverse of the complementary error function, accurate also near 0.

    ``x`` is a real tensor of values from 0 to 2, where the result is infinite; beyond, it is NaN.
    Computed in float64 by Newton's iteration on the logarithm, with a relative error below
    1e-15. Raises DTypeError for complex.

    >>> ef.erfcinv(ef.tensor([1.0, 1e-30]))
    Tensor([0.    , 8.1486], float32, cpu:0)
    """
    return in_double(kernels.erfcinv)(xp, x)


@special(
    kernels.ndtr,
    partials=(in_float32(lambda y, x: exp(x * x * -0.5) * (ROOT_HALF / _ROOT_PI)),),
    saves="x",
    onnx=_PIECES,
)
def ndtr(xp: Namespace, x: Array, /) -> Array:
    """Probability that a standard normal number is less than each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64, with
    a relative error below 1e-15 also where it is tiny. Raises DTypeError for complex.

    >>> ef.ndtr(ef.tensor([0.0, -10.0]))
    Tensor([5.0000e-01, 7.6199e-24], float32, cpu:0)
    """
    return in_double(kernels.ndtr)(xp, x)


@special(
    kernels.ndtri,
    partials=(in_float32(lambda y, x: exp(y * y * 0.5) * (_ROOT_PI / ROOT_HALF)),),
    saves="y",
    singular=True,
    onnx=_PIECES,
)
def ndtri(xp: Namespace, x: Array, /) -> Array:
    """The number below which a standard normal one is with a probability of each element.

    ``x`` is a real tensor of values from 0 to 1, where the result is infinite; beyond, it is NaN.
    Computed in float64, as ``erfcinv``. Raises DTypeError for complex.

    >>> ef.ndtri(ef.tensor([0.5, 0.975]))
    Tensor([-0.  ,  1.96], float32, cpu:0)
    """
    return in_double(kernels.ndtri)(xp, x)


@special(
    kernels.log_ndtr,
    partials=(in_float32(lambda y, x: math.sqrt(2 / math.pi) / erfcx(x * -ROOT_HALF)),),
    saves="x",
    onnx=_PIECES,
    ulp=8,
)
def log_ndtr(xp: Namespace, x: Array, /) -> Array:
    """Logarithm of the probability that a standard normal number is less than each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64, with
    a relative error below 1e-15. Raises DTypeError for complex.

    >>> ef.log_ndtr(ef.tensor([0.0, -100.0]))
    Tensor([-6.9315e-01, -5.0055e+03], float32, cpu:0)
    """
    return in_double(kernels.log_ndtr)(xp, x)


# Terms of entropies -------------------------------------------------------------------------------


@pointwise(
    partials=(in_float32(lambda y, x: -log(x) - 1),),
    saves="x",
    singular=True,
    dtypes=FLOATS,
)
def entr(x: Any, /) -> Any:
    """Each element's term in an entropy: -x log(x), 0 of 0, and -infinity of negative numbers.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.entr(ef.tensor([0.0, 0.5, 1.0]))
    Tensor([ 0.    ,  0.3466, -0.    ], float32, cpu:0)
    """
    y = -(x * log(x))
    return where(x == 0, 0, where(x < 0, -math.inf, y))


@pointwise(
    partials=(
        in_float32(lambda y, x1, x2: log(x1) - log(x2) + 1),
        in_float32(lambda y, x1, x2: -x1 / x2),
    ),
    saves="x1 x2",
    singular=True,
    dtypes=FLOATS,
    ulp=8,
)
def rel_entr(x1: Any, x2: Any, /) -> Any:
    """Each element's term in a relative entropy: x1 log(x1/x2), and 0 where x1 is 0.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Infinite where one is negative, or ``x2`` alone is 0. Raises ShapeError where
    the shapes do not broadcast, DTypeError for complex.

    >>> ef.rel_entr(ef.tensor([0.0, 0.5, 1.0]), 0.5)
    Tensor([0.    , 0.    , 0.6931], float32, cpu:0)
    """
    # The difference of two that are close is exact, and the logarithm of their quotient small.
    apart = (x1 - x2) / x2
    near = abs(apart) < 0.5
    ratio = x1 / x2
    whole = where(abs(log(ratio)) < 60, log(ratio), log(x1) - log(x2))
    y = x1 * where(near, log1p(where(near, apart, 0)), whole)
    zero = where(x1 == 0, x1, math.inf)
    inside = minimum(x1, x2)
    y = where(inside > 0, y, where(inside < 0, math.inf, zero))
    return where(isnan(x1), math.nan, where(isnan(x2), math.nan, y))
