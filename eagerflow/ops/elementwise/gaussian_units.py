"""Gelu: each element times the distribution function of the standard normal, or nearly so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen.functions.parts import at_least, at_most, horner, two_product
from eagerflow.dtypes import DType
from eagerflow.errors import DTypeError
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.gradient_ops import chain_rule, differentiated_by, gradient_op
from eagerflow.ops.elementwise.sigmoids import sigmoid
from eagerflow.ops.family import (
    ErrorSample,
    Missing,
    Sample,
    pointwise,
    refused_objects,
)
from eagerflow.ops.samples import each, values
from eagerflow.spec import TensorSpec

__all__ = ["gelu"]

# The tanh form, x/2·(1 + tanh u), is computed as x·σ(2u): no cancellation, and fewer steps.

_LINEAR = 2 * math.sqrt(2 / math.pi)  # 2u = x·(_LINEAR + _CUBIC·x²)
_CUBIC = _LINEAR * 0.044715
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)

# erfc(t)·exp(t²) in float32 from 0 to 7.2, to 3e-9, lowest power first; fitted by iteratively
# reweighted least squares. Beyond, erfc is too small for float32.
_SCALED_ABOVE = (
    1.00000000264371,
    1.20720064013477,
    0.699359247989239,
    0.214006932211425,
    0.0296570529534419,
)
_SCALED_BELOW = (
    1.0,
    2.33558008988270,
    2.33477431176410,
    1.26522299814914,
    0.379362654978162,
    0.0525643394072386,
)


# Beyond, the derivative is 0 or 1, and x may as well be that.
_FAR = {"float32": 20.0, "float64": 40.0}


def _exponential_of_tanh_form(s: Any, x: Any) -> Any:
    """exp(-2u)."""
    return s.exp(s.multiply(x, s.fma(s.multiply(x, x), -_CUBIC, -_LINEAR)))


def _bounded(s: Any, x: Any) -> Any:
    far = _FAR[str(x.dtype)]
    return at_most(s, at_least(s, x, -far), far)


def _density_and_share(s: Any, x: Any) -> tuple[Any, Any]:
    """exp(-x²/2), which is √(2π)·φ(x), and Φ(x); in float32 both take one exponential."""
    square, lost = two_product(s, x, x)
    power = s.exp(s.multiply(square, -0.5))
    power = s.fma(power, s.multiply(lost, -0.5), power)
    if x.dtype == "float64":
        return power, s.multiply(s.erfc(s.multiply(x, -_ROOT_HALF)), 0.5)
    size = s.multiply(s.abs(x), _ROOT_HALF)
    above, below = (horner(s, size, c) for c in (_SCALED_ABOVE, _SCALED_BELOW))
    tail = s.multiply(s.divide(s.multiply(above, 0.5), below), power)
    return power, s.select(s.greater(x, 0), s.subtract(1, tail), tail)


def _derivative(s: Any, x: Any, approximate: bool) -> Any:
    x = _bounded(s, x)
    if not approximate:
        power, share = _density_and_share(s, x)
        return s.fma(s.multiply(x, _DENSITY), power, share)
    share = s.reciprocal(s.add(_exponential_of_tanh_form(s, x), 1))
    slope = s.multiply(s.fma(s.multiply(x, x), 3 * _CUBIC, _LINEAR), x)
    return s.multiply(share, s.fma(slope, s.subtract(1, share), 1))


def _both_forms(rng: np.random.Generator, dtype: DType, low: float = -3) -> list[Sample]:
    found = [
        Sample((x,), {"approximate": a}) for x in values(rng, dtype, low, 3) for a in (True, False)
    ]
    return [*found, Sample((values(rng, dtype, low, 3)[4],))]


def _gelu_spec(x: TensorSpec, approximate: Any) -> TensorSpec:
    if not isinstance(approximate, bool):
        raise DTypeError(
            f"{approximate!r} is neither True nor False",
            argument="approximate",
            expected="True for the tanh form, False for the exact one",
        )
    return x


def _gelu_errors(rng: np.random.Generator) -> list[ErrorSample]:
    named = ErrorSample((rng.random(3),), {"approximate": "none"}, DTypeError, "True for the tanh")
    return [*refused_objects(rng), named]


def _gelu_of_number(x: float, approximate: bool) -> float:
    if approximate:
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _gelu_derivative_of_number(x: float, approximate: bool) -> float:
    if approximate:
        u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return 0.5 * (1 + math.tanh(u)) + 0.5 * x * (1 - math.tanh(u) ** 2) * slope
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@pointwise(
    **differentiated_by(lambda: _gradient),
    infer=_gelu_spec,
    trusted=False,
    errors=_gelu_errors,
    onnx=Missing("ONNX's Gelu has approximate='tanh' or 'none' where this has a flag"),
    samples=_both_forms,
    ulp=16,
    reference=each(_gelu_of_number),
)
def gelu(s: Any, x: Any, /, approximate: bool = True) -> Any:
    """Each element times the probability that a standard normal variable is smaller.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``approximate=True``
    takes the tanh form x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), False the exact x·Φ(x).
    Source: Hendrycks and Gimpel, arXiv:1606.08415. Raises DTypeError for complex ``x``, and
    for an ``approximate`` that is no bool.

    >>> x = ef.tensor([-1.0, 0.0, 2.0])
    >>> ef.gelu(x)
    Tensor([-0.1588,  0.    ,  1.9546], float32, cpu:0)
    >>> ef.gelu(x, approximate=False)
    Tensor([-0.1587,  0.    ,  1.9545], float32, cpu:0)
    """
    if approximate:
        return s.divide(x, s.add(_exponential_of_tanh_form(s, x), 1))
    return s.multiply(x, _density_and_share(s, _bounded(s, x))[1])


def _gelu_curvature(x: Any, approximate: bool) -> Any:
    """The second derivative of gelu."""
    square = x * x
    if not approximate:
        return exp(square * -0.5) * _DENSITY * (2 - square)
    share = sigmoid(x * (square * _CUBIC + _LINEAR))
    slope = square * (3 * _CUBIC) + _LINEAR
    rest = (2 * slope + square * (6 * _CUBIC)) + x * slope * slope * (1 - 2 * share)
    return share * (1 - share) * rest


def _gradient(x: Any, g: Any, approximate: bool) -> Any:
    return (tanh_gelu_gradient if approximate else gelu_gradient)(x, g)


@gradient_op(
    second_derivative=lambda x: _gelu_curvature(x, True),
    derivative=lambda x: _gelu_derivative_of_number(x, True),
    low=-0.5,
    high=3,
)
def tanh_gelu_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of the tanh form of gelu: ``g`` times its derivative at ``x``.

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -0.75, and below, the derivative's error is absolute.

    >>> tanh_gelu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 2.1659], float32, cpu:0)
    """
    return chain_rule(s, g, _derivative(s, x, True))


@gradient_op(
    second_derivative=lambda x: _gelu_curvature(x, False),
    derivative=lambda x: _gelu_derivative_of_number(x, False),
    low=-0.5,
    high=3,
)
def gelu_gradient(s: Any, x: Any, g: Any, /) -> Any:
    """The gradient of gelu in its exact form: ``g`` times its derivative at ``x``.

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -0.75, and below, the derivative's error is absolute.

    >>> gelu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 2.1666], float32, cpu:0)
    """
    return chain_rule(s, g, _derivative(s, x, False))
