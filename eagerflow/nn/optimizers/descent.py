"""Optimizers that go along the gradient, or its signs, with momentum."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from eagerflow.nn.arguments import number
from eagerflow.nn.configured import arguments
from eagerflow.nn.optimizers.one_op import OneOpOptimizer
from eagerflow.nn.optimizers.options import LearningRate, Momentum, OptimizerOptions
from eagerflow.ops.nn.optimizer_updates import lion_update, momentum_update
from eagerflow.tensor import Tensor

__all__ = ["SGD", "Lion"]


class SGD(OneOpOptimizer):
    """Gradient descent, perhaps with ``momentum``, perhaps looking ahead (``nesterov``).

    Source: Sutskever and others, 2013. Other arguments are those of ``Optimizer``.

    >>> w = ef.Variable([1.0])
    >>> optimizer = ef.nn.optimizers.SGD(0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([0.46], float32, cpu:0)
    """

    by_rows = True

    momentum: float
    nesterov: bool

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: Momentum = 0.0,
        nesterov: Annotated[bool, bool] = False,
        **options: Unpack[OptimizerOptions],
    ) -> None:
        self.slots = ("momentum",) if self.momentum else ()
        self.step_op = momentum_update if self.momentum else None

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        if self.momentum:
            return super().update(value, gradient, state, rate, step)
        return (value - gradient * rate,)


class Lion(OneOpOptimizer):
    """Steps of constant size along the signs of a running mean; Chen and others, 2023.

    The mean takes ``1 - beta_2`` of each gradient, the direction ``1 - beta_1``. Other arguments
    are those of ``Optimizer``.

    >>> w = ef.Variable([1.0, -2.0])
    >>> loss = ef.nn.optimizers.Lion(0.1).minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    slots = ("momentum",)
    step_op = staticmethod(lion_update)

    beta_1: float
    beta_2: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: Annotated[
            float, number(lambda x: 0 < x <= 1, "out of range", "over 0, to 1")
        ] = 0.9,
        beta_2: Momentum = 0.99,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...
