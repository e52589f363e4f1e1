"""Optimizers that scale each element by sums or running means of squared gradients."""

from __future__ import annotations

from typing import Annotated, Unpack

from eagerflow.nn.arguments import Float, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.optimizers.one_op import OneOpOptimizer
from eagerflow.nn.optimizers.options import LearningRate, Momentum, OptimizerOptions
from eagerflow.ops.nn.adaptive_updates import (
    adadelta_update,
    adagrad_update,
    ftrl_update,
    rmsprop_centered_momentum_update,
    rmsprop_centered_update,
    rmsprop_momentum_update,
    rmsprop_update,
)
from eagerflow.variable import Variable

__all__ = ["Adadelta", "Adagrad", "Ftrl", "RMSprop"]

_RMSPROP = {
    (False, False): rmsprop_update,
    (True, False): rmsprop_momentum_update,
    (False, True): rmsprop_centered_update,
    (True, True): rmsprop_centered_momentum_update,
}
"""By whether there is momentum, and whether squares are centered."""


class RMSprop(OneOpOptimizer):
    """Steps scaled by the root of a running mean of squared gradients; Hinton, 2012.

    ``rho`` is the decay rate of the mean, ``epsilon`` bounds the scale. With ``momentum`` steps
    accumulate; with ``centered`` the variance of the gradient is the scale, in place of its square.
    Other arguments are those of ``Optimizer``.

    >>> w = ef.Variable([1.0, -2.0])
    >>> loss = ef.nn.optimizers.RMSprop(0.1, rho=0.75).minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.8, -1.8], float32, cpu:0)
    """

    slots = ("velocity",)
    by_rows = True

    rho: float
    momentum: float
    epsilon: float
    centered: bool

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: Momentum = 0.9,
        momentum: Momentum = 0.0,
        epsilon: Float = 1e-7,
        centered: Annotated[bool, bool] = False,
        **options: Unpack[OptimizerOptions],
    ) -> None:
        self.step_op = _RMSPROP[self.momentum > 0, self.centered]
        more = ("momentum",) * (self.momentum > 0), ("average_gradient",) * self.centered
        self.late_slots = more[0] + more[1]


class AccumulatorOptimizer(OneOpOptimizer):
    """Base of optimizers with sums of squares that begin at ``initial_accumulator_value``."""

    initial_accumulator_value: float

    def state_for(self, variable: Variable) -> dict[str, Variable]:
        first = self._slot(variable, "accumulator", self.initial_accumulator_value)
        return super().state_for(variable) | {"accumulator": first}


NotNegative = Annotated[float, number(lambda x: x >= 0, "negative", "a number of at least 0")]
NotPositive = Annotated[float, number(lambda x: x <= 0, "positive", "a number of at most 0")]


class Adagrad(AccumulatorOptimizer):
    """Steps scaled by the root of the sum of all squared gradients; Duchi and others, 2011.

    The sum begins at ``initial_accumulator_value``, ``epsilon`` bounds the scale. Other arguments
    are those of ``Optimizer``.

    >>> w = ef.Variable([1.0, -2.0])
    >>> optimizer = ef.nn.optimizers.Adagrad(0.1, initial_accumulator_value=0.0)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    slots = ("accumulator",)
    step_op = staticmethod(adagrad_update)
    by_rows = True

    epsilon: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: NotNegative = 0.1,
        epsilon: Float = 1e-7,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...


class Adadelta(OneOpOptimizer):
    """Steps scaled by running means of squared gradients and squared steps; Zeiler, 2012.

    ``rho`` is the decay rate of the means, ``epsilon`` bounds the scale. Other arguments are those
    of ``Optimizer``; the paper has a ``learning_rate`` of 1.

    >>> w = ef.Variable([1.0, -2.0])
    >>> optimizer = ef.nn.optimizers.Adadelta(1.0)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> ef.all(abs(w) < [1.0, 2.0])
    Tensor(True, bool, cpu:0)
    """

    slots = ("accumulated_grad", "accumulated_delta_var")
    step_op = staticmethod(adadelta_update)

    rho: float
    epsilon: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: Momentum = 0.95,
        epsilon: Float = 1e-7,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...


class Ftrl(AccumulatorOptimizer):
    """Follow the regularized leader: weights that do not matter become 0.

    ``learning_rate_power`` is the exponent by which the rate falls with the sum of squares,
    initially ``initial_accumulator_value``; ``l1_regularization_strength`` and
    ``l2_regularization_strength`` pull weights to 0, ``l2_shrinkage_regularization_strength``
    shrinks their gradients, and ``beta`` adds to the second one. Other arguments are those of
    ``Optimizer``. Source: McMahan and others, "Ad Click Prediction", 2013.

    >>> w = ef.Variable([1.0, -2.0])
    >>> optimizer = ef.nn.optimizers.Ftrl(0.1, l1_regularization_strength=100.0)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([0., 0.], float32, cpu:0)
    """

    slots = ("accumulator", "linear")
    step_op = staticmethod(ftrl_update)

    learning_rate_power: float
    l1_regularization_strength: float
    l2_regularization_strength: float
    l2_shrinkage_regularization_strength: float
    beta: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        learning_rate_power: NotPositive = -0.5,
        initial_accumulator_value: NotNegative = 0.1,
        l1_regularization_strength: NotNegative = 0.0,
        l2_regularization_strength: NotNegative = 0.0,
        l2_shrinkage_regularization_strength: NotNegative = 0.0,
        beta: Float = 0.0,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...
