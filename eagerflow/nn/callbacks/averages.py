"""SwapEMAWeights: evaluates with the running means of the weights."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import ArgumentError
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.configured import arguments
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["SwapEMAWeights"]


class SwapEMAWeights(Callback):
    """Replaces a model's weights by their running means during evaluation and prediction.

    The optimizer keeps them, if it was made with ``use_ema=True``. With ``swap_on_epoch`` the model
    also has them from the end of an epoch to the beginning of the next, for later callbacks that
    save it. Raises ArgumentError for an optimizer without running means.

    >>> ef.nn.callbacks.SwapEMAWeights(swap_on_epoch=True).swap_on_epoch
    True
    """

    swap_on_epoch: bool

    @arguments
    def __init__(self, swap_on_epoch: bool = False) -> None:
        self._own: dict[Variable, Tensor] = {}  # the weights while means replace them

    def _give_means(self) -> None:
        optimizer: Any = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        if not getattr(optimizer, "use_ema", False):
            raise ArgumentError(
                "the optimizer keeps no running means",
                op="SwapEMAWeights",
                argument="optimizer",
                hint=f"ef.nn.optimizers.{type(optimizer).__name__}(use_ema=True)",
            )
        if not self._own:
            means: dict[Variable, Variable] = optimizer.averages
            self._own = {weight: weight.value for weight in means}
            assign_together({weight: mean.value for weight, mean in means.items()})

    def _give_back(self) -> None:
        own, self._own = self._own, {}
        assign_together(own)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._give_back()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.swap_on_epoch:
            self._give_means()

    def on_train_end(self, logs: Logs = None) -> None:
        """Drop the original weights: the optimizer has replaced them by their means permanently."""
        self._own = {}

    def on_test_begin(self, logs: Logs = None) -> None:
        self._give_means()

    def on_test_end(self, logs: Logs = None) -> None:
        self._give_back()

    def on_exception(self, error: BaseException) -> None:
        self._give_back()

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._give_means()

    def on_predict_end(self, logs: Logs = None) -> None:
        self._give_back()
