"""Sequential: layers one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

from eagerflow import tree
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Nest
from eagerflow.nn.configuration import described, layer_from
from eagerflow.nn.configured import Untracked
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.core import InputLayer, input_layer
from eagerflow.nn.model import Model
from eagerflow.nn.nests import free_batch, shapes_of
from eagerflow.nn.symbols import is_symbolic, symbol

__all__ = ["Sequential"]


class Sequential(Model):
    """A model of consecutive layers.

    ``layers`` are layers, or functions of a tensor. With an ``Input`` at its head it is built
    immediately, otherwise from the shape of the first input. Raises ArgumentError for other
    objects.

    >>> model = ef.nn.Sequential([ef.nn.Dense(8, activation="relu"), ef.nn.Dense(1)])
    >>> model(ef.ones((2, 3))).shape, model.count_params()
    ((2, 1), 41)
    """

    layers: Any = ()  # a list, in order; Inputs are not included

    def __init__(
        self, layers: Iterable[Any] = (), *more: Any, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self._config = Untracked({k: v for k, v in self._config.held.items() if k != "layers"})
        self.head: InputLayer | None = None
        self.layers = []
        if more or isinstance(layers, Layer):
            raise ArgumentError(
                f"{layers!r} is not a list of layers",
                op=self._label,
                argument="layers",
                hint="ef.nn.Sequential([layer, ...])",
            )
        for layer in layers:
            self._add(layer)
        self._build_if_known()

    def add(self, layer: Any) -> None:
        """Put another layer at the end."""
        self._add(layer)
        self._build_if_known()

    def _add(self, layer: Any) -> None:
        if is_symbolic(layer):
            layer = input_layer(layer)
        if isinstance(layer, type) or not callable(layer):
            raise ArgumentError(
                f"{layer!r} is not a layer",
                op=self._label,
                argument="layers",
                hint=f"ef.nn.{layer.__name__}(...)" if isinstance(layer, type) else None,
            )
        if isinstance(layer, InputLayer) and not self.layers:
            self.head = layer
        else:
            self.layers.append(layer)

    def pop(self) -> Any:
        """Take the last layer away and return it."""
        if not self.layers:
            raise ArgumentError("there is no layer", op=f"{self._label}.pop")
        last = self.layers.pop()
        self._build_if_known()
        return last

    def _build_if_known(self) -> None:
        self._ends = Untracked(())
        if self.head is not None:
            outputs = self.head.output
            for layer in self.layers:
                outputs = layer(outputs)
            self._ends = Untracked((self.head.output, outputs))
            self.built = True
            self.output_shape = shapes_of(outputs)

    def _end(self, which: int) -> Any:
        if not self._ends.held and self._built_for.held is not None:  # by tensors with values
            (inputs, *_), _ = self._built_for.held
            free = tree.map_leaves(lambda x: symbol(x.shape, x.dtype, "inputs"), free_batch(inputs))
            self.output_shape = shapes_of(self(free))
        return super()._end(which)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build_if_known()

    def call(self, inputs: Nest) -> Any:
        if self.head is not None:
            inputs = self.head(inputs)
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        chain = [*filter(None, [self.head]), *self.layers]
        for layer in chain:
            if not isinstance(layer, Layer):
                raise ArgumentError(
                    f"{layer!r} is a function, which a configuration cannot hold",
                    op=f"{self._label}.get_config",
                    hint="a Layer with a call",
                )
        layers = [described(layer) for layer in chain]
        return self._as_it_is({"name": self.name}) | {"layers": layers}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        own = dict(config)
        layers = [layer_from(item) for item in own.pop("layers", [])]
        return cls(layers, **own)

    def __getitem__(self, index: Any) -> Any:
        return self.layers[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)
