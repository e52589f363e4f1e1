"""Scaling the loss, so that gradients in float16 do not vanish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.global_norms import elements
from eagerflow.nn.arguments import Count, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.optimizers.base import Optimizer, Values
from eagerflow.nn.optimizers.gradients import Gradient
from eagerflow.nn.optimizers.groups import Group
from eagerflow.nn.optimizers.options import LearningRate
from eagerflow.nn.optimizers.table import get
from eagerflow.nn.replicas import averaged_gradients, unreplicated
from eagerflow.variable import Variable

__all__ = ["LossScaleOptimizer"]

_Scale = Annotated[float, number(lambda x: x > 0, "not a scale", "a positive number")]


class LossScaleOptimizer(Optimizer):
    """Multiplies the loss by a scale, and lets ``inner_optimizer`` apply the unscaled gradients.

    The scale is ``initial_scale`` at first, and doubles after every ``dynamic_growth_steps``
    consecutive steps with finite gradients. If gradients are not finite, only the scale changes,
    and is halved. The differentiated loss has to be ``scale_loss(loss)``; ``minimize`` does that.
    Source: Micikevicius and others, "Mixed Precision Training", 2018.

    >>> w = ef.Variable(3.0)
    >>> optimizer = ef.nn.optimizers.LossScaleOptimizer(ef.nn.optimizers.SGD(0.1))
    >>> loss = optimizer.minimize(lambda: w * w)
    >>> w.value, optimizer.dynamic_scale.value
    (Tensor(2.4, float32, cpu:0), Tensor(32768., float32, cpu:0))
    >>> optimizer.apply([ef.tensor(np.inf)], [w])
    >>> w.value, optimizer.dynamic_scale.value
    (Tensor(2.4, float32, cpu:0), Tensor(16384., float32, cpu:0))
    """

    inner_optimizer: Optimizer
    initial_scale: float
    dynamic_growth_steps: int

    @arguments
    def __init__(
        self,
        inner_optimizer: Annotated[Any, get],
        initial_scale: _Scale = 2.0**15,
        dynamic_growth_steps: Count = 2000,
        name: str | None = None,
    ) -> None:
        self.inner_optimizer.loss_scale_factor = None
        self.step_counter = Variable(0, f"{self.name}/step_counter", trainable=False)
        self.dynamic_scale = Variable(
            self.initial_scale, f"{self.name}/dynamic_scale", trainable=False
        )

    @property
    def iterations(self) -> Any:
        """The number of steps of the inner optimizer."""
        return self.inner_optimizer.iterations

    @property
    def _counter(self) -> tuple[Variable, int]:
        return self.inner_optimizer._counter

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's learning rate of the next step."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
        if hasattr(self, "inner_optimizer"):
            self.inner_optimizer.learning_rate = value
        else:  # during the base's constructor
            self._rate = Variable(0.0, trainable=False)

    @property
    def variables(self) -> list[Variable]:
        own = [*super().variables, self.step_counter, self.dynamic_scale]
        return own + self.inner_optimizer.variables

    def build(self, variables: Iterable[Variable]) -> None:
        self.inner_optimizer.build(variables)

    def has_changed(self, variable: Variable) -> bool:
        return self.inner_optimizer.has_changed(variable)

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] = (), var_names: Iterable[str] = ()
    ) -> None:
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def add_group(
        self, parts: Any, multiplier: float | None = None, weight_decay: float | None = None
    ) -> None:
        self.inner_optimizer.add_group(parts, multiplier, weight_decay)

    def group_of(self, variable: Variable) -> Group:
        return self.inner_optimizer.group_of(variable)

    def scale_loss(self, loss: Any) -> Any:
        return loss * self.dynamic_scale.value

    def next_values(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable] | None = None
    ) -> Values:
        grads = averaged_gradients(grads)
        finite = as_tensor(True)
        for gradient in grads:
            if gradient is not None:
                finite = ops.logical_and(finite, ops.isfinite(elements(gradient)).all())
        scale: Any = self.dynamic_scale.value
        unscaled = [None if g is None else g / scale for g in grads]
        new = unreplicated(self.inner_optimizer.next_values, unscaled, variables)
        new = {v: ops.where(finite, value, v.value) for v, value in new.items()}
        counted = ops.add(self.step_counter.value, 1)
        grown = ops.equal(counted, self.dynamic_growth_steps)
        after = ops.where(grown, scale * 2.0, scale)
        new[self.dynamic_scale] = ops.where(finite, after, scale * 0.5)
        goes_on = ops.logical_and(finite, ops.logical_not(grown))
        new[self.step_counter] = ops.where(goes_on, counted, 0)
        return new

    def finalize_variable_values(self, variables: Iterable[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(variables)
