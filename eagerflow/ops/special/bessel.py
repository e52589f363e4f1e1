"""Bessel functions of orders 0 and 1, and spherical ones of integer order."""

from __future__ import annotations

from typing import Any

from eagerflow.ops.elementwise.arithmetic import sign
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Missing
from eagerflow.ops.special.family import checked_order, special
from eagerflow.primitives.special import bessel as kernels
from eagerflow.primitives.special.pieces import in_double
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = [
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "spherical_jn",
    "y0",
    "y1",
]

_PIECES = Missing("a choice among formulas by where its argument lies")
# J and Y have zeros, where errors are absolute.
_ULP = {"J": 400, "Y": 400, "I": 4, "K": 4}


def _over(y: Any, x: Any, sign: int, scale: Any = 1) -> Any:
    """J1 (sign -1) or I1 (sign 1) over its argument, by the series where y / x has no slope.

    ``scale`` is the factor of y. Abramowitz and Stegun 9.1.10 and 9.6.10; the next term is below
    the precision of float64.
    """
    near = abs(x) < 0.01
    square = where(near, x * x, 0.0)
    series = 0.5 + square * (sign / 16 + square * (1 / 384))
    return where(near, series * scale, y / where(near, 1.0, x))


# References: integrals by the trapezoidal rule, which is exact for periodic functions and for
# those that vanish like exp(-exp(t)), and Neumann's series (Abramowitz and Stegun 9.1.88).


@special(
    kernels.j0,
    partials=(in_float32(lambda y, x: -j1(x)),),
    saves="x",
    onnx=_PIECES,
    ulp=_ULP["J"],
)
def j0(xp: Namespace, x: Array, /) -> Array:
    """Bessel function of the first kind of order 0 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64;
    errors are below 1.3e-15 of the amplitude of its wave. Raises DTypeError for complex.

    >>> ef.j0(ef.tensor([0.0, 2.404826]))
    Tensor([ 1.0000e+00, -1.9111e-07], float32, cpu:0)
    """
    return in_double(kernels.j0)(xp, x)


@special(
    kernels.j1,
    partials=(in_float32(lambda y, x: j0(x) - _over(y, x, -1)),),
    saves="y x",
    onnx=_PIECES,
    ulp=_ULP["J"],
)
def j1(xp: Namespace, x: Array, /) -> Array:
    """Bessel function of the first kind of order 1 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64;
    errors are below 1.3e-15 of the amplitude of its wave. Raises DTypeError for complex.

    >>> ef.j1(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 0.4401], float32, cpu:0)
    """
    return in_double(kernels.j1)(xp, x)


@special(
    kernels.y0,
    partials=(in_float32(lambda y, x: -y1(x)),),
    saves="x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["Y"],
)
def y0(xp: Namespace, x: Array, /) -> Array:
    """Bessel function of the second kind of order 0 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives -infinity,
    negative numbers NaN. Computed in float64; errors are below 1.3e-15 of the amplitude of its
    wave. Raises DTypeError for complex.

    >>> ef.y0(ef.tensor([0.0, 1.0]))
    Tensor([  -inf, 0.0883], float32, cpu:0)
    """
    return in_double(kernels.y0)(xp, x)


