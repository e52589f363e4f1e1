"""Recurrent layers: our own ops if they match the node, otherwise a scan over a cell.

In ONNX, the first axis of weights and states is the direction, that of sequences the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow import ops
from eagerflow.capture import control
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.operators.activations import activation

Activations = list[Callable[[Any], Any]]
Cell = Callable[..., tuple[Any, ...]]
"""A cell: from the product with the input and the states to the new states."""


class _Layer(NamedTuple):
    """One direction: its weights in ONNX's layout, its initial states, and its order of steps."""

    w: Any
    r: Any
    bias: Any
    peepholes: Any
    states: list[Any]
    activations: Activations
    clip: float | None
    reverse: bool

    def gates(self, order: Sequence[int]) -> tuple[Any, Any]:
        """Kernel and recurrent kernel, transposed, with reordered gates."""
        return tuple(_reordered(ops.permute_dims(t, (1, 0)), order) for t in (self.w, self.r))


def _reordered(x: Any, order: Sequence[int]) -> Any:
    """The last axis, split into ``len(order)`` parts and reordered."""
    size = x.shape[-1] // len(order)
    return ops.concat([x[..., i * size : (i + 1) * size] for i in order], axis=-1)


def _parts(x: Any, count: int) -> list[Any]:
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


def _clipped(x: Any, clip: float | None) -> Any:
    return x if clip is None else ops.clip(x, -clip, clip)


# Running -----------------------------------------------------------------------------------------


def _scan(layer: _Layer, x: Any, mask: Any, cell: Cell) -> list[Any]:
    """The states after each step of x (batch, steps, features), held where the mask is False."""
    kernel = ops.permute_dims(layer.w, (1, 0))
    products = ops.swapaxes(x @ kernel, 0, 1)
    held = None if mask is None else ops.expand_dims(ops.swapaxes(mask, 0, 1), -1)

    def step(states: Any, row: Any) -> Any:
        made = cell(row if held is None else row[0], *states)
        if held is not None:
            made = tuple(ops.where(row[1], n, o) for n, o in zip(made, states, strict=True))
        return made, made

    rows = products if held is None else (products, held)
    _, sequences = control.scan(step, tuple(layer.states), rows, reverse=layer.reverse)
    return [ops.swapaxes(s, 0, 1) for s in sequences]


class _Node(NamedTuple):
    """Shared by the three operators: sequences (batch, steps, features), directions, lengths."""

    x: Any
    mask: Any
    layout: int
    layers: list[_Layer]

    def outputs(self, run: Callable[[_Layer, Any, Any], list[Any]]) -> tuple[Any, ...]:
        """All outputs h and the last states, in ONNX's layout."""
        sequences, last = [], []
        for layer in self.layers:
            found = run(layer, self.x, self.mask)
            h = found[0]
            if self.mask is not None:
                h = ops.where(ops.expand_dims(self.mask, -1), h, 0)
            sequences.append(h)
            at = 0 if layer.reverse else -1
            last.append([s[:, at] for s in found])
        axis = 1 if self.layout else 0
        states = [ops.stack(list(each), axis=axis) for each in zip(*last, strict=True)]
        # (batch, steps, directions, units), or (steps, directions, batch, units)
        y = ops.stack(sequences, axis=2)
        return (y if self.layout else ops.permute_dims(y, (1, 2, 0, 3)), *states)


