"""The memory layout of a task's operands, and the matching launch.

The text of a kernel depends on its CudaLayout; everything else about a call is passed as numbers.
The order of summation depends only on the region and the sizes: not on strides, addresses or the
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

from eagerflow.codegen.cuda.tasks import CHUNK, Task, identifier
from eagerflow.codegen.instructions import GENERATORS, item_size, value_type
from eagerflow.codegen.layout import collapse, contiguous_strides
from eagerflow.codegen.region import Input, Output, Region, Statement
from eagerflow.errors import ShapeError

BROADCAST, PACKED, STEPPED = "b", "v", "s"
"""Steps along the inner axes: the same element, aligned packs of neighbors, or any other step."""

LINES, COLUMNS = 8, 32
"""The threads of a block of columns: lines that divide the rows, and columns."""

THREADS = 256  # of a block, unless rows need more
MIN_CHUNKED_WIDTH = 65536  # elements from which a small number of rows is cut into chunks
MAX_CHUNKED_ROWS = 64  # rows


class Memory(NamedTuple):
    """An array as code sees it: its address, and its strides in bytes."""

    address: int
    strides: tuple[int, ...]


class Modes(NamedTuple):
    """Choices by sizes, for a whole region: ``plan``'s arguments, and lengths of chunks."""

    split: bool
    direct: bool
    row_chunk: int


@dataclass(frozen=True)
class CudaLayout:
    """The parameters of a kernel's text, besides its task.

    ``outer`` and ``inner`` count the axes after merging; ``walks`` has for each walk of ``Names``
    its steps along the inner ones. A row has ``lanes`` threads, and each of these ``steps`` packs
    in registers (0: any number, reread).
    """

    outer: int
    inner: int
    walks: tuple[str, ...]
    vector: int
    wide: bool
    lanes: int = 0
    threads: int = THREADS
    steps: int = 0


