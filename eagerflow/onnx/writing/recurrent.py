"""Recurrent networks: ONNX's LSTM, GRU and RNN if equivalent, otherwise a Scan of the steps.

ONNX's operators return only the last cell state of an LSTM, take lengths instead of masks, and have
no axes before the examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.primitives.recurrence import forward

__all__ = ["network"]


class _Operator(NamedTuple):
    """ONNX's operator for a cell: its name, the order of its gates, and attributes."""

    name: str
    gates: tuple[int, ...]
    attributes: dict[str, Any]


_OPERATORS = {
    "gru": _Operator("GRU", (0, 1, 2), {"linear_before_reset": 1}),
    "lstm": _Operator("LSTM", (0, 3, 1, 2), {}),
    "simple_rnn": _Operator("RNN", (0,), {}),
}


def network(w: Any, cell: str, given: Sequence[Any], reverse: bool) -> Any:
    """The rule of the op of a cell, whose arguments, in their order, are ``given``."""
    x, kernel, recurrent_kernel, bias, *starts, mask = given
    of_rows = x.ndim == 3 and mask is None and 0 not in (*x.shape, *recurrent_kernel.shape)
    if (
        of_rows
        and x.dtype == np.float32
        and not any(w.is_used(x) for x in range(1, len(w.results)))
    ):
        found = _operator(w, _OPERATORS[cell], x, kernel, recurrent_kernel, bias, starts, reverse)
        return (found,) * len(w.results)  # only the first is used

    def steps(*tensors: Any) -> Any:
        there = iter(tensors)
        arrays: list[Any] = [None if symbol is None else next(there) for symbol in given]
        x, kernel, recurrent_kernel, bias, *starts, mask = arrays
        return forward(w.xp, cell, x, kernel, recurrent_kernel, bias, starts, mask, reverse)

    present = [s for s in (*given[:-1], mask and w.cast(mask, "bool")) if s is not None]
    return w.traced(steps, *present)


def _operator(
    w: Any,
    operator: _Operator,
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    starts: Sequence[Any],
    reverse: bool,
) -> Any:
    """ONNX's operator, with steps as the first axis, and an axis of directions."""
    units, gates = recurrent_kernel.shape[0], len(operator.gates)
    ahead = w.integers([0])

    def ordered(weights: Any, axis: int) -> Any:
        parts = w.parts(weights, [units] * gates, axis)
        return w.joined([parts[k] for k in operator.gates], axis)

    def matrix(weights: Any) -> Any:
        return w.Unsqueeze(w.Transpose(ordered(weights, 1), perm=(1, 0)), ahead)

    biases = None
    if bias is not None:
        rows = bias if bias.ndim == 2 else w.Unsqueeze(bias, ahead)
        of_input = w.flat(ordered(rows, 1))
        apart = [] if bias.ndim == 2 else [w.filled(0, (gates * units,), x.dtype)]
        biases = w.Unsqueeze(w.joined([of_input, *apart], 0), ahead)
    made = w.node(
        operator.name,
        w.Transpose(x, perm=(1, 0, 2)),
        matrix(kernel),
        matrix(recurrent_kernel),
        biases,
        None,
        *(None if start is None else w.Unsqueeze(start, ahead) for start in starts),
        hidden_size=units,
        direction="reverse" if reverse else "forward",
        **operator.attributes,
    )
    return w.Transpose(w.Squeeze(made, w.integers([1])), perm=(1, 0, 2))
