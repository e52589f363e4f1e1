"""Recurrent layers: a cell applied to the steps of sequences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Unpack

from eagerflow import ops, tree
from eagerflow.dims import DimLike, Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count, Nest, choice
from eagerflow.nn.configured import Untracked, arguments, snake_case
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.cells import CellLike, build_part, initial_state, step_of
from eagerflow.nn.layers.core import Rate
from eagerflow.nn.layers.recurrent_cells import (
    CellOptions,
    GRUCell,
    LSTMCell,
    SimpleRNNCell,
    UnitsCell,
)
from eagerflow.nn.masks import spread
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["GRU", "LSTM", "RNN", "SimpleRNN"]

CuDNN = Annotated[Any, choice("not a choice", "auto", True, False)]
"""Keras's argument for its GPU kernels; it has no effect here."""


def scan(*args: Any, **options: Any) -> Any:
    """``ef.scan``, imported when a cell is first scanned."""
    from eagerflow.capture.control import scan as over_steps

    return over_steps(*args, **options)


def _steps_first(x: Any) -> Any:
    return ops.permute_dims(x, (1, 0, *range(2, len(x.shape))))


def _held(seen: Any, after: Any, before: Any) -> Any:
    """New states of examples with a valid step, previous states of others."""
    return ops.where(spread(seen, after.ndim), after, before)


class RecurrentOptions(LayerOptions, total=False):
    """The arguments that all recurrent layers share."""

    return_sequences: bool
    return_state: bool
    go_backwards: bool
    stateful: bool
    unroll: bool
    zero_output_for_mask: bool


