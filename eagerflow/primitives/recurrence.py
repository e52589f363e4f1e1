"""Recurrent networks over whole sequences, and gradients by the values of their gates.

Large ones are machine code, where arrays are NumPy's; all others go step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import instructions
from eagerflow.primitives import compiled_recurrence
from eagerflow.primitives.recurrent_cells import CELLS, Cell
from eagerflow.spec import Array, Namespace


def forward(
    xp: Namespace,
    cell: str,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Any,
    starts: Sequence[Any],
    mask: Any,
    reverse: bool,
    keep: bool = False,
) -> tuple[Any, ...]:
    """The states after each step, arrays (..., batch, steps, units).

    ``starts`` are those before the first step, or None; where ``mask`` is False they stay. With
    ``keep`` the values of the gates follow that ``gradient`` needs, (..., batch, steps, values *
    units).
    """
    given = cell, x, kernel, recurrent_kernel, bias, starts, mask, reverse, keep
    if xp is np and x.ndim == 3:
        size = compiled_recurrence.size_of(x, recurrent_kernel)
        if compiled_recurrence.takes(cell, x.dtype, size):
            return compiled_recurrence.forward(*given)
    return _forward(xp, *given)


def gradient(
    xp: Namespace,
    cell: str,
    recurrent_kernel: Array,
    state: Array,
    values: Any,
    g: Sequence[Any],
    g_values: Any,
    start: Any,
    mask: Any,
    reverse: bool,
) -> tuple[Any, ...]:
    """The gradients of ``forward`` by the values of gates, before their activations.

    ``state`` is the last one of the states, and ``start`` that before the first step, or None;
    ``g`` and ``g_values`` are gradients by all states and by the values kept, or None. There
    follow the sums over the steps of each example, and the gradients by all starts, as far as they
    do not pass through the gates of the first step.
    """
    given = cell, recurrent_kernel, state, values, g
    if xp is np and state.ndim == 3 and g_values is None:
        size = compiled_recurrence.size_of_gradient(state)
        if compiled_recurrence.takes(cell, state.dtype, size):
            return compiled_recurrence.gradient(*given, start, mask, reverse)
    return _gradient(xp, *given, g_values, start, mask, reverse)


# Step by step ------------------------------------------------------------------------------------


def _times(steps: int, reverse: bool) -> Iterator[int]:
    return iter(range(steps)[:: -1 if reverse else 1])


def _parts(x: Any, count: int) -> list[Any]:
    """An array cut along its last axis."""
    size = x.shape[-1] // count
    return [x[..., k * size : (k + 1) * size] for k in range(count)]


def _held(xp: Namespace, seen: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    if seen is None:
        return list(new)
    return [xp.where(seen, a, b) for a, b in zip(new, old, strict=True)]


def _forward(
    xp: Namespace,
    name: str,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Any,
    starts: Sequence[Any],
    mask: Any,
    reverse: bool,
    keep: bool,
) -> tuple[Any, ...]:
    cell, s = CELLS[name], instructions(xp)
    *outer, steps, width = x.shape
    units = recurrent_kernel.shape[-2]
    keep = keep and cell.beside is not None
    if 0 in (*outer, steps, units):
        shapes = [(*outer, steps, units)] * cell.states
        shapes += [(*outer, steps, cell.values * units)] * keep
        return tuple(xp.zeros(shape, dtype=x.dtype) for shape in shapes)
    flat = xp.reshape(x, (*outer[:-1], outer[-1] * steps, width)) @ kernel
    brought = xp.reshape(flat, (*outer, steps, flat.shape[-1]))
    of_x, of_h = _biases(cell, bias)
    brought = brought if of_x is None else brought + of_x[..., None, None, :]
    none = xp.zeros((*outer, units), dtype=x.dtype)
    states = [none if start is None else start for start in starts]
    found: list[Any] = [None] * steps
    for t in _times(steps, reverse):
        u = states[0] @ recurrent_kernel
        u = u if of_h is None else u + of_h[..., None, :]
        values = _values(cell, brought[..., t, :], u)
        kept, after = cell.step(s, values, states)
        seen = None if mask is None else mask[..., t, None]
        states = _held(xp, seen, after, states)
        found[t] = [*states, xp.concat(kept, axis=-1)] if keep else states
    return tuple(xp.stack(part, axis=-2) for part in zip(*found, strict=True))


def _biases(cell: Cell, bias: Any) -> tuple[Any, Any]:
    """The bias beside the inputs, and the one beside the output before, or None."""
    if bias is None or not cell.apart:
        return bias, None
    return bias[..., 0, :], bias[..., 1, :]


def _values(cell: Cell, brought: Any, u: Any) -> list[Any]:
    """The values of gates, from what the inputs and the output before bring to them."""
    a, u = _parts(brought, cell.gates), _parts(u, cell.gates)
    both = cell.gates - cell.apart
    return [*(p + q for p, q in zip(a[:both], u[:both], strict=True)), *a[both:], *u[both:]]


def _gradient(
    xp: Namespace,
    name: str,
    recurrent_kernel: Array,
    state: Array,
    values: Any,
    g: Sequence[Any],
    g_values: Any,
    start: Any,
    mask: Any,
    reverse: bool,
) -> tuple[Any, ...]:
    cell, s = CELLS[name], instructions(xp)
    *outer, steps, units = state.shape
    none = xp.zeros((*outer, units), dtype=state.dtype)
    if 0 in state.shape:
        shapes = (*outer, steps, cell.values * units), (*outer, cell.values * units)
        return (*(xp.zeros(shape, dtype=state.dtype) for shape in shapes), *[none] * cell.states)
    back = xp.matrix_transpose(recurrent_kernel)
    order, carried, onward = list(_times(steps, not reverse)), [none] * cell.states, none
    found: list[Any] = [None] * steps
    for t, earlier in zip(order, [*order[1:], None], strict=True):
        total = [a if b is None else a + b[..., t, :] for a, b in zip(carried, g, strict=True)]
        total[0] = total[0] + onward
        own = _parts(values[..., t, :], cell.values) if cell.beside else []
        before = state[..., earlier, :] if earlier is not None else none if start is None else start
        slopes = cell.back(s, own, before, state[..., t, :], total)
        seen = None if mask is None else mask[..., t, None]
        direct = [none if x is None else x for x in slopes.states]
        carried = _held(xp, seen, direct, total)
        by_gates = _held(xp, seen, slopes.gates, [none] * cell.values)
        if g_values is not None and cell.beside is not None:
            beside = cell.beside(s, own, _parts(g_values[..., t, :], cell.values))
            by_gates = [a + b for a, b in zip(by_gates, beside, strict=True)]
        onward = xp.concat([by_gates[k] for k in cell.of_output], axis=-1) @ back
        found[t] = xp.concat(by_gates, axis=-1)
    by_values = xp.stack(found, axis=-2)
    return by_values, xp.sum(by_values, axis=-2), *carried
