"""Elementwise operators: functions, arithmetic, comparisons, logic and activations."""

from __future__ import annotations

import operator as python
from functools import reduce
from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, INTEGERS, UNSIGNED_INTEGERS
from eagerflow.errors import CaptureError
from eagerflow.handlers import raised_here
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import converted
from eagerflow.onnx.reading.sizing import answers, with_sizes
from eagerflow.tensor import Tensor

# Functions of one tensor --------------------------------------------------------------------------

_SAME = {
    "Abs": ops.abs,
    "Acos": ops.acos,
    "Acosh": ops.acosh,
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "BitwiseNot": ops.bitwise_invert,
    "Ceil": ops.ceil,
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "IsNaN": ops.isnan,
    "Log": ops.log,
    "Mish": ops.mish,
    "Neg": ops.negative,
    "Not": ops.logical_not,
    "Reciprocal": ops.reciprocal,
    "Relu": ops.relu,
    "Round": ops.round,
    "Sigmoid": ops.sigmoid,
    "Sign": ops.sign,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Softsign": ops.softsign,
    "Sqrt": ops.sqrt,
    "Tan": ops.tan,
    "Tanh": ops.tanh,
}


def _register_one(name: str, op: Any) -> None:
    @operator(name)
    def one(call: Call, x: Any) -> Any:
        return op(x)


for _name, _op in _SAME.items():
    _register_one(_name, _op)


@operator("Identity", takes_sizes=True)
def identity(call: Call, x: Any) -> Any:
    """The value itself, of any kind."""
    return x


@operator("IsInf")
def is_inf(call: Call, x: Any, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    """Whether elements are infinite, of the selected signs."""
    found = ops.isinf(x)
    if not detect_negative:
        found = ops.logical_and(found, x > 0)
    if not detect_positive:
        found = ops.logical_and(found, x < 0)
    return found


# Activations --------------------------------------------------------------------------------------


@operator("Elu")
def elu(call: Call, x: Any, alpha: float = 1.0) -> Any:
    """X where it is positive, else alpha * (exp(x) - 1)."""
    return ops.elu(x, alpha)


@operator("Celu")
def celu(call: Call, x: Any, alpha: float = 1.0) -> Any:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return ops.maximum(x, 0) + ops.minimum(ops.expm1(x / alpha) * alpha, 0)


@operator("Selu")
def selu(call: Call, x: Any, alpha: float = 1.67326, gamma: float = 1.0507) -> Any:
    """A scaled elu."""
    return ops.elu(x, alpha) * gamma


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Any, alpha: float = 0.01) -> Any:
    """X where it is positive, else alpha * x."""
    return ops.leaky_relu(x, alpha)


@operator("PRelu")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    """X where it is positive, else slope * x."""
    return ops.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """Alpha * x + beta, clipped to [0, 1]."""
    return ops.clip(x * alpha + beta, 0, 1)


@operator("HardSwish")
def hard_swish(call: Call, x: Any) -> Any:
    """X * hard_sigmoid(x) with a slope of 1/6."""
    return ops.hard_silu(x)


@operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Any, alpha: float = 1.0) -> Any:
    """X where it is above alpha, else 0."""
    return ops.where(x > alpha, x, ops.zeros_like(x))


