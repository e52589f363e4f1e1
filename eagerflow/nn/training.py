"""The loops behind ``fit``, ``evaluate`` and ``predict``: epochs, batches, callbacks, progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.dispatch import user_frame
from eagerflow.errors import ArgumentError, TaskLostError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Nest
from eagerflow.nn.batches import Batch, Source
from eagerflow.nn.callbacks import CallbackList, History
from eagerflow.nn.progress import Progress
from eagerflow.runtime.threads import Alone, thread_count
from eagerflow.tensor import Operators
from eagerflow.variable import assign_together

__all__ = [
    "checked",
    "evaluate",
    "first_step",
    "fit",
    "in_form",
    "plain",
    "predict",
    "present",
    "wants_probabilities",
]

MAX_SHOWN_NAMES = 4  # in a warning


def fit(
    model: Any,
    source: Source,
    *,
    callbacks: Any,
    epochs: range,
    steps: int | None,
    shuffle: bool,
    validation: Source | None,
    validation_steps: int | None,
    validation_freq: int | Sequence[int],
    verbose: Any,
    strategy: Any = None,
) -> History:
    """Train a model for some epochs; see ``Model.fit``."""
    history = History()
    known = source.steps if steps is None else steps
    told = CallbackList(
        [callbacks, history],  # called last, with all logs of other callbacks
        model,
        epochs=epochs.stop,
        steps=known,
        verbose=verbose,
        validation_freq=validation_freq,
        strategy=strategy,
    )
    model.stop_training, model._initial_epoch, model._initial_batch = False, epochs.start, 0
    logs: dict[str, Any] = {}
    made = None if strategy is None else strategy.batch_step(model)
    merged = nullcontext() if strategy is None else strategy.merging(told.recovers)
    with Progress(verbose, epochs.stop, "fit") as progress, told, merged:
        told.on_train_begin({})
        begin = epoch = model._initial_epoch  # of a restored model
        while epoch < epochs.stop:
            told.on_epoch_begin(epoch, {})
            progress.begin(epoch, known)
            left = None if steps is None else steps - model._initial_batch % steps
            model._initial_batch = 0
            batches, first = source.epoch(shuffle, left), epoch == begin
            try:
                with _beside(source):
                    own = _run(model, "train", batches, told, progress, first, made, strategy)
            except raised_here(TaskLostError) as error:
                epoch = _gone_back(model, told, strategy, error, history, source)
                continue
            before, logs = logs, model.logs(own)
            if validation is not None and _is_due(epoch, validation_freq):
                _validate(model, validation.epoch(steps=validation_steps), told, logs)
            progress.end(logs)
            if _is_nan(logs) and not _is_nan(before) and not model.stop_training:
                _warn(
                    f"the loss of {model.name!r} is nan after epoch {epoch + 1}: ef.debug_nans() "
                    "names the op that made it, ef.nn.callbacks.TerminateOnNaN() stops there"
                )
            told.on_epoch_end(epoch, logs)
            epoch += 1
            if model.stop_training:
                break
        model.optimizer.finalize_variable_values(model.trainable_weights)
        told.on_train_end(logs)
    return history


def _validate(
    model: Any, batches: Iterable[Batch], told: CallbackList, logs: dict[str, Any]
) -> None:
    """Add the numbers of a model on other data to those of its training."""
    told.on_test_begin({})
    found = _run(model, "test", batches, told)
    logs |= model.logs(found, "val_")
    told.on_test_end(logs)


def _gone_back(
    model: Any,
    told: CallbackList,
    strategy: Any,
    error: TaskLostError,
    history: History,
    source: Source,
) -> int:
    """The epoch from which training resumes after a loss of a task; raises the error if no callback
    has restored an earlier state.
    """
    if strategy is not None:
        strategy.give_up()
    if not told.recover(error):
        raise error
    epoch: int = model._initial_epoch
    history.forget(epoch)
    source.restart()
    return epoch


def _beside(source: Source) -> Any:
    """A context in which steps leave CPU cores to the workers of a source.

    Otherwise multi-threaded steps would wait for cores occupied by workers.
    """
    crowded = source.workers and thread_count() - source.workers < 2
    return Alone() if crowded else nullcontext()


def _is_nan(logs: Mapping[str, Any]) -> bool:
    return bool(np.isnan(logs.get("loss", 0.0)).any())


def _is_due(epoch: int, frequency: int | Sequence[int]) -> bool:
    """Whether an epoch, counted from 0, is one to validate after."""
    number = epoch + 1
    return number % frequency == 0 if isinstance(frequency, int) else number in frequency


def _run(
    model: Any,
    kind: str,
    batches: Iterable[Batch],
    told: CallbackList,
    progress: Progress | None = None,
    first: bool = False,
    made: tuple[Callable[..., Any], bool] | None = None,
    strategy: Any = None,
) -> Any:
    """Train or test on batches; returns the numbers of the last one, if the model's own step
    returns some.

    ``made`` is the step of a ``strategy``, in place of the model's.
    """
    model.reset_metrics()
    step, own = made or model.batch_step(kind)
    merge = (lambda: None) if strategy is None else strategy.merge
    begin, end = getattr(told, f"on_{kind}_batch_begin"), getattr(told, f"on_{kind}_batch_end")
    announced, wanted = told.listens(f"on_{kind}_batch_begin"), told.listens(f"on_{kind}_batch_end")
    merges = strategy is None or told.reads(f"on_{kind}_batch_end")
    found: Any = None
    for number, batch in enumerate(batches):
        if announced:
            begin(number, {})
        if first and number == 0 and not own:
            found = first_step(model, step, batch)
        else:
            found = step(*present(batch))
        if wanted and merges:
            merge()
            end(number, model.logs(found if own else None))
        elif wanted:
            end(number, {})
        if progress is not None:
            progress.step(partial(model.logs, found if own else None) if strategy is None else None)
        if kind == "train" and model.stop_training:
            break
    merge()
    return found if own else None


def present(batch: Batch) -> tuple[Nest, ...]:
    """The given parts of a batch; a captured step is fastest with tensors only."""
    x, y, weight = batch
    return batch if weight is not None else (x,) if y is None else (x, y)


def first_step(model: Any, step: Callable[..., Any], batch: Batch) -> Any:
    """The first step of training; nothing changes if its outputs do not match the loss."""
    if wants_probabilities(model.loss):
        known = *model.weights, *getattr(model.optimizer, "variables", ())
        before = {variable: variable.value for variable in known}
        found = step(*present(batch))
        try:
            _check_probabilities(model.loss, found)
        except ArgumentError:
            assign_together(before)
            raise
    else:
        found = step(*present(batch))
    _check_trained(model)
    return found


def _check_trained(model: Any) -> None:
    """After the first step: warn of untrained weights."""
    if model.is_checked:
        return
    model.is_checked = True
    trained = model.trainable_weights
    if model.weights and not trained:
        _warn(f"{model.name!r} has no weights to train: all are frozen (layer.trainable = True)")
    unused = [w.name for w in trained if not model.optimizer.has_changed(w)]
    if unused:
        more = len(unused) - MAX_SHOWN_NAMES
        shown = ", ".join(unused[:MAX_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
        _warn(f"the loss of {model.name!r} does not depend on {shown}: they are not trained")


def _warn(words: str) -> None:
    """Warn at the line of the user's that trains."""
    frame = user_frame(sys._getframe(1))
    place = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(words, UserWarning, *place)


