"""Orthogonal polynomials, by their recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import DTypeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.samples import each, values
from eagerflow.ops.special.family import MANY_TERMS, checked_order, order_errors, special
from eagerflow.primitives.special import polynomials as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = [
    "eval_chebyt",
    "eval_chebyu",
    "eval_gegenbauer",
    "eval_genlaguerre",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_jacobi",
    "eval_laguerre",
    "eval_legendre",
]

Call = Callable[..., Any]


def _samples(low: float, high: float, **more: Any) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        arrays = values(rng, dtype, low, high)[:7]
        return [Sample((x,), {"n": n} | more) for n in (0, 1, 2, 5) for x in arrays]

    return samples


def _checked(x: TensorSpec, n: Any, alpha: Any = 1.0, beta: Any = 1.0) -> TensorSpec:
    checked_order(n)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if type(value) not in (int, float) or not -1 < value < math.inf:
            raise DTypeError(
                f"{value!r} is not a parameter",
                argument=name,
                expected="a Python number that is more than -1",
            )
    return x


def _errors(rng: np.random.Generator) -> list[ErrorSample]:
    refused = [
        ErrorSample((rng.random(3),), {"n": 2, "alpha": alpha}, DTypeError, "is not a parameter")
        for alpha in (-1.5, "one")
    ]
    return [*order_errors(rng), *refused]


def _by_coefficients(row: Call) -> Call:
    """A reference: powers of x as fractions, with the coefficients ``row(n, **attributes)``."""

    def of_number(x: float, n: int, **attributes: Any) -> float:
        given = {name: Fraction(value) for name, value in attributes.items()}
        return float(sum(c * Fraction(x) ** k for k, c in row(n, **given)))

    return each(of_number)


def _polynomial(function: Call, low: float, high: float, row: Call, **facts: Any) -> Any:
    """A polynomial of order ``n`` of each element."""
    more = {"alpha": 0.75} if "alpha" in function.__code__.co_varnames[:4] else {}
    own: dict[str, Any] = {
        "infer": _checked,
        "trusted": False,
        "onnx": MANY_TERMS,
        "saves": "x",
        "samples": _samples(low, high, **more),
        "errors": _errors if more else order_errors,
        "reference": _by_coefficients(row),
        "ulp": 400,  # next to zeros errors are those of the largest term
    }
    return special(function, **own | facts)


def _chebyshev_row(n: int) -> list[Any]:
    if n == 0:
        return [(0, 1)]
    return [
        (
            n - 2 * k,
            Fraction(n * (-1) ** k * math.factorial(n - k - 1) * 2 ** (n - 2 * k))
            / (2 * math.factorial(k) * math.factorial(n - 2 * k)),
        )
        for k in range(n // 2 + 1)
    ]


@_polynomial(
    kernels.chebyshev_first,
    -1.2,
    1.2,
    _chebyshev_row,
    partials=(
        in_float32(lambda y, x, n: eval_gegenbauer(x, n - 1, 1.0) * n if n else zeros_like(x)),
    ),
)
def eval_chebyt(xp: Namespace, x: Array, /, n: int) -> Array:
    """Chebyshev polynomial of the first kind of order ``n`` of each element: cos(n acos(x)).

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_chebyt(ef.tensor([0.5, 2.0]), 2)
    Tensor([-0.5,  7. ], float32, cpu:0)
    """
    return in_double(kernels.chebyshev_first)(xp, x, n=n)


def _rising(a: Any, count: int) -> Any:
    return math.prod((a + i for i in range(count)), start=Fraction(1))


def _gegenbauer_row(n: int, alpha: Any) -> list[Any]:
    return [
        (
            n - 2 * k,
            (-1) ** k
            * _rising(alpha, n - k)
            * 2 ** (n - 2 * k)
            / (math.factorial(k) * math.factorial(n - 2 * k)),
        )
        for k in range(n // 2 + 1)
    ]


@_polynomial(
    kernels.gegenbauer,
    -1.2,
    1.2,
    _gegenbauer_row,
    partials=(
        in_float32(
            lambda y, x, n, alpha: (
                eval_gegenbauer(x, n - 1, alpha + 1) * (2 * alpha) if n else zeros_like(x)
            )
        ),
    ),
)
def eval_gegenbauer(xp: Namespace, x: Array, /, n: int, alpha: float) -> Array:
    """Gegenbauer polynomial of order ``n`` and parameter ``alpha`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000, ``alpha`` a number that
    is more than -1. Computed in float64 by the recurrence. Raises DTypeError for complex ``x``,
    other ``n`` and ``alpha``.

    >>> ef.eval_gegenbauer(ef.tensor([0.0, 1.0]), 2, 1.5)
    Tensor([-1.5,  6. ], float32, cpu:0)
    """
    return in_double(kernels.gegenbauer)(xp, x, n=n, alpha=alpha)


def _hermite_row(n: int, base: int = 2) -> list[Any]:
    return [
        (
            n - 2 * k,
            Fraction((-1) ** k * math.factorial(n) * base ** (n - 2 * k))
            / (math.factorial(k) * math.factorial(n - 2 * k) * (1 if base == 2 else 2**k)),
        )
        for k in range(n // 2 + 1)
    ]


@_polynomial(
    kernels.hermite,
    -2,
    2,
    _hermite_row,
    partials=(
        in_float32(lambda y, x, n: eval_hermite(x, n - 1) * (2 * n) if n else zeros_like(x)),
    ),
)
def eval_hermite(xp: Namespace, x: Array, /, n: int) -> Array:
    """Hermite polynomial of the physicists of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_hermite(ef.tensor([0.5, 1.0]), 2)
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return in_double(kernels.hermite)(xp, x, n=n)


@_polynomial(
    kernels.hermite_norm,
    -2,
    2,
    lambda n: _hermite_row(n, 1),
    partials=(in_float32(lambda y, x, n: eval_hermitenorm(x, n - 1) * n if n else zeros_like(x)),),
)
def eval_hermitenorm(xp: Namespace, x: Array, /, n: int) -> Array:
    """Hermite polynomial of the probabilists of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_hermitenorm(ef.tensor([0.5, 2.0]), 2)
    Tensor([-0.75,  3.  ], float32, cpu:0)
    """
    return in_double(kernels.hermite_norm)(xp, x, n=n)


def _jacobi_of_number(x: float, n: int, alpha: float, beta: float) -> float:
    """Powers of x - 1 times powers of x + 1, as fractions (DLMF 18.5.8)."""
    a, b, half = Fraction(alpha), Fraction(beta), Fraction(x) / 2
    terms = (
        _rising(a + k + 1, n - k)
        * _rising(b + n - k + 1, k)
        * (half - Fraction(1, 2)) ** k
        * (half + Fraction(1, 2)) ** (n - k)
        / (math.factorial(k) * math.factorial(n - k))
        for k in range(n + 1)
    )
    return float(sum(terms))


@_polynomial(
    kernels.jacobi,
    -1.2,
    1.2,
    lambda n: [],
    samples=_samples(-1.2, 1.2, alpha=0.75, beta=-0.25),
    reference=each(_jacobi_of_number),
    errors=lambda rng: [
        *order_errors(rng, alpha=0.5, beta=0.5),
        ErrorSample(
            (rng.random(3),), {"n": 2, "alpha": -1.5, "beta": 0.5}, DTypeError, "not a parameter"
        ),
        ErrorSample(
            (rng.random(3),), {"n": 2, "alpha": 0.5, "beta": "one"}, DTypeError, "not a parameter"
        ),
    ],
    partials=(
        in_float32(
            lambda y, x, n, alpha, beta: (
                eval_jacobi(x, n - 1, alpha + 1, beta + 1) * (0.5 * (n + alpha + beta + 1))
                if n
                else zeros_like(x)
            )
        ),
    ),
)
def eval_jacobi(xp: Namespace, x: Array, /, n: int, alpha: float, beta: float) -> Array:
    """Jacobi polynomial of order ``n`` and parameters ``alpha`` and ``beta`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000, the parameters numbers
    that are more than -1. Computed in float64 by the recurrence (DLMF 18.9.2). Raises DTypeError
    for complex ``x``, other ``n`` and parameters.

    >>> ef.eval_jacobi(ef.tensor([0.0, 1.0]), 1, 1.5, 0.5)
    Tensor([0.5, 2.5], float32, cpu:0)
    """
    return in_double(kernels.jacobi)(xp, x, n=n, alpha=alpha, beta=beta)


def _laguerre_row(n: int, alpha: Any) -> list[Any]:
    return [
        (
            k,
            (-1) ** k * _rising(alpha + k + 1, n - k) / (math.factorial(n - k) * math.factorial(k)),
        )
        for k in range(n + 1)
    ]


@_polynomial(
    kernels.laguerre,
    -1,
    4,
    _laguerre_row,
    partials=(
        in_float32(
            lambda y, x, n, alpha: -eval_genlaguerre(x, n - 1, alpha + 1) if n else zeros_like(x)
        ),
    ),
)
def eval_genlaguerre(xp: Namespace, x: Array, /, n: int, alpha: float) -> Array:
    """Generalized Laguerre polynomial of order ``n`` and parameter ``alpha`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000, ``alpha`` a number that
    is more than -1. Computed in float64 by the recurrence. Raises DTypeError for complex ``x``,
    other ``n`` and ``alpha``.

    >>> ef.eval_genlaguerre(ef.tensor([0.0, 1.0]), 1, 0.5)
    Tensor([1.5, 0.5], float32, cpu:0)
    """
    return in_double(kernels.laguerre)(xp, x, n=n, alpha=alpha)


# Those with a fixed parameter ---------------------------------------------------------------------


def _fixed(low: float, high: float, row: Call) -> dict[str, Any]:
    return {
        "samples": _samples(low, high),
        "reference": _by_coefficients(row),
        "errors": order_errors,
        "dtypes": FLOATS,
    }


@composed(**_fixed(-1.2, 1.2, lambda n: _gegenbauer_row(n, Fraction(1, 2))))
def eval_legendre(x: Any, /, n: Any) -> Tensor:
    """Legendre polynomial of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_legendre(ef.tensor([0.0, 1.0]), 2)
    Tensor([-0.5,  1. ], float32, cpu:0)
    """
    return eval_gegenbauer(x, n, 0.5)


@composed(**_fixed(-1.2, 1.2, lambda n: _gegenbauer_row(n, Fraction(1))))
def eval_chebyu(x: Any, /, n: Any) -> Tensor:
    """Chebyshev polynomial of the second kind of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_chebyu(ef.tensor([0.5, 1.0]), 2)
    Tensor([0., 3.], float32, cpu:0)
    """
    return eval_gegenbauer(x, n, 1.0)


@composed(**_fixed(-1, 4, lambda n: _laguerre_row(n, Fraction(0))))
def eval_laguerre(x: Any, /, n: Any) -> Tensor:
    """Laguerre polynomial of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_laguerre(ef.tensor([0.0, 1.0]), 2)
    Tensor([ 1. , -0.5], float32, cpu:0)
    """
    return eval_genlaguerre(x, n, 0.0)