@operator("Shrink")
def shrink(call: Call, x: Any, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """X shrunk towards 0 by bias outside of -lambd ... lambd, and 0 within."""
    outside = ops.where(x < -lambd, x + bias, ops.zeros_like(x))
    return converted(ops.where(x > lambd, x - bias, outside), x.dtype)


@operator("Gelu")
def gelu(call: Call, x: Any, approximate: str = "none") -> Any:
    """Gaussian error linear unit."""
    return ops.gelu(x, approximate == "tanh")


@operator("Swish")
def swish(call: Call, x: Any, alpha: float = 1.0) -> Any:
    """X * sigmoid(alpha * x)."""
    return ops.silu(x) if alpha == 1.0 else x * ops.sigmoid(x * alpha)


# Arithmetic ---------------------------------------------------------------------------------------


@operator("Add", takes_sizes=True)
@with_sizes(lambda a, b: a + b)
def add(call: Call, a: Any, b: Any) -> Any:
    """A + b."""
    return ops.add(a, b)


@operator("Sub", takes_sizes=True)
@with_sizes(lambda a, b: a - b)
def subtract(call: Call, a: Any, b: Any) -> Any:
    """A - b."""
    return ops.subtract(a, b)


@operator("Mul", takes_sizes=True)
@with_sizes(lambda a, b: a * b)
def multiply(call: Call, a: Any, b: Any) -> Any:
    """A * b."""
    return ops.multiply(a, b)


@operator("Div", takes_sizes=True)
@with_sizes(lambda a, b: a // b)
def divide(call: Call, a: Any, b: Any) -> Any:
    """A / b; integer division truncates."""
    if a.dtype not in INTEGERS:
        return ops.divide(a, b)
    down = ops.floor_divide(a, b)
    if a.dtype in UNSIGNED_INTEGERS:
        return down
    differs = ops.logical_and(ops.logical_xor(a < 0, b < 0), ops.not_equal(down * b, a))
    return down + converted(differs, a.dtype)


@operator("Mod", takes_sizes=True)
@with_sizes(lambda a, b, fmod=0: a % b)
def mod(call: Call, a: Any, b: Any, fmod: int = 0) -> Any:
    """The remainder with the sign of b, or with that of a where ``fmod`` is 1."""
    if not fmod:
        return ops.remainder(a, b)
    if a.dtype in INTEGERS:
        found = ops.remainder(a, b)
        if a.dtype in UNSIGNED_INTEGERS:
            return found
        turns = ops.logical_and(ops.not_equal(found, 0), ops.logical_xor(a < 0, b < 0))
        return ops.where(turns, found - b, found)
    return ops.copysign(ops.remainder(ops.abs(a), ops.abs(b)), a)


@operator("Pow")
def power(call: Call, x: Any, y: Any) -> Any:
    """X to the power y, in the dtype of x."""
    return converted(ops.power(x, y), x.dtype)


@operator("Max", takes_sizes=True)
@with_sizes(lambda *xs: reduce(np.maximum, xs))
def maximum(call: Call, *xs: Any) -> Any:
    """The elementwise maximum of several tensors."""
    return reduce(ops.maximum, xs)


@operator("Min", takes_sizes=True)
@with_sizes(lambda *xs: reduce(np.minimum, xs))
def minimum(call: Call, *xs: Any) -> Any:
    """The elementwise minimum of several tensors."""
    return reduce(ops.minimum, xs)


@operator("Sum")
def total(call: Call, *xs: Any) -> Any:
    """The sum of several tensors."""
    return reduce(ops.add, xs)


@operator("Mean")
def mean(call: Call, *xs: Any) -> Any:
    """The mean of several tensors."""
    return reduce(ops.add, xs) / len(xs)


@operator("Clip")
def clip(call: Call, x: Any, min: Any = None, max: Any = None) -> Any:
    """X clipped to two bounds; the upper one wins if they cross."""
    if min is not None:
        x = ops.maximum(x, _like(min, x))
    if max is not None:
        x = ops.minimum(x, _like(max, x))
    return x


def _like(bound: Any, x: Tensor) -> Any:
    """A bound from an attribute or an input, as a tensor of the dtype of x."""
    if isinstance(bound, Tensor):
        return bound.reshape(()) if bound.ndim else bound
    with np.errstate(over="ignore"):  # the default exceeds the range of short floats
        return as_tensor(np.float64(bound).astype(x.dtype))


# Comparisons and logic ----------------------------------------------------------------------------


def _is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal; CaptureError if that is undecidable."""
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    try:
        return not bool(difference)
    except raised_here(CaptureError):
        return not bool(-difference)


@operator("Equal", takes_sizes=True)
@with_sizes(answers(_is_same))
def equal(call: Call, a: Any, b: Any) -> Any:
    """A == b."""
    return ops.equal(a, b)


@operator("Greater", takes_sizes=True)
@with_sizes(answers(python.gt))
def greater(call: Call, a: Any, b: Any) -> Any:
    """A > b."""
    return ops.greater(a, b)


@operator("GreaterOrEqual", takes_sizes=True)
@with_sizes(answers(python.ge))
def greater_equal(call: Call, a: Any, b: Any) -> Any:
    """A >= b."""
    return ops.greater_equal(a, b)


@operator("Less", takes_sizes=True)
@with_sizes(answers(python.lt))
def less(call: Call, a: Any, b: Any) -> Any:
    """A < b."""
    return ops.less(a, b)


@operator("LessOrEqual", takes_sizes=True)
@with_sizes(answers(python.le))
def less_equal(call: Call, a: Any, b: Any) -> Any:
    """A <= b."""
    return ops.less_equal(a, b)


@operator("Where", takes_sizes=True)
@with_sizes(lambda condition, x, y: np.where(condition.astype(bool), x, y))
def where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    """X where the condition holds, else y."""
    return ops.where(condition, x, y)


_PAIRS: dict[str, Any] = {
    "And": ops.logical_and,
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
    "Or": ops.logical_or,
    "Xor": ops.logical_xor,
}


def _register_pair(name: str, op: Any) -> None:
    @operator(name)
    def two(call: Call, a: Any, b: Any) -> Any:
        if a.dtype not in BOOL and name in ("And", "Or", "Xor"):
            call.refuse(f"{a.dtype.name} inputs")
        return op(a, b)


for _name, _op in _PAIRS.items():
    _register_pair(_name, _op)


@operator("BitShift")
def bit_shift(call: Call, x: Any, y: Any, direction: str) -> Any:
    """The bits of x shifted by y."""
    if direction not in ("LEFT", "RIGHT"):
        call.refuse(f"the direction {direction!r}")
    shift = ops.bitwise_left_shift if direction == "LEFT" else ops.bitwise_right_shift
    return shift(x, y)
