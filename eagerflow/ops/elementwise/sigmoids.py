"""The logistic function and its smooth relatives: sigmoid, softplus, silu, gelu, mish.

Where two forms of a function are equal in mathematics, the one without overflow and cancellation
is taken.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.parts import at_least, at_most
from eagerflow.ops.elementwise.gradient_ops import chain_rule, differentiated_by, gradient_op
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.family import Missing, Onnx, pointwise
from eagerflow.ops.samples import each, reals

__all__ = ["log_sigmoid", "mish", "sigmoid", "silu", "softplus"]


_FAR = 800.0  # beyond, derivatives are 0 or 1, and x may as well be that


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# sigmoid -----------------------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: sigmoid_gradient, "y"),
    onnx=Onnx("Sigmoid"),
    samples=reals(-4, 4),
    reference=each(_logistic),
)
def sigmoid(s: Any, x: Any, /) -> Any:
    """Logistic function of each element: 1 / (1 + exp(-x)).

    ``x`` is a real tensor of any shape; integers are taken as float32. Large numbers of
    either sign give 1 and 0. Raises DTypeError for complex.

    >>> ef.sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([0.5, 1. , 0. ], float32, cpu:0)
    """
    return s.sigmoid(x)


@gradient_op(
    second_derivative=lambda y: 1 - 2 * y,
    derivative=lambda y: y * (1 - y),
    low=0.1,
    high=0.9,
)
def sigmoid_gradient(s: Any, value: Any, g: Any, /) -> Any:
    """The gradient of a sigmoid with result ``value``: g·value·(1 - value).

    ``value`` and ``g`` are real tensors that broadcast.

    >>> sigmoid_gradient(ef.tensor([0.5, 1.0]), ef.tensor([2.0, 2.0]))
    Tensor([0.5, 0. ], float32, cpu:0)
    """
    return chain_rule(s, g, s.multiply(value, s.subtract(1, value)))


# softplus and log_sigmoid ------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: softplus_gradient),
    onnx=Onnx("Softplus"),
    samples=reals(-4, 4),
    reference=each(lambda x: math.log(1 + math.exp(x))),
)
def softplus(s: Any, x: Any, /) -> Any:
    """Smooth form of max(x, 0): log(1 + exp(x)), without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softplus(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([6.9315e-01, 1.0000e+03, 0.0000e+00], float32, cpu:0)
    """
    return s.add(s.maximum(x, 0), s.log1p(s.exp(s.negative(s.abs(x)))))


@pointwise(
    **differentiated_by(lambda: log_sigmoid_gradient),
    onnx=Missing("exported as Neg(Softplus(Neg(x)))"),
    samples=reals(-4, 4),
    reference=each(lambda x: math.log(_logistic(x))),
)
def log_sigmoid(s: Any, x: Any, /) -> Any:
    """Logarithm of the logistic function of each element, without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.log_sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([-6.9315e-01,  0.0000e+00, -1.0000e+03], float32, cpu:0)
    """
    return s.subtract(s.minimum(x, 0), s.log1p(s.exp(s.negative(s.abs(x)))))


@gradient_op(
    second_derivative=lambda x: sigmoid(x) * sigmoid(-x),
    derivative=_logistic,
    low=-4,
    high=4,
)
def softplus_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of softplus with respect to ``x``: g·σ(x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> softplus_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return chain_rule(s, g, s.sigmoid(x))


@gradient_op(
    second_derivative=lambda x: -(sigmoid(x) * sigmoid(-x)),
    derivative=lambda x: _logistic(-x),
    low=-4,
    high=4,
)
def log_sigmoid_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of log_sigmoid with respect to ``x``: g·σ(-x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> log_sigmoid_gradient(ef.tensor([0.0, -1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return chain_rule(s, g, s.sigmoid(s.negative(x)))


# silu --------------------------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: silu_gradient),
    onnx=Missing("exported as Mul(x, Sigmoid(x))"),
    samples=reals(-4, 4),
    reference=each(lambda x: x * _logistic(x)),
)
def silu(s: Any, x: Any, /) -> Any:
    """Each element times its logistic function, also called swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Elfwing et
    al., arXiv:1702.03118. Raises DTypeError for complex.

    >>> ef.silu(ef.tensor([0.0, 1.0, -1000.0]))
    Tensor([ 0.    ,  0.7311, -0.    ], float32, cpu:0)
    """
    return s.divide(x, s.add(s.exp(s.negative(x)), 1))


def _silu_curvature(x: Any) -> Any:
    """The second derivative of silu."""
    y = sigmoid(x)
    return y * (1 - y) * ((1 - y * 2) * x + 2)


@gradient_op(
    second_derivative=_silu_curvature,
    derivative=lambda x: _logistic(x) * (1 + x * (1 - _logistic(x))),
    low=-1,
    high=4,
)
def silu_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of silu with respect to ``x``: g·σ(x)·(1 + x·(1 - σ(x))).

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -1.28, the derivative's error is absolute.

    >>> silu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 1.8553], float32, cpu:0)
    """
    x = at_most(s, at_least(s, x, -_FAR), _FAR)
    share = s.reciprocal(s.add(s.exp(s.negative(x)), 1))
    return chain_rule(s, g, s.multiply(share, s.fma(s.subtract(1, share), x, 1)))


# mish --------------------------------------------------------------------------------------------
#
# tanh(log(1 + e)) = n / (n + 2) with n = e·(e + 2); beyond e = exp(20) it is 1 in float64.


def _mish_derivative_of_number(x: float) -> float:
    share = math.tanh(math.log1p(math.exp(x)))
    return share + x * (1 - share * share) * _logistic(x)


def _mish_curvature(x: Any) -> Any:
    """The second derivative of mish."""
    share, y = tanh(softplus(x)), sigmoid(x)
    return (1 - share * share) * y * (2 + x * (1 - y - 2 * share * y))


@pointwise(
    **differentiated_by(lambda: mish_gradient),
    onnx=Onnx("Mish"),
    samples=reals(-4, 4),
    ulp=6,
    reference=each(lambda x: x * math.tanh(math.log1p(math.exp(x)))),
)
def mish(s: Any, x: Any, /) -> Any:
    """Each element times the hyperbolic tangent of its softplus.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Misra,
    arXiv:1908.08681. Raises DTypeError for complex.

    >>> ef.mish(ef.tensor([0.0, 1.0, 1000.0]))
    Tensor([0.000e+00, 8.651e-01, 1.000e+03], float32, cpu:0)
    """
    e = s.exp(s.minimum(x, 20))
    n = s.multiply(e, s.add(e, 2))
    return s.multiply(x, s.divide(n, s.add(n, 2)))


@gradient_op(
    second_derivative=_mish_curvature,
    derivative=_mish_derivative_of_number,
    low=-1,
    high=4,
)
def mish_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of mish with respect to ``x``: ``g`` times the derivative at each element.

    ``x`` and ``g`` are real tensors that broadcast. For negative numbers the derivative's error
    is absolute.

    >>> mish_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.6, 2. ], float32, cpu:0)
    """
    x = at_most(s, at_least(s, x, -_FAR), 20)
    e = s.exp(x)
    less = s.divide(2, s.add(s.multiply(e, s.add(e, 2)), 2))
    changed = s.multiply(s.multiply(less, s.subtract(2, less)), s.divide(e, s.add(e, 1)))
    return chain_rule(s, g, s.fma(changed, x, s.subtract(1, less)))
