"""Activation functions made of straight pieces, exponentials and quotients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import REAL, DType
from eagerflow.errors import DTypeError
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import abs
from eagerflow.ops.elementwise.comparison import greater, less, logical_and
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.gradient_ops import chain_rule, differentiated_by, gradient_op
from eagerflow.ops.elementwise.selection import minimum, where
from eagerflow.ops.family import (
    ErrorSample,
    Missing,
    Onnx,
    Sample,
    pointwise,
    refused_objects,
)
from eagerflow.ops.samples import each, pairs, values
from eagerflow.spec import TensorSpec

__all__ = ["elu", "hard_sigmoid", "hard_silu", "leaky_relu", "relu", "relu6", "selu", "softsign"]

_KINKS = (-3.0, 0.0, 3.0, 6.0)


def _off_kinks(low: float, high: float, **attributes: Any) -> Any:
    """Samples that keep clear of the points where pieces meet."""

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = values(rng, dtype, low, high)
        if np.dtype(dtype).kind == "f":
            for kink in _KINKS:
                found = [_moved(x, kink) for x in found]
        return [Sample((x,), dict(attributes)) for x in found]

    return samples


def _moved(x: Any, kink: float) -> Any:
    close = np.abs(x - kink) < 0.05
    return np.where(close, np.asarray(kink + 0.2, x.dtype), x) if close.any() else x


def _off_kinks_pairs(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [s._replace(args=(_moved(s.args[0], 0.0), s.args[1])) for s in pairs(-2, 2)(rng, dtype)]


# relu and relu6 ----------------------------------------------------------------------------------


@pointwise(
    border=1 << 18,  # up to there, NumPy's one step is quicker than a call of machine code
    **differentiated_by(lambda: relu_gradient, "y"),
    dtypes=REAL,
    onnx=Onnx("Relu"),
    samples=_off_kinks(-2, 2),
    reference=each(lambda x: x if x > 0 else 0),
)
def relu(s: Any, x: Any, /) -> Any:
    """Rectified linear unit: the larger of each element and 0.

    ``x`` is a real tensor of any shape. The derivative at 0 is 0. Raises DTypeError for bools
    and complex.

    >>> ef.relu(ef.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], float32, cpu:0)
    """
    return s.maximum(x, 0)


@gradient_op(
    second_derivative=lambda y: zeros_like(y),
    derivative=lambda y: 1 if y > 0 else 0,
    low=-2,
    high=2,
    samples=_off_kinks_pairs,
)
def relu_gradient(s: Any, value: Any, g: Any, /) -> Any:
    """The gradient of a relu with result ``value``: g where that is positive, 0 elsewhere.

    ``value`` and ``g`` are real tensors that broadcast.

    >>> relu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([3.0, 3.0]))
    Tensor([0., 3.], float32, cpu:0)
    """
    return s.select(s.greater(value, 0), g, 0)


@pointwise(
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 6)),),
    saves="y",
    dtypes=REAL,
    onnx=Missing("exported as Clip(x, 0, 6)"),
    samples=_off_kinks(-2, 8),
    reference=each(lambda x: 0 if x < 0 else 6 if x > 6 else x),
)
def relu6(s: Any, x: Any, /) -> Any:
    """Rectified linear unit that ends at 6: min(max(x, 0), 6).

    ``x`` is a real tensor of any shape. The derivative at 0 and 6 is 0. Source: Howard et
    al., arXiv:1704.04861. Raises DTypeError for bools and complex.

    >>> ef.relu6(ef.tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], float32, cpu:0)
    """
    return s.minimum(s.maximum(x, 0), 6)


# Leaky and exponential units ---------------------------------------------------------------------


def _with_number(name: str, other: float) -> dict[str, Any]:
    """Facts of an op with one attribute, a number; ``other`` than the default in some samples."""

    def infer(x: TensorSpec, **attributes: Any) -> TensorSpec:
        if not isinstance(attributes[name], int | float):
            raise DTypeError(
                f"{attributes[name]!r} is not a number", argument=name, expected="a Python number"
            )
        return x

    return {
        "infer": infer,
        "errors": lambda rng: [
            *refused_objects(rng),
            ErrorSample((rng.random(3),), {name: "steep"}, DTypeError, "is not a number"),
        ],
        "samples": lambda rng, dtype: [
            *_off_kinks(-2, 2)(rng, dtype),
            *_off_kinks(-2, 2, **{name: other})(rng, dtype)[:4],
        ],
    }


def _pairs_with_number(name: str, other: float) -> Any:
    """Samples of the gradient of such an op."""
    return lambda rng, dtype: [
        sample._replace(attributes=attributes)
        for attributes in ({}, {name: other})
        for sample in _off_kinks_pairs(rng, dtype)
    ]


@pointwise(
    **_with_number("negative_slope", 0.2),
    **differentiated_by(lambda: leaky_relu_gradient),
    onnx=Onnx("LeakyRelu", {"negative_slope": "alpha"}),
    reference=each(lambda x, negative_slope: x if x > 0 else negative_slope * x),
)
def leaky_relu(s: Any, x: Any, /, negative_slope: float = 0.01) -> Any:
    """Rectified linear unit with a small slope for negative numbers.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``negative_slope``
    multiplies what is below 0; its default is that of PyTorch and JAX (Keras has 0.2). The
    derivative at 0 is ``negative_slope``. Raises DTypeError for complex.

    >>> ef.leaky_relu(ef.tensor([-1.0, 2.0]), negative_slope=0.1)
    Tensor([-0.1,  2. ], float32, cpu:0)
    """
    return s.add(s.maximum(x, 0), s.multiply(s.minimum(x, 0), negative_slope))


@gradient_op(
    second_derivative=lambda x, negative_slope: zeros_like(x),
    derivative=lambda x, negative_slope: 1 if x > 0 else negative_slope,
    low=-2,
    high=2,
    samples=_pairs_with_number("negative_slope", 0.2),
)
def leaky_relu_gradient(s: Any, x: Any, g: Any, /, negative_slope: float = 0.01) -> Any:
    """The gradient of leaky_relu with respect to ``x``: g, times the slope where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> leaky_relu_gradient(ef.tensor([-1.0, 2.0]), ef.tensor([1.0, 1.0]), 0.1)
    Tensor([0.1, 1. ], float32, cpu:0)
    """
    return s.select(s.greater(x, 0), g, s.multiply(g, negative_slope))


def _elu(s: Any, x: Any, alpha: float) -> Any:
    return s.add(s.maximum(x, 0), s.multiply(s.expm1(s.minimum(x, 0)), alpha))


def _elu_curvature(x: Any, alpha: float) -> Any:
    """The second derivative of elu."""
    return where(greater(x, 0), 0.0, exp(minimum(x, 0.0)) * alpha)


@pointwise(
    **_with_number("alpha", 0.5),
    **differentiated_by(lambda: elu_gradient),
    onnx=Onnx("Elu"),
    reference=each(lambda x, alpha: x if x > 0 else alpha * math.expm1(x)),
)
def elu(s: Any, x: Any, /, alpha: float = 1.0) -> Any:
    """Exponential linear unit: x where it is positive, alpha·(exp(x) - 1) elsewhere.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``alpha`` is where
    negative numbers end. Source: Clevert et al., arXiv:1511.07289. Raises DTypeError for
    complex.

    >>> ef.elu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.6321,  2.    ], float32, cpu:0)
    """
    return _elu(s, x, alpha)


@gradient_op(
    second_derivative=_elu_curvature,
    derivative=lambda x, alpha: 1 if x > 0 else alpha * math.exp(x),
    low=-2,
    high=2,
    samples=_pairs_with_number("alpha", 0.5),
)
def elu_gradient(s: Any, x: Any, g: Any, /, alpha: float = 1.0) -> Any:
    """The gradient of elu with respect to ``x``: g, times alpha·exp(x) where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> elu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([1.0, 1.0]), 0.5)
    Tensor([0.5, 1. ], float32, cpu:0)
    """
    above = s.greater(x, 0)
    return chain_rule(s, g, s.select(above, 1, s.multiply(s.exp(s.select(above, 0, x)), alpha)))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@pointwise(
    # With g scaled first, it is elu's.
    **differentiated_by(lambda: lambda x, g: elu_gradient(x, g * _SELU_SCALE, _SELU_ALPHA)),
    onnx=Onnx("Selu"),
    samples=_off_kinks(-2, 2),
    reference=each(lambda x: _SELU_SCALE * (x if x > 0 else _SELU_ALPHA * math.expm1(x))),
)
def selu(s: Any, x: Any, /) -> Any:
    """Exponential linear unit scaled so that activations tend to mean 0 and variance 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. The constants are
    those of Klambauer et al., arXiv:1706.02515. Raises DTypeError for complex.

    >>> ef.selu(ef.tensor([-1.0, 2.0]))
    Tensor([-1.1113,  2.1014], float32, cpu:0)
    """
    return s.multiply(_elu(s, x, _SELU_ALPHA), _SELU_SCALE)


# Hard forms and softsign -------------------------------------------------------------------------


def _hard(s: Any, x: Any) -> Any:
    return s.multiply(s.minimum(s.maximum(s.add(x, 3), 0), 6), 1 / 6)


@pointwise(
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 1)).astype(y.dtype) * (1 / 6),),
    saves="y",
    onnx=Missing("exported as HardSigmoid with alpha=1/6, beta=1/2"),
    samples=_off_kinks(-5, 5),
    reference=each(lambda x: 0 if x < -3 else 1 if x > 3 else (x + 3) / 6),
)
def hard_sigmoid(s: Any, x: Any, /) -> Any:
    """The logistic function in three straight pieces: relu6(x + 3) / 6.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative at -3
    and 3 is 0. Raises DTypeError for complex.

    >>> ef.hard_sigmoid(ef.tensor([-4.0, 0.0, 3.0]))
    Tensor([0. , 0.5, 1. ], float32, cpu:0)
    """
    return _hard(s, x)


def _hard_silu_slope(x: Any) -> Any:
    inside = where(less(x, 3), (x * 2 + 3) * (1 / 6), 1)
    return where(greater(x, -3), inside, 0)


@pointwise(
    partials=(lambda y, x: _hard_silu_slope(x),),
    saves="x",
    onnx=Onnx("HardSwish"),
    samples=_off_kinks(-5, 5),
    reference=each(lambda x: 0 if x < -3 else x if x > 3 else x * (x + 3) / 6),
)
def hard_silu(s: Any, x: Any, /) -> Any:
    """Each element times its hard sigmoid, also called hard swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative is 0 at
    -3 and 1 at 3. Source: Howard et al., arXiv:1905.02244. Raises DTypeError for complex.

    >>> ef.hard_silu(ef.tensor([-4.0, 1.0, 4.0]))
    Tensor([-0.    ,  0.6667,  4.    ], float32, cpu:0)
    """
    return s.multiply(x, _hard(s, x))


def _softsign_slope(x: Any) -> Any:
    length = abs(x) + 1
    return 1 / (length * length)


@pointwise(
    partials=(lambda y, x: _softsign_slope(x),),
    saves="x",
    onnx=Onnx("Softsign"),
    reference=each(lambda x: x / (1 + max(x, -x))),
)
def softsign(s: Any, x: Any, /) -> Any:
    """Each element divided by 1 plus its absolute value; the results lie between -1 and 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softsign(ef.tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75], float32, cpu:0)
    """
    return s.divide(x, s.add(s.abs(x), 1))
