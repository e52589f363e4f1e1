"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

from eagerflow.ops.elementwise.arithmetic import negative, over
from eagerflow.ops.elementwise.exponential import analytic
from eagerflow.ops.elementwise.powers import divide_no_nan, rsqrt
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import FLOATS, INEXACT, Onnx, pointwise, ufunc
from eagerflow.spec import Array, Namespace

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
]


@analytic(lambda y, x: cos(x), saves="x", onnx=Onnx("Sin"))
def sin(xp: Namespace, x: Array, /) -> Array:
    """Sine of each element, in radians.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.sin(ef.tensor([0.0, ef.pi / 2]))
    Tensor([0., 1.], float32, cpu:0)
    """
    return xp.sin(x)


@analytic(lambda y, x: negative(sin(x)), saves="x", onnx=Onnx("Cos"))
def cos(xp: Namespace, x: Array, /) -> Array:
    """Cosine of each element, in radians.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.cos(ef.tensor([0.0, ef.pi]))
    Tensor([ 1., -1.], float32, cpu:0)
    """
    return xp.cos(x)


@analytic(lambda y, x: y * y + 1, saves="y", onnx=Onnx("Tan"))
def tan(xp: Namespace, x: Array, /) -> Array:
    """Tangent of each element, in radians.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.tan(ef.tensor([0.0, ef.pi / 4]))
    Tensor([0., 1.], float32, cpu:0)
    """
    return xp.tan(x)


@analytic(
    in_float32(lambda y, x: rsqrt(1 - x * x)),
    saves="x",
    singular=True,
    onnx=Onnx("Asin"),
)
def asin(xp: Namespace, x: Array, /) -> Array:
    """Arc sine of each element, in radians from -π/2 to π/2.

    ``x`` is a tensor of any shape; integers are taken as float32. Real numbers outside of -1 to 1
    give NaN; the derivative at the ends is infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.asin(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 1.5708], float32, cpu:0)
    """
    return xp.asin(x)


@analytic(
    in_float32(lambda y, x: negative(rsqrt(1 - x * x))),
    saves="x",
    singular=True,
    onnx=Onnx("Acos"),
)
def acos(xp: Namespace, x: Array, /) -> Array:
    """Arc cosine of each element, in radians from 0 to π.

    ``x`` is a tensor of any shape; integers are taken as float32. Real numbers outside of -1 to 1
    give NaN; the derivative at the ends is infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.acos(ef.tensor([1.0, 0.0]))
    Tensor([0.    , 1.5708], float32, cpu:0)
    """
    return xp.acos(x)


@analytic(in_float32(lambda y, x: over(x * x + 1)), saves="x", onnx=Onnx("Atan"))
def atan(xp: Namespace, x: Array, /) -> Array:
    """Arc tangent of each element, in radians from -π/2 to π/2.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.atan(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 0.7854], float32, cpu:0)
    """
    return xp.atan(x)


@analytic(lambda y, x: cosh(x), saves="x", onnx=Onnx("Sinh"))
def sinh(xp: Namespace, x: Array, /) -> Array:
    """Hyperbolic sine of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.sinh(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 1.1752], float32, cpu:0)
    """
    return xp.sinh(x)


@analytic(lambda y, x: sinh(x), saves="x", onnx=Onnx("Cosh"))
def cosh(xp: Namespace, x: Array, /) -> Array:
    """Hyperbolic cosine of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.cosh(ef.tensor([0.0, 1.0]))
    Tensor([1.    , 1.5431], float32, cpu:0)
    """
    return xp.cosh(x)


@pointwise(
    partials=(lambda y, x: x * -2,),
    saves="x",
    dtypes=INEXACT,
    ulp=8,  # near 1 and -1 more, where the difference is small
)
def one_minus_square(x: Any, /) -> Any:
    """The derivative of tanh in terms of its value: 1 - x².

    >>> from eagerflow.ops.elementwise.trigonometric import one_minus_square
    >>> one_minus_square(ef.tensor([0.0, 0.5]))
    Tensor([1.  , 0.75], float32, cpu:0)
    """
    return 1 - x * x


def _complex_tanh(xp: Namespace, x: Any) -> Any:
    """The limits at infinity have the sign of the imaginary part, as in the standard."""
    y, a, b = xp.tanh(x), xp.real(x), xp.imag(x)
    far = xp.logical_and(xp.isinf(a), xp.isfinite(b))
    if not xp.any(far):
        return y
    for left in (False, True):
        for below in (False, True):
            there = xp.logical_and(xp.signbit(a) == left, xp.signbit(b) == below)
            limit = complex(-1.0 if left else 1.0, -0.0 if below else 0.0)
            y = xp.where(xp.logical_and(far, there), xp.asarray(limit, dtype=x.dtype), y)
    return y


@analytic(
    lambda y, x: one_minus_square(y),
    saves="y",
    onnx=Onnx("Tanh"),
    overrides={"complex": _complex_tanh},
)
def tanh(xp: Namespace, x: Array, /) -> Array:
    """Hyperbolic tangent of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.tanh(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 0.7616], float32, cpu:0)
    """
    return xp.tanh(x)


@analytic(in_float32(lambda y, x: rsqrt(x * x + 1)), saves="x", onnx=Onnx("Asinh"))
def asinh(xp: Namespace, x: Array, /) -> Array:
    """Inverse hyperbolic sine of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Raises DTypeError for non-numeric
    dtypes.

    >>> ef.asinh(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 0.8814], float32, cpu:0)
    """
    return xp.asinh(x)


@analytic(
    in_float32(lambda y, x: rsqrt(x - 1) * rsqrt(x + 1)),
    saves="x",
    singular=True,
    onnx=Onnx("Acosh"),
)
def acosh(xp: Namespace, x: Array, /) -> Array:
    """Inverse hyperbolic cosine of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Real numbers below 1 give
    NaN; the derivative at 1 is infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.acosh(ef.tensor([1.0, 2.0]))
    Tensor([0.   , 1.317], float32, cpu:0)
    """
    return xp.acosh(x)


@analytic(
    in_float32(lambda y, x: over(1 - x * x)),
    saves="x",
    singular=True,
    onnx=Onnx("Atanh"),
)
def atanh(xp: Namespace, x: Array, /) -> Array:
    """Inverse hyperbolic tangent of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Real numbers outside of
    -1 to 1 give NaN; -1 and 1 are infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.atanh(ef.tensor([0.0, 0.5]))
    Tensor([0.    , 0.5493], float32, cpu:0)
    """
    return xp.atanh(x)


@ufunc(
    partials=(
        lambda y, a, b: divide_no_nan(b, a * a + b * b),
        lambda y, a, b: negative(divide_no_nan(a, a * a + b * b)),
    ),
    saves="x1 x2",
    singular=True,
    dtypes=FLOATS,
)
def atan2(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Angle of the points (x2, x1) to the positive x axis, in radians from -π to π.

    ``x1`` (the ordinates) and ``x2`` (the abscissas) are real tensors, arrays or numbers of
    shapes that broadcast; integers are taken as float32. The gradient at (0, 0) is 0. Raises
    ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.atan2(ef.tensor([1.0, 0.0]), ef.tensor([0.0, -1.0]))
    Tensor([1.5708, 3.1416], float32, cpu:0)
    """
    return xp.atan2(x1, x2)
