"""The regularized incomplete beta function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import GradientError
from eagerflow.op import Sample
from eagerflow.ops.elementwise.arithmetic import multiply_no_nan
from eagerflow.ops.elementwise.exponential import log, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.special import digamma, digamma_of_number
from eagerflow.ops.samples import PAIRS, each, make
from eagerflow.ops.special.family import MANY_TERMS, special
from eagerflow.primitives.special import incomplete_beta as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["betainc"]


def _samples(low: float = 0.5, numbers: bool = True) -> Callable[..., list[Sample]]:
    """Parameters are ``numbers`` where second derivatives by them are not offered."""

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = []
        for shape, other in PAIRS:
            a, b = rng.uniform(low, 6, 2)
            given: Any = (round(a, 2), round(b, 2))
            if not numbers:
                given = (make(rng, dtype, other, low, 6), make(rng, dtype, (), low, 6))
            found.append(Sample((*given, make(rng, dtype, shape, 0.05, 0.95))))
        base = make(rng, dtype, (4, 6), 0.05, 0.95)
        return [*found, Sample((2.5, 0.75, base[::2, ::-1])), Sample((30.0, 4, base.T))]

    return samples


def _log_density(a: float, b: float, x: float) -> float:
    start = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return start + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x)


def _of_numbers(a: float, b: float, x: float) -> float:
    """The power series of I_x(a, b) x^-a (1-x)^-b (DLMF 8.17.8), with positive terms."""
    term = total = 1.0
    for n in range(2000):
        term *= (a + b + n) / (a + 1 + n) * x
        total += term
    return math.exp(_log_density(a, b, x)) * x * (1 - x) / a * total


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
    samples=_samples(),
    reference=each(_of_numbers),
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
    samples=_samples(1.2, numbers=False),
    reference=each(lambda a, b, x: math.exp(_log_density(a, b, x))),
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


def _slope_of_numbers(a: float, b: float, x: float, second: bool) -> float:
    """The power series of the function, each term's derivative."""
    psi = digamma_of_number
    by = math.log1p(-x) - psi(b) if second else math.log(x) - psi(a) - 1 / a
    term, by = 1.0, by + psi(a + b)
    total = by
    for n in range(2000):
        term *= (a + b + n) / (a + 1 + n) * x
        by += 1 / (a + b + n) - (0 if second else 1 / (a + 1 + n))
        total += term * by
    return math.exp(_log_density(a, b, x)) * x * (1 - x) / a * total


def _slope_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        sample._replace(attributes={"second": second})
        for second in (False, True)
        for sample in _samples()(rng, dtype)
    ]


@special(
    kernels.betainc_slope,
    partials=(_no_second, _no_second, in_float32(_by_x)),
    saves="a b x",
    singular=True,
    trusted=False,
    onnx=MANY_TERMS,
    samples=_slope_samples,
    reference=each(_slope_of_numbers),
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
