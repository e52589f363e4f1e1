"""Trainer: a layer with training, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.nn import training
from eagerflow.nn.arguments import Nest, require_counts, require_strategy
from eagerflow.nn.batches import make_source, split_validation, validation_source
from eagerflow.nn.callbacks import Callback, History
from eagerflow.nn.compiled_layer import CompiledLayer
from eagerflow.ops.arguments_of_others import explains_arguments

__all__ = ["Trainer"]


class Trainer(CompiledLayer):
    """Base of models: ``fit`` trains, ``evaluate`` measures, ``predict`` returns predictions.

    Names and arguments are Keras's.
    """

    @explains_arguments(
        nb_epoch="epochs", lr="ef.nn.optimizers.Adam(rate) in compile", workers="ef.nn.Loader"
    )
    def fit(
        self,
        x: Nest = None,
        y: Nest = None,
        batch_size: int | None = None,
        epochs: int = 1,
        validation_data: Any = None,
        validation_split: float = 0.0,
        callbacks: Callback | Sequence[Callback] = (),
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Nest = None,
        verbose: Any = "auto",
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Sequence[int] = 1,
        strategy: Any = None,
    ) -> History:
        """Train for some epochs, and return their numbers.

        ``x`` and ``y`` are arrays or tensors (or nests of them) with the examples along the first
        axis, or ``x`` is an iterable of batches ``(x, y)`` or ``(x, y, weight)``. Arrays are cut
        into batches of ``batch_size`` examples, 32 without it. ``validation_data`` is ``(x, y)``,
        ``(x, y, weight)`` or an iterable; ``validation_split`` takes the last part of the arrays
        instead; every ``validation_freq`` epochs it is looked at, or in the epochs listed, counted
        from 1. ``class_weight`` maps classes to weights. ``verbose`` is 0, 1 (a bar), 2 (lines) or
        ``"auto"``. Epochs are numbered from ``initial_epoch``, and have ``steps_per_epoch`` batches
        if that is given. A ``strategy`` of ``ef.cluster`` runs each step on several devices or
        machines. Weights that the loss does not depend on stay unchanged, with one warning. Raises
        ShapeError where lengths or shapes do not fit, ArgumentError for other values, GradientError
        where the loss depends on no weight.
        """
        self._check_compiled("fit")
        require_strategy("fit", strategy)
        listed = isinstance(validation_freq, Sequence)
        require_counts("fit", 0, epochs=epochs, initial_epoch=initial_epoch)
        require_counts(
            "fit",
            1,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=None if listed else validation_freq,
        )
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_validation(
                x, y, sample_weight, validation_split
            )
        validation = None
        if validation_data is not None:
            size = batch_size if validation_batch_size is None else validation_batch_size
            validation = validation_source(validation_data, size)
        return training.fit(
            self,
            make_source(x, y, sample_weight, batch_size, "fit", class_weight),
            callbacks=callbacks,
            epochs=range(initial_epoch, epochs),
            steps=steps_per_epoch,
            shuffle=shuffle,
            validation=validation,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
            verbose=verbose,
            strategy=strategy,
        )

    @explains_arguments()
    def evaluate(
        self,
        x: Nest = None,
        y: Nest = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Nest = None,
        steps: int | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics on these data, as a list, or a dict with ``return_dict``.

        Without metrics it is the loss alone. Arguments are those of ``fit``.
        """
        self._check_compiled("evaluate")
        source = make_source(x, y, sample_weight, batch_size, "evaluate")
        logs = training.evaluate(self, source, steps, callbacks, verbose)
        return training.in_form(logs, return_dict)

    @explains_arguments()
    def predict(
        self,
        x: Nest,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Callback | Sequence[Callback] = (),
    ) -> Any:
        """The outputs for all examples of ``x``, batch by batch, as NumPy arrays."""
        source = make_source(x, None, None, batch_size, "predict")
        return training.predict(self, source, steps, callbacks, verbose)

    def train_on_batch(
        self,
        x: Nest,
        y: Nest = None,
        sample_weight: Nest = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """One step on one batch; returns the loss and the metrics of this batch."""
        return self._on_batch("train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(
        self, x: Nest, y: Nest = None, sample_weight: Nest = None, return_dict: bool = False
    ) -> Any:
        """The loss and the metrics of one batch, without training on it."""
        return self._on_batch("test", x, y, sample_weight, None, return_dict)

    def _on_batch(
        self, kind: str, x: Nest, y: Nest, weight: Nest, class_weight: Any, return_dict: bool
    ) -> Any:
        op = f"{kind}_on_batch"
        self._check_compiled(op)
        size = max(len(tree.flatten(x)[0][0]), 1)
        source = make_source(x, y, weight, size, op, class_weight)
        ((x, y, weight),) = source.epoch()
        self.reset_metrics()
        step, own = self.batch_step(kind)
        if kind == "train" and not own and not self.is_checked:
            found = training.first_step(self, step, (x, y, weight))
        else:
            found = step(*training.present((x, y, weight)))
        return training.in_form(self.logs(found if own else None), return_dict)

    def predict_on_batch(self, x: Nest) -> Any:
        """The outputs for one batch, as NumPy arrays."""
        return tree.map_leaves(np.asarray, self(x, training=False))