@special(
    kernels.y1,
    partials=(in_float32(lambda y, x: y0(x) - y / x),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["Y"],
)
def y1(xp: Namespace, x: Array, /) -> Array:
    """Bessel function of the second kind of order 1 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives -infinity,
    negative numbers NaN. Computed in float64; errors are below 1.3e-15 of the amplitude of its
    wave. Raises DTypeError for complex.

    >>> ef.y1(ef.tensor([0.0, 1.0]))
    Tensor([   -inf, -0.7812], float32, cpu:0)
    """
    return in_double(kernels.y1)(xp, x)


@special(
    kernels.i0,
    partials=(in_float32(lambda y, x: i1(x)),),
    saves="x",
    onnx=_PIECES,
    ulp=_ULP["I"],
)
def i0(xp: Namespace, x: Array, /) -> Array:
    """Modified Bessel function of the first kind of order 0 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64,
    with a relative error below 1e-15. Raises DTypeError for complex.

    >>> ef.i0(ef.tensor([0.0, 1.0]))
    Tensor([1.    , 1.2661], float32, cpu:0)
    """
    return in_double(kernels.i0)(xp, x)


@special(
    kernels.i1,
    partials=(in_float32(lambda y, x: i0(x) - _over(y, x, 1)),),
    saves="y x",
    onnx=_PIECES,
    ulp=_ULP["I"],
)
def i1(xp: Namespace, x: Array, /) -> Array:
    """Modified Bessel function of the first kind of order 1 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64,
    with a relative error below 1e-15. Raises DTypeError for complex.

    >>> ef.i1(ef.tensor([0.0, 1.0]))
    Tensor([0.    , 0.5652], float32, cpu:0)
    """
    return in_double(kernels.i1)(xp, x)


@special(
    kernels.i0e,
    partials=(in_float32(lambda y, x: i1e(x) - sign(x) * y),),
    saves="y x",
    onnx=_PIECES,
    ulp=_ULP["I"],
)
def i0e(xp: Namespace, x: Array, /) -> Array:
    """Scaled modified Bessel function of the first kind of order 0 of x: exp(-|x|) I0(x).

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64,
    with a relative error below 1e-15. Raises DTypeError for complex.

    >>> ef.i0e(ef.tensor([0.0, 1000.0]))
    Tensor([1.    , 0.0126], float32, cpu:0)
    """
    return in_double(kernels.i0e)(xp, x)


@special(
    kernels.i1e,
    partials=(in_float32(lambda y, x: i0e(x) - sign(x) * y - _over(y, x, 1, exp(-abs(x)))),),
    saves="y x",
    onnx=_PIECES,
    ulp=_ULP["I"],
)
def i1e(xp: Namespace, x: Array, /) -> Array:
    """Scaled modified Bessel function of the first kind of order 1 of x: exp(-|x|) I1(x).

    ``x`` is a real tensor of any shape; integers are taken as float32. Computed in float64,
    with a relative error below 1e-15. Raises DTypeError for complex.

    >>> ef.i1e(ef.tensor([0.0, 1000.0]))
    Tensor([0.    , 0.0126], float32, cpu:0)
    """
    return in_double(kernels.i1e)(xp, x)


@special(
    kernels.k0,
    partials=(in_float32(lambda y, x: -k1(x)),),
    saves="x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["K"],
)
def k0(xp: Namespace, x: Array, /) -> Array:
    """Modified Bessel function of the second kind of order 0 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives infinity,
    negative numbers NaN. Computed in float64, with a relative error below 1e-15. Raises
    DTypeError for complex.

    >>> ef.k0(ef.tensor([0.0, 1.0]))
    Tensor([  inf, 0.421], float32, cpu:0)
    """
    return in_double(kernels.k0)(xp, x)


@special(
    kernels.k1,
    partials=(in_float32(lambda y, x: -k0(x) - y / x),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["K"],
)
def k1(xp: Namespace, x: Array, /) -> Array:
    """Modified Bessel function of the second kind of order 1 of each element.

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives infinity,
    negative numbers NaN. Computed in float64, with a relative error below 1e-15. Raises
    DTypeError for complex.

    >>> ef.k1(ef.tensor([0.0, 1.0]))
    Tensor([   inf, 0.6019], float32, cpu:0)
    """
    return in_double(kernels.k1)(xp, x)


@special(
    kernels.k0e,
    partials=(in_float32(lambda y, x: y - k1e(x)),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["K"],
)
def k0e(xp: Namespace, x: Array, /) -> Array:
    """Scaled modified Bessel function of the second kind of order 0 of x: exp(x) K0(x).

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives infinity,
    negative numbers NaN. Computed in float64, with a relative error below 1e-15. Raises
    DTypeError for complex.

    >>> ef.k0e(ef.tensor([0.0, 1000.0]))
    Tensor([   inf, 0.0396], float32, cpu:0)
    """
    return in_double(kernels.k0e)(xp, x)


@special(
    kernels.k1e,
    partials=(in_float32(lambda y, x: y * (1 - 1 / x) - k0e(x)),),
    saves="y x",
    singular=True,
    onnx=_PIECES,
    ulp=_ULP["K"],
)
def k1e(xp: Namespace, x: Array, /) -> Array:
    """Scaled modified Bessel function of the second kind of order 1 of x: exp(x) K1(x).

    ``x`` is a real tensor of any shape; integers are taken as float32. 0 gives infinity,
    negative numbers NaN. Computed in float64, with a relative error below 1e-15. Raises
    DTypeError for complex.

    >>> ef.k1e(ef.tensor([0.0, 1000.0]))
    Tensor([   inf, 0.0396], float32, cpu:0)
    """
    return in_double(kernels.k1e)(xp, x)


def _spherical_spec(x: TensorSpec, n: Any) -> TensorSpec:
    checked_order(n)
    return x


def _spherical_slope(y: Any, x: Any, n: int) -> Any:
    if n == 0:
        return -spherical_jn(x, 1)
    return (spherical_jn(x, n - 1) * n - spherical_jn(x, n + 1) * (n + 1)) / (2 * n + 1)


@special(
    kernels.spherical_jn,
    partials=(in_float32(_spherical_slope),),
    saves="x",
    infer=_spherical_spec,
    trusted=False,
    onnx=_PIECES,
    ulp=400,
)
def spherical_jn(xp: Namespace, x: Array, /, n: int) -> Array:
    """Spherical Bessel function of the first kind of order ``n`` of each element.

    ``x`` is a real tensor of any shape, ``n`` an integer from 0 to 10000; integers in ``x`` are
    taken as float32. Computed in float64: upward from sin(x)/x where ``n`` is less than ``x``,
    else downward (J. C. P. Miller) or by the power series. Raises DTypeError for complex ``x`` and
    other ``n``.

    >>> ef.spherical_jn(ef.tensor([0.0, 1.0]), 0), np.sin(1.0)
    (Tensor([1.    , 0.8415], float32, cpu:0), np.float64(0.8414709848078965))
    """
    return in_double(kernels.spherical_jn)(xp, x, n=n)
