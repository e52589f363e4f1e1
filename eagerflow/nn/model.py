"""Model: layers joined to a network that can be trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self, Unpack

from eagerflow import tree
from eagerflow.display import html
from eagerflow.errors import ArgumentError, printable
from eagerflow.graph.graph import Graph
from eagerflow.nn import saving
from eagerflow.nn.arguments import Nest
from eagerflow.nn.compiled import output_names
from eagerflow.nn.configuration import clone_model, to_json
from eagerflow.nn.configured import Untracked
from eagerflow.nn.graph_reading import PARTS, graph_ends
from eagerflow.nn.graph_writing import graph_config
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layer_graph import graph_between, layer_of, run
from eagerflow.nn.layers.core import input_layer
from eagerflow.nn.nests import shapes_of
from eagerflow.nn.state import Misfits
from eagerflow.nn.symbols import symbol
from eagerflow.nn.table import model_table
from eagerflow.nn.trainer import Trainer
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Operators

__all__ = ["Model"]


class Model(Trainer):
    """A trainable network: the graph from ``inputs`` to ``outputs``, or a subclass with a ``call``.

    ``inputs`` and ``outputs`` are symbolic tensors, or nests of them: the results of
    ``ef.nn.Input``, and of layers and ops on them. A subclass creates layers in ``__init__`` and
    uses them in ``call``. ``compile`` configures the training, ``fit`` trains the model,
    ``evaluate`` measures it, and ``predict`` returns predictions; the names and arguments are those
    of Keras.

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
        self._heads = Untracked([])  # InputLayers of a graph
        self._built_for = Untracked(None)  # the arguments of the first call, as specs
        if inputs is not None:
            self._join(inputs, outputs)

    # A graph of layers ---------------------------------------------------------------------

    def _join(self, inputs: Nest, outputs: Nest) -> None:
        """Be the model that leads from these symbolic tensors to those."""
        graph = graph_between(inputs, outputs, self.name)
        self._graph = Untracked(graph)
        self._ends = Untracked((inputs, outputs))
        ends = "inputs", "outputs"  # determined by the graph
        self._config = Untracked({k: v for k, v in self._config.held.items() if k not in ends})
        self._heads = Untracked([input_layer(x) for x in tree.flatten(inputs)[0]])
        self._layers = list(dict.fromkeys(filter(None, [layer_of(x) for x in graph.nodes])))
        self._read = list(graph.variables.values())
        self.built = True
        self.output_shape = shapes_of(outputs)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_heads": Untracked([])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        graph = self._graph.held
        if graph is not None:
            leaves = [symbol(v.shape, v.dtype, v.name) for v in graph.inputs]
            inputs = tree.unflatten(graph.argument_structure, leaves)
            self._ends = Untracked((inputs, run(graph, inputs)))
            self._heads = Untracked([input_layer(x) for x in leaves])

    @property
    def graph(self) -> Graph | None:
        """The graph of layers and ops of a model from symbolic tensors; None for other models.

        >>> x = ef.nn.Input((4,), name="x")
        >>> model = ef.nn.Model(x, ef.nn.Dense(2, name="out")(x) * 2.0, name="double")
        >>> print(model.graph.text(lines=False))
        graph double(x: float32[batch, 4]):
          out:      float32[batch, 2] = Dense(x)
          multiply: float32[batch, 2] = multiply(out, 2.0)
        <BLANKLINE>
          return
            multiply = multiply
        """
        found: Graph | None = self._graph.held
        if found is None and self._ends.held:
            found = graph_between(self.input, self.output, self.name)
        return found and _with_tools(found)

    @property
    def layers(self) -> list[Any]:
        """The layers of the model, in the order of the graph or of attributes.

        The InputLayers of a model from symbolic tensors come first.
        """
        return self.sublayers if self._graph.held is None else [*self._heads.held, *self._layers]

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer with this name, or at this index in ``layers``; ArgumentError if missing."""
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
        """The symbolic output tensors."""
        return tree.flatten(self.output)[0]

    @property
    def input_shape(self) -> Any:
        """The shapes of the inputs, in their nest; variable sizes are None.

        >>> x = ef.nn.Input((4,))
        >>> model = ef.nn.Model(x, ef.nn.Dense(2)(x))
        >>> model.input_shape, model.output_shape
        ((None, 4), (None, 2))
        """
        return shapes_of(self.input)

    def _remember_ends(self, inputs: Any, outputs: Any) -> None:
        if not self._ends.held:  # a model that was made from its own inputs keeps these
            super()._remember_ends(inputs, outputs)

    def call(self, inputs: Nest) -> Any:
        graph = self._graph.held
        return super().call(inputs) if graph is None else run(graph, inputs)

    def output_names(self, outputs: Nest) -> list[str]:
        graph = self._graph.held
        return output_names(outputs, () if graph is None else graph.outputs.names)

    # Showing it ------------------------------------------------------------------------------

    def summary(self, print_fn: Any = print) -> None:
        """Print a table of the layers: output shapes, numbers of parameters, frozen ones.

        >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")], name="tiny")
        >>> model.summary()  # doctest: +ELLIPSIS
        Model "tiny" (Sequential)
        ...
        Parameters: 10 (40 B), all trainable
        """
        print_fn(model_table(self))

    def _repr_html_(self) -> str:
        return html(self, "models")

    def __repr__(self) -> str:
        state = f", {self.count_params():,} parameters" if self.built else ""
        return printable(f"<{type(self).__name__} {self.name}: {len(self.layers)} layers{state}>")

    # Configurations --------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of this shape, in which None is any size, without a call.

        >>> model = ef.nn.Sequential([ef.nn.Dense(2)])
        >>> model.build((None, 4))
        >>> model.count_params()
        10
        """
        if self.built or self._built_for.held is None:  # otherwise a first call is in progress
            self.compute_output_shape(input_shape)

    def _build_for(self, inputs: Any, args: Any, kwargs: Any) -> None:
        self._built_for = Untracked(tree.map_leaves(_spec_of, ((inputs, *args), kwargs)))
        super()._build_for(inputs, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        graph = self._graph.held
        config = super().get_config()
        if graph is None or type(self).__init__ is not Model.__init__:
            return config
        return config | graph_config(graph)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A new model from the result of ``get_config``; ArgumentError for an invalid one."""
        if "calls" not in config or cls.__init__ is not Model.__init__:
            return super().from_config(config)
        ends = graph_ends(config, config.get("name") or cls.__name__)
        return cls(*ends, **{key: config[key] for key in config if key not in PARTS})

    def to_json(self, **options: Any) -> str:
        """The configuration as JSON, from which ``ef.nn.model_from_json`` makes an equal model.

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

    def save(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write the model to a single file, for ``ef.nn.load_model``.

        The file is in the safetensors format: the configuration and the arguments of ``compile`` as
        text, weights, the optimizer's state and that of random generators as tensors. It is written
        completely or not at all. Parts without a configuration, such as a user's function in place
        of a layer, are omitted with a warning. Raises FileFormatError for errors of the file
        system, if the file exists unless ``overwrite``, and for endings of other formats, such as
        ``.h5``.
        """
        saving.refuse_path(path, overwrite, "save")
        saving.save(self, path)

    def save_weights(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write the weights alone into a safetensors file, by the paths of their layers.

        Raises FileFormatError if the file exists, unless ``overwrite``, and for endings of other
        formats, such as ``.pt``.
        """
        saving.refuse_path(path, overwrite, "save_weights")
        saving.save_weights(self, path)

    def load_weights(self, path: str | os.PathLike[str], strict: bool = True) -> Misfits:
        """Load the weights from a file; returns mismatches by name.

        ``path`` is a file of ``save`` or ``save_weights``, any safetensors file with the same
        names, or one of Keras that ends in ``.weights.h5``. Raises FileFormatError if weights are
        missing, surplus or of other shapes, and changes nothing then; with ``strict=False`` all
        matching ones are loaded.

        >>> from tempfile import TemporaryDirectory
        >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")])
        >>> with TemporaryDirectory() as folder:
        ...     model.save_weights(f"{folder}/weights.safetensors")
        ...     model.load_weights(f"{folder}/weights.safetensors")
        Misfits(missing=[], extra=[], reshaped=[])
        """
        return saving.load_weights(self, path, strict)

    def prediction_graph(self) -> Graph:
        """The prediction graph, for any batch size, with weights as Variables.

        Raises ArgumentError if the model has had no inputs, so that shapes are unknown, and
        CaptureError for a ``call`` that cannot be captured.

        >>> model = ef.nn.Sequential([ef.nn.Input((4,), name="x"), ef.nn.Dense(2)], name="line")
        >>> model.prediction_graph()
        <Graph line(x: float32(batch, 4)), 2 nodes>
        """
        return saving.prediction_graph(self)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write the graph that predicts into a file, for any batch size.

        ``format`` is ``"ef"``, which ``ef.capture.load`` reads without the code of the model,
        ``"onnx"``, for ONNX Runtime, or ``"python"``, for NumPy alone; by default it is the file's
        suffix: ``.ef``, ``.onnx`` or ``.py``. Raises ArgumentError for other formats and if the
        model has had no inputs, CaptureError for a ``call`` that cannot be captured or expressed in
        the format.

        >>> from tempfile import TemporaryDirectory
        >>> model = ef.nn.Sequential([ef.nn.Input((4,), name="x"), ef.nn.Dense(2)])
        >>> with TemporaryDirectory() as folder:
        ...     model.export(f"{folder}/line.onnx")
        ...     ef.capture.import_onnx(f"{folder}/line.onnx").outputs["output"].shape
        (batch, 2)
        """
        saving.export(self, path, format)


def _spec_of(leaf: Any) -> Any:
    return TensorSpec(leaf.shape, leaf.dtype) if isinstance(leaf, Operators) else leaf


def _with_tools(graph: Graph) -> Graph:
    """The graph with its full API: importing ``ef.capture`` adds drawing."""
    import eagerflow.capture  # noqa: F401 (whose modules attach the tools)

    return graph
