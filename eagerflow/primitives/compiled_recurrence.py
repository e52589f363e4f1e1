"""Recurrent networks over whole sequences as machine code: how the work is cut, and its memory.

Which blocks are summed up in registers, and how threads share the work, changes no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.recurrence import (
    STATES,
    ForwardWriter,
    GradientWriter,
    RecurrenceConfig,
    RecurrenceWriter,
)
from eagerflow.primitives.llvm.staged_kernel import StagedKernel, aligned, kept, processor
from eagerflow.primitives.recurrent_cells import CELLS
from eagerflow.runtime import buffers, threads
from eagerflow.spec import Array

MIN_PRODUCTS = 1 << 16  # multiplications from which making a kernel pays
MIN_SHARED_PRODUCTS = 1 << 23  # from which waking another thread pays
MIN_STEP_PRODUCTS = 1 << 16  # of one step, from which threads may wait for each other after it
MIN_THREAD_ROWS = 8  # examples of one thread, so that weights are read from memory less often
MIN_JOINED_ROWS = 4  # examples from which a step makes its inputs' products itself
MAX_BLOCK_VECTORS, MAX_BLOCK_ROWS = 8, 8
LATENCY = 8  # products on their way at once, below which the next ones wait


class Size(NamedTuple):
    """How large a recurrence is."""

    batch: int
    steps: int
    width: int
    units: int


def size_of(x: Array, recurrent_kernel: Array) -> Size:
    """The size of a recurrence over ``x``."""
    return Size(*x.shape, recurrent_kernel.shape[0])


def takes(cell: str, dtype: Any, size: Size) -> bool:
    """Whether machine code is meant for a network of this size, and pays."""
    if dtype.char not in "fd" or 0 in (size.batch, size.steps, size.units):
        return False
    return generated.pays(_products(cell, size), MIN_PRODUCTS)


def _products(cell: str, size: Size) -> int:
    depth = size.units + size.width
    return size.batch * size.steps * depth * CELLS[cell].gates * size.units


# How the work is cut -----------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _block(examples: int, units: int, sums: int, lines: int, dtype: str) -> tuple[int, int, int]:
    """Lanes, vectors of units, and examples of a block.

    A unit has so many ``sums``, to which so many ``lines`` of weights are added. The block is the
    one that covers everything in the fewest cycles, each of which makes two products or reads two
    operands.
    """
    full, registers = processor(dtype)
    lanes = full
    while lanes > 4 and units <= lanes // 2:
        lanes //= 2
    vectors, found = -(-units // lanes), []
    for wide in range(1, min(vectors, MAX_BLOCK_VECTORS) + 1):
        # A line that only one row needs is read by the products themselves.
        high = (registers - 2 - lines * wide) // (sums * wide)
        high = max(min(high, MAX_BLOCK_ROWS, examples), 1)
        if vectors % wide or (wide > 1 and high * sums * wide > registers - 2):
            continue
        parts = -(-examples // high)
        rows = examples / parts
        cycles = max(rows * lines * wide, rows + lines * wide, LATENCY) / 2
        found.append((parts * cycles / wide, -rows * wide, wide, high))
    *_, wide, high = min(found)
    return lanes, wide, high


def _configure(
    cell: str, dtype: Any, size: Size, sums: int, lines: int, **more: Any
) -> RecurrenceConfig:
    # Of more examples than a block has, all numbers are alike.
    examples = size.batch if size.batch < MIN_JOINED_ROWS else 6 * MAX_BLOCK_ROWS
    name = dtype_name(dtype)
    lanes, vectors, rows = _block(examples, size.units, sums, lines, name)
    return RecurrenceConfig(
        name, cell, size.units, lanes=lanes, vectors=vectors, rows=rows, **more
    )


@kept
def _kernel(writer: type[RecurrenceWriter], config: RecurrenceConfig) -> StagedKernel[Any]:
    return StagedKernel(writer, config)


def _run(
    own: StagedKernel[Any], cell: str, size: Size, reverse: bool, handed: Any, **given: Any
) -> None:
    """Let threads have parts of the examples, or parts of the units of each step."""
    batch, steps, blocks = size.batch, size.steps, own.writer.blocks
    whole = _products(cell, size)
    many = 1 + threads.helpers() if whole >= MIN_SHARED_PRODUCTS else 1
    by_units = batch < many * MIN_THREAD_ROWS and whole // steps >= MIN_STEP_PRODUCTS
    last = steps - 1 if reverse is own.writer.onward else 0
    if by_units:
        cut, turns = (batch, blocks, batch, -(-blocks // many)), steps
    else:
        cut, turns = (batch, blocks, -(-batch // many), blocks), 1
    own.run(
        cut,
        many > 1,
        turns,
        weights=aligned("weights", own.writer.packed),
        handed=handed,
        steps=steps,
        turn_steps=steps // turns,
        start=last,
        stride=-1 if last else 1,
        **given,
    )


# Forward and back --------------------------------------------------------------------------------


def forward(
    cell: str,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Any,
    starts: Sequence[Any],
    mask: Any,
    reverse: bool,
    keep: bool,
) -> tuple[Any, ...]:
    """The states of all steps, and with ``keep`` the values of the gates; see ``recurrence``."""
    found, size, dtype = CELLS[cell], size_of(x, recurrent_kernel), x.dtype
    keep = keep and found.beside is not None
    joined = size.batch >= MIN_JOINED_ROWS and size.width > 0
    config = _configure(
        cell,
        dtype,
        size,
        found.values if joined else found.gates,
        found.gates,
        width=size.width if joined else 0,
        kept=keep,
        masked=mask is not None,
    )
    own = _kernel(ForwardWriter, config)
    outer = (size.batch, size.steps)
    columns = (found.values if keep else found.gates) * size.units
    gates = buffers.empty((*outer, columns), dtype) if keep or not joined else None
    if not joined:
        products = gates.reshape(-1, columns)[:, : found.gates * size.units]
        np.matmul(x.reshape(len(products), size.width), kernel, out=products)
    states = [buffers.empty((*outer, size.units), dtype) for _ in range(found.states)]
    row, given = own.writer.plane_bytes, dict(zip(STATES, states, strict=False))
    handed = aligned("handed", 2 * size.batch * row)
    if found.states > 1:
        given["cells"] = aligned("cells", size.batch * row)
    for memory, start in zip((handed, given.get("cells")), starts, strict=False):
        plane = memory[: size.batch * row].view(dtype).reshape(size.batch, -1)
        if start is None:
            plane.fill(0)
        else:
            plane[:, : size.units] = start
    if gates is not None:
        given["gates"] = gates
    if joined:
        given |= {"x": np.ascontiguousarray(x), "kernel": np.ascontiguousarray(kernel)}
    if mask is not None:
        given["mask"] = np.ascontiguousarray(mask)
    _run(
        own,
        cell,
        size,
        reverse,
        handed,
        recurrent_kernel=np.ascontiguousarray(recurrent_kernel),
        bias=_bias(cell, bias, size.units, dtype),
        first_count=0 if starts[0] is None else size.units,
        **given,
    )
    return (*states, gates) if keep else tuple(states)


def _bias(cell: str, bias: Any, units: int, dtype: Any) -> Array:
    """A number for each value of the gates."""
    found = CELLS[cell]
    if bias is None:
        return np.zeros(found.values * units, dtype)
    if bias.ndim == 1:
        return np.ascontiguousarray(bias)
    both = (found.gates - found.apart) * units
    of_inputs, of_output = bias
    return np.concatenate((of_inputs[:both] + of_output[:both], of_inputs[both:], of_output[both:]))


def gradient(
    cell: str,
    recurrent_kernel: Array,
    state: Array,
    values: Any,
    g: Sequence[Any],
    start: Any,
    mask: Any,
    reverse: bool,
) -> tuple[Any, ...]:
    """Gradients by the values of gates, their sums over time, and by the starts."""
    found, (batch, steps, units), dtype = CELLS[cell], state.shape, state.dtype
    size, by_cells = Size(batch, steps, 0, units), len(g) > 1 and g[1] is not None
    more = {"kept": found.beside is not None, "masked": mask is not None, "by_cells": by_cells}
    own = _kernel(GradientWriter, _configure(cell, dtype, size, 1, 1, width=0, **more))
    of_gates = buffers.empty((batch, steps, found.values * units), dtype)
    of_bias = np.zeros((batch, found.values * units), dtype)
    of_starts = [np.zeros((batch, units), dtype) for _ in g]
    given = {"recurrent_kernel": recurrent_kernel, "gates": values, "mask": mask, "state": state}
    given["state_start"] = np.zeros((batch, units), dtype) if start is None else start
    given |= dict(zip(("g_h", "g_c"), g, strict=False))
    given = {k: np.ascontiguousarray(v) for k, v in given.items() if v is not None}
    _run(
        own,
        cell,
        size,
        reverse,
        aligned("handed", 2 * batch * own.writer.handed),
        of_gates=of_gates,
        of_bias=of_bias,
        first_count=0,
        **given,
        **dict(zip(("of_h", "of_c"), of_starts, strict=False)),
    )
    return (of_gates, of_bias, *of_starts)
