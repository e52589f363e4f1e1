"""Orthogonal polynomials, by their recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.errors import DTypeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.special.family import MANY_TERMS, checked_order, special
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


def _polynomial(function: Call, **facts: Any) -> Any:
    """A polynomial of order ``n`` of each element."""
    return special(
        function,
        infer=_checked,
        trusted=False,
        onnx=MANY_TERMS,
        saves="x",
        ulp=400,  # next to zeros errors are those of the largest term
        **facts,
    )


@_polynomial(
    kernels.chebyshev_first,
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


@_polynomial(
    kernels.gegenbauer,
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


@_polynomial(
    kernels.hermite,
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


@_polynomial(
    kernels.jacobi,
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


@_polynomial(
    kernels.laguerre,
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


@composed(dtypes=FLOATS)
def eval_legendre(x: Any, /, n: Any) -> Tensor:
    """Legendre polynomial of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_legendre(ef.tensor([0.0, 1.0]), 2)
    Tensor([-0.5,  1. ], float32, cpu:0)
    """
    return eval_gegenbauer(x, n, 0.5)


@composed(dtypes=FLOATS)
def eval_chebyu(x: Any, /, n: Any) -> Tensor:
    """Chebyshev polynomial of the second kind of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_chebyu(ef.tensor([0.5, 1.0]), 2)
    Tensor([0., 3.], float32, cpu:0)
    """
    return eval_gegenbauer(x, n, 1.0)


@composed(dtypes=FLOATS)
def eval_laguerre(x: Any, /, n: Any) -> Tensor:
    """Laguerre polynomial of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000. Computed in float64 by
    the recurrence. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.eval_laguerre(ef.tensor([0.0, 1.0]), 2)
    Tensor([ 1. , -0.5], float32, cpu:0)
    """
    return eval_genlaguerre(x, n, 0.0)
