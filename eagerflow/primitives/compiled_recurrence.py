"""Recurrent networks over whole sequences as machine code: how the work is cut, and its memory.

Which blocks are summed up in registers, and how threads share the work, changes no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.recurrence import (
    ForwardWriter,
    GradientWriter,
    InputsFirstWriter,
)
from eagerflow.primitives.llvm.recurrence_writer import STATES, RecurrenceConfig, RecurrenceWriter
from eagerflow.primitives.llvm.staged_kernel import (
    Room,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.primitives.llvm.vectors import RegisterBlock, register_block
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
AHEAD_ROWS = 3 * MAX_BLOCK_ROWS  # of inputs, for which the block of their products is chosen
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


def size_of_gradient(state: Array) -> Size:
    """The size of what goes back through the steps of a network with these states."""
    batch, steps, units = state.shape
    return Size(batch, steps, 0, units)


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
    most, registers = processor(facts["dtype"])
    lanes, vectors, rows = _block(examples, facts["units"], sums, lines, most, registers)
    facts["streamed"] &= facts["units"] % lanes == 0  # so that all vectors are whole and placed
    ahead = None
    if writer is InputsFirstWriter:
        high, wide = register_block(AHEAD_ROWS, lines * vectors, registers)
        ahead = RegisterBlock(min(high, MAX_BLOCK_ROWS), wide)
    config = RecurrenceConfig(lanes=lanes, vectors=vectors, rows=rows, ahead=ahead, **facts)
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


def _call(
    own: StagedKernel[Any], cell: str, size: Size, reverse: bool, **values: Any
) -> StagedCall:
    """What does all steps; ``values`` are what the kernel's frame holds besides their numbers."""
    writer, (batch, steps, *_) = own.writer, size
    by_rows, by_units = _shares(cell, size, writer.blocks)
    last = steps - 1 if reverse is writer.onward else 0
    turns = steps if by_units > 1 else 1
    return StagedCall(
        own,
        (batch, writer.blocks, -(-batch // by_rows), -(-writer.blocks // by_units)),
        by_rows * by_units > 1,
        turns,
        weights=Room("weights", writer.packed),
        steps=steps,
        turn_steps=steps // turns,
        start=last,
        stride=-1 if last else 1,
        **values,
    )


def _in_rows(x: Any) -> Any:
    """An array, or a copy, in row-major order; 0 for None."""
    return 0 if x is None else np.ascontiguousarray(x)


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
    found, (batch, steps, _, units) = CELLS[cell], size_of(x, recurrent_kernel)
    sizes = [units] * found.states
    if keep and found.beside is not None:
        sizes.append(found.values * units)
    made = tuple([buffers.empty((batch, steps, n), x.dtype) for n in sizes])
    forward_call(cell, x, kernel, recurrent_kernel, bias, starts, mask, reverse, made).run()
    return made


def forward_call(
    cell: str,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Any,
    starts: Sequence[Any],
    mask: Any,
    reverse: bool,
    made: Sequence[Array],
) -> StagedCall:
    """What writes the states, and the values of the gates where ``made`` has an array for them."""
    found, size, dtype = CELLS[cell], size_of(x, recurrent_kernel), x.dtype
    batch, steps, width, units = size
    keeps = len(made) > found.states
    joined = batch >= MIN_JOINED_ROWS and width > 0
    own = _kernel(
        ForwardWriter if joined else InputsFirstWriter,
        _examples(batch),
        found.values if joined else found.gates,
        found.gates,
        dtype=dtype_name(dtype),
        cell=cell,
        units=units,
        width=width,
        kept=keeps,
        masked=mask is not None,
        biased=bias is not None,
        given=tuple([start is not None for start in starts]),
        streamed=keeps and _many(cell, size, dtype),
    )
    values = dict(zip((*STATES[: found.states], "gates"), made, strict=False))
    if not joined and not keeps:
        products = batch * steps * found.gates * units
        values["gates"] = Room("gates", products * dtype.itemsize)
    values |= {f"{name}_start": _in_rows(x) for name, x in zip(STATES, starts, strict=False)}
    plane = batch * own.writer.plane_bytes
    return _call(
        own,
        cell,
        size,
        reverse,
        x=_in_rows(x),
        kernel=_in_rows(kernel),
        recurrent_kernel=_in_rows(recurrent_kernel),
        bias=_in_rows(bias),
        mask=_in_rows(mask),
        handed=Room("handed", 2 * plane),  # which are read and written in turn
        cells=Room("cells", plane),
        **values,
    )


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
    made = (
        buffers.empty((batch, steps, found.values * units), dtype),
        np.empty((batch, found.values * units), dtype),
        *[np.empty((batch, units), dtype) for _ in g],
    )
    gradient_call(cell, recurrent_kernel, state, values, g, start, mask, reverse, made).run()
    return made


def gradient_call(
    cell: str,
    recurrent_kernel: Array,
    state: Array,
    values: Any,
    g: Sequence[Any],
    start: Any,
    mask: Any,
    reverse: bool,
    made: Sequence[Array],
) -> StagedCall:
    """What writes all that ``gradient`` gives."""
    found, size, dtype = CELLS[cell], size_of_gradient(state), state.dtype
    batch, units = size.batch, size.units
    by_cells = len(g) > 1 and g[1] is not None
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
        biased=False,
        given=(start is not None,),
        by_cells=by_cells,
        streamed=_many(cell, size, dtype),
    )
    names = ("of_gates", "of_bias", "of_h", "of_c")
    return _call(
        own,
        cell,
        size,
        reverse,
        recurrent_kernel=_in_rows(recurrent_kernel),
        gates=_in_rows(values),
        mask=_in_rows(mask),
        state=_in_rows(state),
        state_start=_in_rows(start),
        g_h=_in_rows(g[0]),
        g_c=_in_rows(g[1]) if by_cells else 0,
        handed=Room("handed", 2 * batch * own.writer.handed),
        **dict(zip(names, made, strict=False)),
    )
