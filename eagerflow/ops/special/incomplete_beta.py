"""The regularized incomplete beta function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import GradientError
from eagerflow.op import Sample
from eagerflow.ops.elementwise.exponential import log, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.special import digamma
from eagerflow.ops.samples import PAIRS, each, make
from eagerflow.ops.special.family import MANY_TERMS, special
from eagerflow.primitives.special import incomplete_beta as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace

__all__ = ["betainc"]


def _samples(low: float = 0.5, numbers: bool = True) -> Callable[..., list[Sample]]:
    """Parameters are ``numbers`` where derivatives by them are not offered."""

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
    """The power series of I_x(a, b) x^-a (1-x)^-b (DLMF 8.17.8), which has positive terms."""
    term = total = 1.0
    for n in range(2000):
        term *= (a + b + n) / (a + 1 + n) * x
        total += term
    return math.exp(_log_density(a, b, x)) * x * (1 - x) / a * total


def _by_parameter(name: str) -> Callable[..., Any]:
    def refuse(*values: Any) -> Any:
        raise GradientError(
            "the incomplete beta function has no gradient by its parameters here: it is no "
            "closed form, and its series is not written",
            op="betainc",
            argument=name,
            expected="a gradient by x",
        )

    return refuse


@special(
    kernels.betainc,
    partials=(
        _by_parameter("a"),
        _by_parameter("b"),
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
    (1992), for parameters to 1e8. ``x`` alone has a gradient: by the others GradientError is
    raised. Raises ShapeError where the shapes do not broadcast, DTypeError for complex.

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
