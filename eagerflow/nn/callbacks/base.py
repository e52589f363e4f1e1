"""Callback and the list of callbacks: actions between steps and epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

from eagerflow import tree
from eagerflow.errors import ArgumentError, TaskLostError, short_repr
from eagerflow.nn.configured import Configured

__all__ = ["Callback", "CallbackList", "LambdaCallback", "Logs", "hooks"]

Logs = dict[str, Any] | None
"""Numbers by name: ``loss``, the metrics, and their ``val_`` forms."""


class Callback(Configured):
    """Base of callbacks: ``fit``, ``evaluate`` and ``predict`` call the methods.

    ``model`` and ``params`` (``epochs``, ``steps``, ``verbose``, ``strategy``) are set before.
    ``logs`` is a dict of numbers: ``loss``, the metrics, and their ``val_`` forms; entries that a
    callback adds at the end of an epoch are visible to later callbacks, and to the History. A
    strategy updates all values of the model before the end of a batch, unless no callback
    ``reads_batches``.

    >>> class Shout(ef.nn.callbacks.Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         print(f"EPOCH {epoch}!")
    >>> Shout().on_epoch_end(0)
    EPOCH 0!
    """

    model: Any = None
    params: dict[str, Any] = {}
    reads_batches = True
    """Whether its hooks of single batches read ``logs`` or the model's values."""

    def set_model(self, model: Any) -> None:
        """Called first, with the model."""
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Called first, with the parameters of the training."""
        self.params = params

    def on_train_begin(self, logs: Logs = None) -> None:
        """Called before the first epoch."""

    def on_train_end(self, logs: Logs = None) -> None:
        """Called after the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Called before each epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Called after each epoch, validation included."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before each step of training; by default ``on_batch_begin``."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after each step of training; by default ``on_batch_end``."""
        self.on_batch_end(batch, logs)

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Another name of ``on_train_batch_begin``."""

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Another name of ``on_train_batch_end``."""

    def on_test_begin(self, logs: Logs = None) -> None:
        """Called before an evaluation, also that of an epoch of training."""

    def on_test_end(self, logs: Logs = None) -> None:
        """Called after an evaluation."""

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before each batch of an evaluation."""

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after each batch of an evaluation."""

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Called before the first batch of ``predict``."""

    def on_predict_end(self, logs: Logs = None) -> None:
        """Called after the last batch of ``predict``."""

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before each batch of ``predict``."""

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after each batch of ``predict``."""

    def on_exception(self, error: BaseException) -> None:
        """Called when an exception ends the training, Ctrl-C included, before it propagates."""

    def recover(self, error: TaskLostError) -> bool:
        """Called where values were lost with a task of a cluster.

        True if an earlier state of the model was restored, from which ``fit`` continues.
        """
        return False

    @property
    def recovers(self) -> bool:
        """Whether ``recover`` may bring an earlier state back."""
        return type(self).recover is not Callback.recover


hooks = tuple(name for name in vars(Callback) if name.startswith("on_"))
"""The names of the methods that are called."""
_GENERAL = {
    "on_train_batch_begin": "on_batch_begin",
    "on_train_batch_end": "on_batch_end",
}


def _has_own(callback: Callback, hook: str) -> bool:
    """Whether a callback overrides a method."""
    method = getattr(callback, hook)
    if getattr(method, "__func__", method) is not getattr(Callback, hook):
        return True
    return hook in _GENERAL and _has_own(callback, _GENERAL[hook])


class CallbackList(Callback):
    """Several callbacks as one: each of its methods calls those that override it.

    ``callbacks`` is a callback, or a nest of callbacks; ``model`` and ``params`` are set on them.
    Raises ArgumentError for other objects.

    >>> words = []
    >>> log = ef.nn.callbacks.LambdaCallback(on_train_begin=lambda logs: words.append("begin"))
    >>> both = ef.nn.callbacks.CallbackList([log, log], epochs=2)
    >>> both.on_train_begin({})
    >>> words, both.listens("on_epoch_end"), log.params
    (['begin', 'begin'], False, {'epochs': 2})
    """

    callbacks: list[Callback]

    def __init__(self, callbacks: Any = (), model: Any = None, **params: Any) -> None:
        self.callbacks = [_checked(item) for item in tree.flatten(callbacks)[0]]
        self._listeners: dict[str, list[Callable[..., None]]] = {}
        for hook in hooks:
            heard = [getattr(c, hook) for c in self.callbacks if _has_own(c, hook)]
            self._listeners[hook] = heard
            setattr(self, hook, partial(_tell, heard))
        if model is not None:
            self.set_model(model)
        self.set_params(params)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            self.on_exception(error)

    def listens(self, *names: str) -> bool:
        """Whether any callback overrides one of these methods."""
        return any(self._listeners[name] for name in names)

    def reads(self, hook: str) -> bool:
        """Whether any callback that overrides one of them reads the model or its numbers."""
        return any(c.reads_batches for c in self.callbacks if _has_own(c, hook))

    def recover(self, error: TaskLostError) -> bool:
        return any(callback.recover(error) for callback in self.callbacks)

    @property
    def recovers(self) -> bool:
        """Whether one of them may bring an earlier state back."""
        return any(callback.recovers for callback in self.callbacks)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        for callback in self.callbacks:
            callback.set_model(model)

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        for callback in self.callbacks:
            callback.set_params(params)


def _tell(methods: Iterable[Callable[..., None]], *args: Any, **kwargs: Any) -> None:
    for method in methods:
        method(*args, **kwargs)


def _checked(item: Any) -> Callback:
    if isinstance(item, Callback):
        return item
    raise ArgumentError(
        f"{short_repr(item)} is not a callback",
        op="fit",
        argument="callbacks",
        expected="an object of ef.nn.callbacks.Callback, or a list of such",
        hint=f"{item.__name__}()" if isinstance(item, type) else None,
    )


class LambdaCallback(Callback):
    """A callback from functions, given by the names of the methods.

    Functions for epochs take the number of the epoch and ``logs``, those for batches the number of
    the batch and ``logs``, all others ``logs``. Raises ArgumentError for other names.

    >>> lines = []
    >>> log = ef.nn.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: lines.append(epoch))
    >>> log.on_epoch_end(0, {})
    >>> lines
    [0]
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **functions: Callable[..., Any] | None,
    ) -> None:
        functions |= {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
        }
        for name, function in functions.items():
            if name not in hooks:
                raise ArgumentError(
                    f"there is no {name!r}",
                    op="LambdaCallback",
                    expected="one of " + ", ".join(hooks),
                )
            if function is not None:
                setattr(self, name, function)
