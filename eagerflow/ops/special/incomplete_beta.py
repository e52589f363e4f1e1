"""The regularized incomplete beta function."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import GradientError
from eagerflow.ops.elementwise.arithmetic import multiply_no_nan
from eagerflow.ops.elementwise.exponential import log, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.special import digamma
from eagerflow.ops.special.family import MANY_TERMS, special
from eagerflow.primitives.special import incomplete_beta as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["betainc"]


@special(
    kernels.betainc,
    partials=(
        in_float32(lambda y, a, b, x: betainc_slope(a, b, x)),
        in_float32(lambda y, a, b, x: betainc_slope(a, b, x, second=True)),
        in_float32(lambda y, a, b, x: beta_density(a, b, x)),
    ),
    saves="a b x",
    singular=True,
    onnx=MANY_TERMS,
)
def betainc(xp: Namespace, a: Array, b: Array, x: Array, /) -> Array:
    """Regularized incomplete beta function: the integral of t^(a-1) (1-t)^(b-1) / B(a, b) to x.

    ``a``, ``b`` and ``x`` are real tensors, arrays or numbers of shapes that broadcast; the first
    two are not negative, ``x`` is from 0 to 1; elsewhere the result is NaN. Computed in float64
    by the continued fraction of A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18
    (1992), for parameters to 1e8. All arguments have a gradient, the parameters a first one.
    Raises ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.betainc(2.0, 1.0, ef.tensor([0.5, 0.9]))
    Tensor([0.25, 0.81], float32, cpu:0)
    """
    return in_double(kernels.betainc)(xp, a, b, x)


@special(
    kernels.beta_density,
    partials=(
        in_float32(lambda y, a, b, x: y * (log(x) - digamma(a) + digamma(a + b))),
        in_float32(lambda y, a, b, x: y * (log1p(-x) - digamma(b) + digamma(a + b))),
        in_float32(lambda y, a, b, x: y * ((a - 1) / x - (b - 1) / (1 - x))),
    ),
    saves="y a b x",
    singular=True,
    onnx=MANY_TERMS,
)
def beta_density(xp: Namespace, a: Array, b: Array, x: Array, /) -> Array:
    """Density of the beta distribution with parameters ``a`` and ``b`` at ``x``.

    All are real tensors, arrays or numbers of shapes that broadcast. It is the derivative of
    ``betainc`` by ``x``. Raises ShapeError where the shapes do not broadcast, DTypeError for
    complex.

    >>> ef.grad(lambda x: ef.betainc(2.0, 1.0, x))(ef.tensor(0.25))
    Tensor(0.5, float32, cpu:0)
    """
    return in_double(kernels.beta_density)(xp, a, b, x)


def _no_second(*values: Any, second: bool) -> Any:
    raise GradientError(
        "second derivatives by the parameters of the incomplete beta function are not offered",
        op="betainc_slope",
        argument="a",
        expected="first derivatives by a and b, or any by x",
    )


def _by_x(y: Any, a: Any, b: Any, x: Any, second: bool) -> Any:
    start = log1p(-x) - digamma(b) if second else log(x) - digamma(a)
    return multiply_no_nan(start + digamma(a + b), beta_density(a, b, x))


@special(
    kernels.betainc_slope,
    partials=(_no_second, _no_second, in_float32(_by_x)),
    saves="a b x",
    singular=True,
    trusted=False,
    onnx=MANY_TERMS,
    ulp=40,  # of the reference, whose terms cancel
)
def betainc_slope(xp: Namespace, a: Array, b: Array, x: Array, /, *, second: bool = False) -> Array:
    """Derivative of ``betainc`` by its first parameter, or by the ``second``.

    ``a``, ``b`` and ``x`` are real tensors, arrays or numbers of shapes that broadcast; where the
    parameters are not positive and finite or ``x`` is not from 0 to 1 the result is NaN. Computed
    in float64: the continued fraction's derivative is that of a complex step. Second derivatives by
    the parameters raise GradientError. Raises ShapeError where the shapes do not broadcast,
    DTypeError for complex.

    >>> ef.grad(lambda a: ef.betainc(a, 1.0, 0.5))(ef.tensor(2.0)), 0.25 * np.log(0.5)
    (Tensor(-0.1733, float32, cpu:0), np.float64(-0.17328679513998632))
    """
    return in_double(kernels.betainc_slope)(xp, a, b, x, second=second)
