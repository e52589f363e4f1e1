"""CompiledLayer: a layer with a loss, an optimizer and metrics, and the definition of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any, Unpack

from eagerflow import tree
from eagerflow.errors import ArgumentError, CaptureError, GradientError, IndexRangeError
from eagerflow.handlers import raised_here
from eagerflow.layer_losses import added_losses
from eagerflow.nn import optimizers, training
from eagerflow.nn.arguments import Nest
from eagerflow.nn.base_layer import is_ours
from eagerflow.nn.compiled import CompiledLosses, CompiledMetrics, losses_of, output_names
from eagerflow.nn.configured import Untracked
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.metrics import Mean, Metric
from eagerflow.nn.nests import examples, pack_data, unpack_data
from eagerflow.ops.arguments_of_others import explains_arguments
from eagerflow.recorder import prepared
from eagerflow.tape import GradientTape

__all__ = ["CompiledLayer"]


class CompiledLayer(Layer):
    """Base of models: ``compile`` configures their training, ``train_step`` is one step of it."""

    supports_masking = False  # the inner layers give outputs their masks
    stop_training = False
    _initial_epoch = _initial_batch = 0  # where training resumes
    run_eagerly = False
    optimizer: Any = None

    def __init__(self, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self._losses: Any = None
        self._metrics: Any = None
        self._loss_tracker: Any = None
        self._compiled_with = Untracked(None)  # the arguments of compile
        self.is_checked = False  # whether a first step has been validated
        self._captured = Untracked({})  # steps, by their names

    def output_names(self, outputs: Nest) -> list[str]:
        """A name for each output, by which losses, metrics and targets may be given."""
        return output_names(outputs)

    # How it is trained -------------------------------------------------------------------

    @explains_arguments(lr="ef.nn.optimizers.Adam(rate) as optimizer")
    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Configure the training.

        ``optimizer``, ``loss`` and each of ``metrics`` are names or objects of
        ``ef.nn.optimizers``, ``ef.nn.losses`` and ``ef.nn.metrics``; a loss or metric may be a
        function of ``(y_true, y_pred)``. A model of several outputs has a loss for all, a list of
        them or a dict by the outputs' names, and likewise ``loss_weights``, ``metrics`` and
        ``weighted_metrics``, which alone heed the weights of examples. Steps are captured as graphs
        when they run first; ``run_eagerly=True`` runs them op by op, for looking into them.
        ``auto_scale_loss`` scales the loss of models that compute in float16.
        ``steps_per_execution`` and ``jit_compile`` are accepted for compatibility with Keras and
        have no effect. Raises ArgumentError for unknown names.
        """
        self._check_constructor()
        self._compiled_with = Untracked(
            {
                "optimizer": optimizer,
                "loss": loss,
                "metrics": metrics,
                "loss_weights": loss_weights,
                "weighted_metrics": weighted_metrics,
                "run_eagerly": run_eagerly,
                "auto_scale_loss": auto_scale_loss,
            }
        )
        made = optimizers.get(optimizer)
        if auto_scale_loss and self.compute_dtype == "float16":
            made = optimizers.LossScaleOptimizer(made)
        self.optimizer = made
        self._losses = CompiledLosses(loss, loss_weights)
        self._metrics = CompiledMetrics(metrics, weighted_metrics, self._losses)
        self._loss_tracker = Mean("loss")
        self.run_eagerly = bool(run_eagerly)
        self._captured = Untracked({})
        self.is_checked = False

    @property
    def loss(self) -> Any:
        """The loss that ``compile`` was given: an object, or a nest of them."""
        return None if self._losses is None else self._losses.given

    @loss.setter
    def loss(self, loss: Any) -> None:
        self._check_compiled("loss")
        self._losses.given = losses_of(loss)

    @property
    def metrics(self) -> list[Any]:
        """The metrics reported by ``fit``: the mean loss, that of each output, and all metrics."""
        if self._losses is None or self._metrics is None:
            return []
        listed = [self._loss_tracker, *self._losses.trackers, *self._metrics.metrics]
        # Models within have been compiled for themselves, and layers of ours have no metrics.
        users = [x for x in self.walk() if isinstance(x, Layer) and not is_ours(type(x))]
        held = [vars(x) for x in users if x is self or not isinstance(x, CompiledLayer)]
        own = tree.instances(held, (Metric,)) if held else []
        return list(dict.fromkeys([*listed, *own]))

    @property
    def metrics_names(self) -> list[str]:
        """The names of ``metrics``, which are also those in the result of ``evaluate``."""
        return [metric.name for metric in self.metrics]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_captured": Untracked({})}  # copies capture their own

    def _step(self, name: str) -> Callable[..., Any]:
        """A step by its name: captured, unless the model is run eagerly."""
        step: Callable[..., Any] = getattr(self, name)
        if self.run_eagerly:
            return step
        captured: dict[str, Callable[..., Any]] = self._captured.held
        if name not in captured:
            captured[name] = captured_step(step)
        return partial(self._run_captured, captured[name])

    def _run_captured(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(*args)
        except CaptureError as error:
            error.hint = (f"{error.hint}; " if error.hint else "") + (
                "or model.compile(..., run_eagerly=True), which captures nothing"
            )
            raise
        except raised_here(IndexRangeError) as error:
            error.hint = error.hint or (
                "class numbers count from 0, and are below the units of the last layer; those of "
                "an Embedding are below its input_dim"
            )
            raise

    def _check_compiled(self, op: str) -> None:
        if self._losses is None:
            raise ArgumentError(
                "the model is not compiled",
                op=op,
                hint="model.compile('adam', loss='mse', metrics=['accuracy'])",
            )

    # One step ------------------------------------------------------------------------------

    def compute_loss(
        self,
        x: Nest = None,
        y: Nest = None,
        y_pred: Nest = None,
        sample_weight: Nest = None,
        training: bool = True,
    ) -> Any:
        """The loss that training minimizes; a subclass may override it.

        It is the weighted sum of the losses of all outputs, plus the losses of regularizers and
        layers.
        """
        parts = self.losses
        if self._losses is not None and self.loss is not None:
            if y is None:
                raise ArgumentError(
                    "there are no targets",
                    op=self.name,
                    argument="y",
                    expected="y, or batches (x, y)",
                    hint="fit(x, y), and validation_data=(x, y)",
                )
            if y_pred is None:
                raise ArgumentError(
                    "the model gives None", op=self.name, argument="call", hint="return outputs"
                )
            names = self.output_names(y_pred)
            parts = [self._losses(y, y_pred, sample_weight, names), *parts]
        if not parts:
            raise ArgumentError(
                "there is no loss", op=self.name, argument="loss", hint="compile(loss='mse')"
            )
        return reduce(add, parts)

    def compute_metrics(
        self, x: Nest, y: Nest, y_pred: Nest, sample_weight: Nest = None
    ) -> dict[str, Any]:
        """Update the metrics with a batch, and return their results; a subclass may override it."""
        self._update_metrics(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def _update_metrics(self, y: Nest, y_pred: Nest, sample_weight: Nest) -> None:
        self._metrics.update(y, y_pred, sample_weight, self.output_names(y_pred))

    def get_metrics_result(self) -> dict[str, Any]:
        """The results of all metrics by name."""
        found: dict[str, Any] = {}
        for metric in self.metrics:
            result = metric.result()
            found |= result if isinstance(result, dict) else {metric.name: result}
        return found

    def reset_metrics(self) -> None:
        """Reset the state of all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of training on a batch; returns the results of the metrics so far.

        ``data`` is ``x``, ``(x, y)`` or ``(x, y, sample_weight)``. A subclass may have its own,
        which returns a dict of numbers.
        """
        x, y, sample_weight = unpack_data(data)
        y_pred = self._train_on(x, y, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Measure a batch without training on it; arguments are those of ``train_step``."""
        x, y, sample_weight = unpack_data(data)
        y_pred = self._test_on(x, y, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch; a subclass may have its own."""
        return self(unpack_data(data)[0], training=False)

    def _train_on(self, x: Nest, y: Nest, sample_weight: Nest) -> Any:
        """Update the weights by one step; returns the predictions."""
        # State that is initialized from the weights sees them before layers change them.
        prepared(self.optimizer.build, self.trainable_weights)
        with GradientTape() as tape, added_losses():
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_weights
        grads = tape.gradient(scaled, variables, unconnected="none")
        if variables and all(gradient is None for gradient in grads):
            raise GradientError(
                "the loss depends on none of the weights that are trained",
                op=self.name,
                received=f"{len(variables)} weights, as {variables[0].name}",
                hint="tape.why(loss, weight) shows where the path breaks",
            )
        self.optimizer.apply(grads, variables)
        self._loss_tracker.update_state(loss, examples(x))
        return y_pred

    def _test_on(self, x: Nest, y: Nest, sample_weight: Nest) -> Any:
        with added_losses():
            y_pred = self(x, training=False)
            loss = self.compute_loss(x, y, y_pred, sample_weight, training=False)
        self._loss_tracker.update_state(loss, examples(x))
        return y_pred

    # The captured functions. Metrics compute results on request, not in each step.

    def _train_batch(self, x: Nest, y: Nest = None, sample_weight: Nest = None) -> Any:
        y_pred = self._train_on(x, y, sample_weight)
        self._update_metrics(y, y_pred, sample_weight)
        return y_pred if training.wants_probabilities(self.loss) else None

    def _test_batch(self, x: Nest, y: Nest = None, sample_weight: Nest = None) -> None:
        y_pred = self._test_on(x, y, sample_weight)
        self._update_metrics(y, y_pred, sample_weight)

    def _own_train_batch(self, x: Nest, y: Nest = None, sample_weight: Nest = None) -> Any:
        return training.checked(self.train_step(pack_data(x, y, sample_weight)), "train_step")

    def _own_test_batch(self, x: Nest, y: Nest = None, sample_weight: Nest = None) -> Any:
        return training.checked(self.test_step(pack_data(x, y, sample_weight)), "test_step")

    def _predict_batch(self, x: Nest) -> Any:
        return self.predict_step(pack_data(x))

    def batch_step(self, kind: str) -> tuple[Callable[..., Any], bool]:
        """The step ``"train"`` or ``"test"`` to run, and whether it returns numbers of its own."""
        name, own = self._step_name(kind)
        return self._step(name), own

    def python_step(self, kind: str) -> tuple[Callable[..., Any], bool]:
        """The same step as an uncaptured function."""
        name, own = self._step_name(kind)
        return getattr(self, name), own

    def _step_name(self, kind: str) -> tuple[str, bool]:
        methods = f"{kind}_step", "compute_metrics"
        own = any(getattr(type(self), name) is not getattr(CompiledLayer, name) for name in methods)
        return f"_own_{kind}_batch" if own else f"_{kind}_batch", own

    def step_graphs(self, kind: str) -> list[Any]:
        """The graphs that steps ``"train"`` or ``"test"`` are replayed from, the latest last.

        There are none before the first step, and where the model runs them eagerly.
        """
        steps = [self._captured.held.get(f"{own}_{kind}_batch") for own in ("", "_own")]
        return [graph for step in steps if step is not None for graph in step.graphs]

    def logs(self, own: Any = None, prefix: str = "") -> dict[str, Any]:
        """The results of all metrics as numbers, or those returned by a subclass's step."""
        found = self.get_metrics_result() if own is None else own
        return {f"{prefix}{name}": training.plain(value) for name, value in found.items()}


def captured_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """The function that captures a step; loaded only if steps are captured."""
    from eagerflow.capture.function import Function

    return Function(step)
