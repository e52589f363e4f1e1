"""Dense layers with weights split over several devices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.capture.trace import trace
from eagerflow.cluster.cluster import in_cluster
from eagerflow.devices import HERE, device
from eagerflow.dims import Shape
from eagerflow.nn.arguments import require
from eagerflow.nn.configured import Untracked, from_config
from eagerflow.nn.layer import Layer, LayerOptions, layer_classes
from eagerflow.nn.layers.cells import build_part
from eagerflow.nn.layers.core import Dense
from eagerflow.nn.symbols import is_symbolic
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.variable import assign_together

__all__ = ["SplitDense"]


class SplitDense(Layer):
    """A Dense layer, or two, with a part of the weights on each device.

    ``layer`` is a Dense; its units are divided over the ``devices``: each has some columns of the
    kernel, and their results are joined on the first one. ``then`` is a Dense that follows at once:
    the rows of its kernel are on the devices of the corresponding columns, so that values between
    both stay in parts, and results of the parts are added in the order of the devices. Weights
    start as those of the two layers, which are not changed; ``joined`` converts back to layers.

    The parts are computed on their devices if the graph of a step is cut over these: by
    ``Pipeline`` with these devices, or ``ef.capture.partition``. Raises ArgumentError for
    layers that cannot be divided. Source: Shoeybi and others, "Megatron-LM", 2019.

    >>> first, second = ef.nn.Dense(6, activation="relu"), ef.nn.Dense(2)
    >>> layer = ef.cluster.SplitDense(first, ["cpu:0", "cpu:0"], then=second)
    >>> layer(ef.ones((3, 4))).shape, [w.shape for w in layer.weights]
    ((3, 2), [(4, 3), (3,), (4, 3), (3,), (3, 2), (2,), (3, 2)])
    """

    def __init__(
        self,
        layer: Any,
        devices: Sequence[str],
        then: Any = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        layer, then = [_from_file(x) for x in (layer, then)]
        options.setdefault("dtype", getattr(layer, "dtype_policy", None))
        super().__init__(**options)
        listed = not isinstance(devices, str)
        require(
            listed, devices, "not a list of devices", self._label, "devices", "['cpu:0', 'cpu:1']"
        )
        self.devices = list(map(str, devices))
        self._check("layer", layer)
        expected = f"from 1 to {layer.units} devices, for as many units"
        fits = 1 <= len(self.devices) <= layer.units
        wrong = "not a list that units can be divided over"
        require(fits, self.devices, wrong, self._label, "devices", expected)
        sizes = [len(part) for part in np.array_split(np.arange(layer.units), len(self.devices))]
        seams = [slice(*ends) for ends in pairwise([0, *accumulate(sizes)])]
        self._whole = Untracked(((layer, then), {}))
        self._configs = [one.get_config() for one in (layer, then) if one is not None]
        self._activation = layer.activation
        self.columns = [
            self._part(0, i, (slice(None), seam), seam, units=seam.stop - seam.start)
            for i, seam in enumerate(seams)
        ]
        self.rows: list[Dense] = []
        if then is not None:
            self._check("then", then)
            fits, expected = not then.built or then.width == layer.units, f"{layer.units} inputs"
            require(fits, then, "not of as many inputs", self._label, "then", expected)
            expected = "an elementwise activation"
            alone = _looks_at_each(layer.activation)
            require(alone, layer, "not to be activated in parts", self._label, "layer", expected)
            self.rows = [
                self._part(1, i, seam, slice(None), use_bias=then.use_bias and not i)
                for i, seam in enumerate(seams)
            ]
            self._last = then.activation

    def _part(self, number: int, i: int, kernel: Any, bias: slice, **changes: Any) -> Dense:
        """A Dense of one device, initialized with parts of a whole layer's weights."""
        name = f"{('columns', 'rows')[number]}_{i}"
        begin = {
            "kernel_initializer": lambda shape, dtype: self._begin(number, shape, dtype)[0][kernel],
            "bias_initializer": lambda shape, dtype: self._begin(number, shape, dtype)[1][bias],
        }
        return Dense(**self._configs[number] | begin | {"name": name, "activation": None} | changes)

    def _begin(self, number: int, shape: Shape, dtype: Any) -> list[Any]:
        """The weights of a whole layer, or their initial values; drawn once for all parts."""
        layers, drawn = self._whole.held
        if number not in drawn:
            one, first = layers[number], layers[0]
            if one.built:
                drawn[number] = [weight.numpy() for weight in one.weights]
            else:
                kernel = (first.units if number else shape[0], one.units)
                makers = (one.kernel_initializer, kernel), (one.bias_initializer, kernel[1:])
                drawn[number] = [make(size, dtype).numpy() for make, size in makers]
        return drawn[number]  # type: ignore[no-any-return]

    def _check(self, argument: str, layer: Any) -> None:
        own = type(layer) is Dense
        expected = "a Dense without constraints"
        free = own and layer.kernel_constraint is None and layer.bias_constraint is None
        require(free, layer, "not to be divided", self._label, argument, expected)

    def build(self, input_shape: Shape) -> None:
        """Make the weights of all parts."""
        for column in self.columns:
            build_part(column, input_shape, self.name)
        for row, column in zip(self.rows, self.columns, strict=bool(self.rows)):
            build_part(row, (*input_shape[:-1], column.units), self.name)
        self._whole = Untracked(())  # drop the second copy of the weights

    def call(self, inputs: Tensor) -> Tensor:
        """The result of the whole layers."""
        parts = []
        for i, place in enumerate(self.devices):
            with _on(place, inputs):
                found = self.columns[i](inputs)
                parts.append(self.rows[i](self._activation(found)) if self.rows else found)
        with _on(self.devices[0], inputs):
            if self.rows:
                return self._last(reduce(ops.add, parts))
            return self._activation(ops.concat(parts, axis=-1))

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments, with devices by name."""
        return super().get_config() | {"devices": self.devices}

    def joined(self) -> list[Dense]:
        """Dense layers with the weights of the parts: one, or two in sequence."""
        found = []
        both = zip(self._configs, (self.columns, self.rows), (1, 0), strict=False)
        for config, parts, axis in both:
            made = Dense(**config | {"name": None})
            kernel = np.concatenate([part.kernel.numpy() for part in parts], axis)
            made.build((1, kernel.shape[0]))
            values: dict[Any, Any] = {made.kernel: kernel}
            if made.bias is not None:
                biases = [part.bias.numpy() for part in parts if part.bias is not None]
                values[made.bias] = np.concatenate(biases)
            assign_together(values)
            found.append(made)
        return found


def _from_file(layer: Any) -> Any:
    """A layer, which a saved model stores as its configuration."""
    return (
        from_config("layer", layer, layer_classes, callable) if isinstance(layer, dict) else layer
    )


def _on(place: str, inputs: Tensor) -> AbstractContextManager[Any]:
    """A device context; none for symbolic inputs, and for a task of a cluster that has ended."""
    has_ended = place.startswith("/job:") and not place.startswith(HERE) and not in_cluster()
    return nullcontext() if is_symbolic(inputs) or has_ended else device(place)


def _looks_at_each(activation: Any) -> bool:
    graph = trace(activation, TensorSpec((2, 2), "float32"))
    return all(node.op.family == "elementwise" for node in graph.nodes)
