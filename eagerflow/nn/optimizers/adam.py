"""Adam and its variants: steps scaled by running means of gradients and their squares."""

from __future__ import annotations

from typing import Annotated, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Float, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.optimizers.base import Values
from eagerflow.nn.optimizers.one_op import OneOpOptimizer
from eagerflow.nn.optimizers.options import Beta, CommonOptions, LearningRate, OptimizerOptions
from eagerflow.ops.nn.optimizer_updates import (
    adam_update,
    adamax_update,
    amsgrad_update,
    nadam_momentum,
    nadam_update,
    schedule_free_update,
)
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Adam", "AdamW", "Adamax", "MeansOptimizer", "Nadam", "ScheduleFreeAdamW"]


class BetaOptions(CommonOptions, total=False):
    """The arguments of optimizers with two means, besides learning rate and weight decay."""

    beta_1: Beta
    beta_2: Beta
    epsilon: Float


class MeansOptions(BetaOptions, OptimizerOptions, total=False):
    """The arguments of optimizers with two means besides the learning rate."""


class AdamOptions(BetaOptions, total=False):
    """The arguments of ``Adam`` besides its learning rate and weight decay."""

    amsgrad: bool


class MeansOptimizer(OneOpOptimizer):
    """Base of optimizers with running means of the gradient and of its square.

    ``beta_1`` and ``beta_2`` are the decay rates of the means, ``epsilon`` bounds the scale.
    """

    slots = ("momentum", "velocity")

    beta_1: float
    beta_2: float
    epsilon: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: Beta = 0.9,
        beta_2: Beta = 0.999,
        epsilon: Float = 1e-7,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...


class Adam(MeansOptimizer):
    """Steps scaled by running means of the gradient and of its square.

    ``beta_1`` and ``beta_2`` are the decay rates of the means, ``epsilon`` bounds the scale. With
    ``amsgrad`` the largest mean of squares so far is the scale. Other arguments are those of
    ``Optimizer``. Source: Kingma and Ba, "Adam", 2015; Reddi and others, 2018.

    >>> w = ef.Variable([1.0, -2.0])
    >>> optimizer = ef.nn.optimizers.Adam(learning_rate=0.1)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    by_rows = True

    amsgrad: bool

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: Beta = 0.9,
        beta_2: Beta = 0.999,
        epsilon: Float = 1e-7,
        amsgrad: Annotated[bool, bool] = False,
        **options: Unpack[OptimizerOptions],
    ) -> None:
        self.step_op = amsgrad_update if self.amsgrad else adam_update
        self.late_slots = ("velocity_hat",) if self.amsgrad else ()


class AdamW(Adam):
    """Adam with weights that decay by themselves; Loshchilov and Hutter, 2019.

    >>> ef.nn.optimizers.AdamW().weight_decay
    0.004
    """

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        **options: Unpack[AdamOptions],
    ) -> None:
        if self.weight_decay is None:
            raise ArgumentError(
                "there is none",
                op=self.name,
                argument="weight_decay",
                expected="a number",
                hint="Adam, which has no weight decay",
            )


class Adamax(MeansOptimizer):
    """Adam with a decaying maximum of the gradient in place of the mean of squares.

    Arguments are those of ``Adam``. Source: Kingma and Ba, "Adam", 2015, section 7.1.

    >>> w = ef.Variable([1.0, -2.0])
    >>> loss = ef.nn.optimizers.Adamax(0.1).minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    slots = ("momentum", "norm")
    step_op = staticmethod(adamax_update)

    @arguments
    def __init__(
        self, learning_rate: LearningRate = 0.001, **options: Unpack[MeansOptions]
    ) -> None: ...


class Nadam(MeansOptimizer):
    """Adam that looks one step ahead, as Nesterov's momentum does; Dozat, 2016.

    Arguments are those of ``Adam``.

    >>> w = ef.Variable([1.0, -2.0])
    >>> loss = ef.nn.optimizers.Nadam(0.1).minimize(lambda: (w * w).sum())
    >>> ef.all(abs(w) < [1.0, 2.0])
    Tensor(True, bool, cpu:0)
    """

    step_op = staticmethod(nadam_update)

    @arguments
    def __init__(
        self, learning_rate: LearningRate = 0.001, **options: Unpack[MeansOptions]
    ) -> None:
        self._product = Variable(1.0, f"{self.name}/product", trainable=False)

    @property
    def variables(self) -> list[Variable]:
        return [*super().variables, self._product]

    def _next_product(self, step: Tensor) -> Tensor:
        """The product of the momenta of all steps up to this one."""
        momentum = nadam_momentum(step.astype("float32"), self.beta_1)
        return self._product.value * momentum

    def shared_values(self, step: Tensor) -> Values:
        return {self._product: self._next_product(step)}

    def numbers(self, rate: Tensor, step: Tensor) -> dict[str, Tensor]:
        product = as_tensor(self._next_product(step), rate.dtype, rate.device)
        return super().numbers(rate, step) | {"product": product}


_not_negative = number(lambda x: x >= 0, "out of range", "a number of at least 0")


class ScheduleFreeAdamW(MeansOptimizer):
    """AdamW that needs no schedule, as weights stay close to a mean over all steps.

    ``beta_1`` is the weight of the mean, which has to be above 0; the learning rate rises during
    ``warmup_steps``. Other arguments are those of ``Adam``. Source: Defazio and others, "The Road
    Less Scheduled", 2024.

    >>> w = ef.Variable([1.0, -2.0])
    >>> loss = ef.nn.optimizers.ScheduleFreeAdamW(0.1).minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    step_op = staticmethod(schedule_free_update)

    warmup_steps: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.0025,
        beta_1: Beta = 0.9,
        beta_2: Beta = 0.999,
        epsilon: Float = 1e-8,
        warmup_steps: Annotated[float, _not_negative] = 0,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...

    def state_for(self, variable: Variable) -> dict[str, Variable]:
        state = super().state_for(variable)
        state["momentum"].assign(variable.value)
        return state

    def numbers(self, rate: Tensor, step: Tensor) -> dict[str, Tensor]:
        if self.warmup_steps:
            rate = rate * ops.minimum(ops.divide(step, self.warmup_steps), 1.0)
        return super().numbers(rate, step)
