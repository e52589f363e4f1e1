"""Steps of optimizers as single ops; each is its formula, in scalar instructions."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.ops.elementwise.arithmetic import sign
from eagerflow.ops.elementwise.exponential import expm1
from eagerflow.ops.elementwise.powers import power, sqrt
from eagerflow.ops.elementwise.selection import maximum
from eagerflow.ops.nn.update_family import update

__all__ = ["adam_update", "momentum_update"]


def _decayed(parameter: Any, rate: Any, weight_decay: float) -> Any:
    """The start of a step: weight decay of the parameter."""
    if not weight_decay:
        return parameter
    return parameter * (1 - rate * weight_decay)


def _moved(mean: Any, new: Any, rate: float) -> Any:
    """A running mean, moved a part of the way towards a new value."""
    return mean + (new - mean) * (1 - rate)


def _weighted(mean: Any, new: Any, rate: float) -> Any:
    """The same as a sum of two products."""
    return mean * rate + new * (1 - rate)


def _remaining(rate: float, t: Any) -> Any:
    """1 - rate^t, the total weight of a mean initialized with 0 after t steps.

    Without the rounding of powers close to 1, which float32 needs.
    """
    return -expm1(t * (math.log(rate) if rate else -math.inf))


# Gradient descent --------------------------------------------------------------------------------


@update(2)
def momentum_update(
    parameter: Any,
    gradient: Any,
    velocity: Any,
    learning_rate: Any,
    /,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Any:
    """One step of gradient descent with momentum, as ``(parameter, velocity)``.

    ``parameter``, ``gradient`` and ``velocity`` are float tensors of one shape,
    ``learning_rate`` a number. The velocity becomes ``momentum * velocity - learning_rate *
    gradient`` and is added to the parameter, which ``weight_decay`` has shrunk by its product
    with the learning rate; ``nesterov`` looks one step ahead. Raises ShapeError for shapes that
    differ. Source: Sutskever and others, 2013.

    >>> ef.momentum_update(ef.tensor([1.0]), [2.0], [0.0], 0.1)
    (Tensor([0.8], float32, cpu:0), Tensor([-0.2], float32, cpu:0))
    """
    p = _decayed(parameter, learning_rate, weight_decay)
    step = gradient * learning_rate
    v = velocity * momentum - step
    ahead = v * momentum - step if nesterov else v
    return p + ahead, v


@update(2)
def lion_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    learning_rate: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Lion, as ``(parameter, mean)``: along signs; Chen and others, 2023."""
    p = _decayed(parameter, learning_rate, weight_decay)
    direction = sign(_weighted(mean, gradient, beta_1))
    step = direction * learning_rate
    return p - step, _weighted(mean, gradient, beta_2)


# Adam --------------------------------------------------------------------------------------------


def _means(gradient: Any, mean: Any, square: Any, beta_1: float, beta_2: float) -> tuple[Any, Any]:
    """The running means of the gradient and of its square."""
    mean = _moved(mean, gradient, beta_1)
    return mean, _moved(square, gradient * gradient, beta_2)


def _corrected(rate: Any, t: Any, beta_1: float, beta_2: float) -> Any:
    """The length of a step of Adam, which takes the bias of both means into account."""
    root = sqrt(_remaining(beta_2, t))
    return rate * root / _remaining(beta_1, t)


@update(3, ulp=16)
def adam_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adam, as ``(parameter, mean, square)``.

    ``parameter``, ``gradient``, ``mean`` and ``square`` (the running means of the gradient and
    of its square) are float tensors of one shape, ``learning_rate`` a number, ``step`` the
    number of this step, from 1 on. ``weight_decay`` shrinks the parameter by its product with
    the learning rate (AdamW). Raises ShapeError for shapes that differ. Source: Kingma and Ba,
    "Adam", 2015, with the bias corrected in the step size; Loshchilov and Hutter, 2019.

    >>> p, m, s = ef.adam_update(ef.tensor([1.0]), [2.0], [0.0], [0.0], 0.1, 1)
    >>> p, m
    (Tensor([0.9], float32, cpu:0), Tensor([0.2], float32, cpu:0))
    """
    p = _decayed(parameter, learning_rate, weight_decay)
    mean, square = _means(gradient, mean, square, beta_1, beta_2)
    length = _corrected(learning_rate, step, beta_1, beta_2)
    direction = mean / (sqrt(square) + epsilon)
    return p - direction * length, mean, square


@update(4, ulp=16)
def amsgrad_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    largest: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adam scaled by the ``largest`` mean of squares; Reddi and others, 2018."""
    p = _decayed(parameter, learning_rate, weight_decay)
    mean, square = _means(gradient, mean, square, beta_1, beta_2)
    largest = maximum(largest, square)
    length = _corrected(learning_rate, step, beta_1, beta_2)
    direction = mean / (sqrt(largest) + epsilon)
    return p - direction * length, mean, square, largest


@update(3, ulp=16)
def adamax_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    norm: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adam scaled by a decaying maximum, the ``norm``; Kingma and Ba, 2015."""
    p = _decayed(parameter, learning_rate, weight_decay)
    mean = _moved(mean, gradient, beta_1)
    norm = maximum(norm * beta_2, abs(gradient))
    length = learning_rate / _remaining(beta_1, step)
    return p - mean * length / (norm + epsilon), mean, norm


def nadam_momentum(t: Any, beta_1: float) -> Any:
    """The momentum of step ``t``, which rises to ``beta_1``, in the instructions or ops ``s``."""
    return (1 - power(0.96, t) * 0.5) * beta_1


@update(3, ulp=16)
def nadam_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    product: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adam with Nesterov's momentum; Dozat, 2016.

    ``product`` is that of the momenta of all steps up to this one.
    """
    p = _decayed(parameter, learning_rate, weight_decay)
    mean, square = _means(gradient, mean, square, beta_1, beta_2)
    now, later = (nadam_momentum(step + i, beta_1) for i in (0, 1))
    of_mean = later / (1 - product * later)
    of_gradient = (1 - now) / (1 - product)
    ahead = mean * of_mean + gradient * of_gradient
    root = sqrt(square / _remaining(beta_2, step))
    direction = ahead * learning_rate / (root + epsilon)
    return p - direction, mean, square


@update(3, ulp=16)
def adam_direction(
    gradient: Any,
    mean: Any,
    square: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> Any:
    """Adam's direction, ``(direction, mean, square)``, with epsilon added to the corrected root."""
    mean, square = _means(gradient, mean, square, beta_1, beta_2)
    root = sqrt(square / _remaining(beta_2, step))
    return mean / _remaining(beta_1, step) / (root + epsilon), mean, square


@update(3, ulp=32)
def schedule_free_update(
    parameter: Any,
    gradient: Any,
    fast: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Any:
    """One step of schedule-free AdamW, as ``(parameter, fast, square)``; Defazio and others, 2024.

    ``fast`` follows the gradient, and the parameter interpolates between it and its mean over all
    steps, with the weight ``beta_1`` of the mean.
    """
    p = _decayed(parameter, learning_rate, weight_decay)
    square = _moved(square, gradient * gradient, beta_2)
    slow = (p - fast * (1 - beta_1)) / beta_1
    root = sqrt(square / _remaining(beta_2, step))
    fast = fast - gradient * learning_rate / (root + epsilon)
    part = 1 / step
    slow = slow * (1 - part) + fast * part
    return fast * (1 - beta_1) + slow * beta_1, fast, square