@dataclass(frozen=True)
class CudaBinding:
    """A launch: layout, the kernel's numbers by name, blocks and threads."""

    layout: CudaLayout
    values: dict[str, int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


class Names:
    """The walks of a task: operands and generators that advance from element to element.

    Each has a name in the code, and the axes along which it advances.
    """

    def __init__(self, task: Task) -> None:
        self.parts: list[Input | Output | Statement] = [*task.inputs, *task.outputs]
        self.parts += [s for s in task.body if s.instruction in ("position", "random_bits")]
        self.names: list[str] = []
        for part in self.parts:
            kind = {Input: "in", Output: "out", Statement: "at"}[type(part)]
            name = f"{kind}_{identifier(part.name)}"
            while name in self.names:
                name += "_"
            self.names.append(name)

    def items(self) -> Iterator[tuple[Input | Output | Statement, str]]:
        """Each walk with its name."""
        return zip(self.parts, self.names, strict=True)

    def of(self, part: Input | Output | Statement) -> str:
        """The name of a walk in the code."""
        return next(name for own, name in self.items() if own is part)


def _draws_halves(task: Task) -> bool:
    return any(s.instruction == "random_bits" and s.dtype == "uint32" for s in task.body)


@lru_cache(1024)
def vector(task: Task) -> int:
    """The number of elements per thread and access: 16 bytes of the widest operand."""
    operands: list[Input | Output] = [*task.inputs, *task.outputs]
    moving = [p for p in operands if set(p.axes) & set(task.inner)]
    if _draws_halves(task):
        return 8  # as many as a block of the generator
    return max(1, min(8, 16 // max((item_size(p.dtype) for p in moving), default=16)))


def choose(region: Region, sizes: Mapping[str, int]) -> Modes:
    """Whether rows are cut into chunks, and columns reduced in one stage."""
    row = region.row_axes
    width = prod(sizes[a] for a in row)
    rows = prod(sizes[a] for a in region.axes if a not in row)
    reduces = any(s.over == row and s.instruction not in GENERATORS for s in region.body)
    direct = all(
        _column_chunks(prod(sizes[a] for a in c.over), prod(sizes[a] for a in c.axes)) == 1
        for c in region.columns.values()
    )
    split = reduces and width >= MIN_CHUNKED_WIDTH and rows <= MAX_CHUNKED_ROWS
    chunks = min(256, -(-width // 16384))
    length = -(-width // chunks) if split else 1
    return Modes(split, direct, -(-length // 2048) * 2048)


def chunk_count(task: Task, sizes: Mapping[str, int], modes: Modes) -> int:
    """The number of pieces of each row or column in a task."""
    if task.kind == "chunks":
        return -(-prod(sizes[a] for a in task.inner) // modes.row_chunk)
    return _column_chunks(prod(sizes[a] for a in task.outer), prod(sizes[a] for a in task.inner))


def _column_chunks(rows: int, columns: int) -> int:
    """The number of pieces of columns: about a thousand blocks in all, of 64 rows or more."""
    return max(1, min(1024 // -(-max(columns, 1) // COLUMNS), -(-rows // 64)))


# Walks ---------------------------------------------------------------------------------------


def _steps(
    part: Input | Output | Statement, memory: Memory | None, sizes: Mapping[str, int]
) -> dict[str, int]:
    """The stride in elements, by axis."""
    if isinstance(part, Statement):  # position and random_bits count indices
        counts = contiguous_strides([sizes[a] for a in part.over])
        return dict(zip(part.over, counts, strict=True))
    assert memory is not None
    size = item_size(part.dtype)
    if any(s % size for s, a in zip(memory.strides, part.axes, strict=True) if sizes[a] > 1):
        raise ShapeError(
            f"{part.name}: strides of {memory.strides} bytes are no multiples of {size}"
        )
    steps = {a: s // size for a, s in zip(part.axes, memory.strides, strict=True)}
    if isinstance(part, Input) and part.gather:
        steps[part.axes[0]] = 0
    return steps


def _kind(
    part: Input | Output | Statement,
    memory: Memory | None,
    joined: tuple[list[int], list[int]],
    lanes: int,
) -> str:
    outer, inner = joined
    if isinstance(part, Statement):
        return STEPPED if any(inner) else BROADCAST
    if isinstance(part, Input) and not any(inner):
        return BROADCAST
    assert memory is not None
    align = min(16, lanes * item_size(part.dtype))
    apart = [memory.address, *(s * item_size(part.dtype) for s in outer)]
    if isinstance(part, Input) and part.gather:
        apart.append(memory.strides[0])
    if inner == [1] and not any(a % align for a in apart):
        return PACKED
    return STEPPED


def bind(
    task: Task,
    names: Names,
    memory: Callable[[Input | Output], Memory],
    sizes: Mapping[str, int],
    modes: Modes,
) -> CudaBinding | None:
    """The launch of a task; None for an empty task.

    ``memory`` returns the layout of an operand. Raises ShapeError for strides that are no multiple
    of the element's size.
    """
    places = [None if isinstance(p, Statement) else memory(p) for p in names.parts]
    steps = [_steps(p, m, sizes) for p, m in zip(names.parts, places, strict=True)]

    def along(axes: tuple[str, ...]) -> tuple[list[int], list[list[int]]]:
        return collapse([sizes[a] for a in axes], [[s.get(a, 0) for a in axes] for s in steps])

    if task.kind == "elements":
        extents, walks = along(task.space)
        outer, inner = (
            (extents[:-1], [w[:-1] for w in walks]),
            (extents[-1:], [w[-1:] for w in walks]),
        )
    else:
        outer, inner = along(task.outer), along(task.inner)
    rows, width = prod(outer[0]), prod(inner[0])
    lanes = vector(task)
    if task.kind == "rows" and rows > 1 and width % lanes and not _draws_halves(task):
        lanes = 1  # most rows are not aligned to packs, for any strides
    kinds = tuple(
        _kind(p, m, (o, i), lanes)
        for p, m, o, i in zip(names.parts, places, outer[1], inner[1], strict=True)
    )
    if task.kind == "columns":  # the loop is along the outer axes
        lanes, kinds = 1, tuple(STEPPED if any(o) else BROADCAST for o in outer[1])
    elif task.kind == "elements" and not _draws_halves(task):
        operands = zip(kinds, names.parts, strict=True)
        if any(k == STEPPED and not isinstance(p, Statement) for k, p in operands):
            lanes = 1  # without packs, neighbors belong to neighboring threads
    values = {"rows": rows, "width": width}
    for side, (extents, walks) in (("o", outer), ("i", inner)):
        values |= {f"{side}_size{n}": size for n, size in enumerate(extents)}
        for name, walk in zip(names.names, walks, strict=True):
            values |= {f"{name}_{side}{n}": step for n, step in enumerate(walk)}
    for (part, name), place in zip(names.items(), places, strict=True):
        if isinstance(part, Input) and part.gather and place:
            values[f"{name}_rows"] = place.strides[0] // item_size(part.dtype)
        if isinstance(part, Output) and CHUNK in part.axes:
            values[f"{name}_chunk"] = steps[names.parts.index(part)][CHUNK]
    values |= {f"size_{n}": sizes[s.over[0]] for n, s in enumerate(task.extents)}
    wide = max(rows, 1) * (width + 8192) >= 2**31
    layout = CudaLayout(len(outer[0]), len(inner[0]), kinds, lanes, wide)
    return _launch(task, layout, values, sizes, modes)


# Blocks and threads ------------------------------------------------------------------------------


def _launch(
    task: Task,
    layout: CudaLayout,
    values: dict[str, int],
    sizes: Mapping[str, int],
    modes: Modes,
) -> CudaBinding | None:
    rows, width = values["rows"], values["width"]
    packs = -(-width // layout.vector)
    if task.kind == "elements":
        blocks = min(-(-rows * packs // THREADS), 2**20)
        return CudaBinding(layout, values, (blocks, 1, 1), (THREADS, 1, 1)) if blocks else None
    if task.kind == "columns":
        chunks = 1 if CHUNK in task.outer else sizes.get(CHUNK, 1)
        values["chunk"] = max(1, -(-rows // chunks))
        grid = (-(-width // COLUMNS), chunks, 1)
        return CudaBinding(layout, values, grid, (COLUMNS, LINES, 1)) if width else None
    if not rows:
        return None
    if task.kind == "chunks":
        values["chunk"] = modes.row_chunk
        layout = replace(layout, lanes=THREADS)
        return CudaBinding(layout, values, (sizes[CHUNK], min(rows, 65535), 1), (THREADS, 1, 1))
    lanes, threads = _lanes(packs)
    steps = _registers(task, layout, -(-packs // lanes), 32 if lanes == 1024 else 64)
    each = threads // lanes
    grid = (min(-(-rows // each), 2**20), 1, 1)
    layout = replace(layout, lanes=lanes, threads=threads, steps=steps)
    return CudaBinding(layout, values, grid, (lanes, each, 1))


def _lanes(packs: int) -> tuple[int, int]:
    """Threads of a row, and of a block: part of a warp, a warp, or a block of bounded width."""
    if packs <= 32 * 8:
        return min(32, 1 << max(packs - 1, 0).bit_length()), 128
    lanes = next((n for n in (128, 256, 512) if packs <= 4 * n), 1024)
    return lanes, lanes


def _registers(task: Task, layout: CudaLayout, steps: int, most: int) -> int:
    """The packs of each input that a thread keeps; 0 if they need too many registers."""
    plan = task.schedule
    moving = [p.dtype for k, p in zip(layout.walks, task.inputs, strict=False) if k != BROADCAST]
    kept = [task.statement(name).dtype for name in plan.kept]
    words = sum(max(1, item_size(value_type(dtype)) // 4) for dtype in (*moving, *kept))
    work = sum(own.cost for own in plan.passes)
    rounded = 1 << max(steps - 1, 0).bit_length()
    fits = words * rounded * layout.vector <= most and work * rounded * layout.vector <= 2000
    return rounded if moving and fits and layout.inner <= 1 else 0
