"""Optimizers: Keras's own, with one fused op for each variable's step where available."""

from __future__ import annotations

from typing import Any

from keras.src.optimizers import base_optimizer

import eagerflow as ef
from eagerflow.keras.backend.tensors import convert_to_tensor
from eagerflow.ops.nn.optimizer_updates import amsgrad_update

__all__ = ["Optimizer"]


class Optimizer(base_optimizer.BaseOptimizer):  # type: ignore[misc]
    """The base of all optimizers; subclasses that override ``update_step`` use their own step."""

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        owner = next(cls for cls in type(self).__mro__ if "update_step" in vars(cls))
        step = _STEPS.get(f"{owner.__module__}.{owner.__name__}")
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            if step is None or not step(self, gradient, variable, learning_rate):
                self.update_step(gradient, variable, learning_rate)


def _adam(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> bool:
    """A step of Adam as one op; returns whether it was applicable."""
    options = {
        "beta_1": optimizer.beta_1,
        "beta_2": optimizer.beta_2,
        "epsilon": optimizer.epsilon,
    }
    if not all(isinstance(option, float) for option in options.values()):
        return False
    place = optimizer._get_variable_index(variable)
    cells = [variable, optimizer._momentums[place], optimizer._velocities[place]]
    update: Any = ef.adam_update
    if optimizer.amsgrad:
        cells.append(optimizer._velocity_hats[place])
        update = amsgrad_update
    rate = convert_to_tensor(learning_rate, variable.dtype)
    count = convert_to_tensor(optimizer.iterations + 1, variable.dtype)
    _replace(optimizer, update, gradient, cells, (rate, count), options)
    return True


def _sgd(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> bool:
    """A step of gradient descent with momentum as one op; returns whether it was applicable."""
    if not (isinstance(optimizer.momentum, float) and optimizer.momentum):
        return False
    cells = [variable, optimizer.momentums[optimizer._get_variable_index(variable)]]
    options = {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov}
    rate = convert_to_tensor(learning_rate, variable.dtype)
    _replace(optimizer, ef.momentum_update, gradient, cells, (rate,), options)
    return True


def _replace(
    optimizer: Any, update: Any, gradient: Any, cells: Any, numbers: Any, options: Any
) -> None:
    """Assign the results of an op on a variable, its gradient and the optimizer state."""
    variable, *state = cells
    gradient = convert_to_tensor(gradient, variable.dtype)
    values = [convert_to_tensor(cell, variable.dtype) for cell in state]
    found = update(variable.value, gradient, *values, *numbers, **options)
    for cell, value in zip(cells, found, strict=True):
        optimizer.assign(cell, value)


_STEPS = {"keras.src.optimizers.adam.Adam": _adam, "keras.src.optimizers.sgd.SGD": _sgd}
"""Fused steps, by the class that defines ``update_step``."""
