"""Recurrent networks over whole sequences as machine code: division of work, and memory.

The choice of register blocks and the division among threads do not change the bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.recurrence import ForwardWriter, GradientWriter, InputsFirstWriter
from eagerflow.primitives.llvm.recurrence_writer import STATES, RecurrenceConfig, RecurrenceWriter
from eagerflow.primitives.llvm.staged_kernel import (
    Prepared,
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

MIN_PRODUCTS = 1 << 14  # multiplications from which compiling a kernel pays
MIN_THREAD_PRODUCTS = 1 << 22  # of one thread, from which using another one pays
MIN_STEP_PRODUCTS = 1 << 15  # of one thread and step, from which synchronizing threads pays
MIN_THREAD_ROWS = 8  # examples of one thread, so that it rarely reads weights from memory
MIN_JOINED_ROWS = 4  # examples from which a step computes its inputs' products itself
MIN_STREAMED_BYTES = 1 << 22  # of gates' values, which would be evicted from caches anyway
MAX_BLOCK_VECTORS, MAX_BLOCK_ROWS = 8, 8
AHEAD_ROWS = 3 * MAX_BLOCK_ROWS  # of inputs, for which the block of their products is chosen
LATENCY = 8  # products in flight, below which later ones wait


class Size(NamedTuple):
    """The dimensions of a recurrence."""

    batch: int
    steps: int
    width: int
    units: int


def size_of(x: Array, recurrent_kernel: Array) -> Size:
    """The dimensions of a recurrence over ``x``."""
    batch, steps, width = x.shape
    return Size(batch, steps, width, recurrent_kernel.shape[0])


def size_of_gradient(state: Array) -> Size:
    """The dimensions of the backward recurrence for these states."""
    batch, steps, units = state.shape
    return Size(batch, steps, 0, units)


def takes(cell: str, dtype: Any, size: Size) -> bool:
    """Whether machine code supports a network of this size, and pays."""
    if dtype.char not in "fd" or 0 in (size.batch, size.steps, size.units):
        return False
    return generated.pays(_products(cell, size), MIN_PRODUCTS)


def _products(cell: str, size: Size) -> int:
    depth = size.units + size.width
    return size.batch * size.steps * depth * CELLS[cell].gates * size.units


# How the work is cut -----------------------------------------------------------------------------


def block_of(
    examples: int, units: int, sums: int, lines: int, lanes: int, registers: int
) -> tuple[int, int, int]:
    """The lanes, vectors of units, and examples of a block.

    A unit has ``sums`` accumulators, to which products with ``lines`` lines of weights are added.
    The block minimizes the number of cycles, each of which does two products or reads two operands.
    """
    while lanes > 4 and units <= lanes // 2:
        lanes //= 2
    vectors, found = -(-units // lanes), []
    for wide in range(1, min(vectors, MAX_BLOCK_VECTORS) + 1):
        # A line for a single row is a memory operand of the products.
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


class Network(NamedTuple):
    """The parameters of a call, besides the contents of its arrays."""

    cell: str
    dtype: Any
    size: Size
    reverse: bool
    kept: bool
    """Whether there is an array for gates' values."""
    masked: bool
    biased: bool
    given: tuple[bool, ...]
    """Which initial states are given."""
    by_cells: bool = False
    """Whether there are gradients of the cell states of all steps."""


def _kernel(
    writer: type[RecurrenceWriter], network: Network, sums: int, lines: int, streams: bool
) -> StagedKernel[Any]:
    """The kernel for a network with ``sums`` accumulators per unit; see ``block_of``.

    Gates' values that it ``streams`` bypass the caches if they are many.
    """
    name, (batch, _, width, units) = dtype_name(network.dtype), network.size
    most, registers = processor(name)
    lanes, vectors, rows = block_of(_examples(batch), units, sums, lines, most, registers)
    ahead = None
    if writer is InputsFirstWriter:
        high, wide = register_block(AHEAD_ROWS, lines * vectors, registers)
        ahead = RegisterBlock(min(high, MAX_BLOCK_ROWS), wide)
    config = RecurrenceConfig(
        name,
        network.cell,
        units,
        width,
        ahead,
        lanes,
        vectors,
        rows,
        network.kept,
        network.masked,
        network.biased,
        network.given,
        network.by_cells,
        # So all vectors are whole and aligned.
        streams and units % lanes == 0 and _many(network),
    )
    return _kernel_of(writer, config)


@kept
def _kernel_of(writer: type[RecurrenceWriter], config: RecurrenceConfig) -> StagedKernel[Any]:
    return StagedKernel(writer, config)


def _examples(batch: int) -> int:
    """The batch size as a kernel sees it: exact if small, one value for all larger ones."""
    return batch if batch < MIN_JOINED_ROWS else 6 * MAX_BLOCK_ROWS


