"""Recurrent layers over whole sequences: any cell as a scan, LSTM and GRU as one op each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src import activations, tree

import eagerflow as ef
from eagerflow.keras.backend.slices import unstack
from eagerflow.keras.backend.tensors import convert_to_tensor

__all__ = ["bidirectional_gru", "bidirectional_lstm", "cudnn_ok", "gru", "lstm", "rnn"]


def rnn(
    step_function: Callable[..., Any],
    inputs: Any,
    initial_states: Any,
    go_backwards: bool = False,
    mask: Any = None,
    constants: Any = None,
    unroll: bool = False,
    input_length: Any = None,
    time_major: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, Any]:
    """Run a cell over a sequence: the last output, all outputs, and the last states.

    ``step_function(x, states)`` returns an output and new states. Where ``mask`` is False, states
    stay unchanged, and the output is the previous one, or zeros. ``go_backwards`` begins at the
    end; outputs are in the order of computation.
    """
    rows = tree.map_structure(convert_to_tensor, inputs)
    if not time_major:
        rows = tree.map_structure(_exchanged, rows)
    if mask is not None:
        mask = convert_to_tensor(mask, "bool")
        mask = ef.expand_dims(mask, axis=-1) if mask.ndim == 2 else mask
        mask = mask if time_major else _exchanged(mask)
    if go_backwards:
        rows = tree.map_structure(lambda x: ef.flip(x, axis=0), rows)
        mask = mask if mask is None else ef.flip(mask, axis=0)
    flat = tree.flatten(rows)
    cell = _Cell(step_function, initial_states, tuple(constants or ()), rows)
    if unroll:
        states, outputs = _unrolled(cell, flat, mask)
    else:
        states, outputs = ef.scan(
            lambda states, row: cell.masked_step(states, row[0], row[1], zero_output_for_mask),
            cell.first,
            (flat, mask),
        )
    last = tree.map_structure(lambda y: y[-1], outputs)
    if not time_major:
        outputs = tree.map_structure(_exchanged, outputs)
    return last, outputs, cell.nest(states)


class _Cell:
    """A step function with a tuple of tensors for states, and a list of tensors for inputs."""

    def __init__(
        self, function: Callable[..., Any], initial: Any, constants: Any, rows: Any
    ) -> None:
        self.function = function
        self.initial = initial
        self.first = tuple(convert_to_tensor(x) for x in tree.flatten(initial))
        self.constants = constants
        self.rows = rows

    def nest(self, states: Any) -> Any:
        """The states in the structure of the initial ones."""
        return tree.pack_sequence_as(self.initial, list(states))

    def step(self, states: Any, row: Any) -> tuple[Any, Any]:
        """The output and the new states, with their dtypes preserved."""
        given = self.nest(states)
        if self.constants:
            given = (*given, *self.constants)
        output, found = self.function(tree.pack_sequence_as(self.rows, row), given)
        new = tree.flatten(found)
        pairs = zip(new, self.first, strict=True)
        return output, tuple(convert_to_tensor(s, old.dtype) for s, old in pairs)

    def masked_step(self, states: Any, row: Any, mask: Any, zero: bool) -> tuple[Any, Any]:
        """The new states and the output, in the form of ``ef.scan``."""
        output, new = self.step(states, row)
        if mask is None:
            return new, output
        before: Any = None
        if not zero:  # the first state is used as the previous output
            before = self.nest(states)[0]
            before = self.nest(states)[-1][0] if tree.is_nested(before) else before
        return _held(mask, states, new), _chosen(mask, output, before)


def _held(mask: Any, old: Any, new: Any) -> tuple[Any, ...]:
    """The new states where the mask is True, otherwise the old ones."""
    return tuple(_chosen(mask, n, o) for n, o in zip(new, old, strict=True))


def _chosen(mask: Any, new: Any, old: Any) -> Any:
    """``new`` where the row mask is True, else ``old``, or zeros if that is None."""
    mask = ef.any(ef.reshape(mask, (mask.shape[0], -1)), axis=-1)
    mask = ef.reshape(mask, (mask.shape[0],) + (1,) * (new.ndim - 1))
    return ef.where(mask, new, ef.zeros_like(new) if old is None else old)


def _unrolled(cell: _Cell, flat: list[Any], mask: Any) -> tuple[Any, Any]:
    """The last states and all outputs of an unrolled loop."""
    if not flat[0].shape[0]:
        raise ValueError("Unrolling requires a fixed number of timesteps.")
    masks = None if mask is None else unstack(mask)
    states = cell.first
    outputs: list[Any] = []
    for i, row in enumerate(zip(*[unstack(x) for x in flat], strict=True)):
        output, new = cell.step(states, list(row))
        if masks is not None:
            new = _held(masks[i], states, new)
            output = _chosen(masks[i], output, outputs[-1] if outputs else None)
        states = new
        outputs.append(output)
    return states, tree.map_structure(lambda *ys: ef.stack(list(ys)), *outputs)


def _exchanged(x: Any) -> Any:
    """Swap the axes of batch and time."""
    return ef.moveaxis(x, 1, 0)


# LSTM and GRU as ops ------------------------------------------------------------------------------


def cudnn_ok(*args: Any, **kwargs: Any) -> bool:
    """Keras uses it for GPUs' libraries only; the ops below work everywhere."""
    return False


