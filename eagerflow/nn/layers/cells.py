"""Cells: one step of a recurrent layer, from inputs and states to an output and new states.

A cell is an object with ``call(inputs, states)``, which returns an output and new states, and
``state_size``, the width of its state or a list of these. A cell with dropout has ``stepper(batch,
training)``, which returns a step with all random numbers drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops, tree
from eagerflow.dims import DimLike, Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.configured import arguments, from_config
from eagerflow.nn.layer import Layer, LayerOptions, layer_classes
from eagerflow.tensor import Tensor

__all__ = ["StackedRNNCells"]

Step = Callable[[Any, Any], tuple[Any, Any]]
"""A step: a function of inputs and states that returns an output and new states."""


def cell_from(value: Any) -> Any:
    """A cell from itself, a list of cells, or its configuration; ArgumentError for other values."""
    if isinstance(value, list | tuple):
        return StackedRNNCells(value, name="stacked_rnn_cells")
    found = value
    if isinstance(value, dict):
        found = from_config("cell", value, layer_classes, callable)
    for name in ("call", "state_size"):
        if not hasattr(found, name):
            raise ArgumentError(
                f"a {type(found).__name__} has no {name}, so it is not a cell",
                expected="call(inputs, states), and state_size: the width of its state, or a list",
            )
    return found


CellLike = Annotated[Any, cell_from]
"""A cell, a list of stacked cells, or a configuration."""


def build_part(part: Any, input_shape: Shape, owner: str) -> None:
    """Build a cell or a layer within its ``owner``, unless it has been built."""
    if isinstance(part, Layer) and not part.built:
        part.build(input_shape)
        for weight in part.weights:
            weight.name = f"{owner}/{weight.name}"


def output_size(cell: Any) -> int:
    """The width of a cell's output."""
    size = getattr(cell, "output_size", None)
    found: Any = tree.flatten(cell.state_size)[0][0] if size is None else size
    return int(found)


def initial_state(cell: Any, batch: DimLike, dtype: Any) -> Any:
    """The states that a cell begins with, in a list."""
    if hasattr(cell, "get_initial_state"):
        states = cell.get_initial_state(batch_size=batch)
    else:
        states = tree.map_leaves(lambda n: ops.zeros((batch, n), dtype=dtype), cell.state_size)
    return list(states) if isinstance(states, list | tuple) else [states]


def step_of(cell: Any, batch: DimLike, training: bool) -> Any:
    """A step of a cell with its dropout drawn once for all steps."""
    if hasattr(cell, "stepper"):
        return cell.stepper(batch, training)
    return cell if isinstance(cell, Layer) else cell.call  # a Layer knows whether it is in training


class StackedRNNCells(Layer):
    """Stacked cells: each takes the output of the one below.

    ``cells`` is a list of cells; the states are the list of their states. Raises ArgumentError for
    other objects.

    >>> cell = ef.nn.StackedRNNCells([ef.nn.LSTMCell(4), ef.nn.GRUCell(3)])
    >>> ef.nn.RNN(cell)(ef.ones((2, 5, 1))).shape
    (2, 3)
    """

    cells: list[Any]

    @arguments
    def __init__(
        self,
        cells: Annotated[Sequence[Any], lambda cells: [cell_from(x) for x in cells]],
        **options: Unpack[LayerOptions],
    ) -> None: ...

    @property
    def state_size(self) -> list[Any]:
        """The widths of the states, for each cell."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> int:
        """The width of the last cell's output."""
        return output_size(self.cells[-1])

    def get_initial_state(self, batch_size: DimLike) -> list[Any]:
        """The states of all cells before the first step."""
        return [initial_state(cell, batch_size, self.compute_dtype) for cell in self.cells]

    def build(self, input_shape: Shape) -> None:
        for cell in self.cells:
            build_part(cell, input_shape, self.name)
            input_shape = (input_shape[0], output_size(cell))

    def stepper(self, batch: DimLike, training: bool) -> Step:
        """A step with the dropout of all cells drawn."""
        steps = [step_of(cell, batch, training) for cell in self.cells]

        def step(inputs: Any, states: Any) -> tuple[Any, list[Any]]:
            after = []
            for own, before in zip(steps, states, strict=True):
                inputs, new = own(inputs, before)
                after.append(new)
            return inputs, after

        return step

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> tuple[Any, Any]:
        return self.stepper(inputs.shape[0], training)(inputs, states)