class Recurrent(Layer):
    """Base of recurrent layers, each of which has a ``cell``.

    Inputs have shape (batch, steps, ...). The output is that of the last step, or with
    ``return_sequences`` that of all steps, from the last to the first with ``go_backwards``; with
    ``return_state`` the states follow. Where a mask is False the state stays as it is, and the
    output is that of the step before, or zeros with ``zero_output_for_mask``.
    """

    cell: Any
    rank: int | None = None
    return_sequences: bool
    return_state: bool
    go_backwards: bool
    stateful: bool
    unroll: bool
    zero_output_for_mask: bool

    @arguments
    def __init__(
        self,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._states = Untracked(None)

    # States --------------------------------------------------------------------------------

    @property
    def states(self) -> Any:
        """The Variables of a stateful layer's states; None before it is built."""
        return self._states.held

    @property
    def state_size(self) -> Any:
        """The widths of the states."""
        return self.cell.state_size

    def get_initial_state(self, batch_size: DimLike) -> list[Any]:
        """The states before the first step, in a list."""
        return initial_state(self.cell, batch_size, self.compute_dtype)

    def reset_state(self) -> None:
        """Reset the states of a stateful layer to zeros."""
        for variable in tree.flatten(self.states)[0] if self.states else ():
            variable.assign(ops.zeros_like(variable.value))

    reset_states = reset_state

    def build(self, sequences_shape: Shape, initial_state_shape: Any = None) -> None:
        rank = len(sequences_shape)
        if rank < 3 or rank != (self.rank or rank):
            axes = (
                "..." if self.rank is None else "features" if self.rank == 3 else "*image, channels"
            )
            received = f"shape {tuple(sequences_shape)}"
            expected = f"shape (batch, steps, {axes})"
            hint = (
                "return_sequences=True in a recurrent layer before this one" if rank == 2 else None
            )
            raise self._misfit("the input does not fit this layer", received, expected, hint)
        batch, _, *rest = sequences_shape
        build_part(self.cell, (batch, *rest), self.name)
        if self.stateful:
            if batch is None:
                raise ArgumentError(
                    "states can be kept only for a number of examples that is known",
                    op=self._label,
                    argument="stateful",
                    received=f"inputs of shape {tuple(sequences_shape)}",
                    hint="ef.nn.Input(shape, batch_size=...)",
                )
            name = f"{self.name}/state"
            states = self.get_initial_state(batch)
            kept = tree.map_leaves(lambda x: Variable(x, name, trainable=False), states)
            self._states = Untracked(kept)

    def _first(self, given: Any, batch: DimLike) -> list[Any] | None:
        """The initial states; None for the cell's own."""
        if given is None:
            if not self.stateful:
                return None
            given = tree.map_leaves(lambda variable: variable.value, self.states)
        states = list(given) if isinstance(given, list | tuple) else [given]
        wanted = self.state_size
        count = len(wanted) if isinstance(wanted, list | tuple) else 1
        if len(states) != count:
            raise ArgumentError(
                f"{len(states)} states for a layer with {count}",
                op=self._label,
                argument="initial_state",
                expected=f"a list of {count}" if count > 1 else "a tensor, or a list of one",
            )
        kept = tree.flatten(states)[0][0].shape[0]
        if kept != batch and isinstance(kept, int) and isinstance(batch, int):
            raise self._misfit(
                "there is one state for each example",
                f"{batch} examples, and states of {kept}",
                f"{kept} examples",
            )
        return states

    # Along the steps -----------------------------------------------------------------------

    def call(
        self,
        sequences: Tensor,
        initial_state: Nest = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        self.expect(sequences, rank=self.rank, min_rank=3)
        states = self._first(initial_state, sequences.shape[0])
        if mask is not None:
            mask = ops.astype(mask, "bool")
            mask = ops.any(mask, axis=-1) if mask.ndim > 2 else mask
        outputs, states = self.along(sequences, states, mask, training)
        if self.stateful:
            kept = tree.flatten(self.states)[0]
            for variable, state in zip(kept, tree.flatten(states)[0], strict=True):
                variable.assign(ops.stop_gradient(state))
        if not self.return_sequences:
            outputs = self.last(outputs)
        elif self.go_backwards:
            outputs = ops.flip(outputs, axis=1)
        return (outputs, *states) if self.return_state else outputs

    def last(self, outputs: Tensor) -> Tensor:
        """The last step of per-step values."""
        return outputs[:, 0 if self.go_backwards else -1]

    def along(
        self, sequences: Tensor, states: list[Any] | None, mask: Any, training: bool
    ) -> tuple[Tensor, list[Any]]:
        """The outputs of all steps in order, and the states after the last."""
        if states is None:
            states = self.get_initial_state(sequences.shape[0])
        own = step_of(self.cell, sequences.shape[0], training)
        structure = tree.flatten(states)[1]

        def step(before: Any, row: Any) -> tuple[Any, Any]:
            inputs, seen = row if mask is not None else (row, None)
            output, after = own(inputs, before)
            after = tree.unflatten(structure, tree.flatten(after)[0])
            if seen is None:
                return after, output
            after = tree.map_leaves(lambda new, old: _held(seen, new, old), after, before)
            top = before[-1][0] if isinstance(before[-1], list | tuple) else before[0]
            return after, _held(seen, output, 0.0 if self.zero_output_for_mask else top)

        xs = _steps_first(sequences)
        rows = xs if mask is None else (xs, _steps_first(mask))
        states, outputs = scan(step, states, rows, reverse=self.go_backwards)
        return _steps_first(outputs), states

    def compute_mask(self, inputs: Nest, previous_mask: Any) -> Any:
        """The inputs' mask for the outputs of all steps; states have none."""
        return previous_mask if self.return_sequences else None


class RNN(Recurrent):
    """A layer that applies any cell to the steps of sequences.

    ``cell`` is one of ``SimpleRNNCell``, ``LSTMCell``, ``GRUCell``, a list of these, which are
    stacked, or a custom one: an object with ``call(inputs, states)`` that returns an output and new
    states, and with ``state_size``, the width of its state, or a list for several; a ``Layer`` if
    it has weights. Inputs have shape (batch, steps, ...). The output is that of the last step, or
    with ``return_sequences`` that of all, (batch, steps, ...); ``return_state`` also returns the
    states. ``go_backwards`` begins with the last step, and returns outputs in that order. A
    ``stateful`` layer begins each batch with the final states of the previous one, until
    ``reset_state()``. Masked steps leave the states unchanged, and repeat the previous output, or
    give zeros with ``zero_output_for_mask``. ``unroll`` is accepted for compatibility with Keras
    and has no effect. Raises ArgumentError for invalid cells, ShapeError for inputs without steps.

    >>> class Sum(ef.nn.Layer):
    ...     state_size = 1
    ...     def call(self, inputs, states):
    ...         total = inputs + states[0]
    ...         return total, [total]
    >>> ef.nn.RNN(Sum(), return_sequences=True)(ef.ones((1, 3, 1))).reshape((3,))
    Tensor([1., 2., 3.], float32, cpu:0)
    """

    @arguments
    def __init__(self, cell: CellLike, **options: Unpack[RecurrentOptions]) -> None: ...


# Layers over cells with gates ---------------------------------------------------------------------


class GatedOptions(RecurrentOptions, CellOptions, total=False):
    """The arguments of layers over cells with gates."""


class GatedRecurrent(Recurrent):
    """Base of layers that create their own cell: its arguments are also theirs."""

    cell_class: type[Layer]
    cell_rank: int | None = None

    @arguments
    def __init__(
        self,
        activation: ActivationLike = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        recurrent_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        recurrent_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        dropout: Rate = 0.0,
        recurrent_dropout: Rate = 0.0,
        seed: int | None = None,
        **options: Unpack[RecurrentOptions],
    ) -> None:
        of_cell = inspect.signature(self.cell_class.__init__).parameters
        name = snake_case(self.cell_class.__name__)
        own = {"name": name, "activity_regularizer": None, "rank": self.cell_rank}
        given = self._config.held | own
        self.cell = self.cell_class(**{key: given[key] for key in of_cell if key in given})


class UnitsRecurrent(GatedRecurrent):
    """Base of SimpleRNN, LSTM and GRU: an op computes all steps at once if possible."""

    rank = 3
    cell: UnitsCell

    def along(
        self, sequences: Tensor, states: list[Any] | None, mask: Any, training: bool
    ) -> tuple[Tensor, list[Any]]:
        if not self.cell.by_op(training):
            return super().along(sequences, states, mask, training)
        if states is None and not self._begins_with_zeros():
            states = self.get_initial_state(sequences.shape[0])
        found = self.cell.over_steps(sequences, states, mask, self.go_backwards, training)
        outputs = found[0]
        if mask is not None and self.zero_output_for_mask:
            outputs = ops.where(mask[..., None], outputs, 0.0)
        wanted = self.stateful or self.return_state
        return outputs, [self.last(x) for x in found] if wanted else []

    def _begins_with_zeros(self) -> bool:
        """Whether the initial states are the default."""
        own = type(self).get_initial_state, type(self.cell).get_initial_state
        return own == (Recurrent.get_initial_state, UnitsCell.get_initial_state)


class SimpleRNN(UnitsRecurrent):
    """A plain recurrent network, whose output is an input of the next step.

    ``units`` is the width of the output; inputs have shape (batch, steps, features). The arguments
    are those of ``SimpleRNNCell`` and of ``RNN``. Raises ShapeError for inputs of another rank.

    >>> layer = ef.nn.SimpleRNN(1, kernel_initializer="ones", recurrent_initializer="ones")
    >>> layer(ef.ones((1, 2, 1)))
    Tensor([[0.9427]], shape=(1, 1), float32, cpu:0)
    """

    cell_class = SimpleRNNCell
    units: int

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        use_bias: bool = True,
        **options: Unpack[GatedOptions],
    ) -> None: ...


class LSTM(UnitsRecurrent):
    """Long short-term memory: two states, one of which passes through steps almost unchanged.

    ``units`` is the width of the output; inputs have shape (batch, steps, features). The arguments
    are those of ``LSTMCell`` and of ``RNN``; the states are h and c. With the usual activations all
    steps are one op, ``ef.lstm``. ``use_cudnn`` is accepted for compatibility with Keras and has no
    effect. Raises ShapeError for inputs of another rank. Source: Hochreiter and Schmidhuber, "Long
    short-term memory", 1997.

    >>> layer = ef.nn.LSTM(4, return_sequences=True, return_state=True)
    >>> outputs, h, c = layer(ef.ones((2, 5, 3)))
    >>> outputs.shape, h.shape, c.shape
    ((2, 5, 4), (2, 4), (2, 4))
    """

    cell_class = LSTMCell
    units: int
    recurrent_activation: Callable[..., Tensor]
    unit_forget_bias: bool

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        use_cudnn: CuDNN = "auto",
        **options: Unpack[GatedOptions],
    ) -> None: ...


class GRU(UnitsRecurrent):
    """Gated recurrent units: an LSTM with one state and three gates.

    ``units`` is the width of the output; inputs have shape (batch, steps, features). The arguments
    are those of ``GRUCell`` and of ``RNN``. With the usual activations and ``reset_after`` all
    steps are one op, ``ef.gru``. ``use_cudnn`` is accepted for compatibility with Keras and has no
    effect. Raises ShapeError for inputs of another rank. Source: Cho and others, arXiv:1406.1078.

    >>> ef.nn.GRU(4)(ef.ones((2, 5, 3))).shape
    (2, 4)
    """

    cell_class = GRUCell
    units: int
    recurrent_activation: Callable[..., Tensor]
    reset_after: bool

    @arguments
    def __init__(
        self,
        units: Count,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        reset_after: bool = True,
        use_cudnn: CuDNN = "auto",
        **options: Unpack[GatedOptions],
    ) -> None: ...
