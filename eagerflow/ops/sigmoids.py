"""The logistic function and its smooth relatives: sigmoid, softplus, silu, gelu, mish.

The NumPy kernels work tile by tile in few passes (``kernels/tiling.py``); where two forms of a
function are equal in mathematics, the one without overflow and cancellation is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.kernels.functions.parts import at_least, at_most
from eagerflow.kernels.tiling import constants, in_tiles, scratch, zeros
from eagerflow.ops.family import (
    FLOATS,
    Missing,
    Onnx,
    elementwise,
)
from eagerflow.ops.samples import each, reals
from eagerflow.ops.slopes import pulls, slope
from eagerflow.ops.trigonometric import tanh

__all__ = ["log_sigmoid", "mish", "sigmoid", "silu", "softplus"]


_ONE = constants(1)
_FAR = 800.0  # beyond, derivatives are 0 or 1, and x may as well be that
_SILU = constants(1, _FAR, -_FAR)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# sigmoid -----------------------------------------------------------------------------------------


def _sigmoid_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, one, out)
    np.divide(one, out, out)


def _sigmoid_body(s: Any, x: Any) -> Any:
    return s.sigmoid(x)


@elementwise(
    overrides={"numpy": in_tiles(_sigmoid_into, _sigmoid_body)},
    **pulls(lambda: sigmoid_gradient, "y"),
    dtypes=FLOATS,
    onnx=Onnx("Sigmoid"),
    samples=reals(-4, 4),
    reference=each(_logistic),
)
def sigmoid(xp: Any, x: Any, /) -> Any:
    """Logistic function of each element: 1 / (1 + exp(-x)).

    ``x`` is a real tensor of any shape; integers are taken as float32. Large numbers of
    either sign give 1 and 0. Raises DTypeError for complex.

    >>> ef.sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([0.5, 1. , 0. ], float32, cpu:0)
    """
    return 1 / (1 + xp.exp(-x))


def _sigmoid_slope_into(y: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.subtract(one, y, out)
    np.multiply(out, y, out)


@slope(
    into=_sigmoid_slope_into,
    body=lambda s, y: s.multiply(y, s.subtract(1, y)),
    second=lambda y: 1 - 2 * y,
    number=lambda y: y * (1 - y),
    low=0.1,
    high=0.9,
)
def sigmoid_gradient(xp: Any, value: Any, g: Any, /) -> Any:
    """The gradient of a sigmoid with result ``value``: g·value·(1 - value).

    ``value`` and ``g`` are real tensors that broadcast.

    >>> sigmoid_gradient(ef.tensor([0.5, 1.0]), ef.tensor([2.0, 2.0]))
    Tensor([0.5, 0. ], float32, cpu:0)
    """
    return g * (value * (1 - value))


# softplus and log_sigmoid ------------------------------------------------------------------------


def _log1p_exp_into(x: Any, out: Any) -> None:
    np.abs(x, out)
    np.negative(out, out)
    np.exp(out, out)
    np.log1p(out, out)


def _softplus_into(x: Any, out: Any) -> None:
    _log1p_exp_into(x, out)
    np.add(out, np.maximum(x, zeros(x), out=scratch(out)), out)


def _softplus_body(s: Any, x: Any) -> Any:
    return s.add(s.maximum(x, 0), s.log1p(s.exp(s.negative(s.abs(x)))))


@elementwise(
    overrides={"numpy": in_tiles(_softplus_into, _softplus_body)},
    **pulls(lambda: softplus_gradient),
    dtypes=FLOATS,
    scalar=_softplus_body,
    onnx=Onnx("Softplus"),
    samples=reals(-4, 4),
    reference=each(lambda x: math.log(1 + math.exp(x))),
)
def softplus(xp: Any, x: Any, /) -> Any:
    """Smooth form of max(x, 0): log(1 + exp(x)), without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softplus(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([6.9315e-01, 1.0000e+03, 0.0000e+00], float32, cpu:0)
    """
    return xp.log1p(xp.exp(-xp.abs(x))) + xp.where(x < 0, xp.zeros_like(x), x)


def _log_sigmoid_into(x: Any, out: Any) -> None:
    _log1p_exp_into(x, out)
    np.subtract(np.minimum(x, zeros(x), out=scratch(out)), out, out)


def _log_sigmoid_body(s: Any, x: Any) -> Any:
    return s.subtract(s.minimum(x, 0), s.log1p(s.exp(s.negative(s.abs(x)))))


@elementwise(
    overrides={"numpy": in_tiles(_log_sigmoid_into, _log_sigmoid_body)},
    **pulls(lambda: log_sigmoid_gradient),
    dtypes=FLOATS,
    scalar=_log_sigmoid_body,
    onnx=Missing("exported as Neg(Softplus(Neg(x)))"),
    samples=reals(-4, 4),
    reference=each(lambda x: math.log(_logistic(x))),
)
def log_sigmoid(xp: Any, x: Any, /) -> Any:
    """Logarithm of the logistic function of each element, without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.log_sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([-6.9315e-01,  0.0000e+00, -1.0000e+03], float32, cpu:0)
    """
    return xp.where(x < 0, x, xp.zeros_like(x)) - xp.log1p(xp.exp(-xp.abs(x)))


@slope(
    into=_sigmoid_into,
    body=_sigmoid_body,
    second=lambda x: sigmoid(x) * sigmoid(-x),
    number=_logistic,
    low=-4,
    high=4,
)
def softplus_gradient(xp: Any, x: Any, g: Any, /) -> Any:
    """The gradient of softplus with respect to ``x``: g·σ(x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> softplus_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return g / (1 + xp.exp(-x))


def _mirrored_sigmoid_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.exp(x, out)
    np.add(out, one, out)
    np.divide(one, out, out)


@slope(
    into=_mirrored_sigmoid_into,
    body=lambda s, x: s.sigmoid(s.negative(x)),
    second=lambda x: -(sigmoid(x) * sigmoid(-x)),
    number=lambda x: _logistic(-x),
    low=-4,
    high=4,
)
def log_sigmoid_gradient(xp: Any, x: Any, g: Any, /) -> Any:
    """The gradient of log_sigmoid with respect to ``x``: g·σ(-x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> log_sigmoid_gradient(ef.tensor([0.0, -1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return g / (1 + xp.exp(x))


# silu --------------------------------------------------------------------------------------------


def _silu_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, one, out)
    np.divide(x, out, out)


def _silu_derivative_into(x: Any, out: Any) -> None:
    one, far, low = _SILU[out.dtype.char]
    share, inside = scratch(out), scratch(out, "inside")
    np.minimum(np.maximum(x, low, out=inside), far, out=inside)
    _sigmoid_into(inside, share)
    np.subtract(one, share, out)
    np.multiply(out, inside, out)
    np.add(out, one, out)
    np.multiply(out, share, out)


def _silu_body(s: Any, x: Any) -> Any:
    return s.divide(x, s.add(s.exp(s.negative(x)), 1))


def _silu_derivative_body(s: Any, x: Any) -> Any:
    x = at_most(s, at_least(s, x, -_FAR), _FAR)
    share = s.reciprocal(s.add(s.exp(s.negative(x)), 1))
    return s.multiply(share, s.fma(s.subtract(1, share), x, 1))


@elementwise(
    overrides={"numpy": in_tiles(_silu_into, _silu_body)},
    **pulls(lambda: silu_gradient),
    dtypes=FLOATS,
    scalar=_silu_body,
    onnx=Missing("exported as Mul(x, Sigmoid(x))"),
    samples=reals(-4, 4),
    reference=each(lambda x: x * _logistic(x)),
)
def silu(xp: Any, x: Any, /) -> Any:
    """Each element times its logistic function, also called swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Elfwing et
    al., arXiv:1702.03118. Raises DTypeError for complex.

    >>> ef.silu(ef.tensor([0.0, 1.0, -1000.0]))
    Tensor([ 0.    ,  0.7311, -0.    ], float32, cpu:0)
    """
    return x / (1 + xp.exp(-x))


def _silu_slope(x: Any) -> Any:
    """The second derivative of silu."""
    y = sigmoid(x)
    return y * (1 - y) * ((1 - y * 2) * x + 2)


@slope(
    into=_silu_derivative_into,
    body=_silu_derivative_body,
    second=_silu_slope,
    number=lambda x: _logistic(x) * (1 + x * (1 - _logistic(x))),
    low=-1,
    high=4,
)
def silu_gradient(xp: Any, x: Any, g: Any, /) -> Any:
    """The gradient of silu with respect to ``x``: g·σ(x)·(1 + x·(1 - σ(x))).

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -1.28, the derivative's error is absolute.

    >>> silu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 1.8553], float32, cpu:0)
    """
    y = 1 / (1 + xp.exp(-x))
    return g * (y * (1 + x * (1 - y)))


# mish --------------------------------------------------------------------------------------------
#
# tanh(log(1 + e)) = n / (n + 2) with n = e·(e + 2); beyond e = exp(20) it is 1 in float64.


_MISH = constants(20, 2, -_FAR)


def _mish_into(x: Any, out: Any) -> None:
    twenty, two, _ = _MISH[out.dtype.char]
    other = scratch(out)
    np.exp(np.minimum(x, twenty, out=out), out)
    np.multiply(out, np.add(out, two, other), out)
    np.divide(out, np.add(out, two, other), out)
    np.multiply(out, x, out)


def _mish_derivative_into(x: Any, out: Any) -> None:
    twenty, two, low = _MISH[out.dtype.char]
    inside, other = scratch(out, "inside"), scratch(out)
    np.minimum(np.maximum(x, low, out=inside), twenty, out=inside)
    np.exp(inside, out)
    # x·σ(x), then 1 - tanh, which is 2 / (n + 2)
    np.multiply(np.divide(out, np.add(out, 1, other), other), inside, inside)
    np.multiply(out, np.add(out, two, other), out)
    np.divide(two, np.add(out, two, out), out)
    np.subtract(two, out, other)
    np.multiply(np.multiply(other, out, other), inside, other)
    np.add(np.subtract(1, out, out), other, out)


def _mish_derivative_body(s: Any, x: Any) -> Any:
    x = at_most(s, at_least(s, x, -_FAR), 20)
    e = s.exp(x)
    less = s.divide(2, s.add(s.multiply(e, s.add(e, 2)), 2))
    changed = s.multiply(s.multiply(less, s.subtract(2, less)), s.divide(e, s.add(e, 1)))
    return s.fma(changed, x, s.subtract(1, less))


def _mish_derivative_of_number(x: float) -> float:
    share = math.tanh(math.log1p(math.exp(x)))
    return share + x * (1 - share * share) * _logistic(x)


def _mish_curvature(x: Any) -> Any:
    """The second derivative of mish."""
    share, y = tanh(softplus(x)), sigmoid(x)
    return (1 - share * share) * y * (2 + x * (1 - y - 2 * share * y))


def _mish_body(s: Any, x: Any) -> Any:
    e = s.exp(s.minimum(x, 20))
    n = s.multiply(e, s.add(e, 2))
    return s.multiply(x, s.divide(n, s.add(n, 2)))


@elementwise(
    overrides={"numpy": in_tiles(_mish_into, _mish_body)},
    **pulls(lambda: mish_gradient),
    dtypes=FLOATS,
    scalar=_mish_body,
    onnx=Onnx("Mish"),
    samples=reals(-4, 4),
    ulp=6,
    reference=each(lambda x: x * math.tanh(math.log1p(math.exp(x)))),
)
def mish(xp: Any, x: Any, /) -> Any:
    """Each element times the hyperbolic tangent of its softplus.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Misra,
    arXiv:1908.08681. Raises DTypeError for complex.

    >>> ef.mish(ef.tensor([0.0, 1.0, 1000.0]))
    Tensor([0.000e+00, 8.651e-01, 1.000e+03], float32, cpu:0)
    """
    e = xp.exp(xp.where(x > 20, xp.full_like(x, 20), x))
    n = e * (e + 2)
    return x * (n / (n + 2))


@slope(
    into=_mish_derivative_into,
    body=_mish_derivative_body,
    second=_mish_curvature,
    number=_mish_derivative_of_number,
    low=-1,
    high=4,
)
def mish_gradient(xp: Any, x: Any, g: Any, /) -> Any:
    """The gradient of mish with respect to ``x``: ``g`` times the derivative at each element.

    ``x`` and ``g`` are real tensors that broadcast. For negative numbers the derivative's error
    is absolute.

    >>> mish_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.6, 2. ], float32, cpu:0)
    """
    e = xp.exp(xp.where(x > 20, xp.full_like(x, 20), x))
    less = 2 / (e * (e + 2) + 2)
    return g * (1 - less + x * (less * (2 - less) * (e / (e + 1))))