def _refuse_others(mask: Any, unroll: bool, activation: Any, recurrent_activation: Any) -> None:
    """Raise NotImplementedError for layers that the ops do not support: Keras then calls ``rnn``.

    The masking of outputs is not passed by Keras here.
    """
    functions = activation, recurrent_activation
    if mask is not None or unroll or functions != (activations.tanh, activations.sigmoid):
        raise NotImplementedError


def _results(outputs: Any, return_sequences: bool, go_backwards: bool) -> tuple[Any, Any]:
    """The last output and all of them (or only that one), in the order of computation."""
    if go_backwards:
        outputs = ef.flip(outputs, axis=1)
    last = outputs[:, -1]
    return last, outputs if return_sequences else ef.expand_dims(last, axis=1)


def lstm(
    inputs: Any,
    initial_state_h: Any,
    initial_state_c: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Any,
    recurrent_activation: Any,
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
) -> tuple[Any, Any, Any]:
    """The last output, the outputs and the last states of an LSTM."""
    _refuse_others(mask, unroll, activation, recurrent_activation)
    given = inputs, kernel, recurrent_kernel, bias, initial_state_h, initial_state_c
    h, c = ef.lstm(*[_tensor_or_none(x) for x in given], reverse=go_backwards)  # type: ignore[misc]
    last, outputs = _results(h, return_sequences, go_backwards)
    return last, outputs, [last, c[:, 0] if go_backwards else c[:, -1]]


def gru(
    inputs: Any,
    initial_state: Any,
    mask: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    activation: Any,
    recurrent_activation: Any,
    return_sequences: bool = False,
    go_backwards: bool = False,
    unroll: bool = False,
    reset_after: bool = True,
) -> tuple[Any, Any, Any]:
    """The last output, the outputs and the last state of gated recurrent units."""
    _refuse_others(mask, unroll, activation, recurrent_activation)
    if not reset_after:
        raise NotImplementedError
    given = inputs, kernel, recurrent_kernel, bias, initial_state
    h = ef.gru(*[_tensor_or_none(x) for x in given], reverse=go_backwards)  # type: ignore[misc]
    last, outputs = _results(h, return_sequences, go_backwards)
    return last, outputs, [last]


def _tensor_or_none(x: Any) -> Any:
    return None if x is None else convert_to_tensor(x)


def bidirectional_lstm(*args: Any, **kwargs: Any) -> Any:
    """Raise NotImplementedError: Keras then calls both directions."""
    raise NotImplementedError


bidirectional_gru = bidirectional_lstm
