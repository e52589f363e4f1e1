"""The logistic function and its smooth relatives: sigmoid, softplus, silu, gelu, mish.

The NumPy kernels work tile by tile in few passes (``kernels/tiling.py``); where two forms of a
function are equal in mathematics, the one without overflow and cancellation is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.errors import DTypeError
from eagerflow.kernels import special
from eagerflow.kernels.tiling import constants, direct_tiles, horner, in_tiles, scratch, zeros
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
from eagerflow.ops.samples import each, reals, values
from eagerflow.ops.trigonometric import tanh
from eagerflow.spec import TensorSpec

__all__ = ["gelu", "log_sigmoid", "mish", "sigmoid", "silu", "softplus"]


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


# gelu --------------------------------------------------------------------------------------------
#
# The tanh form, x/2·(1 + tanh u), is computed as x·σ(2u): no cancellation, and fewer steps.

_LINEAR = 2 * math.sqrt(2 / math.pi)  # 2u = x·(_LINEAR + _CUBIC·x²)
_CUBIC = _LINEAR * 0.044715
_TANH_FORM = constants(1, -_LINEAR, -_CUBIC, -3 * _CUBIC)
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)

# erfc(t)·exp(t²) in float32 from 0 to 7.2, to 3e-9, lowest power first; fitted by iteratively
# reweighted least squares. Beyond, erfc is too small for float32.
_SCALED_ABOVE = (1.00000000264371, 1.20720064013477, 0.699359247989239, 0.214006932211425,
                 0.0296570529534419)  # fmt: skip
_SCALED_BELOW = (1.0, 2.33558008988270, 2.33477431176410, 1.26522299814914, 0.379362654978162,
                 0.0525643394072386)  # fmt: skip


def _tanh_share_into(x: Any, out: Any) -> None:
    """1 + exp(-2u), the reciprocal of σ(2u)."""
    one, linear, cubic, _ = _TANH_FORM[out.dtype.char]
    np.multiply(x, x, out)
    np.multiply(out, cubic, out)
    np.add(out, linear, out)
    np.multiply(out, x, out)
    np.exp(out, out)
    np.add(out, one, out)


def _normal_into(x: Any, out: Any) -> None:
    """Distribution function of the standard normal."""
    if out.dtype != np.float32:
        out[...] = special.erfc(np, x * -_ROOT_HALF) / 2
        return
    size, part = scratch(out, "size"), scratch(out, "part")
    np.abs(x, size)
    np.multiply(size, _ROOT_HALF, size)
    np.minimum(size, 14, out=size)
    horner(_SCALED_ABOVE, size, out)
    np.divide(out, horner(_SCALED_BELOW, size, part), out)
    np.multiply(size, size, part)
    np.negative(part, part)
    np.exp(part, part)
    np.multiply(out, part, out)
    np.multiply(out, 0.5, out)
    # What is above 1/2 is 1 minus the mirrored value: |[x > 0] - value|.
    np.subtract(np.greater(x, 0, out=part, casting="unsafe"), out, out)
    np.abs(out, out)


def _gelu_into(x: Any, out: Any, approximate: bool) -> None:
    if approximate:
        _tanh_share_into(x, out)
        np.divide(x, out, out)
    else:
        _normal_into(x, out)
        np.multiply(out, x, out)


def _gelu_derivative_into(x: Any, out: Any, approximate: bool) -> None:
    slope = scratch(out, "slope")
    if approximate:
        # σ·(1 + x·(1 - σ)·(2u)'), with the last two factors negated
        one, linear, _, cubic = _TANH_FORM[out.dtype.char]
        _tanh_share_into(x, out)
        np.divide(one, out, out)
        np.multiply(x, x, slope)
        np.multiply(slope, cubic, slope)
        np.add(slope, linear, slope)
        np.multiply(slope, x, slope)
        np.multiply(slope, np.subtract(out, one, scratch(out)), slope)
        np.add(slope, one, slope)
        np.multiply(out, slope, out)
    else:
        # Φ(x) + x·φ(x)
        _normal_into(x, out)
        np.multiply(x, x, slope)
        np.multiply(slope, -0.5, slope)
        np.exp(slope, slope)
        np.multiply(slope, _DENSITY, slope)
        np.multiply(slope, x, slope)
        np.add(out, slope, out)


def _share(xp: Any, x: Any, approximate: bool) -> Any:
    """What gelu multiplies x by: σ(2u), or Φ(x)."""
    if approximate:
        return 1 / (1 + xp.exp(-x * (_LINEAR + _CUBIC * (x * x))))
    return special.erfc(xp, x * -_ROOT_HALF) / 2


def _share_instructions(s: Any, x: Any, approximate: bool) -> Any:
    if approximate:
        inner = s.add(s.multiply(s.multiply(x, x), _CUBIC), _LINEAR)
        return s.sigmoid(s.multiply(x, inner))
    return s.multiply(s.erfc(s.multiply(x, -_ROOT_HALF)), 0.5)


def _derivative_instructions(s: Any, x: Any, approximate: bool) -> Any:
    share, square = _share_instructions(s, x, approximate), s.multiply(x, x)
    if approximate:
        slope = s.multiply(s.add(s.multiply(square, 3 * _CUBIC), _LINEAR), x)
        return s.multiply(share, s.add(s.multiply(slope, s.subtract(1, share)), 1))
    density = s.multiply(s.exp(s.multiply(square, -0.5)), _DENSITY)
    return s.add(share, s.multiply(x, density))


def _both_forms(rng: Any, dtype: Any, low: float = -3) -> list[Sample]:
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


def _gelu_errors(rng: Any) -> list[ErrorSample]:
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


@elementwise(
    overrides={"numpy": in_tiles(_gelu_into)},
    direct=direct_tiles(_gelu_into, "approximate", True, (bool,)),
    partials=(lambda y, x, approximate: gelu_derivative(x, approximate),),
    saves="x",
    dtypes=FLOATS,
    infer=_gelu_spec,
    trusted=False,
    errors=_gelu_errors,
    scalar=lambda s, x, approximate=True: s.multiply(x, _share_instructions(s, x, approximate)),
    onnx=Missing("ONNX's Gelu has approximate='tanh' or 'none' where this has a flag"),
    samples=_both_forms,
    ulp=16,
    reference=each(_gelu_of_number),
)
def gelu(xp: Any, x: Any, /, approximate: bool = True) -> Any:
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
    return x * _share(xp, x, approximate)


def _gelu_curvature(x: Any, approximate: bool) -> Any:
    """The second derivative of gelu."""
    square = x * x
    if not approximate:
        return exp(square * -0.5) * _DENSITY * (2 - square)
    share = sigmoid(x * (square * _CUBIC + _LINEAR))
    slope = square * (3 * _CUBIC) + _LINEAR
    rest = (2 * slope + square * (6 * _CUBIC)) + x * slope * slope * (1 - 2 * share)
    return share * (1 - share) * rest


@elementwise(
    overrides={"numpy": in_tiles(_gelu_derivative_into)},
    direct=direct_tiles(_gelu_derivative_into, "approximate", True, (bool,)),
    partials=(lambda y, x, approximate: _gelu_curvature(x, approximate),),
    saves="x",
    dtypes=FLOATS,
    infer=_gelu_spec,
    trusted=False,
    errors=_gelu_errors,
    scalar=lambda s, x, approximate=True: _derivative_instructions(s, x, approximate),
    onnx=Missing("exported as the ops that it consists of"),
    samples=lambda rng, dtype: _both_forms(rng, dtype, -0.5),
    ulp=8,
    reference=each(_gelu_derivative_of_number),
)
def gelu_derivative(xp: Any, x: Any, /, approximate: bool = True) -> Any:
    """Derivative of gelu at each element.

    ``x`` is a real tensor of any shape, ``approximate`` as in gelu. Close to its zero, at
    -0.75, and below, the error is absolute. An op of its own, since it takes one pass where the
    ops it consists of take a dozen.

    >>> gelu_derivative(ef.tensor([0.0, 1.0]))
    Tensor([0.5  , 1.083], float32, cpu:0)
    """
    share = _share(xp, x, approximate)
    if approximate:
        return share * (1 + x * (1 - share) * (_LINEAR + 3 * _CUBIC * (x * x)))
    return share + x * (_DENSITY * xp.exp(x * x * -0.5))


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
