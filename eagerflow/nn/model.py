"""Model: a layer that can be trained, evaluated and asked."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

import numpy as np

from eagerflow import tree
from eagerflow.errors import ArgumentError, CaptureError, GradientError, printable, short_repr
from eagerflow.graph.graph import Graph
from eagerflow.nn import losses, optimizers, saving
from eagerflow.nn.arguments import Nest, TensorLike, is_count, require
from eagerflow.nn.batches import Source, class_weights, is_stream, make_source, split_validation
from eagerflow.nn.callbacks import Callback, History
from eagerflow.nn.configuration import clone_model, to_json
from eagerflow.nn.configured import Untracked, plain
from eagerflow.nn.functional import graph_between, layer_of, run
from eagerflow.nn.graph_reading import PARTS, graph_ends
from eagerflow.nn.graph_writing import graph_config
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.metrics import Mean, metric_for
from eagerflow.nn.nests import shapes_of
from eagerflow.nn.progress import Progress
from eagerflow.nn.state import Misfits
from eagerflow.nn.table import model_table
from eagerflow.spec import TensorSpec
from eagerflow.tape import GradientTape
from eagerflow.tensor import Operators

__all__ = ["Model"]

MAX_SHOWN_NAMES = 4  # in a warning


class Model(Layer):
    """A network to train: what leads from ``inputs`` to ``outputs``, or a subclass with a ``call``.

    ``inputs`` and ``outputs`` are symbolic tensors, or nests of them: what ``ef.nn.Input`` gives,
    and what layers and ops make of that. A subclass makes layers in ``__init__`` and uses them in
    ``call``. ``compile`` says how it is trained, ``fit`` trains it, ``evaluate`` measures it, and
    ``predict`` asks it; the names and arguments are those of Keras.

    >>> class Line(ef.nn.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.dense = ef.nn.Dense(1)
    ...     def call(self, inputs):
    ...         return self.dense(inputs)
    >>> x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
    >>> model = Line()
    >>> model.compile(ef.nn.optimizers.SGD(0.5), "mse")
    >>> history = model.fit(x, 3 * x + 1, epochs=20, verbose=0)
    >>> history.history["loss"][-1] < 1e-3
    True
    >>> x = ef.nn.Input((4,))
    >>> ef.nn.Model(x, ef.nn.Dense(2)(x) + 1.0)(ef.zeros((3, 4))).shape
    (3, 2)
    """

    def __init__(
        self, inputs: Nest = None, outputs: Nest = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self._graph = Untracked(None)
        self._compiled_with = Untracked(None)  # the arguments of compile
        self._built_for = Untracked(None)  # the arguments of the first call, specs for tensors
        if inputs is not None:
            self._join(inputs, outputs)
        self.optimizer: Any = None
        self.loss: Any = None
        self.metrics: list[Any] = []
        self.stop_training = False
        self.run_eagerly = False
        self._loss_mean: Any = None
        self._warned = False
        self._captured = Untracked({})  # steps, by their names

    # A graph of layers ---------------------------------------------------------------------

    def _join(self, inputs: Nest, outputs: Nest) -> None:
        """Be the model that leads from these symbolic tensors to those."""
        graph = graph_between(inputs, outputs, self.name)
        self._graph = Untracked(graph)
        self._ends = Untracked((inputs, outputs))
        self._layers = list(dict.fromkeys(filter(None, map(layer_of, graph.nodes))))
        self._read = list(graph.variables.values())
        self.built = True
        self.output_shape = shapes_of(outputs)

    @property
    def graph(self) -> Graph | None:
        """The graph of layers and ops of a model from symbolic tensors; None for others."""
        found: Graph | None = self._graph.held
        return found

    @property
    def layers(self) -> list[Any]:
        """The layers that the model is made of, in the order of a graph or of attributes."""
        return self.sublayers if self.graph is None else list(self._layers)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer of this name, or at this place among ``layers``; ArgumentError if none."""
        layers = self.layers
        if index is not None and -len(layers) <= index < len(layers):
            return layers[index]
        found = next((layer for layer in layers if index is None and layer.name == name), None)
        if found is None:
            raise ArgumentError(
                f"there is no layer {name if index is None else index!r}",
                op=self._label,
                expected="one of " + ", ".join(layer.name for layer in layers),
            )
        return found

    @property
    def inputs(self) -> list[Any]:
        """The symbolic tensors that the model takes."""
        return tree.flatten(self.input)[0]

    @property
    def outputs(self) -> list[Any]:
        """The symbolic tensors that the model makes of them."""
        return tree.flatten(self.output)[0]

    def call(self, inputs: Nest) -> Any:
        if self.graph is None:
            return super().call(inputs)
        return run(self.graph, inputs)

    # How it is trained -------------------------------------------------------------------

    def compile(
        self,
        optimizer: Any = "adam",
        loss: Any = None,
        metrics: Any = (),
        run_eagerly: bool = False,
    ) -> None:
        """Say how the model is trained.

        ``optimizer``, ``loss`` and each of ``metrics`` are names or objects of
        ``ef.nn.optimizers``, ``ef.nn.losses`` and ``ef.nn.metrics``; a loss or metric may be a
        function of ``(y_true, y_pred)``. Steps are captured as graphs when they run first;
        ``run_eagerly=True`` runs them op by op, for looking into them. Raises ArgumentError for
        names that do not exist.
        """
        given = {"optimizer": optimizer, "loss": loss, "metrics": metrics}
        self._compiled_with = Untracked(given | {"run_eagerly": bool(run_eagerly)})
        self.optimizer = optimizers.get(optimizer)
        self.loss = None if loss is None else losses.get(loss)
        listed = metrics if isinstance(metrics, list | tuple) else [metrics]
        self.metrics = [metric_for(item, self.loss) for item in listed]
        self._loss_mean = Mean("loss")
        self.run_eagerly = bool(run_eagerly)
        self._captured = Untracked({})
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_captured": Untracked({})}  # a copy captures its own steps

    def _step(self, name: str) -> Callable[..., Any]:
        """A step by its name: captured, unless the model is run eagerly."""
        step: Callable[..., Any] = getattr(self, name)
        if self.run_eagerly:
            return step
        captured: dict[str, Callable[..., Any]] = self._captured.held
        if name not in captured:
            captured[name] = _captured(step)
        return partial(self._run_captured, captured[name])

    def _run_captured(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(*args)
        except CaptureError as error:
            error.hint = (f"{error.hint}; " if error.hint else "") + (
                "or model.compile(..., run_eagerly=True), which captures nothing"
            )
            raise

    def _check_compiled(self, op: str) -> None:
        if self._loss_mean is None:
            raise ArgumentError(
                "the model does not know how it is trained",
                op=op,
                hint="model.compile('adam', loss='mse', metrics=['accuracy'])",
            )

    def compute_loss(self, y: Nest, y_pred: Nest, sample_weight: TensorLike = None) -> Any:
        """The loss that training makes small; a subclass may have its own."""
        if self.loss is None:
            raise ArgumentError(
                "there is no loss", op=self.name, argument="loss", hint="compile(loss='mse')"
            )
        if y is None:
            raise ArgumentError(
                "there are no targets", op=self.name, argument="y", expected="y, or batches (x, y)"
            )
        return self.loss(y, y_pred, sample_weight)

    def train_step(self, x: Nest, y: Nest, sample_weight: TensorLike = None) -> Any:
        """One step of training on a batch; gives the predictions and the loss."""
        with GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y, y_pred, sample_weight)
        variables = self.trainable_weights
        grads = tape.gradient(loss, variables, unconnected="none")
        if variables and all(gradient is None for gradient in grads):
            raise GradientError(
                "the loss depends on none of the weights that are trained",
                op=self.name,
                received=f"{len(variables)} weights, as {variables[0].name}",
                hint="tape.why(loss, weight) tells where the path breaks",
            )
        self.optimizer.apply(grads, variables)
        return y_pred, loss

    def _warn_of_unused(self) -> None:
        """Say once which weights are not trained since the loss does not depend on them."""
        if self._warned:
            return
        self._warned = True
        unused = [w.name for w in self.trainable_weights if not self.optimizer.has_changed(w)]
        if unused:
            more = len(unused) - MAX_SHOWN_NAMES
            shown = ", ".join(unused[:MAX_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
            warnings.warn(
                f"the loss of {self.name!r} does not depend on {shown}: they are not trained",
                stacklevel=4,
            )

    def test_step(self, x: Nest, y: Nest, sample_weight: TensorLike = None) -> Any:
        """Predictions and loss of a batch, without training on it."""
        y_pred = self(x, training=False)
        return y_pred, self.compute_loss(y, y_pred, sample_weight)

    def _measure(self, y: Nest, sample_weight: TensorLike, y_pred: Nest, loss: Any) -> Any:
        """Take a batch into the loss's mean and the metrics; gives the predictions."""
        size = tree.flatten(y)[0][0].shape[0]
        self._loss_mean.update_state(loss, float(size))
        for metric in self.metrics:
            metric.update_state(y, y_pred, sample_weight)
        return y_pred

    def _train_and_measure(self, x: Nest, y: Nest, sample_weight: TensorLike) -> Any:
        return self._measure(y, sample_weight, *self.train_step(x, y, sample_weight))

    def _test_and_measure(self, x: Nest, y: Nest, sample_weight: TensorLike) -> Any:
        return self._measure(y, sample_weight, *self.test_step(x, y, sample_weight))

    def _predict(self, x: Nest) -> Any:
        return self(x, training=False)

    def _reset(self) -> None:
        self._loss_mean.reset_state()
        for metric in self.metrics:
            metric.reset_state()

    def _logs(self, prefix: str = "") -> dict[str, float]:
        found = {f"{prefix}loss": float(self._loss_mean.result())}
        return found | {f"{prefix}{m.name}": float(m.result()) for m in self.metrics}

    # Training ------------------------------------------------------------------------------

    def fit(
        self,
        x: Nest = None,
        y: Nest = None,
        batch_size: int = 32,
        epochs: int = 1,
        validation_data: Any = None,
        validation_split: float = 0.0,
        callbacks: Callback | Sequence[Callback] = (),
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: TensorLike = None,
        verbose: Any = "auto",
    ) -> History:
        """Train for some epochs, and return their numbers.

        ``x`` and ``y`` are arrays or tensors (or nests of them) with the examples along the
        first axis, or ``x`` is an iterable of batches ``(x, y)`` or ``(x, y, weight)``.
        ``validation_data`` is ``(x, y)``, ``(x, y, weight)`` or an iterable;
        ``validation_split`` takes the last part of the arrays instead. ``class_weight`` maps
        classes to weights. ``verbose`` is 0, 1 (a bar), 2 (lines) or ``"auto"``. Weights that
        the loss does not depend on stay as they are, with one warning. Raises ShapeError where
        lengths or shapes do not fit, ArgumentError for other values, GradientError where the
        loss depends on no weight.
        """
        self._check_compiled("fit")
        counted = is_count(epochs, 0)
        require(counted, epochs, "not a number of epochs", "fit", "epochs", "an integer")
        validation = None
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_validation(
                x, y, sample_weight, validation_split
            )
        if class_weight is not None:
            sample_weight = class_weights(y, class_weight, sample_weight, "fit")
        source = make_source(x, y, sample_weight, batch_size, "fit")
        if validation_data is not None:
            validation = _validation(validation_data, batch_size)
        history = History()
        all_callbacks = [history, *_as_callbacks(callbacks)]
        for callback in all_callbacks:
            callback.model = self
            callback.params = {"epochs": epochs, "steps": source.steps, "verbose": verbose}
        self._train(
            source, validation, epochs, shuffle, all_callbacks, Progress(verbose, epochs, "fit")
        )
        return history

    def _train(
        self,
        source: Source,
        validation: Source | None,
        epochs: int,
        shuffle: bool,
        callbacks: list[Any],
        progress: Progress,
    ) -> None:
        self.stop_training = False
        # Asked before each batch, most callbacks have nothing to say.
        on_batch = [c for c in callbacks if _listens_to_batches(c)]
        run_step = self._step("_train_and_measure")
        _notify(callbacks, "on_train_begin", {})
        with progress:
            for epoch in range(epochs):
                _notify(callbacks, "on_epoch_begin", epoch, {})
                self._reset()
                progress.begin(epoch, source.steps)
                batches = progress.watch(source.epoch(shuffle))
                for step, (x, y, weight) in enumerate(batches):
                    _notify(on_batch, "on_train_batch_begin", step, {})
                    y_pred = run_step(x, y, weight)
                    if epoch == step == 0:
                        self._check_probabilities(y_pred)
                        self._warn_of_unused()
                    if on_batch:
                        _notify(on_batch, "on_train_batch_end", step, self._logs())
                    if self.stop_training:
                        break
                logs = self._logs()
                if validation is not None:
                    logs |= self._evaluate(validation, "val_")
                progress.end(logs)
                _notify(callbacks, "on_epoch_end", epoch, logs)
                if self.stop_training:
                    break
        _notify(callbacks, "on_train_end", {})

    def _check_probabilities(self, y_pred: Nest) -> None:
        """Logits given to a loss of probabilities would train badly and say nothing."""
        if getattr(self.loss, "from_logits", True) or not isinstance(y_pred, Operators):
            return
        if y_pred.size and float(y_pred.min()) < 0:
            raise ArgumentError(
                "the loss expects probabilities, and the model gives negative numbers",
                op="fit",
                argument="loss",
                received=repr(self.loss),
                expected="outputs from 0 to 1",
                hint=f"ef.nn.losses.{type(self.loss).__name__}(from_logits=True), "
                "or activation='softmax' in the last layer",
            )

    def _evaluate(self, source: Source, prefix: str = "", progress: Any = None) -> dict[str, float]:
        self._reset()
        batches = source.epoch()
        step = self._step("_test_and_measure")
        for x, y, weight in batches if progress is None else progress.watch(batches):
            step(x, y, weight)
        return self._logs(prefix)

    def evaluate(
        self,
        x: Nest = None,
        y: Nest = None,
        batch_size: int = 32,
        verbose: Any = "auto",
        sample_weight: TensorLike = None,
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics on these data, as a list, or a dict with ``return_dict``.

        Without metrics it is the loss alone. Arguments are those of ``fit``.
        """
        self._check_compiled("evaluate")
        source = make_source(x, y, sample_weight, batch_size, "evaluate")
        with Progress(verbose, 1, "evaluate") as progress:
            progress.begin(0, source.steps, "Evaluate")
            logs = self._evaluate(source, "", progress)
            progress.end(logs)
        return _in_form(logs, return_dict)

    def predict(self, x: Nest, batch_size: int = 32, verbose: Any = "auto") -> Any:
        """The outputs for all examples of ``x``, batch by batch, as NumPy arrays."""
        source = make_source(x, None, None, batch_size, "predict")
        parts: list[list[Any]] = []
        structure: Any = None
        step = self._step("_predict")
        with Progress(0 if verbose == "auto" else verbose, 1, "predict") as progress:
            progress.begin(0, source.steps, "Predict")
            for batch, _, _ in progress.watch(source.epoch()):
                leaves, structure = tree.flatten(step(batch))
                parts.append([np.asarray(leaf) for leaf in leaves])
            progress.end({})
        return tree.unflatten(
            structure, [np.concatenate(column) for column in zip(*parts, strict=True)]
        )

    def train_on_batch(
        self,
        x: Nest,
        y: Nest = None,
        sample_weight: TensorLike = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """One step on one batch; gives the loss and the metrics of this batch."""
        return self._on_batch("train", x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(
        self, x: Nest, y: Nest = None, sample_weight: TensorLike = None, return_dict: bool = False
    ) -> Any:
        """The loss and the metrics of one batch, without training on it."""
        return self._on_batch("test", x, y, sample_weight, None, return_dict)

    def _on_batch(
        self, step: str, x: Nest, y: Nest, weight: Nest, class_weight: Any, return_dict: bool
    ) -> Any:
        op = f"{step}_on_batch"
        self._check_compiled(op)
        if class_weight is not None:
            weight = class_weights(y, class_weight, weight, op)
        size = len(tree.flatten(x)[0][0])
        source = make_source(x, y, weight, max(size, 1), op)
        ((x, y, weight),) = source.epoch()
        self._reset()
        self._step(f"_{step}_and_measure")(x, y, weight)
        if step == "train":
            self._warn_of_unused()
        return _in_form(self._logs(), return_dict)

    def predict_on_batch(self, x: Nest) -> Any:
        """The outputs for one batch, as NumPy arrays."""
        return tree.map_leaves(np.asarray, self(x, training=False))

    # Showing it ------------------------------------------------------------------------------

    def summary(self, print_fn: Any = print) -> None:
        """Print a table of the layers: output shapes, numbers of parameters, what is frozen.

        >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")], name="tiny")
        >>> model.summary()  # doctest: +ELLIPSIS
        Model "tiny" (Sequential)
        ...
        Parameters: 10 (40 B), all trainable
        """
        print_fn(model_table(self))

    def __repr__(self) -> str:
        state = f", {self.count_params()} parameters" if self.built else ""
        return printable(f"<{type(self).__name__} {self.name}: {len(self.layers)} layers{state}>")

    # Configurations --------------------------------------------------------------------------

    def _build_for(self, inputs: Any, args: Any, kwargs: Any) -> None:
        super()._build_for(inputs, args, kwargs)
        self._built_for = Untracked(tree.map_leaves(_spec_of, ((inputs, *args), kwargs)))

    def get_config(self) -> dict[str, Any]:
        if self.graph is None or type(self).__init__ is not Model.__init__:
            return super().get_config()
        given = self._config.held.items()
        options = {name: plain(value) for name, value in given if name not in PARTS}
        return self._as_it_is({"name": self.name} | options) | graph_config(self.graph)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A new model of what ``get_config`` gives; ArgumentError for what is not as it should."""
        if "calls" not in config or cls.__init__ is not Model.__init__:
            return super().from_config(config)
        ends = graph_ends(config, config.get("name") or cls.__name__)
        return cls(*ends, **{key: config[key] for key in config if key not in PARTS})

    def to_json(self, **options: Any) -> str:
        """The configuration as JSON, of which ``ef.nn.model_from_json`` makes such a model again.

        ``options`` are those of ``json.dumps``. Raises ArgumentError where a part of the model
        has no configuration.

        >>> import json
        >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")])
        >>> json.loads(model.to_json())["config"]["layers"][1]["config"]["units"]
        2
        """
        return to_json(self, **options)

    def clone(self) -> Any:
        """A new model of new layers like those of this one; see ``ef.nn.clone_model``."""
        return clone_model(self)

    # Files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into one file, of which ``ef.nn.load_model`` makes it again.

        The file is in the safetensors format: the configuration and what the model was compiled
        with as text, weights, the optimizer's state and that of random generators as tensors. It
        is written whole or not at all. What has no configuration, such as a function of the
        user's in place of a layer, is left out with a warning. Raises FileFormatError where the
        system refuses.
        """
        saving.save(self, path)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write the weights alone into a safetensors file, by the paths of their layers."""
        saving.save_weights(self, path)

    def load_weights(self, path: str | os.PathLike[str], strict: bool = True) -> Misfits:
        """Take the weights from a file; gives what did not fit, by name.

        ``path`` is a file of ``save`` or ``save_weights``, any safetensors file with the same
        names, or one of Keras that ends in ``.weights.h5``. Raises FileFormatError where weights
        are missing, left over or of other shapes, and changes nothing then; with
        ``strict=False`` the others are taken.

        >>> from tempfile import TemporaryDirectory
        >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")])
        >>> with TemporaryDirectory() as folder:
        ...     model.save_weights(f"{folder}/weights.safetensors")
        ...     model.load_weights(f"{folder}/weights.safetensors")
        Misfits(missing=[], extra=[], reshaped=[])
        """
        return saving.load_weights(self, path, strict)

    def export(self, path: str | os.PathLike[str], format: str = "ef") -> None:
        """Write the graph that predicts into a file, for any batch size.

        ``ef.capture.load`` reads it, and needs none of the code of the model. The one ``format``
        is ``"ef"``. Raises ArgumentError for others and where no input has been seen, CaptureError
        for a ``call`` that cannot be captured.
        """
        saving.export(self, path, format)


def _spec_of(leaf: Any) -> Any:
    return TensorSpec(leaf.shape, leaf.dtype) if isinstance(leaf, Operators) else leaf


def _captured(step: Callable[..., Any]) -> Callable[..., Any]:
    """The function that captures a step; layers that run op by op load nothing for it."""
    from eagerflow.capture.function import Function

    return Function(step)


def _as_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks, of which one may come alone; ArgumentError for what is none."""
    found = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    for item in found:
        if not isinstance(item, Callback):
            raise ArgumentError(
                f"{short_repr(item)} is no callback",
                op="fit",
                argument="callbacks",
                expected="an object of ef.nn.callbacks.Callback, or a list of such",
                hint=f"{item.__name__}()" if isinstance(item, type) else None,
            )
    return found


def _validation(data: Any, batch_size: int) -> Source:
    if not isinstance(data, tuple) and (not isinstance(data, list) or is_stream(data)):
        data = data, None
    elif not 2 <= len(data) <= 3:
        raise ArgumentError(
            f"{len(data)} parts",
            op="fit",
            argument="validation_data",
            expected="(x, y) or (x, y, sample_weight)",
        )
    x, y, weight = (*data, None)[:3]
    return make_source(x, y, weight, batch_size, "fit (validation)")


def _notify(callbacks: list[Any], method: str, *args: Any) -> None:
    for callback in callbacks:
        getattr(callback, method)(*args)


def _listens_to_batches(callback: Any) -> bool:
    """Whether a callback has methods of its own for the begin or the end of batches."""
    for name in ("on_train_batch_begin", "on_train_batch_end"):
        method = getattr(callback, name)
        if getattr(method, "__func__", method) not in (None, getattr(Callback, name)):
            return True
    return False


def _in_form(logs: dict[str, float], return_dict: bool) -> Any:
    if return_dict:
        return logs
    values = list(logs.values())
    return values if len(values) > 1 else values[0]
