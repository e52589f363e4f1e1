"""Steps of optimizers that scale by sums or means of squares; each op is its formula."""

from __future__ import annotations

from typing import Any

from eagerflow.ops.elementwise.powers import power, sqrt
from eagerflow.ops.elementwise.selection import maximum, minimum
from eagerflow.ops.nn.optimizer_updates import _decayed, _weighted
from eagerflow.ops.nn.update_family import update

__all__: list[str] = []


# RMSprop, whose state depends on its options -----------------------------------------------------


def _rmsprop(
    parameter: Any,
    gradient: Any,
    square: Any,
    velocity: Any,
    mean: Any,
    rate: Any,
    rho: float,
    epsilon: float,
    weight_decay: float,
    momentum: float = 0.0,
) -> Any:
    """The new values of the arguments that are not None."""
    p = _decayed(parameter, rate, weight_decay)
    spread = square = _weighted(square, gradient * gradient, rho)
    if mean is not None:
        mean = _weighted(mean, gradient, rho)
        spread = square - mean * mean
    step = gradient * rate / sqrt(spread + epsilon)
    if velocity is not None:
        step = velocity = velocity * momentum + step
    new = p - step, square, velocity, mean
    return tuple(value for value in new if value is not None)


@update(2, ulp=16)
def rmsprop_update(
    parameter: Any,
    gradient: Any,
    square: Any,
    learning_rate: Any,
    /,
    *,
    rho: float = 0.9,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of RMSprop, as ``(parameter, square)``; Hinton, 2012."""
    state = parameter, gradient, square, None, None
    return _rmsprop(*state, learning_rate, rho, epsilon, weight_decay)


@update(3, ulp=16)
def rmsprop_momentum_update(
    parameter: Any,
    gradient: Any,
    square: Any,
    velocity: Any,
    learning_rate: Any,
    /,
    *,
    rho: float = 0.9,
    momentum: float = 0.9,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of RMSprop with momentum, as ``(parameter, square, velocity)``."""
    state = parameter, gradient, square, velocity, None
    return _rmsprop(*state, learning_rate, rho, epsilon, weight_decay, momentum)


@update(3, ulp=16)
def rmsprop_centered_update(
    parameter: Any,
    gradient: Any,
    square: Any,
    mean: Any,
    learning_rate: Any,
    /,
    *,
    rho: float = 0.9,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of RMSprop that scales by the variance, as ``(parameter, square, mean)``."""
    state = parameter, gradient, square, None, mean
    return _rmsprop(*state, learning_rate, rho, epsilon, weight_decay)


@update(4, ulp=16)
def rmsprop_centered_momentum_update(
    parameter: Any,
    gradient: Any,
    square: Any,
    velocity: Any,
    mean: Any,
    learning_rate: Any,
    /,
    *,
    rho: float = 0.9,
    momentum: float = 0.9,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of RMSprop with both, as ``(parameter, square, velocity, mean)``."""
    state = parameter, gradient, square, velocity, mean
    return _rmsprop(*state, learning_rate, rho, epsilon, weight_decay, momentum)


# Sums of squares ---------------------------------------------------------------------------------


@update(2, ulp=16)
def adagrad_update(
    parameter: Any,
    gradient: Any,
    total: Any,
    learning_rate: Any,
    /,
    *,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adagrad, as ``(parameter, total)``; Duchi and others, 2011."""
    p = _decayed(parameter, learning_rate, weight_decay)
    total = total + gradient * gradient
    root = sqrt(total + epsilon)
    return p - gradient * learning_rate / root, total


@update(3, ulp=16)
def adadelta_update(
    parameter: Any,
    gradient: Any,
    square: Any,
    moved: Any,
    learning_rate: Any,
    /,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adadelta, as ``(parameter, square, moved)``; Zeiler, 2012.

    ``moved`` is the running mean of the squares of steps.
    """
    p = _decayed(parameter, learning_rate, weight_decay)
    square = _weighted(square, gradient * gradient, rho)
    root = sqrt(moved + epsilon)
    delta = root * gradient / sqrt(square + epsilon)
    moved = _weighted(moved, delta * delta, rho)
    return p - delta * learning_rate, square, moved


def _power(total: Any, exponent: float) -> Any:
    """A sum of squares to the power of -exponent, which is usually a root."""
    return sqrt(total) if exponent == -0.5 else power(total, -exponent)


@update(3, ulp=400)  # near the bound of l1 the result is a small difference
def ftrl_update(
    parameter: Any,
    gradient: Any,
    total: Any,
    linear: Any,
    learning_rate: Any,
    /,
    *,
    learning_rate_power: float = -0.5,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float = 0.0,
    weight_decay: float = 0.0,
) -> Any:
    """One step of FTRL, as ``(parameter, total, linear)``; McMahan and others, 2013."""
    p = _decayed(parameter, learning_rate, weight_decay)
    new = total + gradient * gradient
    after, before = _power(new, learning_rate_power), _power(total, learning_rate_power)
    grown = (after - before) / learning_rate
    pull = gradient + p * (2 * l2_shrinkage_regularization_strength)
    linear = linear + (pull - grown * p)
    least = 2 * l2_regularization_strength + beta / learning_rate
    curve = after / learning_rate + least
    l1 = l1_regularization_strength
    clipped = maximum(minimum(linear, l1), -l1)
    return (clipped - linear) / curve, new, linear
