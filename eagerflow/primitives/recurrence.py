"""Recurrent networks over whole sequences, and the gradients of their gate values.

Large ones use machine code, for NumPy arrays; all others run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    ``starts`` are the initial states, or None; where ``mask`` is False, states are unchanged. With
    ``keep``, the gate values for ``gradient`` follow, (..., batch, steps, values * units).
    """
    given = cell, x, kernel, recurrent_kernel, bias, starts, mask, reverse, keep
    if xp is np and x.ndim == 3:
        size = compiled_recurrence.size_of(x, recurrent_kernel)
        if compiled_recurrence.takes(cell, x.dtype, size):
            return compiled_recurrence.forward(*given)
    return step_by_step(xp, *given)


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
    """The gradients of ``forward`` for the gates' pre-activation values.

    ``state`` is the last kind of state, and ``start`` its initial value, or None; ``g`` and
    ``g_values`` are gradients of all states and of the kept values, or None. Also returns the sums
    over the steps of each example, and the gradients of all initial states, without the part that
    passes through the gates of the first step.
    """
    given = cell, recurrent_kernel, state, values, g
    if xp is np and state.ndim == 3 and g_values is None:
        size = compiled_recurrence.size_of_gradient(state)
        if compiled_recurrence.takes(cell, state.dtype, size):
            return compiled_recurrence.gradient(*given, start, mask, reverse)
    return gradients_step_by_step(xp, *given, g_values, start, mask, reverse)


# Step by step ------------------------------------------------------------------------------------


def over_steps(
    xp: Namespace,
    step: Callable[[Any, list[Any]], tuple[Any, Any]],
    states: Any,
    columns: Sequence[Any],
    axis: int,
    reverse: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """The last states, and the other results of ``step(states, rows)`` for all steps.

    ``axis``, counted from the front, is that of steps in ``columns`` and results; a column may be
    None. Uses the library's own ``scan`` if it has one.
    """
    given = [x for x in columns if x is not None]

    def whole(states: Any, rows: Sequence[Any]) -> tuple[Any, Any]:
        there = iter(rows)
        return step(states, [None if x is None else next(there) for x in columns])

    scan = getattr(xp, "scan", None)
    if scan is not None:
        moved = tuple(xp.moveaxis(x, axis, 0) for x in given)
        states, made = scan(whole, tuple(states), moved, reverse=reverse)
        return states, tuple(xp.moveaxis(y, 0, axis) for y in made)
    steps, before = given[0].shape[axis], (slice(None),) * axis
    found: list[Any] = [None] * steps
    for t in range(steps)[:: -1 if reverse else 1]:
        states, found[t] = whole(states, [x[(*before, t)] for x in given])
    return states, tuple(xp.stack(part, axis=axis) for part in zip(*found, strict=True))


def _parts(x: Any, count: int) -> list[Any]:
    """An array split along its last axis."""
    size = x.shape[-1] // count
    return [x[..., k * size : (k + 1) * size] for k in range(count)]


def _held(xp: Namespace, seen: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    if seen is None:
        return list(new)
    seen = seen[..., None]
    return [xp.where(seen, a, b) for a, b in zip(new, old, strict=True)]


def step_by_step(
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
    """The states of a recurrence, and its values if they are to be kept, step by step."""
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
    states = tuple(none if start is None else start for start in starts)

    def step(states: Any, rows: list[Any]) -> tuple[Any, Any]:
        u = states[0] @ recurrent_kernel
        u = u if of_h is None else u + of_h[..., None, :]
        kept, after = cell.step(s, _values(cell, rows[0], u), states)
        states = tuple(_held(xp, rows[1], after, states))
        return states, (*states, xp.concat(kept, axis=-1)) if keep else states

    return over_steps(xp, step, states, (brought, mask), len(outer), reverse)[1]


def _biases(cell: Cell, bias: Any) -> tuple[Any, Any]:
    """The bias of the inputs, and that of the previous output, or None."""
    if bias is None or not cell.apart:
        return bias, None
    return bias[..., 0, :], bias[..., 1, :]


def _values(cell: Cell, brought: Any, u: Any) -> list[Any]:
    """The gate values, from the contributions of the inputs and of the previous output."""
    a, u = _parts(brought, cell.gates), _parts(u, cell.gates)
    both = cell.gates - cell.apart
    return [*(p + q for p, q in zip(a[:both], u[:both], strict=True)), *a[both:], *u[both:]]


def gradients_step_by_step(
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
    """The gradients of a recurrence, step by step."""
    cell, s = CELLS[name], instructions(xp)
    *outer, steps, units = state.shape
    none = xp.zeros((*outer, units), dtype=state.dtype)
    if 0 in state.shape:
        shapes = (*outer, steps, cell.values * units), (*outer, cell.values * units)
        shapes = (*shapes, *[none.shape] * cell.states)
        return tuple(xp.zeros(shape, dtype=state.dtype) for shape in shapes)
    back = xp.matrix_transpose(recurrent_kernel)
    first = (none if start is None else start)[..., None, :]
    kept = state[..., 1:, :] if reverse else state[..., :-1, :]
    before = xp.concat((kept, first) if reverse else (first, kept), axis=-2)

    def step(states: Any, rows: list[Any]) -> tuple[Any, Any]:
        *carried, onward = states
        earlier, after, values, g_values, seen, *g = rows
        total = [a if b is None else a + b for a, b in zip(carried, g, strict=True)]
        total[0] = total[0] + onward
        own = _parts(values, cell.values) if cell.beside else []
        slopes = cell.back(s, own, earlier, after, total)
        direct = [none if x is None else x for x in slopes.states]
        carried = _held(xp, seen, direct, total)
        by_gates = _held(xp, seen, slopes.gates, [none] * cell.values)
        if g_values is not None and cell.beside is not None:
            beside = cell.beside(s, own, _parts(g_values, cell.values))
            by_gates = [a + b for a, b in zip(by_gates, beside, strict=True)]
        onward = xp.concat([by_gates[k] for k in cell.of_output], axis=-1) @ back
        return (*carried, onward), (xp.concat(by_gates, axis=-1),)

    columns = before, state, values if cell.beside else None, g_values, mask, *g
    zeros = (none,) * (cell.states + 1)
    (*carried, _), (by_values,) = over_steps(xp, step, zeros, columns, len(outer), not reverse)
    return by_values, xp.sum(by_values, axis=-2), *carried
