"""Activation functions: of straight pieces, exponentials, logistic functions, and gelu.

Where two forms of a function are equal in mathematics, the one without overflow and cancellation
is taken.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import INEXACT, REAL
from eagerflow.errors import DTypeError
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import abs, reciprocal
from eagerflow.ops.elementwise.comparison import greater, less, logical_and
from eagerflow.ops.elementwise.exponential import exp, expm1, log1p
from eagerflow.ops.elementwise.gradient_ops import chain_rule, differentiated_by, gradient_op
from eagerflow.ops.elementwise.parts import at_least, at_most, fma, horner, two_product
from eagerflow.ops.elementwise.selection import maximum, minimum, where
from eagerflow.ops.elementwise.special import erfc
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.family import Onnx, pointwise
from eagerflow.spec import Namespace, TensorSpec

__all__ = [
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_silu",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
]


# relu and relu6 ----------------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: relu_gradient, "y"),
    dtypes=REAL,
    onnx=lambda w, x: w.Relu(x) if x.dtype.kind == "f" else w.Max(x, w.constant(0, x.dtype)),
)
def relu(x: Any, /) -> Any:
    """Rectified linear unit: the larger of each element and 0.

    ``x`` is a real tensor of any shape. The derivative at 0 is 0. Raises DTypeError for bools
    and complex.

    >>> ef.relu(ef.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], float32, cpu:0)
    """
    return maximum(x, 0)


@gradient_op(
    second_derivative=lambda y: zeros_like(y),
)
def relu_gradient(value: Any, g: Any, /) -> Any:
    """The gradient of a relu with result ``value``: g where that is positive, 0 elsewhere.

    ``value`` and ``g`` are real tensors that broadcast.

    >>> relu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([3.0, 3.0]))
    Tensor([0., 3.], float32, cpu:0)
    """
    return where(value > 0, g, 0)


@pointwise(
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 6)),),
    saves="y",
    dtypes=REAL,
)
def relu6(x: Any, /) -> Any:
    """Rectified linear unit that ends at 6: min(max(x, 0), 6).

    ``x`` is a real tensor of any shape. The derivative at 0 and 6 is 0. Source: Howard et
    al., arXiv:1704.04861. Raises DTypeError for bools and complex.

    >>> ef.relu6(ef.tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], float32, cpu:0)
    """
    return minimum(maximum(x, 0), 6)


# Leaky and exponential units ---------------------------------------------------------------------


def _with_number(name: str) -> dict[str, Any]:
    """Facts of an op with one attribute, a number."""

    def infer(x: TensorSpec, **attributes: Any) -> TensorSpec:
        if not isinstance(attributes[name], int | float):
            raise DTypeError(
                f"{attributes[name]!r} is not a number", argument=name, expected="a Python number"
            )
        return x

    return {"infer": infer}


@pointwise(
    **_with_number("negative_slope"),
    **differentiated_by(lambda: leaky_relu_gradient),
    onnx=Onnx("LeakyRelu", {"negative_slope": "alpha"}),
)
def leaky_relu(x: Any, /, negative_slope: float = 0.01) -> Any:
    """Rectified linear unit with a small slope for negative numbers.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``negative_slope``
    multiplies negative elements; its default is that of PyTorch and JAX (Keras has 0.2). The
    derivative at 0 is ``negative_slope``. Raises DTypeError for complex.

    >>> ef.leaky_relu(ef.tensor([-1.0, 2.0]), negative_slope=0.1)
    Tensor([-0.1,  2. ], float32, cpu:0)
    """
    return maximum(x, 0) + minimum(x, 0) * negative_slope


@gradient_op(
    second_derivative=lambda x, negative_slope: zeros_like(x),
)
def leaky_relu_gradient(x: Any, g: Any, /, negative_slope: float = 0.01) -> Any:
    """The gradient of leaky_relu with respect to ``x``: g, times the slope where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> leaky_relu_gradient(ef.tensor([-1.0, 2.0]), ef.tensor([1.0, 1.0]), 0.1)
    Tensor([0.1, 1. ], float32, cpu:0)
    """
    return where(x > 0, g, g * negative_slope)


def _elu(x: Any, alpha: float) -> Any:
    return maximum(x, 0) + expm1(minimum(x, 0)) * alpha


@pointwise(
    **_with_number("alpha"),
    **differentiated_by(lambda: elu_gradient),
    onnx=Onnx("Elu"),
)
def elu(x: Any, /, alpha: float = 1.0) -> Any:
    """Exponential linear unit: x where it is positive, alpha·(exp(x) - 1) elsewhere.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``alpha`` is where
    negative numbers end. Source: Clevert et al., arXiv:1511.07289. Raises DTypeError for
    complex.

    >>> ef.elu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.6321,  2.    ], float32, cpu:0)
    """
    return _elu(x, alpha)


@gradient_op(
    second_derivative=lambda x, alpha: where(greater(x, 0), 0.0, exp(minimum(x, 0.0)) * alpha),
)
def elu_gradient(x: Any, g: Any, /, alpha: float = 1.0) -> Any:
    """The gradient of elu with respect to ``x``: g, times alpha·exp(x) where x is not positive.

    ``x`` and ``g`` are real tensors that broadcast.

    >>> elu_gradient(ef.tensor([0.0, 2.0]), ef.tensor([1.0, 1.0]), 0.5)
    Tensor([0.5, 1. ], float32, cpu:0)
    """
    above = x > 0
    return chain_rule(g, where(above, 1, exp(where(above, 0, x)) * alpha))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@pointwise(
    # With g scaled first, it is elu's.
    **differentiated_by(lambda: lambda x, g: elu_gradient(x, g * SELU_SCALE, SELU_ALPHA)),
    onnx=Onnx("Selu"),
)
def selu(x: Any, /) -> Any:
    """Exponential linear unit scaled so that activations tend to mean 0 and variance 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. The constants are
    those of Klambauer et al., arXiv:1706.02515. Raises DTypeError for complex.

    >>> ef.selu(ef.tensor([-1.0, 2.0]))
    Tensor([-1.1113,  2.1014], float32, cpu:0)
    """
    return _elu(x, SELU_ALPHA) * SELU_SCALE


# Hard forms and softsign -------------------------------------------------------------------------


def _hard(x: Any) -> Any:
    return minimum(maximum(x + 3, 0), 6) * (1 / 6)


@pointwise(
    partials=(lambda y, x: logical_and(greater(y, 0), less(y, 1)).astype(y.dtype) * (1 / 6),),
    saves="y",
    onnx=Onnx("HardSigmoid", rule=lambda w, x: w.HardSigmoid(x, alpha=1 / 6, beta=0.5)),
)
def hard_sigmoid(x: Any, /) -> Any:
    """The logistic function in three straight pieces: relu6(x + 3) / 6.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative at -3
    and 3 is 0. Raises DTypeError for complex.

    >>> ef.hard_sigmoid(ef.tensor([-4.0, 0.0, 3.0]))
    Tensor([0. , 0.5, 1. ], float32, cpu:0)
    """
    return _hard(x)


def _hard_silu_slope(x: Any) -> Any:
    inside = where(less(x, 3), (x * 2 + 3) * (1 / 6), 1)
    return where(greater(x, -3), inside, 0)


@pointwise(
    partials=(lambda y, x: _hard_silu_slope(x),),
    saves="x",
    onnx=Onnx("HardSwish"),
)
def hard_silu(x: Any, /) -> Any:
    """Each element times its hard sigmoid, also called hard swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. The derivative is 0 at
    -3 and 1 at 3. Source: Howard et al., arXiv:1905.02244. Raises DTypeError for complex.

    >>> ef.hard_silu(ef.tensor([-4.0, 1.0, 4.0]))
    Tensor([-0.    ,  0.6667,  4.    ], float32, cpu:0)
    """
    return x * _hard(x)


def _softsign_slope(x: Any) -> Any:
    length = abs(x) + 1
    return 1 / (length * length)


@pointwise(
    partials=(lambda y, x: _softsign_slope(x),),
    saves="x",
    onnx=Onnx("Softsign"),
)
def softsign(x: Any, /) -> Any:
    """Each element divided by 1 plus its absolute value; the results lie between -1 and 1.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softsign(ef.tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75], float32, cpu:0)
    """
    return x / (abs(x) + 1)


_FAR = 800.0  # beyond, derivatives are 0 or 1, and x may as well be that


# sigmoid -----------------------------------------------------------------------------------------


def _complex_sigmoid(xp: Namespace, x: Any) -> Any:
    """With an exponential whose exponent has a nonpositive real part, so that nothing overflows."""
    left = xp.real(x) < 0
    power = xp.exp(xp.where(left, x, -x))
    return xp.where(left, power, 1) / (power + 1)


@pointwise(
    **differentiated_by(lambda: sigmoid_gradient, "y"),
    dtypes=INEXACT,
    instruction="sigmoid",
    on_complex=_complex_sigmoid,
    onnx=Onnx("Sigmoid"),
)
def sigmoid(x: Any, /) -> Any:
    """Logistic function of each element: 1 / (1 + exp(-x)).

    ``x`` is a tensor of any shape; integers are taken as float32. Large numbers of either sign
    give 1 and 0. Raises DTypeError for non-numeric dtypes.

    >>> ef.sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([0.5, 1. , 0. ], float32, cpu:0)
    """
    return 1 / (exp(-x) + 1)


@gradient_op(
    second_derivative=lambda y: 1 - 2 * y,
    dtypes=INEXACT,
)
def sigmoid_gradient(value: Any, g: Any, /) -> Any:
    """The gradient of a sigmoid with result ``value``: g·value·(1 - value).

    ``value`` and ``g`` are tensors that broadcast; complex values are passed conjugated.

    >>> sigmoid_gradient(ef.tensor([0.5, 1.0]), ef.tensor([2.0, 2.0]))
    Tensor([0.5, 0. ], float32, cpu:0)
    """
    return chain_rule(g, value * (1 - value))


# softplus and log_sigmoid ------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: softplus_gradient),
    onnx=Onnx("Softplus"),
)
def softplus(x: Any, /) -> Any:
    """Smooth form of max(x, 0): log(1 + exp(x)), without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.softplus(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([6.9315e-01, 1.0000e+03, 0.0000e+00], float32, cpu:0)
    """
    return maximum(x, 0) + log1p(exp(-abs(x)))


@pointwise(
    **differentiated_by(lambda: log_sigmoid_gradient),
)
def log_sigmoid(x: Any, /) -> Any:
    """Logarithm of the logistic function of each element, without overflow.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.log_sigmoid(ef.tensor([0.0, 1000.0, -1000.0]))
    Tensor([-6.9315e-01,  0.0000e+00, -1.0000e+03], float32, cpu:0)
    """
    return minimum(x, 0) - log1p(exp(-abs(x)))


@gradient_op(
    second_derivative=lambda x: sigmoid(x) * sigmoid(-x),
)
def softplus_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of softplus with respect to ``x``: g·σ(x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> softplus_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return chain_rule(g, sigmoid(x))


@gradient_op(
    second_derivative=lambda x: -(sigmoid(x) * sigmoid(-x)),
)
def log_sigmoid_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of log_sigmoid with respect to ``x``: g·σ(-x).

    ``x`` and ``g`` are real tensors that broadcast.

    >>> log_sigmoid_gradient(ef.tensor([0.0, -1000.0]), ef.tensor([2.0, 2.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return chain_rule(g, sigmoid(-x))


# silu --------------------------------------------------------------------------------------------


@pointwise(
    **differentiated_by(lambda: silu_gradient),
)
def silu(x: Any, /) -> Any:
    """Each element times its logistic function, also called swish.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Elfwing et
    al., arXiv:1702.03118. Raises DTypeError for complex.

    >>> ef.silu(ef.tensor([0.0, 1.0, -1000.0]))
    Tensor([ 0.    ,  0.7311, -0.    ], float32, cpu:0)
    """
    return x / (exp(-x) + 1)


def _silu_curvature(x: Any) -> Any:
    """The second derivative of silu."""
    y = sigmoid(x)
    return y * (1 - y) * ((1 - y * 2) * x + 2)


@gradient_op(
    second_derivative=_silu_curvature,
)
def silu_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of silu with respect to ``x``: g·σ(x)·(1 + x·(1 - σ(x))).

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -1.28, the derivative's error is absolute.

    >>> silu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 1.8553], float32, cpu:0)
    """
    x = at_most(at_least(x, -_FAR), _FAR)
    share = reciprocal(exp(-x) + 1)
    return chain_rule(g, share * fma(1 - share, x, 1))


# mish --------------------------------------------------------------------------------------------
#
# tanh(log(1 + e)) = n / (n + 2) with n = e·(e + 2); beyond e = exp(20) it is 1 in float64.


def _mish_curvature(x: Any) -> Any:
    """The second derivative of mish."""
    share, y = tanh(softplus(x)), sigmoid(x)
    return (1 - share * share) * y * (2 + x * (1 - y - 2 * share * y))


@pointwise(
    **differentiated_by(lambda: mish_gradient),
    onnx=Onnx("Mish"),
    ulp=6,
)
def mish(x: Any, /) -> Any:
    """Each element times the hyperbolic tangent of its softplus.

    ``x`` is a real tensor of any shape; integers are taken as float32. Source: Misra,
    arXiv:1908.08681. Raises DTypeError for complex.

    >>> ef.mish(ef.tensor([0.0, 1.0, 1000.0]))
    Tensor([0.000e+00, 8.651e-01, 1.000e+03], float32, cpu:0)
    """
    e = exp(minimum(x, 20))
    n = e * (e + 2)
    return x * (n / (n + 2))


@gradient_op(
    second_derivative=_mish_curvature,
)
def mish_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of mish with respect to ``x``: ``g`` times the derivative at each element.

    ``x`` and ``g`` are real tensors that broadcast. For negative numbers the derivative's error
    is absolute.

    >>> mish_gradient(ef.tensor([0.0, 1000.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.6, 2. ], float32, cpu:0)
    """
    x = at_most(at_least(x, -_FAR), 20)
    e = exp(x)
    less = 2 / (e * (e + 2) + 2)
    changed = less * (2 - less) * (e / (e + 1))
    return chain_rule(g, fma(changed, x, 1 - less))


# gelu: times the distribution function of the standard normal, or nearly so -----------------------
#
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
_GELU_FAR = {"float32": 20.0, "float64": 40.0}


def _exponential_of_tanh_form(x: Any) -> Any:
    """exp(-2u)."""
    return exp(x * fma(x * x, -_CUBIC, -_LINEAR))


def _bounded(x: Any) -> Any:
    far = _GELU_FAR[str(x.dtype)]
    return at_most(at_least(x, -far), far)


def _density_and_share(x: Any) -> tuple[Any, Any]:
    """exp(-x²/2), which is √(2π)·φ(x), and Φ(x); in float32 both take one exponential."""
    square, lost = two_product(x, x)
    power = exp(square * -0.5)
    power = fma(power, lost * -0.5, power)
    if x.dtype == "float64":
        return power, erfc(x * -_ROOT_HALF) * 0.5
    size = abs(x) * _ROOT_HALF
    above, below = (horner(size, c) for c in (_SCALED_ABOVE, _SCALED_BELOW))
    tail = above * 0.5 / below * power
    return power, where(x > 0, 1 - tail, tail)


def _derivative(x: Any, approximate: bool) -> Any:
    x = _bounded(x)
    if not approximate:
        power, share = _density_and_share(x)
        return fma(x * _DENSITY, power, share)
    share = reciprocal(_exponential_of_tanh_form(x) + 1)
    slope = fma(x * x, 3 * _CUBIC, _LINEAR) * x
    return share * fma(slope, 1 - share, 1)


@pointwise(
    **differentiated_by(lambda: _gradient),
    onnx=Onnx(
        "Gelu",
        rule=lambda w, x, *, approximate: w.Gelu(x, approximate="tanh" if approximate else "none"),
    ),
    ulp=16,
)
def gelu(x: Any, /, approximate: bool = True) -> Any:
    """Each element times the probability that a standard normal variable is smaller.

    ``x`` is a real tensor of any shape; integers are taken as float32. ``approximate=True``
    takes the tanh form x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), False the exact x·Φ(x).
    Source: Hendrycks and Gimpel, arXiv:1606.08415. Raises DTypeError for complex ``x``, and
    for other values of ``approximate`` than bools.

    >>> x = ef.tensor([-1.0, 0.0, 2.0])
    >>> ef.gelu(x)
    Tensor([-0.1588,  0.    ,  1.9546], float32, cpu:0)
    >>> ef.gelu(x, approximate=False)
    Tensor([-0.1587,  0.    ,  1.9545], float32, cpu:0)
    """
    if approximate:
        return x / (_exponential_of_tanh_form(x) + 1)
    return x * _density_and_share(_bounded(x))[1]


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
)
def tanh_gelu_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of the tanh form of gelu: ``g`` times its derivative at ``x``.

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -0.75, and below, the derivative's error is absolute.

    >>> tanh_gelu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 2.1659], float32, cpu:0)
    """
    return chain_rule(g, _derivative(x, True))


@gradient_op(
    second_derivative=lambda x: _gelu_curvature(x, False),
)
def gelu_gradient(x: Any, g: Any, /) -> Any:
    """The gradient of gelu in its exact form: ``g`` times its derivative at ``x``.

    ``x`` and ``g`` are real tensors that broadcast. Close to the zero of the derivative, at
    -0.75, and below, the derivative's error is absolute.

    >>> gelu_gradient(ef.tensor([0.0, 1.0]), ef.tensor([1.0, 2.0]))
    Tensor([0.5   , 2.1666], float32, cpu:0)
    """
    return chain_rule(g, _derivative(x, False))