_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def recurrent_node(
    call: Call,
    inputs: tuple[Any, ...],
    states: Sequence[Any],
    peepholes: Any,
    defaults: tuple[str, ...],
    *,
    activation_alpha: Any = (),
    activation_beta: Any = (),
    activations: Any = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> _Node:
    """The node's inputs (X, W, R, B, sequence_lens) and attributes, for each direction."""
    x, w, r, bias, lengths = inputs
    directions = _DIRECTIONS.get(direction)
    if directions is None:
        call.refuse(f"there is no direction {direction!r}")
    if hidden_size not in (None, r.shape[2]):
        call.refuse(f"hidden_size {hidden_size} with weights for {r.shape[2]} units")
    if w.shape[0] != len(directions):
        call.refuse(f"weights for {w.shape[0]} directions, where the node has {len(directions)}")
    if not layout:
        x = ops.swapaxes(x, 0, 1)
        states = [None if s is None else ops.swapaxes(s, 0, 1) for s in states]
    mask = None
    if lengths is not None:
        steps = ops.reshape(ops.arange(x.shape[1]), (1, -1))
        mask = steps < ops.expand_dims(lengths, -1)
    names = (activations or defaults * len(directions))[: len(defaults) * len(directions)]
    # The schema of RNN has an activation for a second direction that the node may not have.
    if len(names) < len(defaults) * len(directions):
        call.refuse(f"{len(names)} activations for {len(directions)} directions")
    alphas, betas = list(activation_alpha), list(activation_beta)
    functions = [activation(call, name, alphas, betas) for name in names]
    zeros = ops.zeros((x.shape[0], r.shape[2]), dtype=x.dtype)
    layers = [
        _Layer(
            w[i],
            r[i],
            ops.zeros((2 * w.shape[1],), dtype=x.dtype) if bias is None else bias[i],
            None if peepholes is None else peepholes[i],
            [zeros if s is None else s[:, i] for s in states],
            functions[i * len(defaults) : (i + 1) * len(defaults)],
            clip or None,
            reverse,
        )
        for i, reverse in enumerate(directions)
    ]
    return _Node(x, mask, layout, layers)


def _is_ours(layer: _Layer, defaults: Activations) -> bool:
    """Whether our own ops can compute this node."""
    return layer.activations == defaults and layer.clip is None and layer.peepholes is None


# The three ---------------------------------------------------------------------------------------


@operator("RNN")
def rnn(
    call: Call,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    **attributes: Any,
) -> Any:
    """A plain recurrent network."""
    node = recurrent_node(
        call, (x, w, r, bias, sequence_lens), [initial_h], None, ("Tanh",), **attributes
    )

    def run(layer: _Layer, x: Any, mask: Any) -> list[Any]:
        added = sum(_parts(layer.bias, 2))
        kernel, recurrent = layer.gates((0,))
        if _is_ours(layer, [ops.tanh]):
            return [
                ops.simple_rnn(  # type: ignore[call-arg, misc]
                    x, kernel, recurrent, added, *layer.states, mask, reverse=layer.reverse
                )
            ]
        (f,) = layer.activations

        def cell(row: Any, h: Any) -> tuple[Any, ...]:
            return (f(_clipped(row + h @ recurrent + added, layer.clip)),)

        return _scan(layer, x, mask, cell)

    return node.outputs(run)


@operator("GRU")
def gru(
    call: Call,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> Any:
    """Gated recurrent units; the reset gate is applied before the product or after it."""
    given = (x, w, r, bias, sequence_lens)
    node = recurrent_node(call, given, [initial_h], None, ("Sigmoid", "Tanh"), **attributes)

    def run(layer: _Layer, x: Any, mask: Any) -> list[Any]:
        kernel, recurrent = layer.gates((0, 1, 2))
        if linear_before_reset and _is_ours(layer, [ops.sigmoid, ops.tanh]):
            both = ops.stack(_parts(layer.bias, 2))
            return [ops.gru(x, kernel, recurrent, both, *layer.states, mask, reverse=layer.reverse)]  # type: ignore[call-arg, misc]
        return _scan(layer, x, mask, _gru_cell(layer, recurrent, bool(linear_before_reset)))

    return node.outputs(run)


def _gru_cell(layer: _Layer, recurrent: Any, after: bool) -> Cell:
    f, g = layer.activations
    of_x, of_h = (_parts(b, 3) for b in _parts(layer.bias, 2))
    rz, rr, rh = _parts(recurrent, 3)

    def cell(row: Any, h: Any) -> tuple[Any, ...]:
        z, r, new = _parts(row, 3)
        z = f(_clipped(z + h @ rz + of_x[0] + of_h[0], layer.clip))
        r = f(_clipped(r + h @ rr + of_x[1] + of_h[1], layer.clip))
        carried = r * (h @ rh + of_h[2]) if after else (r * h) @ rh + of_h[2]
        new = g(_clipped(new + carried + of_x[2], layer.clip))
        return ((1 - z) * new + z * h,)

    return cell


@operator("LSTM")
def lstm(
    call: Call,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    peepholes: Any = None,
    *,
    input_forget: int = 0,
    **attributes: Any,
) -> Any:
    """A long short-term memory, with optional peepholes and coupled gates."""
    given, states = (x, w, r, bias, sequence_lens), [initial_h, initial_c]
    defaults = ("Sigmoid", "Tanh", "Tanh")
    node = recurrent_node(call, given, states, peepholes, defaults, **attributes)

    def run(layer: _Layer, x: Any, mask: Any) -> list[Any]:
        if not input_forget and _is_ours(layer, [ops.sigmoid, ops.tanh, ops.tanh]):
            # ONNX: input, output, forget, cell. Ours: input, forget, cell, output.
            order = (0, 2, 3, 1)
            kernel, recurrent = layer.gates(order)
            added = _reordered(sum(_parts(layer.bias, 2)), order)
            return list(
                ops.lstm(x, kernel, recurrent, added, *layer.states, mask, reverse=layer.reverse)  # type: ignore[call-arg, misc]
            )
        return _scan(layer, x, mask, _lstm_cell(layer, bool(input_forget)))

    return node.outputs(run)


def _lstm_cell(layer: _Layer, coupled: bool) -> Cell:
    f, g, last = layer.activations
    added, recurrent = sum(_parts(layer.bias, 2)), ops.permute_dims(layer.r, (1, 0))
    looks = [0, 0, 0] if layer.peepholes is None else _parts(layer.peepholes, 3)

    def cell(row: Any, h: Any, c: Any) -> tuple[Any, ...]:
        i, o, forget, new = _parts(row + h @ recurrent + added, 4)
        i = f(_clipped(i + looks[0] * c, layer.clip))
        forget = 1 - i if coupled else f(_clipped(forget + looks[2] * c, layer.clip))
        c = forget * c + i * g(_clipped(new, layer.clip))
        o = f(_clipped(o + looks[1] * c, layer.clip))
        return o * last(c), c

    return cell
