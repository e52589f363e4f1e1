"""The logistic function and its smooth relatives: sigmoid, softplus, silu, gelu, mish.

The NumPy kernels work tile by tile in few passes (``kernels/tiling.py``); where two forms of a
function are equal in mathematics, the one without overflow and cancellation is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.kernels.tiling import constants, in_tiles, scratch, zeros
from eagerflow.ops.family import (
    FLOATS,
    Missing,
    Onnx,
    elementwise,
)
from eagerflow.ops.samples import each, reals
from eagerflow.ops.trigonometric import tanh

__all__ = ["log_sigmoid", "mish", "sigmoid", "silu", "softplus"]


_ONE = constants(1)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# sigmoid -----------------------------------------------------------------------------------------


def _sigmoid_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, one, out)
    np.divide(one, out, out)


@elementwise(
    overrides={"numpy": in_tiles(_sigmoid_into)},
    partials=(lambda y, x: y * (1 - y),),
    saves="y",
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


# softplus and log_sigmoid ------------------------------------------------------------------------


def _log1p_exp_into(x: Any, out: Any) -> None:
    np.abs(x, out)
    np.negative(out, out)
    np.exp(out, out)
    np.log1p(out, out)


def _softplus_into(x: Any, out: Any) -> None:
    _log1p_exp_into(x, out)
    np.add(out, np.maximum(x, zeros(x), out=scratch(out)), out)


@elementwise(
    overrides={"numpy": in_tiles(_softplus_into)},
    partials=(lambda y, x: sigmoid(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.add(s.maximum(x, 0), s.log1p(s.exp(s.negative(s.abs(x))))),
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


@elementwise(
    overrides={"numpy": in_tiles(_log_sigmoid_into)},
    partials=(lambda y, x: sigmoid(-x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.subtract(s.minimum(x, 0), s.log1p(s.exp(s.negative(s.abs(x))))),
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


# silu --------------------------------------------------------------------------------------------


def _silu_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, one, out)
    np.divide(x, out, out)


def _silu_derivative_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    share = scratch(out)
    _sigmoid_into(x, share)
    np.subtract(one, share, out)
    np.multiply(out, x, out)
    np.add(out, one, out)
    np.multiply(out, share, out)


@elementwise(
    overrides={"numpy": in_tiles(_silu_into)},
    partials=(lambda y, x: silu_derivative(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.divide(x, s.add(s.exp(s.negative(x)), 1)),
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


@elementwise(
    overrides={"numpy": in_tiles(_silu_derivative_into)},
    partials=(lambda y, x: _silu_slope(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.multiply(
        s.sigmoid(x), s.add(s.multiply(s.subtract(1, s.sigmoid(x)), x), 1)
    ),
    onnx=Missing("exported as the ops that it consists of"),
    samples=reals(-1, 4),
    ulp=8,
    reference=each(lambda x: _logistic(x) * (1 + x * (1 - _logistic(x)))),
)
def silu_derivative(xp: Any, x: Any, /) -> Any:
    """Derivative of silu at each element: σ(x)·(1 + x·(1 - σ(x))).

    ``x`` is a real tensor of any shape. Close to its zero, at -1.28, the error is absolute. An
    op of its own, since it takes one pass where the ops it consists of take six.

    >>> silu_derivative(ef.tensor([0.0, 1.0]))
    Tensor([0.5   , 0.9277], float32, cpu:0)
    """
    y = 1 / (1 + xp.exp(-x))
    return y * (1 + x * (1 - y))


# mish --------------------------------------------------------------------------------------------
#
# tanh(log(1 + e)) = n / (n + 2) with n = e·(e + 2); beyond e = exp(20) it is 1 in float64.


_MISH = constants(20, 2)


def _mish_into(x: Any, out: Any) -> None:
    twenty, two = _MISH[out.dtype.char]
    other = scratch(out)
    np.exp(np.minimum(x, twenty, out=out), out)
    np.multiply(out, np.add(out, two, other), out)
    np.divide(out, np.add(out, two, other), out)
    np.multiply(out, x, out)


def _mish_slope(x: Any) -> Any:
    share = tanh(softplus(x))
    return share + x * (1 - share * share) * sigmoid(x)


def _mish_instructions(s: Any, x: Any) -> Any:
    e = s.exp(s.minimum(x, 20))
    n = s.multiply(e, s.add(e, 2))
    return s.multiply(x, s.divide(n, s.add(n, 2)))


@elementwise(
    overrides={"numpy": in_tiles(_mish_into)},
    partials=(lambda y, x: _mish_slope(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=_mish_instructions,
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
