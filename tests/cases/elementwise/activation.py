"""Cases of eagerflow/ops/elementwise/activation.py."""

import cmath
import math

from eagerflow.errors import DTypeError
from eagerflow.ops.elementwise.activation import SELU_ALPHA, SELU_SCALE
from tests.cases.samples import (
    Cases,
    ErrorSample,
    Sample,
    clear_of,
    each,
    moved_from,
    pairs,
    reals,
    values,
)

_KINKS = (-3.0, 0.0, 3.0, 6.0)


def _off_kinks(low, high, **attributes):
    return clear_of(_KINKS, low, high, **attributes)


def _off_kinks_pairs(rng, dtype):
    return [
        s._replace(args=(moved_from(0.0, s.args[0]), s.args[1])) for s in pairs(-2, 2)(rng, dtype)
    ]


def _pairs_with_number(name, other):
    """Samples of the gradient of such an op."""
    return lambda rng, dtype: [
        sample._replace(attributes=attributes)
        for attributes in ({}, {name: other})
        for sample in _off_kinks_pairs(rng, dtype)
    ]


def _both_forms(rng, dtype, low=-3):
    found = [
        Sample((x,), {"approximate": a}) for x in values(rng, dtype, low, 3) for a in (True, False)
    ]
    return [*found, Sample((values(rng, dtype, low, 3)[4],))]


def _gelu_of_number(x, approximate):
    if approximate:
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _times(derivative):
    """The reference of an op that multiplies a gradient by a derivative."""
    return each(lambda x, g, **more: g * derivative(x, **more))


def _with_number(name, other):
    """Samples and errors of an op with one number, ``other`` than the default in some samples."""

    def samples(rng, dtype):
        usual = _off_kinks(-2, 2)(rng, dtype)
        return [*usual, *_off_kinks(-2, 2, **{name: other})(rng, dtype)[:4]]

    def errors(rng):
        return [ErrorSample((rng.random(3),), {name: "steep"}, DTypeError, "is not a number")]

    return samples, errors


def _logistic(x):
    return 1 / (1 + (cmath.exp if isinstance(x, complex) else math.exp)(-x))


def _mish_derivative_of_number(x):
    share = math.tanh(math.log1p(math.exp(x)))
    return share + x * (1 - share * share) * _logistic(x)


def _gelu_derivative_of_number(x, approximate):
    if approximate:
        u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return 0.5 * (1 + math.tanh(u)) + 0.5 * x * (1 - math.tanh(u) ** 2) * slope
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


CASES = {
    "relu": Cases(samples=_off_kinks(-2, 2), reference=each(lambda x: x if x > 0 else 0)),
    "relu_gradient": Cases(samples=_off_kinks_pairs, reference=_times(lambda y: 1 if y > 0 else 0)),
    "relu6": Cases(
        samples=_off_kinks(-2, 8), reference=each(lambda x: 0 if x < 0 else 6 if x > 6 else x)
    ),
    "leaky_relu": Cases(
        *_with_number("negative_slope", 0.2),
        reference=each(lambda x, negative_slope: x if x > 0 else negative_slope * x),
    ),
    "leaky_relu_gradient": Cases(
        samples=_pairs_with_number("negative_slope", 0.2),
        reference=_times(lambda x, negative_slope: 1 if x > 0 else negative_slope),
    ),
    "elu": Cases(
        *_with_number("alpha", 0.5),
        reference=each(lambda x, alpha: x if x > 0 else alpha * math.expm1(x)),
    ),
    "elu_gradient": Cases(
        samples=_pairs_with_number("alpha", 0.5),
        reference=_times(lambda x, alpha: 1 if x > 0 else alpha * math.exp(x)),
    ),
    "selu": Cases(
        samples=_off_kinks(-2, 2),
        reference=each(lambda x: SELU_SCALE * (x if x > 0 else SELU_ALPHA * math.expm1(x))),
    ),
    "hard_sigmoid": Cases(
        samples=_off_kinks(-5, 5),
        reference=each(lambda x: 0 if x < -3 else 1 if x > 3 else (x + 3) / 6),
    ),
    "hard_silu": Cases(
        samples=_off_kinks(-5, 5),
        reference=each(lambda x: 0 if x < -3 else x if x > 3 else x * (x + 3) / 6),
    ),
    "softsign": Cases(reference=each(lambda x: x / (1 + max(x, -x)))),
    "sigmoid": Cases(samples=reals(-4, 4), reference=each(_logistic)),
    "sigmoid_gradient": Cases(
        samples=pairs(0.1, 0.9, -2, 2), reference=_times(lambda y: y * (1 - y))
    ),
    "softplus": Cases(samples=reals(-4, 4), reference=each(lambda x: math.log(1 + math.exp(x)))),
    "log_sigmoid": Cases(samples=reals(-4, 4), reference=each(lambda x: math.log(_logistic(x)))),
    "softplus_gradient": Cases(samples=pairs(-4, 4, -2, 2), reference=_times(_logistic)),
    "log_sigmoid_gradient": Cases(
        samples=pairs(-4, 4, -2, 2), reference=_times(lambda x: _logistic(-x))
    ),
    "silu": Cases(samples=reals(-4, 4), reference=each(lambda x: x * _logistic(x))),
    "silu_gradient": Cases(
        samples=pairs(-1, 4, -2, 2),
        reference=_times(lambda x: _logistic(x) * (1 + x * (1 - _logistic(x)))),
    ),
    "mish": Cases(
        samples=reals(-4, 4), reference=each(lambda x: x * math.tanh(math.log1p(math.exp(x))))
    ),
    "mish_gradient": Cases(
        samples=pairs(-1, 4, -2, 2), reference=_times(_mish_derivative_of_number)
    ),
    "gelu": Cases(
        samples=_both_forms,
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {"approximate": "none"}, DTypeError, "is no bool")
        ],
        reference=each(_gelu_of_number),
    ),
    "tanh_gelu_gradient": Cases(
        samples=pairs(-0.5, 3, -2, 2),
        reference=_times(lambda x: _gelu_derivative_of_number(x, True)),
    ),
    "gelu_gradient": Cases(
        samples=pairs(-0.5, 3, -2, 2),
        reference=_times(lambda x: _gelu_derivative_of_number(x, False)),
    ),
}