def checked(found: Any, method: str) -> Any:
    """The result of a user's step; ArgumentError if it is not a dict."""
    if not isinstance(found, Mapping):
        raise ArgumentError(
            f"it gives {short_repr(found)}",
            op=method,
            expected="a dict of numbers by name",
            hint="return {'loss': loss}, or self.get_metrics_result()",
        )
    return found


def wants_probabilities(loss: Any) -> bool:
    """Whether a loss takes probabilities, and could take logits instead."""
    return not getattr(loss, "from_logits", True)


def _check_probabilities(loss: Any, y_pred: Any) -> None:
    """Logits given to a loss of probabilities would train badly."""
    if isinstance(y_pred, Operators) and y_pred.size and float(y_pred.min()) < 0:
        raise ArgumentError(
            "the loss expects probabilities, and the model gives negative numbers",
            op="fit",
            argument="loss",
            received=repr(loss),
            expected="outputs from 0 to 1",
            hint=f"ef.nn.losses.{type(loss).__name__}(from_logits=True), "
            "or activation='softmax' in the last layer",
        )


def evaluate(
    model: Any, source: Source, steps: int | None, callbacks: Any, verbose: Any
) -> dict[str, Any]:
    """The numbers of a model on data; see ``Model.evaluate``."""
    known = source.steps if steps is None else steps
    told = CallbackList(callbacks, model, steps=known, verbose=verbose)
    with Progress(verbose, 1, "evaluate") as progress, told:
        progress.begin(0, known, "Evaluate")
        told.on_test_begin({})
        found = _run(model, "test", source.epoch(steps=steps), told, progress)
        logs: dict[str, Any] = model.logs(found)
        told.on_test_end(logs)
        progress.end(logs)
    return logs


def predict(model: Any, source: Source, steps: int | None, callbacks: Any, verbose: Any) -> Any:
    """The outputs of a model for all batches, joined; see ``Model.predict``."""
    known = source.steps if steps is None else steps
    told = CallbackList(callbacks, model, steps=known, verbose=verbose)
    parts: list[list[Any]] = []
    structure: Any = None
    step = model._step("_predict_batch")
    with Progress(0 if verbose == "auto" else verbose, 1, "predict") as progress, told:
        progress.begin(0, known, "Predict")
        told.on_predict_begin({})
        for number, (batch, _, _) in enumerate(source.epoch(steps=steps)):
            told.on_predict_batch_begin(number, {})
            leaves, structure = tree.flatten(step(batch))
            parts.append([np.asarray(leaf) for leaf in leaves])
            told.on_predict_batch_end(number, {"outputs": parts[-1]})
            progress.step()
        told.on_predict_end({})
        progress.end({})
    return tree.unflatten(structure, [np.concatenate(rows) for rows in zip(*parts, strict=True)])


def in_form(logs: dict[str, Any], return_dict: bool) -> Any:
    """The numbers as a dict, as a list, or the only one."""
    if return_dict:
        return logs
    values = list(logs.values())
    return values if len(values) > 1 else values[0]


def plain(value: Any) -> Any:
    """A number, or an array for a metric with several."""
    array = np.asarray(value)
    return float(array) if not array.ndim else array