def _many(network: Network) -> bool:
    """Whether gates' values are so many that caches would evict them."""
    size, cell = network.size, CELLS[network.cell]
    elements = size.batch * size.steps * cell.values * size.units
    least = max(MIN_STREAMED_BYTES, buffers.MIN_POOLED_BYTES)
    return elements * int(network.dtype.itemsize) >= least


def shares_of(network: Network, blocks: int, helpers: int) -> tuple[int, int]:
    """The numbers of threads by examples, and by units of each step.

    Threads with separate examples need no synchronization.
    """
    size, whole = network.size, _products(network.cell, network.size)
    many = max(min(1 + helpers, whole // MIN_THREAD_PRODUCTS), 1)
    by_rows = min(many, size.batch // MIN_THREAD_ROWS)
    by_units = min(many, blocks, whole // size.steps // MIN_STEP_PRODUCTS)
    if by_units > max(by_rows, 1):
        return 1, by_units
    return max(by_rows, min(many, size.batch // MIN_JOINED_ROWS), 1), 1


def _on(prepared: Prepared, **arrays: Any) -> StagedCall:
    """The call on arrays, or on row-major copies; None stands for a missing array."""
    given = {k: np.ascontiguousarray(x) for k, x in arrays.items() if x is not None}
    return prepared.on(**given)


def _prepared(own: StagedKernel[Any], network: Network, helpers: int, **rooms: int) -> Prepared:
    """A kernel with its work divided among other threads, and working memory."""
    writer, (batch, steps, *_) = own.writer, network.size
    by_rows, by_units = shares_of(network, writer.blocks, helpers)
    last = steps - 1 if network.reverse is writer.onward else 0
    turns = steps if by_units > 1 else 1
    return Prepared(
        own,
        (batch, writer.blocks, -(-batch // by_rows), -(-writer.blocks // by_units)),
        by_rows * by_units > 1,
        turns,
        **{name: Room(size) for name, size in rooms.items()},
        weights=Room(writer.packed),
        steps=steps,
        turn_steps=steps // turns,
        start=last,
        stride=-1 if last else 1,
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
    """The states of all steps, and with ``keep`` the gates' values; see ``recurrence``."""
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
    """The kernel of the states, and of the gates' values if ``made`` has an array for them."""
    states = CELLS[cell].states
    network = Network(
        cell,
        x.dtype,
        size_of(x, recurrent_kernel),
        reverse,
        len(made) > states,
        mask is not None,
        bias is not None,
        tuple([start is not None for start in starts]),
    )
    return _on(
        prepared_forward(network, threads.helpers()),
        x=x,
        kernel=kernel,
        recurrent_kernel=recurrent_kernel,
        bias=bias,
        mask=mask,
        **dict(zip(("h_start", "c_start"), starts, strict=False)),
        **dict(zip((*STATES[:states], "gates"), made, strict=False)),
    )


@kept
def prepared_forward(network: Network, helpers: int) -> Prepared:
    """The call of a network's forward pass, prepared once."""
    found, (batch, steps, width, units) = CELLS[network.cell], network.size
    joined = batch >= MIN_JOINED_ROWS and width > 0
    own = _kernel(
        ForwardWriter if joined else InputsFirstWriter,
        network,
        found.values if joined else found.gates,
        found.gates,
        network.kept,
    )
    plane = batch * own.writer.plane_bytes
    rooms = {"handed": 2 * plane}  # used alternately
    if found.states > 1:
        rooms["cells"] = plane
    if not joined and not network.kept:
        rooms["gates"] = batch * steps * found.gates * units * network.dtype.itemsize
    return _prepared(own, network, helpers, **rooms)


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
    """Gradients of the gates' values, their sums over time, and those of the initial states."""
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
    """The kernel of all results of ``gradient``."""
    network = Network(
        cell,
        state.dtype,
        size_of_gradient(state),
        reverse,
        values is not None,
        mask is not None,
        False,
        (start is not None,),
        len(g) > 1 and g[1] is not None,
    )
    return _on(
        prepared_gradient(network, threads.helpers()),
        recurrent_kernel=recurrent_kernel,
        gates=values,
        mask=mask,
        state=state,
        state_start=start,
        **dict(zip(("g_h", "g_c"), g, strict=False)),
        **dict(zip(("of_gates", "of_bias", "of_h", "of_c"), made, strict=False)),
    )


@kept
def prepared_gradient(network: Network, helpers: int) -> Prepared:
    """The call of a network's backward pass, prepared once."""
    own = _kernel(GradientWriter, network, 1, 1, True)
    handed = 2 * network.size.batch * own.writer.handed
    return _prepared(own, network, helpers, handed=handed)
