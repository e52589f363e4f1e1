"""Special functions: error functions, the logarithm of the gamma function, its derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import special
from eagerflow.codegen.numpy.tiling import horner, in_tiles, scratch
from eagerflow.errors import DTypeError
from eagerflow.op import ErrorSample
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import FLOATS, Missing, Onnx, Sample, elementwise
from eagerflow.ops.samples import each, reals, values
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "polygamma"]

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _special(**facts: Any) -> Any:
    """A function with a tiled NumPy kernel."""

    def decorate(kernel: Any) -> Any:
        def into(x: Any, out: Any, **attributes: Any) -> None:
            out[...] = kernel(np, x, **attributes)

        own: dict[str, Any] = {"overrides": {"numpy": in_tiles(into)}, "dtypes": FLOATS}
        return elementwise(**own | facts)(kernel)

    return decorate


# Powers of x² of a rational function that is erf(x)/x to 2e-8, from 0 to 3.93, where float32 cannot
# tell erf from 1; fitted by iteratively reweighted least squares.
_ERF_ABOVE = (
    1.12837914545707,
    0.190768107257158,
    0.0527882540802041,
    0.00377895710192714,
    0.000284797189812930,
    2.04212437626555e-06,
)
_ERF_BELOW = (
    1.0,
    0.502396555143132,
    0.114251067177554,
    0.0149961178233532,
    0.00116506150720651,
    3.80050961343149e-05,
)


def _erf_into(x: Any, out: Any) -> None:
    if out.dtype != np.float32:
        out[...] = special.erf(np, x)
        return
    bounded, square = scratch(out), scratch(out, "square")
    np.minimum(np.maximum(x, -3.93, out=bounded), 3.93, out=bounded)
    np.multiply(bounded, bounded, square)
    above = horner(_ERF_ABOVE, square, out)
    np.multiply(above, bounded, out)
    below = horner(_ERF_BELOW, square, bounded)
    np.divide(out, below, out)
    np.minimum(np.maximum(out, -1, out=out), 1, out=out)


@_special(
    overrides={"numpy": in_tiles(_erf_into)},
    partials=(in_float32(lambda y, x: exp(x * -x) * _TWO_OVER_ROOT_PI),),
    saves="x",
    onnx=Onnx("Erf"),
    samples=reals(-3, 3),
)
def erf(xp: Namespace, x: Array, /) -> Array:
    """Error function of each element: 2/√π times the integral of exp(-t²) from 0 to x.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64
    after W. J. Cody, Math. Comp. 23 (1969). Raises DTypeError for complex.

    >>> ef.erf(ef.tensor([0.0, 1.0, -30.0]))
    Tensor([ 0.    ,  0.8427, -1.    ], float32, cpu:0)
    """
    return special.erf(xp, x)


@_special(
    partials=(in_float32(lambda y, x: exp(x * -x) * -_TWO_OVER_ROOT_PI),),
    saves="x",
    samples=reals(-3, 3),
    ulp=6,
)
def erfc(xp: Namespace, x: Array, /) -> Array:
    """Complementary error function of each element, 1 - erf(x), accurate also where it is tiny.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64
    after W. J. Cody, Math. Comp. 23 (1969). Raises DTypeError for complex.

    >>> ef.erfc(ef.tensor([0.0, 3.0]))
    Tensor([1.000e+00, 2.209e-05], float32, cpu:0)
    """
    return special.erfc(xp, x)


def _bisected(x: float) -> float:
    """The inverse of erf by halving an interval."""
    low, high = -6.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return low


@_special(
    partials=(in_float32(lambda y, x: exp(y * y) / _TWO_OVER_ROOT_PI),),
    saves="y",
    singular=True,
    samples=reals(-0.9, 0.9),
    ulp=6,
    reference=each(_bisected),
)
def erfinv(xp: Namespace, x: Array, /) -> Array:
    """The inverse of the error function.

    ``x`` is a real tensor of values from -1 to 1, where the result is infinite; beyond, it is
    NaN. Computed in float64, from the start of M. Giles, "Approximating the erfinv function"
    (2012), by Halley's iteration. Raises DTypeError for complex.

    >>> ef.erfinv(ef.erf(ef.tensor([0.5, -2.0])))
    Tensor([ 0.5, -2. ], float32, cpu:0)
    """
    return special.erfinv(xp, x)


@_special(
    partials=(lambda y, x: digamma(x),), saves="x", singular=True, samples=reals(0.2, 12), ulp=6
)
def lgamma(xp: Namespace, x: Array, /) -> Array:
    """Logarithm of the absolute value of the gamma function of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Infinite at 0, -1,
    -2 and so on. Close to the zeros among negative numbers the error is absolute, not
    relative. Computed in float64. Raises DTypeError for complex.

    >>> ef.lgamma(ef.tensor([1.0, 5.0])), np.log(24)
    (Tensor([0.    , 3.1781], float32, cpu:0), np.float64(3.1780538303479458))
    """
    return special.lgamma(xp, x)


def digamma_of_number(x: float) -> float:
    """The recurrence up to 200, then three terms of the asymptotic series."""
    total = math.fsum(-1 / (x + k) for k in range(200))
    x += 200
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)


@_special(
    partials=(lambda y, x: polygamma(x, 1),),
    saves="x",
    singular=True,
    samples=reals(1.8, 12),
    ulp=6,
    reference=each(digamma_of_number),
)
def digamma(xp: Namespace, x: Array, /) -> Array:
    """Derivative of the logarithm of the gamma function at each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. -infinity at 0, infinity
    at -0, NaN at -1, -2 and so on. Computed in float64. Raises DTypeError for complex.

    >>> ef.digamma(ef.tensor([1.0, 2.0]))
    Tensor([-0.5772,  0.4228], float32, cpu:0)
    """
    return special.digamma(xp, x)


def _polygamma_spec(x: TensorSpec, n: Any) -> TensorSpec:
    if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= 30:
        raise DTypeError(
            f"{n!r} is not an order of derivatives", argument="n", expected="an integer, 0 to 30"
        )
    return x


def _polygamma_of_number(x: float, n: int) -> float:
    if n == 0:
        return digamma_of_number(x)
    s, end = n + 1, x + 2000
    total = math.fsum((x + k) ** -s for k in range(2000))
    total += end**-n / n + end**-s / 2 + s * end ** -(s + 1) / 12
    return (-1) ** s * math.factorial(n) * total


@_special(
    partials=(lambda y, x, n: polygamma(x, n + 1),),
    saves="x",
    singular=True,
    infer=_polygamma_spec,
    trusted=False,
    scalar=Missing("a sum of many terms"),
    samples=lambda rng, dtype: [
        Sample((x,), {"n": n}) for n in (0, 1, 3) for x in values(rng, dtype, 1.8, 9)[:6]
    ],
    errors=lambda rng: [
        ErrorSample((rng.random(3),), {"n": -1}, DTypeError, "order of derivatives"),
        ErrorSample((rng.random(3),), {"n": 1.5}, DTypeError, "order of derivatives"),
    ],
    ulp=8,
    reference=each(_polygamma_of_number),
)
def polygamma(xp: Namespace, x: Array, /, n: int) -> Array:
    """The n-th derivative of digamma at each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 (digamma itself) to 30.
    Infinite at 0; at -1, -2 and so on infinity for odd ``n``, NaN for even ones. Computed in
    float64 by Euler and Maclaurin's sum. Raises DTypeError for complex ``x`` and other ``n``.

    >>> ef.polygamma(ef.tensor(1.0), 1), np.pi**2 / 6
    (Tensor(1.6449, float32, cpu:0), 1.6449340668482264)
    """
    return special.polygamma(xp, x, n=n)
