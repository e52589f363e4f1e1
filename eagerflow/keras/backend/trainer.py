"""The trainer behind ``fit``, ``evaluate`` and ``predict``: steps are captured, or run eagerly."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src import backend, tree
from keras.src import callbacks as callbacks_module
from keras.src import optimizers as optimizers_module
from keras.src.backend import config
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils import traceback_utils
from keras.src.utils.python_utils import pythonify_logs

import eagerflow as ef
from eagerflow.keras.backend.steps import CapturedStep

__all__ = ["Trainer"]


class Trainer(base_trainer.Trainer):  # type: ignore[misc]
    """Keras's trainer with our steps; models that override ``train_step(data)`` use theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.train_function: Any = None
        self.test_function: Any = None
        self.predict_function: Any = None

    # One batch ------------------------------------------------------------------------------------

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of the optimizer on a batch; returns the metrics so far."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        trained = self.trainable_weights
        with ef.GradientTape() as tape:
            y_pred = self._predicted(x, training=True)
            loss = self._compute_loss(
                x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True
            )
            self._loss_tracker.update_state(ef.stop_gradient(loss), sample_weight=_count(x))
            if self.optimizer is not None:
                loss = self.optimizer.scale_loss(loss)
        if trained:
            self.optimizer.apply(tape.gradient(loss, trained, unconnected="none"), trained)
        else:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        metrics: dict[str, Any] = self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return metrics

    def test_step(self, data: Any) -> dict[str, Any]:
        """The metrics so far, including those of a batch."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        y_pred = self._predicted(x, training=False)
        loss = self._compute_loss(
            x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False
        )
        self._loss_tracker.update_state(loss, sample_weight=_count(x))
        metrics: dict[str, Any] = self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return metrics

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch."""
        x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self._predicted(x, training=False)

    def _predicted(self, x: Any, training: bool) -> Any:
        return self(x, training=training) if self._call_has_training_arg else self(x)

    # Functions of several batches -----------------------------------------------------------------

    def make_train_function(self, force: bool = False) -> Any:
        """The training function on a list of batches, created on first use."""
        if self.train_function is None or force:
            self.train_function = self._last_of("train", lambda data: self.train_step(data))
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        """The test function on a list of batches, created on first use."""
        if self.test_function is None or force:
            self.test_function = self._last_of("test", lambda data: self.test_step(data))
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        """The prediction function on a list of batches, created on first use."""
        if self.predict_function is None or force:
            step = self._step("predict", lambda data: self.predict_step(data))

            def predict(batches: list[Any]) -> Any:
                found = [step(batch) for batch in batches]
                if len(found) == 1:
                    return found[0]
                return tree.map_structure(lambda *parts: ef.concat(list(parts), axis=0), *found)

            self.predict_function = predict
        return self.predict_function

    def _last_of(self, name: str, step: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
        step = self._step(name, step)

        def run(batches: list[Any]) -> Any:
            logs: Any = {}
            for batch in batches:
                logs = step(batch)
            return logs

        return run

    def _step(self, name: str, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step through its graph, unless the model runs eagerly."""
        if self.run_eagerly or not self.jit_compile:
            return lambda data: step(_as_tensors(data))

        def cleared(data: Any) -> Any:
            result = step(data)
            self._clear_losses()  # of the trace: unusable outside of it
            return result

        return CapturedStep(cleared, f"{self.name}_{name}_step")

    # Loops ----------------------------------------------------------------------------------------

    @traceback_utils.filter_traceback  # type: ignore[untyped-decorator]
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: Any = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: Any = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: Any = None,
        validation_steps: Any = None,
        validation_batch_size: Any = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Train for some epochs; see Keras."""
        self._assert_compile_called("fit")
        most = config.max_epochs()
        if most and most < epochs:
            warnings.warn(f"Limiting epochs to {most}", stacklevel=2)
            epochs = most
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split
            )
        batches = self._batches(
            x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight
        )
        self._symbolic_build(iterator=batches)
        batches.reset()
        told = self._told(callbacks, verbose, epochs, batches, add_history=True)
        self._eval_epoch_iterator = None
        self.stop_training = False
        self.make_train_function()
        epoch_logs: dict[str, Any] = {}
        told.on_train_begin()
        for epoch in range(self._initial_epoch or initial_epoch, epochs):
            self.reset_metrics()
            told.on_epoch_begin(epoch)
            logs = self._run_epoch(batches, told)
            epoch_logs = dict(self._get_metrics_result_or_logs(logs))
            if validation_data is not None and self._should_eval(epoch, validation_freq):
                found = self._validate(
                    validation_data, validation_batch_size or batch_size, validation_steps, told
                )
                epoch_logs |= {f"val_{name}": value for name, value in found.items()}
            told.on_epoch_end(epoch, epoch_logs)
            if self.stop_training:
                break
        if isinstance(self.optimizer, optimizers_module.Optimizer) and epochs > 0:
            self.optimizer.finalize_variable_values(self.trainable_weights)
        self._eval_epoch_iterator = None
        told.on_train_end(logs=epoch_logs)
        return self.history

    def _run_epoch(self, batches: EpochIterator, told: Any) -> Any:
        """Train on all batches of an epoch; returns the logs of the last step."""
        logs: Any = {}
        for begin, end, data in batches:
            told.on_train_batch_begin(begin)
            logs = self.train_function(data)
            told.on_train_batch_end(end, logs)
            if self.stop_training:
                break
        return logs

    def _validate(self, data: Any, batch_size: Any, steps: Any, told: Any) -> dict[str, Any]:
        if self._eval_epoch_iterator is None:
            x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
            self._eval_epoch_iterator = self._batches(x, y, sample_weight, batch_size, steps)
        found: dict[str, Any] = self.evaluate(
            x=data, callbacks=told, return_dict=True, _use_cached_eval_dataset=True
        )
        return found

    @traceback_utils.filter_traceback  # type: ignore[untyped-decorator]
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: Any = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: Any = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The metrics on data; see Keras."""
        self._assert_compile_called("evaluate")
        cached = kwargs.pop("_use_cached_eval_dataset", False)
        if kwargs:
            raise ValueError(f"Arguments not recognized: {kwargs}")
        batches: Any = (
            self._eval_epoch_iterator
            if cached
            else self._batches(x, y, sample_weight, batch_size, steps)
        )
        self._symbolic_build(iterator=batches)
        batches.reset()
        told = self._told(callbacks, verbose, 1, batches)
        self.make_test_function()
        self.stop_evaluating = False
        told.on_test_begin()
        logs: Any = {}
        self.reset_metrics()
        for begin, end, data in batches:
            told.on_test_batch_begin(begin)
            logs = self.test_function(data)
            told.on_test_batch_end(end, logs)
            if self.stop_evaluating:
                break
        logs = pythonify_logs(self._get_metrics_result_or_logs(logs))
        told.on_test_end(logs)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @traceback_utils.filter_traceback  # type: ignore[untyped-decorator]
    def predict(
        self,
        x: Any,
        batch_size: Any = None,
        verbose: Any = "auto",
        steps: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """The outputs for all batches, joined, as NumPy arrays; see Keras."""
        batches = self._batches(x, batch_size=batch_size, steps=steps)
        told = self._told(callbacks, verbose, 1, batches)
        self.make_predict_function()
        self.stop_predicting = False
        told.on_predict_begin()
        parts: list[list[Any]] = []
        outputs: Any = None
        for begin, end, data in batches:
            told.on_predict_batch_begin(begin)
            outputs = self.predict_function(data)
            parts.append([backend.convert_to_numpy(leaf) for leaf in tree.flatten(outputs)])
            told.on_predict_batch_end(end, {"outputs": outputs})
            if self.stop_predicting:
                break
        told.on_predict_end()
        joined = [np.concatenate(rows) for rows in zip(*parts, strict=True)]
        return tree.pack_sequence_as(outputs, joined)

    def _batches(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: Any = None,
        steps: Any = None,
        shuffle: Any = False,
        class_weight: Any = None,
    ) -> EpochIterator:
        return EpochIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=shuffle,
            class_weight=class_weight,
            steps_per_execution=self.steps_per_execution,
        )

    def _told(
        self, callbacks: Any, verbose: Any, epochs: int, batches: EpochIterator, **options: Any
    ) -> Any:
        """A list of callbacks, unless ``callbacks`` is one made by the outer loop."""
        if isinstance(callbacks, callbacks_module.CallbackList):
            return callbacks
        return callbacks_module.CallbackList(
            callbacks,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            steps=batches.num_batches,
            model=self,
            **options,
        )

    # Single batches -------------------------------------------------------------------------------

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """One step on a batch; see Keras."""
        self._assert_compile_called("train_on_batch")
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError(
                    "Arguments `sample_weight` and `class_weight` cannot be specified at the same "
                    f"time. Received: sample_weight={sample_weight}, class_weight={class_weight}"
                )
            sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
        return self._on_batch((x, y, sample_weight), self.make_train_function, return_dict)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """The metrics of a batch; see Keras."""
        self._assert_compile_called("test_on_batch")
        return self._on_batch((x, y, sample_weight), self.make_test_function, return_dict)

    def _on_batch(self, data: Any, make: Callable[[], Any], return_dict: bool) -> Any:
        data = _as_tensors(data)
        self._symbolic_build(data_batch=data)
        function = make()
        self.reset_metrics()
        logs = pythonify_logs(function([data]))
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for a batch, as NumPy arrays; see Keras."""
        outputs = self.make_predict_function()([(x,)])
        return tree.map_structure(backend.convert_to_numpy, outputs)


def _as_tensors(data: Any) -> Any:
    """A batch of tensors; missing parts stay None."""
    return tree.map_structure(lambda x: None if x is None else _tensor(x), data)


def _tensor(x: Any) -> Any:
    """An array as a tensor; strings, for lookup layers, stay as they are."""
    if getattr(getattr(x, "dtype", None), "kind", "f") in "OSU":
        return x
    return backend.convert_to_tensor(x)


def _count(x: Any) -> Any:
    """The number of examples in a batch."""
    return next(leaf for leaf in tree.flatten(x) if leaf is not None).shape[0]
