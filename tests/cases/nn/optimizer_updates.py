"""Cases of eagerflow/ops/nn/optimizer_updates.py."""

import math

from eagerflow.ops.nn import optimizer_updates as updates
from tests.cases.nn.update_family import of_step


def _momentum(p, g, v, rate, momentum, nesterov, weight_decay):
    new = momentum * v - rate * g
    step = momentum * new - rate * g if nesterov else new
    return p * (1 - rate * weight_decay) + step, new


def _lion(p, g, m, rate, beta_1, beta_2, weight_decay):
    mixed = beta_1 * m + (1 - beta_1) * g
    step = math.copysign(rate, mixed) if mixed else 0.0
    return p * (1 - rate * weight_decay) - step, beta_2 * m + (1 - beta_2) * g


def _both(g, m, s, beta_1, beta_2):
    return beta_1 * m + (1 - beta_1) * g, beta_2 * s + (1 - beta_2) * g * g


def _adam(p, g, m, s, rate, t, beta_1, beta_2, epsilon, weight_decay):
    m, s = _both(g, m, s, beta_1, beta_2)
    # As in the paper, where epsilon is added to the uncorrected root.
    scale = rate * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    return p - rate * weight_decay * p - scale * m / (math.sqrt(s) + epsilon), m, s


def _amsgrad(p, g, m, s, largest, rate, t, beta_1, beta_2, epsilon, weight_decay):
    m, s = _both(g, m, s, beta_1, beta_2)
    largest = max(largest, s)
    scale = rate * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    step = scale * m / (math.sqrt(largest) + epsilon)
    return p * (1 - rate * weight_decay) - step, m, s, largest


def _adamax(p, g, m, u, rate, t, beta_1, beta_2, epsilon, weight_decay):
    m, u = beta_1 * m + (1 - beta_1) * g, max(beta_2 * u, abs(g))
    step = rate / (1 - beta_1**t) * m / (u + epsilon)
    return p * (1 - rate * weight_decay) - step, m, u


def _nadam(p, g, m, s, rate, t, product, beta_1, beta_2, epsilon, weight_decay):
    now, later = (beta_1 * (1 - 0.5 * 0.96 ** (t + i)) for i in (0, 1))
    m, s = _both(g, m, s, beta_1, beta_2)
    mean = later * m / (1 - product * later) + (1 - now) * g / (1 - product)
    step = rate * mean / (math.sqrt(s / (1 - beta_2**t)) + epsilon)
    return p * (1 - rate * weight_decay) - step, m, s


def _direction(g, m, s, t, beta_1, beta_2, epsilon):
    m, s = _both(g, m, s, beta_1, beta_2)
    return m / (1 - beta_1**t) / (math.sqrt(s / (1 - beta_2**t)) + epsilon), m, s


def _schedule_free(p, g, fast, square, rate, t, beta_1, beta_2, epsilon, weight_decay):
    p *= 1 - rate * weight_decay
    square = beta_2 * square + (1 - beta_2) * g * g
    slow = (p - (1 - beta_1) * fast) / beta_1
    fast -= rate * g / (math.sqrt(square / (1 - beta_2**t)) + epsilon)
    slow += (fast - slow) / t
    return (1 - beta_1) * fast + beta_1 * slow, fast, square


_OF_ADAM = (
    {},
    {"beta_1": 0.5, "epsilon": 1e-3},
    {"weight_decay": 0.01, "beta_2": 0.9},
)
CASES = {
    "momentum_update": of_step(
        updates.momentum_update,
        _momentum,
        {},
        {"momentum": 0.5, "nesterov": True},
        {"momentum": 0.0, "weight_decay": 0.01},
    ),
    "lion_update": of_step(
        updates.lion_update,
        _lion,
        {},
        {"beta_1": 0.5, "beta_2": 0.1},
        {"weight_decay": 0.01},
    ),
    "adam_update": of_step(updates.adam_update, _adam, *_OF_ADAM),
    "amsgrad_update": of_step(updates.amsgrad_update, _amsgrad, *_OF_ADAM),
    "adamax_update": of_step(updates.adamax_update, _adamax, *_OF_ADAM),
    "nadam_update": of_step(updates.nadam_update, _nadam, *_OF_ADAM),
    "adam_direction": of_step(
        updates.adam_direction,
        _direction,
        {},
        {"beta_1": 0.5, "epsilon": 1e-3},
        {"beta_2": 0.9},
    ),
    "schedule_free_update": of_step(updates.schedule_free_update, _schedule_free, *_OF_ADAM),
}
