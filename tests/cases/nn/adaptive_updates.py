"""Cases of eagerflow/ops/nn/adaptive_updates.py."""

import math

from eagerflow.ops.nn import adaptive_updates as updates
from tests.cases.nn.update_family import of_step


def _rmsprop(*given, rho, epsilon, weight_decay, momentum=0.0, centered=False):
    p, g, square, *state, rate = given
    square = rho * square + (1 - rho) * g * g
    mean = rho * state[-1] + (1 - rho) * g if centered else 0.0
    step = rate * g / math.sqrt(square - mean * mean + epsilon)
    velocity = momentum * state[0] + step if momentum else step
    new = [velocity] * bool(momentum) + [mean] * centered
    return p * (1 - rate * weight_decay) - velocity, square, *new


def _centered(*given, **attributes):
    return _rmsprop(*given, centered=True, **attributes)


def _adagrad(p, g, total, rate, epsilon, weight_decay):
    total += g * g
    return p * (1 - rate * weight_decay) - rate * g / math.sqrt(total + epsilon), total


def _adadelta(p, g, square, moved, rate, rho, epsilon, weight_decay):
    square = rho * square + (1 - rho) * g * g
    delta = math.sqrt(moved + epsilon) / math.sqrt(square + epsilon) * g
    new = rho * moved + (1 - rho) * delta * delta
    return p * (1 - rate * weight_decay) - rate * delta, square, new


def _ftrl(
    p,
    g,
    total,
    linear,
    rate,
    learning_rate_power,
    l1_regularization_strength,
    l2_regularization_strength,
    l2_shrinkage_regularization_strength,
    beta,
    weight_decay,
):
    p *= 1 - rate * weight_decay
    new = total + g * g
    before, after = total**-learning_rate_power, new**-learning_rate_power
    linear += g + 2 * l2_shrinkage_regularization_strength * p - (after - before) / rate * p
    curve = after / rate + 2 * l2_regularization_strength + beta / rate
    pull = min(max(linear, -l1_regularization_strength), l1_regularization_strength)
    return (pull - linear) / curve, new, linear


_WIDE = {"epsilon": 8.0}  # or random squares would be smaller than those of means
CASES = {
    "rmsprop_update": of_step(
        updates.rmsprop_update,
        _rmsprop,
        {},
        {"rho": 0.5, "epsilon": 1e-3},
        {"weight_decay": 0.01},
    ),
    "rmsprop_momentum_update": of_step(
        updates.rmsprop_momentum_update,
        _rmsprop,
        {},
        {"rho": 0.5, "momentum": 0.1},
        {"weight_decay": 0.01},
    ),
    "rmsprop_centered_update": of_step(
        updates.rmsprop_centered_update,
        _centered,
        _WIDE,
        {"rho": 0.5} | _WIDE,
        {"weight_decay": 0.01} | _WIDE,
    ),
    "rmsprop_centered_momentum_update": of_step(
        updates.rmsprop_centered_momentum_update,
        _centered,
        _WIDE,
        {"momentum": 0.1} | _WIDE,
        {"weight_decay": 0.01} | _WIDE,
    ),
    "adagrad_update": of_step(
        updates.adagrad_update, _adagrad, {}, {"epsilon": 1e-2}, {"weight_decay": 0.01}
    ),
    "adadelta_update": of_step(
        updates.adadelta_update,
        _adadelta,
        {},
        {"rho": 0.5, "epsilon": 1e-2},
        {"weight_decay": 0.01},
    ),
    "ftrl_update": of_step(
        updates.ftrl_update,
        _ftrl,
        {},
        {"l1_regularization_strength": 0.3, "l2_regularization_strength": 0.2, "beta": 0.5},
        {
            "learning_rate_power": -0.8,
            "l2_shrinkage_regularization_strength": 0.1,
            "weight_decay": 0.01,
        },
    ),
}
