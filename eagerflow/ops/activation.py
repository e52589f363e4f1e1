"""Activation functions made of straight pieces, exponentials and quotients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import REAL
from eagerflow.errors import DTypeError
from eagerflow.kernels import generated
from eagerflow.kernels.tiling import SMALL, constants, direct_tiles, in_tiles, scratch, tiled, zeros
from eagerflow.ops.arithmetic import abs
from eagerflow.ops.comparison import greater, less, logical_and
from eagerflow.ops.creation import zeros_like
from eagerflow.ops.exponential import exp
from eagerflow.ops.family import (
    FLOATS,
    ErrorSample,
    Missing,
    Onnx,
    Sample,
    elementwise,
    refused_objects,
)
from eagerflow.ops.samples import each, pairs, reals, values
from eagerflow.ops.selection import minimum, where
from eagerflow.ops.slopes import pulls, slope
from eagerflow.spec import TensorSpec

__all__ = ["elu", "hard_sigmoid", "hard_silu", "leaky_relu", "relu", "relu6", "selu", "softsign"]

_KINKS = (-3.0, 0.0, 3.0, 6.0)


def _off_kinks(low: float, high: float, **attributes: Any) -> Any:
    """Samples that keep clear of the points where pieces meet."""

    def samples(rng: Any, dtype: Any) -> list[Sample]:
        found = values(rng, dtype, low, high)
        if np.dtype(dtype).kind == "f":
            for kink in _KINKS:
                found = [_moved(x, kink) for x in found]
        return [Sample((x,), dict(attributes)) for x in found]

    return samples


def _moved(x: Any, kink: float) -> Any:
    close = np.abs(x - kink) < 0.05
    return np.where(close, np.asarray(kink + 0.2, x.dtype), x) if close.any() else x


def _off_kinks_pairs(rng: Any, dtype: Any) -> list[Sample]:
    return [s._replace(args=(_moved(s.args[0], 0.0), s.args[1])) for s in pairs(-2, 2)(rng, dtype)]


# relu and relu6 ----------------------------------------------------------------------------------


def _step_into(x: Any, out: Any) -> None:
    np.greater(x, 0, out=out, casting="unsafe")


_RELU_BORDER = 1 << 18  # up to there, NumPy's one step is quicker than a kernel's call


def _relu_into(x: Any, out: Any) -> None:
    np.maximum(x, zeros(x), out=out)


def _relu_body(s: Any, x: Any) -> Any:
    return s.maximum(x, 0)


def _relu_numpy(xp: Any, x: Any) -> Any:
    if generated.takes(x, _RELU_BORDER):
        return generated.elementwise(_relu_body, x)
    if x.size < SMALL or x.dtype.kind != "f":
        return np.maximum(x, x.dtype.type(0))
    return tiled(_relu_into, x)


@elementwise(
    overrides={"numpy": _relu_numpy},
    **pulls(lambda: relu_gradient, "y"),
    dtypes=REAL,
    scalar=_relu_body,
    onnx=Onnx("Relu"),
    samples=_off_kinks(-2, 2),
    reference=each(lambda x: x if x > 0 else 0),
)
def relu(xp: Any, x: Any, /) -> Any:
    """Rectified linear unit: the larger of each element and 0.

    ``x`` is a real tensor of any shape. The derivative at 0 is 0. Raises DTypeError for bools
    and complex.

    >>> ef.relu(ef.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], float32, cpu:0)
    """
    return xp.maximum(x, xp.zeros_like(x))


@slope(
    into=_step_into,
    step=True,
    body=lambda s, y: s.greater(y, 0),
    second=lambda y: zeros_like(y),
    number=lambda y: 1 if y > 0 else 0,
    low=-2,
    high=2,
    samples=_off_kinks_pairs,
)
def relu_gradient(xp: Any, value: Any, g: Any, /) -> Any:
    """The gradient of a relu with result ``value``: g where that is positive, 0 elsewhere.

    ``value`` and ``g`` are real tensors that broadcast.

    >>> relu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([3.0, 3.0]))
    Tensor([0., 3.], float32, cpu:0)
    """
    return xp.where(value > 0, g, xp.zeros_like(g))


def _relu6_into(x: Any, out: Any) -> None:
    np.minimum(np.maximum(x, 0, out=out), 6, out=out)


@elementwise(
    overrides={"numpy": in_tiles(_relu6_into)},
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 6)),),
    saves="y",
    dtypes=REAL,
    scalar=lambda s, x: s.minimum(s.maximum(x, 0), 6),
    onnx=Missing("exported as Clip(x, 0, 6)"),
    samples=_off_kinks(-2, 8),
    reference=each(lambda x: 0 if x < 0 else 6 if x > 6 else x),
)
def relu6(xp: Any, x: Any, /) -> Any:
    """Rectified linear unit that ends at 6: min(max(x, 0), 6).

    ``x`` is a real tensor of any shape. The derivative at 0 and 6 is 0. Source: Howard et
    al., arXiv:1704.04861. Raises DTypeError for bools and complex.

    >>> ef.relu6(ef.tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], float32, cpu:0)
    """
    return xp.clip(x, 0, 6)


# Leaky and exponential units ---------------------------------------------------------------------


def _with_number(name: str) -> Any:
    """The fact ``infer`` of an op with one attribute, a number."""

    def infer(x: TensorSpec, **attributes: Any) -> TensorSpec:
        if not isinstance(attributes[name], int | float):
            raise DTypeError(
                f"{attributes[name]!r} is not a number", argument=name, expected="a Python number"
            )
        return x

    return infer


def _refused_numbers(name: str) -> Any:
    """The fact ``errors`` of such an op."""
    return lambda rng: [
        *refused_objects(rng),
        ErrorSample((rng.random(3),), {name: "steep"}, DTypeError, "is not a number"),
    ]


def _leaky_into(x: Any, out: Any, negative_slope: float) -> None:
    none, below = zeros(x), scratch(out)
    np.multiply(np.minimum(x, none, out=below), negative_slope, below)
    np.add(np.maximum(x, none, out=out), below, out)


def _leaky_body(s: Any, x: Any, negative_slope: float = 0.01) -> Any:
    return s.add(s.maximum(x, 0), s.multiply(s.minimum(x, 0), negative_slope))


def _leaky_derivative_into(x: Any, out: Any, negative_slope: float) -> None:
    _step_into(x, out)
    np.multiply(out, 1 - negative_slope, out)
    np.add(out, negative_slope, out)


@elementwise(
    overrides={"numpy": in_tiles(_leaky_into, _leaky_body)},
    infer=_with_number("negative_slope"),
    errors=_refused_numbers("negative_slope"),
    direct=direct_tiles(_leaky_into, "negative_slope", 0.01, (float, int), _leaky_body),
    **pulls(lambda: leaky_relu_gradient),
    dtypes=FLOATS,
    scalar=_leaky_body,
    onnx=Onnx("LeakyRelu", {"negative_slope": "alpha"}),
    samples=lambda rng, dtype: [
        *_off_kinks(-2, 2)(rng, dtype),
        *_off_kinks(-2, 2, negative_slope=0.2)(rng, dtype)[:4],
    ],
    reference=each(lambda x, negative_slope: x if x > 0 else negative_slope * x),
)
def leaky_relu(xp: Any, x: Any, /, negative_slope: float = 0.01) -> Any:
    """Rectified linear unit with a small slope for negative numbers.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``negative_slope``
    multiplies what is below 0; its default is that of PyTorch and JAX (Keras has 0.2). The
    derivative at 0 is ``negative_slope``. Raises DTypeError for complex.

    >>> ef.leaky_relu(ef.tensor([-1.0, 2.0]), negative_slope=0.1)
    Tensor([-0.1,  2. ], float32, cpu:0)
    """
    return xp.where(x > 0, x, x * negative_slope)


@slope(
    into=_leaky_derivative_into,
    body=lambda s, x, negative_slope: s.select(s.greater(x, 0), 1, negative_slope),
    second=lambda x, negative_slope: zeros_like(x),
    number=lambda x, negative_slope: 1 if x > 0 else negative_slope,
    low=-2,
    high=2,
    samples=lambda rng, dtype: [
        sample._replace(attributes=attributes)
        for attributes in ({}, {"negative_slope": 0.2})
        for sample in _off_kinks_pairs(rng, dtype)
    ],
)
def leaky_relu_gradient(xp: Any, x: Any, g: Any, /, negative_slope: float = 0.01) -> Any:
    """The gradient of leaky_relu with respect to ``x``: g, times the slope where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> leaky_relu_gradient(ef.tensor([-1.0, 2.0]), ef.tensor([1.0, 1.0]), 0.1)
    Tensor([0.1, 1. ], float32, cpu:0)
    """
    return xp.where(x > 0, g, g * negative_slope)


def _elu_into(x: Any, out: Any, alpha: float) -> None:
    none, below = zeros(x), scratch(out)
    np.expm1(np.minimum(x, none, out=below), below)
    if alpha != 1:
        np.multiply(below, alpha, below)
    np.add(np.maximum(x, none, out=out), below, out)


def _elu_body(s: Any, x: Any, alpha: float = 1.0) -> Any:
    return s.add(s.maximum(x, 0), s.multiply(s.expm1(s.minimum(x, 0)), alpha))


def _elu_derivative_into(x: Any, out: Any, alpha: float) -> None:
    np.exp(np.minimum(x, zeros(x), out=out), out)
    np.multiply(out, alpha, out)
    np.copyto(out, 1, where=np.greater(x, 0))


def _elu_derivative_body(s: Any, x: Any, alpha: float = 1.0) -> Any:
    low = s.select(s.greater(x, 0), 0, x)
    return s.select(s.greater(x, 0), 1, s.multiply(s.exp(low), alpha))


def _elu_curvature(x: Any, alpha: float) -> Any:
    """The second derivative of elu."""
    return where(greater(x, 0), 0.0, exp(minimum(x, 0.0)) * alpha)


@elementwise(
    overrides={"numpy": in_tiles(_elu_into, _elu_body)},
    infer=_with_number("alpha"),
    errors=_refused_numbers("alpha"),
    direct=direct_tiles(_elu_into, "alpha", 1.0, (float, int), _elu_body),
    **pulls(lambda: elu_gradient),
    dtypes=FLOATS,
    scalar=_elu_body,
    onnx=Onnx("Elu"),
    samples=lambda rng, dtype: [
        *_off_kinks(-2, 2)(rng, dtype),
        *_off_kinks(-2, 2, alpha=0.5)(rng, dtype)[:4],
    ],
    reference=each(lambda x, alpha: x if x > 0 else alpha * math.expm1(x)),
)
def elu(xp: Any, x: Any, /, alpha: float = 1.0) -> Any:
    """Exponential linear unit: x where it is positive, alpha·(exp(x) - 1) elsewhere.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``alpha`` is where
    negative numbers end. Source: Clevert et al., arXiv:1511.07289. Raises DTypeError for
    complex.

    >>> ef.elu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.6321,  2.    ], float32, cpu:0)
    """
    low = xp.where(x > 0, xp.zeros_like(x), x)
    return xp.where(x > 0, x, xp.expm1(low) * alpha)


@slope(
    into=_elu_derivative_into,
    body=_elu_derivative_body,
    second=_elu_curvature,
    number=lambda x, alpha: 1 if x > 0 else alpha * math.exp(x),
    low=-2,
    high=2,
    samples=lambda rng, dtype: [
        sample._replace(attributes=attributes)
        for attributes in ({}, {"alpha": 0.5})
        for sample in _off_kinks_pairs(rng, dtype)
    ],
)
def elu_gradient(xp: Any, x: Any, g: Any, /, alpha: float = 1.0) -> Any:
    """The gradient of elu with respect to ``x``: g, times alpha·exp(x) where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> elu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([1.0, 1.0]), 0.5)
    Tensor([0.5, 1. ], float32, cpu:0)
    """
    low = xp.where(x > 0, xp.zeros_like(x), x)
    return xp.where(x > 0, g, g * (xp.exp(low) * alpha))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _selu_into(x: Any, out: Any) -> None:
    _elu_into(x, out, _SELU_ALPHA)
    np.multiply(out, _SELU_SCALE, out)


def _selu_body(s: Any, x: Any) -> Any:
    return s.multiply(_elu_body(s, x, _SELU_ALPHA), _SELU_SCALE)


@elementwise(
    overrides={"numpy": in_tiles(_selu_into, _selu_body)},
    # With g scaled first, it is elu's.
    **pulls(lambda: lambda x, g: elu_gradient(x, g * _SELU_SCALE, _SELU_ALPHA)),
    dtypes=FLOATS,
    scalar=_selu_body,
    onnx=Onnx("Selu"),
    samples=_off_kinks(-2, 2),
    reference=each(lambda x: _SELU_SCALE * (x if x > 0 else _SELU_ALPHA * math.expm1(x))),
)
def selu(xp: Any, x: Any, /) -> Any:
    """Exponential linear unit scaled so that activations tend to mean 0 and variance 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. The constants are
    those of Klambauer et al., arXiv:1706.02515. Raises DTypeError for complex.

    >>> ef.selu(ef.tensor([-1.0, 2.0]))
    Tensor([-1.1113,  2.1014], float32, cpu:0)
    """
    low = xp.where(x > 0, xp.zeros_like(x), x)
    return xp.where(x > 0, x, xp.expm1(low) * _SELU_ALPHA) * _SELU_SCALE


# Hard forms and softsign -------------------------------------------------------------------------


_HARD = constants(3, 6, 1 / 6)


def _hard_sigmoid_into(x: Any, out: Any) -> None:
    three, six, sixth = _HARD[out.dtype.char]
    np.add(x, three, out)
    np.minimum(np.maximum(out, zeros(out), out=out), six, out=out)
    np.multiply(out, sixth, out)


def _hard_instructions(s: Any, x: Any) -> Any:
    return s.multiply(s.minimum(s.maximum(s.add(x, 3), 0), 6), 1 / 6)


@elementwise(
    overrides={"numpy": in_tiles(_hard_sigmoid_into)},
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 1)).astype(y.dtype) * (1 / 6),),
    saves="y",
    dtypes=FLOATS,
    scalar=_hard_instructions,
    onnx=Missing("exported as HardSigmoid with alpha=1/6, beta=1/2"),
    samples=_off_kinks(-5, 5),
    reference=each(lambda x: 0 if x < -3 else 1 if x > 3 else (x + 3) / 6),
)
def hard_sigmoid(xp: Any, x: Any, /) -> Any:
    """The logistic function in three straight pieces: relu6(x + 3) / 6.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative at -3
    and 3 is 0. Raises DTypeError for complex.

    >>> ef.hard_sigmoid(ef.tensor([-4.0, 0.0, 3.0]))
    Tensor([0. , 0.5, 1. ], float32, cpu:0)
    """
    return xp.clip(x + 3, 0, 6) * (1 / 6)


def _hard_silu_into(x: Any, out: Any) -> None:
    share = scratch(out)
    _hard_sigmoid_into(x, share)
    np.multiply(x, share, out)


def _hard_silu_slope(x: Any) -> Any:
    inside = where(less(x, 3), (x * 2 + 3) * (1 / 6), 1)
    return where(greater(x, -3), inside, 0)


@elementwise(
    overrides={"numpy": in_tiles(_hard_silu_into)},
    partials=(lambda y, x: _hard_silu_slope(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.multiply(x, _hard_instructions(s, x)),
    onnx=Onnx("HardSwish"),
    samples=_off_kinks(-5, 5),
    reference=each(lambda x: 0 if x < -3 else x if x > 3 else x * (x + 3) / 6),
)
def hard_silu(xp: Any, x: Any, /) -> Any:
    """Each element times its hard sigmoid, also called hard swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative is 0 at
    -3 and 1 at 3. Source: Howard et al., arXiv:1905.02244. Raises DTypeError for complex.

    >>> ef.hard_silu(ef.tensor([-4.0, 1.0, 4.0]))
    Tensor([-0.    ,  0.6667,  4.    ], float32, cpu:0)
    """
    return x * (xp.clip(x + 3, 0, 6) * (1 / 6))


_ONE = constants(1)


def _softsign_into(x: Any, out: Any) -> None:
    (one,) = _ONE[out.dtype.char]
    np.abs(x, out)
    np.add(out, one, out)
    np.divide(x, out, out)


def _softsign_slope(x: Any) -> Any:
    length = abs(x) + 1
    return 1 / (length * length)


@elementwise(
    overrides={"numpy": in_tiles(_softsign_into)},
    partials=(lambda y, x: _softsign_slope(x),),
    saves="x",
    dtypes=FLOATS,
    scalar=lambda s, x: s.divide(x, s.add(s.abs(x), 1)),
    onnx=Onnx("Softsign"),
    samples=reals(),
    reference=each(lambda x: x / (1 + max(x, -x))),
)
def softsign(xp: Any, x: Any, /) -> Any:
    """Each element divided by 1 plus its absolute value; the results lie between -1 and 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softsign(ef.tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75], float32, cpu:0)
    """
    return x / (1 + xp.abs(x))
