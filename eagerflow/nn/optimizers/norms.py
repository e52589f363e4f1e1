"""Optimizers that look at whole weights: their norms, their rows and columns, their matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.nn.arguments import Count, Float
from eagerflow.nn.configured import arguments
from eagerflow.nn.optimizers.adam import MeansOptimizer, MeansOptions
from eagerflow.nn.optimizers.base import Optimizer
from eagerflow.nn.optimizers.options import (
    Beta,
    CommonOptions,
    LearningRate,
    Momentum,
    OptimizerOptions,
)
from eagerflow.ops.nn.optimizer_updates import adam_direction, adam_update
from eagerflow.ops.operands import wide
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Adafactor", "Lamb", "Muon"]


class Lamb(MeansOptimizer):
    """Adam with steps scaled by the norm of the weight; You and others, 2020.

    Arguments are those of ``Adam``; ``epsilon`` is added to the corrected root.

    >>> w = ef.Variable([3.0, -4.0])
    >>> loss = ef.nn.optimizers.Lamb(0.1).minimize(lambda: (w * w).sum())
    >>> np.round(w.numpy(), 3)
    array([ 2.646, -3.646], dtype=float32)
    """

    step_op = None

    @arguments
    def __init__(
        self, learning_rate: LearningRate = 0.001, **options: Unpack[MeansOptions]
    ) -> None: ...

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        options = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        direction, *new = adam_direction(gradient, *state, step, **options)
        of_value, of_step = _norm(value), _norm(direction)
        known = ops.logical_and(of_value > 0, of_step > 0)
        ratio = ops.where(known, of_value / of_step, 1.0)
        return value - direction * (ratio * rate), *new


class Adafactor(Optimizer):
    """Adam that keeps, of a matrix of squares, means along rows and columns alone.

    ``beta_2_decay`` is the exponent by which the means slow down; squares are at least
    ``epsilon_1``, and the size of a weight, by which steps are scaled, at least ``epsilon_2``;
    ``clip_threshold`` bounds their size. The learning rate is at most one over the root of the step
    number; ``relative_step`` is accepted without effect, as in Keras. Other arguments are those of
    ``Optimizer``. Source: Shazeer and Stern, 2018.

    >>> w = ef.Variable([[1.0, -2.0]])
    >>> loss = ef.nn.optimizers.Adafactor(0.1).minimize(lambda: (w * w).sum())
    >>> np.round(w.numpy(), 3)
    array([[ 0.842, -1.842]], dtype=float32)
    """

    slots = ("row", "column", "velocity")

    beta_2_decay: float
    epsilon_1: float
    epsilon_2: float
    clip_threshold: float
    relative_step: bool

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_2_decay: Float = -0.8,
        epsilon_1: Float = 1e-30,
        epsilon_2: Float = 1e-3,
        clip_threshold: Float = 1.0,
        relative_step: Annotated[bool, bool] = True,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...

    def state_for(self, variable: Variable) -> dict[str, Variable]:
        shape = variable.shape
        matrix = len(shape) >= 2
        row, column = (shape[:-1], (*shape[:-2], shape[-1])) if matrix else ((), ())
        return {
            "row": self._slot(variable, "row", shape=row),
            "column": self._slot(variable, "column", shape=column),
            "velocity": self._slot(variable, "velocity"),
        }

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        row, column, velocity = state
        kept = 1.0 - step**self.beta_2_decay
        square = gradient * gradient + self.epsilon_1
        if value.ndim >= 2:
            row = row * kept + square.mean(axis=-1) * (1.0 - kept)
            column = column * kept + square.mean(axis=-2) * (1.0 - kept)
            share = row / row.mean(axis=-1, keepdims=True)
            velocity = ops.expand_dims(share, -1) * ops.expand_dims(column, -2)
        else:
            velocity = velocity * kept + square * (1.0 - kept)
        direction = gradient / ops.sqrt(velocity)
        direction = direction / ops.maximum(_size(direction) / self.clip_threshold, 1.0)
        length = ops.minimum(rate, 1.0 / ops.sqrt(step)) * ops.maximum(_size(value), self.epsilon_2)
        return value - direction * length, row, column, velocity


def _norm(x: Any) -> Any:
    return wide(lambda x: ops.sqrt((x * x).sum()), x)


def _size(x: Any) -> Any:
    """The root of the mean square."""
    return wide(lambda x: ops.sqrt((x * x).mean()), x)


class Muon(Optimizer):
    """Momentum whose steps are orthogonal matrices, for matrices; AdamW for all other weights.

    ``momentum`` and ``nesterov`` are those of gradient descent; the step is made orthogonal by
    ``ns_steps`` iterations with the polynomial of ``muon_a``, ``muon_b`` and ``muon_c``, and
    multiplied by ``rms_rate`` and the root of the longer side, unless ``rms_rate`` is None. AdamW,
    with ``adam_beta_1``, ``adam_beta_2``, ``epsilon``, ``adam_weight_decay`` and ``adam_lr_ratio``
    times the learning rate, is used for weights other than matrices, for names that match one of
    the regular expressions ``exclude_layers`` (which the output layer should), and with
    ``exclude_embeddings`` for names that contain "embedding". Other arguments are those of
    ``Optimizer``. Source: Jordan and others, 2024; Liu and others, 2025.

    >>> w = ef.Variable([[1.0, 0.0], [0.0, 2.0]])
    >>> optimizer = ef.nn.optimizers.Muon(0.1, weight_decay=None, rms_rate=None)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> np.round(w.numpy(), 1)
    array([[0.9, 0. ],
           [0. , 1.9]], dtype=float32)
    """

    slots = ("momentum", "velocity")

    adam_beta_1: float
    adam_beta_2: float
    adam_weight_decay: float | None
    epsilon: float
    exclude_layers: list[str]
    exclude_embeddings: bool
    muon_a: float
    muon_b: float
    muon_c: float
    adam_lr_ratio: float
    momentum: float
    ns_steps: int
    nesterov: bool
    rms_rate: float | None

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        adam_beta_1: Beta = 0.9,
        adam_beta_2: Beta = 0.999,
        adam_weight_decay: Float | None = 0.004,
        epsilon: Float = 1e-7,
        weight_decay: float | None = 0.004,
        *,
        exclude_layers: Annotated[Sequence[str] | None, lambda names: list(names or ())] = None,
        exclude_embeddings: Annotated[bool, bool] = True,
        muon_a: Float = 3.4445,
        muon_b: Float = -4.775,
        muon_c: Float = 2.0315,
        adam_lr_ratio: Float = 1.0,
        momentum: Momentum = 0.95,
        ns_steps: Count = 5,
        nesterov: Annotated[bool, bool] = True,
        rms_rate: Float | None = 0.2,
        **options: Unpack[CommonOptions],
    ) -> None: ...

    def uses_adam(self, variable: Variable) -> bool:
        """Whether a variable is changed by AdamW."""
        embeds = self.exclude_embeddings and "embedding" in variable.name.lower()
        excluded = any(re.search(name, variable.name) for name in self.exclude_layers)
        return len(variable.shape) != 2 or embeds or excluded

    def state_for(self, variable: Variable) -> dict[str, Variable]:
        names = self.slots if self.uses_adam(variable) else self.slots[:1]
        return {name: self._slot(variable, name) for name in names}

    def decay_of(self, variable: Variable) -> float:
        own = self.group_of(variable).weight_decay
        usual = self.adam_weight_decay if self.uses_adam(variable) else self.weight_decay
        decay = usual if own is None else own
        return decay if decay and not self.is_excluded(variable) else 0.0

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        if len(state) == 2:
            betas = {"beta_1": self.adam_beta_1, "beta_2": self.adam_beta_2}
            rate = rate * self.adam_lr_ratio
            return adam_update(value, gradient, *state, rate, step, epsilon=self.epsilon, **betas)
        momentum: Any = ops.add(ops.multiply(state[0], self.momentum), gradient)
        ahead = momentum * self.momentum + gradient if self.nesterov else momentum
        if self.rms_rate is not None:
            rate = rate * (max(value.shape) ** 0.5 * self.rms_rate)
        return value - wide(self._orthogonal, ahead) * rate, momentum

    def _orthogonal(self, x: Any) -> Any:
        """About the orthogonal matrix that is closest to a matrix, by Newton and Schulz."""
        tall = x.shape[0] > x.shape[1]
        x = x.mT if tall else x
        x = x / (_norm(x) + 1e-7)
        for _ in range(self.ns_steps):
            square = x @ x.mT
            x = x * self.muon_a + (square * self.muon_b + square @ square * self.muon_c) @ x
        return x.mT if tall else x
