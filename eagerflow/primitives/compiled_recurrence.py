"""Recurrent networks over whole sequences as machine code: how the work is cut, and its memory.

Which blocks are summed up in registers, and how threads share the work, changes no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.recurrence import ForwardWriter, GradientWriter
from eagerflow.primitives.llvm.recurrence_writer import STATES, RecurrenceConfig, RecurrenceWriter
from eagerflow.primitives.llvm.staged_kernel import StagedKernel, aligned, kept, processor
from eagerflow.primitives.recurrent_cells import CELLS
from eagerflow.runtime import buffers, threads
from eagerflow.spec import Array

MIN_PRODUCTS = 1 << 14  # multiplications from which making a kernel pays
MIN_THREAD_PRODUCTS = 1 << 22  # of one thread, from which waking another one pays
MIN_STEP_PRODUCTS = 1 << 15  # of one thread and step, from which threads may wait for each other
MIN_THREAD_ROWS = 8  # examples of one thread, so that it seldom reads weights from memory
MIN_JOINED_ROWS = 4  # examples from which a step makes its inputs' products itself
MIN_STREAMED_BYTES = 1 << 22  # of values of gates, which caches would lose anyway
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
    batch, steps, width = x.shape
    return Size(batch, steps, width, recurrent_kernel.shape[0])


def takes(cell: str, dtype: Any, size: Size) -> bool:
    """Whether machine code is meant for a network of this size, and pays."""
    if dtype.char not in "fd" or 0 in (size.batch, size.steps, size.units):
        return False
    return generated.pays(_products(cell, size), MIN_PRODUCTS)


def _products(cell: str, size: Size) -> int:
    depth = size.units + size.width
    return size.batch * size.steps * depth * CELLS[cell].gates * size.units


# How the work is cut -----------------------------------------------------------------------------


def _block(
    examples: int, units: int, sums: int, lines: int, lanes: int, registers: int
) -> tuple[int, int, int]:
    """Lanes, vectors of units, and examples of a block.

    A unit has so many ``sums``, to which products with so many ``lines`` are added. The block is
    the one that covers everything in the fewest cycles, each of which makes two products or reads
    two operands.
    """
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


@kept
def _kernel(
    writer: type[RecurrenceWriter], examples: int, sums: int, lines: int, **facts: Any
) -> StagedKernel[Any]:
    """The kernel for so many examples, with these facts of its configuration."""
    own = _block(examples, facts["units"], sums, lines, *processor(facts["dtype"]))
    lanes, vectors, rows = own
    facts["streamed"] &= facts["units"] % lanes == 0  # so that all vectors are whole and placed
    config = RecurrenceConfig(lanes=lanes, vectors=vectors, rows=rows, **facts)
    return StagedKernel(writer, config)


def _examples(batch: int) -> int:
    """What a kernel has to know of a batch: that there are few, or many, of which all are alike."""
    return batch if batch < MIN_JOINED_ROWS else 6 * MAX_BLOCK_ROWS


def _many(cell: str, size: Size, dtype: Any) -> bool:
    """Whether the values of all gates are so many that they are written past the caches."""
    elements = size.batch * size.steps * CELLS[cell].values * size.units
    return elements * int(dtype.itemsize) >= max(MIN_STREAMED_BYTES, buffers.MIN_POOLED_BYTES)


def _shares(cell: str, size: Size, blocks: int) -> tuple[int, int]:
    """How many threads have parts of the examples, and how many parts of the units of each step.

    Threads with examples of their own never wait for each other.
    """
    whole = _products(cell, size)
    many = max(min(1 + threads.helpers(), whole // MIN_THREAD_PRODUCTS), 1)
    by_rows = min(many, size.batch // MIN_THREAD_ROWS)
    by_units = min(many, blocks, whole // size.steps // MIN_STEP_PRODUCTS)
    if by_units > max(by_rows, 1):
        return 1, by_units
    return max(by_rows, min(many, size.batch // MIN_JOINED_ROWS), 1), 1


def _run(own: StagedKernel[Any], cell: str, size: Size, reverse: bool, **given: Any) -> None:
    """Do all steps; ``given`` is what the kernel's frame holds."""
    writer, (batch, steps, *_) = own.writer, size
    by_rows, by_units = _shares(cell, size, writer.blocks)
    last = steps - 1 if reverse is writer.onward else 0
    turns = steps if by_units > 1 else 1
    own.run(
        (batch, writer.blocks, -(-batch // by_rows), -(-writer.blocks // by_units)),
        by_rows * by_units > 1,
        turns,
        weights=aligned("weights", writer.packed),
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
    batch, steps, width, units = size
    joined = batch >= MIN_JOINED_ROWS and width > 0
    own = _kernel(
        ForwardWriter,
        _examples(batch),
        found.values if joined else found.gates,
        found.gates,
        dtype=dtype_name(dtype),
        cell=cell,
        units=units,
        width=width if joined else 0,
        kept=keep and found.beside is not None,
        masked=mask is not None,
        streamed=keep and _many(cell, size, dtype),
    )
    states = [buffers.empty((batch, steps, units), dtype) for _ in range(found.states)]
    given = dict(zip(STATES, states, strict=False))
    given |= _memory(own.writer, batch, dtype, starts)
    kept = [] if joined and not own.writer.config.kept else [_gates(own.writer, size, dtype)]
    if kept:
        given["gates"] = kept[0]
    if joined:
        given |= {"x": np.ascontiguousarray(x), "kernel": np.ascontiguousarray(kernel)}
    else:
        products = kept[0].reshape(batch * steps, -1)[:, : found.gates * units]
        np.matmul(x.reshape(batch * steps, width), kernel, out=products)
    if mask is not None:
        given["mask"] = np.ascontiguousarray(mask)
    _run(
        own,
        cell,
        size,
        reverse,
        recurrent_kernel=np.ascontiguousarray(recurrent_kernel),
        bias=_bias(cell, bias, units, dtype),
        first_count=0 if starts[0] is None else units,
        **given,
    )
    return (*states, *(kept if own.writer.config.kept else []))


def _gates(writer: ForwardWriter, size: Size, dtype: Any) -> Array:
    """Room for the products of the inputs, and for the values of gates that are kept."""
    cell = writer.cell
    columns = cell.values if writer.config.kept else cell.gates
    return buffers.empty((size.batch, size.steps, columns * size.units), dtype)


def _memory(
    writer: ForwardWriter, batch: int, dtype: Any, starts: Sequence[Any]
) -> dict[str, Array]:
    """What states are handed on in, with those before the first step; two planes for the output."""
    names, found = ("handed", "cells"), {}
    for name, count, start in zip(names, (2, 1), starts, strict=False):
        found[name] = aligned(name, count * batch * writer.plane_bytes)
        plane = found[name][: batch * writer.plane_bytes].view(dtype).reshape(batch, -1)
        if start is None:
            plane.fill(0)
        else:
            plane[:, : writer.config.units] = start
    return found


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
    by_cells, size = len(g) > 1 and g[1] is not None, Size(batch, steps, 0, units)
    own = _kernel(
        GradientWriter,
        _examples(batch),
        1,
        1,
        dtype=dtype_name(dtype),
        cell=cell,
        units=units,
        width=0,
        kept=found.beside is not None,
        masked=mask is not None,
        by_cells=by_cells,
        streamed=_many(cell, size, dtype),
    )
    of_gates = buffers.empty((batch, steps, found.values * units), dtype)
    of_bias = np.zeros((batch, found.values * units), dtype)
    of_starts = [np.zeros((batch, units), dtype) for _ in g]
    start = np.zeros((batch, units), dtype) if start is None else start
    arrays = {"recurrent_kernel": recurrent_kernel, "gates": values, "mask": mask, "state": state}
    arrays |= {"state_start": start, "g_h": g[0], "g_c": g[1] if by_cells else None}
    arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items() if v is not None}
    _run(
        own,
        cell,
        size,
        reverse,
        handed=aligned("handed", 2 * batch * own.writer.handed),
        of_gates=of_gates,
        of_bias=of_bias,
        first_count=0,
        **arrays,
        **dict(zip(("of_h", "of_c"), of_starts, strict=False)),
    )
    return (of_gates, of_bias, *of_starts)
