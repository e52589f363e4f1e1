"""Special functions: error functions, the logarithm of the gamma function, its derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy import special
from eagerflow.codegen.numpy.tiling import tiled
from eagerflow.errors import DTypeError
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import FLOATS, Missing, Onnx, elementwise
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "polygamma"]

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


MIN_COMPILED_ELEMENTS = 64  # below, a new shape costs more than a call in NumPy


def _special(compiles: bool = False, **facts: Any) -> Any:
    """A function with a tiled NumPy kernel; if it ``compiles``, with an instruction of its name."""

    def decorate(kernel: Any) -> Any:
        def body(s: Any, x: Any) -> Any:
            return getattr(s, kernel.__name__)(x)

        def on_numpy(xp: Any, x: Any, /, **attributes: Any) -> Any:
            if compiles and x.dtype.char in "fd" and generated.pays(x.size, MIN_COMPILED_ELEMENTS):
                return generated.elementwise(body, x)
            return tiled(into, x, **attributes)

        def into(x: Any, out: Any, **attributes: Any) -> None:
            out[...] = kernel(np, x, **attributes)

        own: dict[str, Any] = {"overrides": {"numpy": on_numpy}, "dtypes": FLOATS}
        return elementwise(**own | facts)(kernel)

    return decorate


@_special(
    compiles=True,
    partials=(in_float32(lambda y, x: exp(x * -x) * _TWO_OVER_ROOT_PI),),
    saves="x",
    onnx=Onnx("Erf"),
    ulp=2,
)
def erf(xp: Namespace, x: Array, /) -> Array:
    """Error function of each element: 2/√π times the integral of exp(-t²) from 0 to x.

    ``x`` is a real tensor of any shape; integers are taken as float32. Without machine code
    computed in float64 after W. J. Cody, Math. Comp. 23 (1969). Raises DTypeError for complex.

    >>> ef.erf(ef.tensor([0.0, 1.0, -30.0]))
    Tensor([ 0.    ,  0.8427, -1.    ], float32, cpu:0)
    """
    return special.erf(xp, x)


@_special(
    compiles=True,
    partials=(in_float32(lambda y, x: exp(x * -x) * -_TWO_OVER_ROOT_PI),),
    saves="x",
    ulp=6,
)
def erfc(xp: Namespace, x: Array, /) -> Array:
    """Complementary error function of each element, 1 - erf(x), accurate also where it is tiny.

    ``x`` is a real tensor of any shape; integers are taken as float32. Without machine code
    computed in float64 after W. J. Cody, Math. Comp. 23 (1969). Raises DTypeError for complex.

    >>> ef.erfc(ef.tensor([0.0, 3.0]))
    Tensor([1.000e+00, 2.209e-05], float32, cpu:0)
    """
    return special.erfc(xp, x)


@_special(
    partials=(in_float32(lambda y, x: exp(y * y) / _TWO_OVER_ROOT_PI),),
    saves="y",
    singular=True,
    ulp=6,
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


@_special(compiles=True, partials=(lambda y, x: digamma(x),), saves="x", singular=True, ulp=6)
def lgamma(xp: Namespace, x: Array, /) -> Array:
    """Logarithm of the absolute value of the gamma function of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Infinite at 0, -1,
    -2 and so on. Close to the zeros among negative numbers the error is absolute, not
    relative. Raises DTypeError for complex.

    >>> ef.lgamma(ef.tensor([1.0, 5.0])), np.log(24)
    (Tensor([0.    , 3.1781], float32, cpu:0), np.float64(3.1780538303479458))
    """
    return special.lgamma(xp, x)


@_special(
    partials=(lambda y, x: polygamma(x, 1),),
    saves="x",
    singular=True,
    ulp=6,
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


@_special(
    partials=(lambda y, x, n: polygamma(x, n + 1),),
    saves="x",
    singular=True,
    infer=_polygamma_spec,
    trusted=False,
    scalar=Missing("a sum of many terms"),
    ulp=8,
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
