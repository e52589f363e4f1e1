"""Products with few columns or few rows: choice of kernel, and division of work."""

from __future__ import annotations

from math import prod

from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.staged_kernel import (
    Prepared,
    Room,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.primitives.llvm.thin_product import ReadyThinWriter, ThinConfig, ThinProductWriter
from eagerflow.runtime import threads
from eagerflow.spec import Array

MAX_COLUMNS = 4
MIN_SUMS = 8  # independent sums
MIN_TERMS = 16  # with fewer, vectors along them are not full
PIECE_BYTES = 1 << 16  # of the matrix
MIN_SHARED_BYTES = 1 << 18  # from which several threads pay
PIECES_OF_A_THREAD = 4


def in_rows(x: Array) -> bool:
    """Whether consecutive matrices of a stack are as far apart as if their rows continued."""
    sizes, strides = x.shape[:-1], x.strides[:-1]
    pairs = zip(sizes[1:], strides[1:], strides[:-1], strict=True)
    return all(stride == size * inner for size, inner, stride in pairs)


def is_turned(a: Array, b: Array) -> bool:
    """Whether both factors are swapped and transposed, as the first one has few rows."""
    few = b.ndim == 2 and prod(a.shape[:-1]) <= MAX_COLUMNS < b.shape[1]
    return few and a.itemsize != b.strides[1]


def thin(a: Array, b: Array, out: Array) -> StagedCall | None:
    """The call of ``a @ b`` into ``out``; None if another kernel is more suitable.

    They are float32 or float64, the first one a matrix or a stack of them. If that has few rows,
    both are swapped and transposed.
    """
    if a.ndim > 2 == b.ndim and in_rows(a) and in_rows(out):
        a, out = (x.reshape(-1, x.shape[-1]) for x in (a, out))
    if a.ndim != 2 or b.ndim != 2 or dtype_name(a.dtype) not in ("float32", "float64"):
        return None
    if is_turned(a, b):
        a, b, out = b.T, a.T, out.T
    (rows, terms), columns = a.shape, b.shape[1]
    few = 0 < columns <= MAX_COLUMNS and (columns == 1 or rows > MAX_COLUMNS)
    if not few or not rows or terms < MIN_TERMS or a.itemsize not in a.strides:
        return None
    along = "terms" if a.strides[1] == a.itemsize else "rows"
    size = rows * terms * a.itemsize
    shared = size >= MIN_SHARED_BYTES
    pieces = size // PIECE_BYTES
    if shared:
        pieces = max(pieces, PIECES_OF_A_THREAD * threads.thread_count())
    packs = b.strides[0] != b.itemsize
    high = 1 if rows == 1 else max(4, MIN_SUMS // columns)
    kernel = _kernel(ThinConfig(dtype_name(a.dtype), columns, along, high, packs))
    least = kernel.writer.high * (kernel.writer.lanes if along == "rows" else 1)
    height = -(-rows // max(1, min(pieces, rows // least)))
    prepared = Prepared(
        kernel,
        (rows, 1, height, 1),
        shared,
        a_row=a.strides[0],
        a_term=a.strides[1],
        b_term=b.strides[0],
        b_column=b.strides[1],
        c_row=out.strides[0],
        c_column=out.strides[1],
        terms=terms,
        packed=Room(columns * terms * a.itemsize) if packs else 0,
    )
    return prepared.on(a=a, b=b, c=out)


@kept
def _kernel(config: ThinConfig) -> StagedKernel[ThinProductWriter]:
    writer = ThinProductWriter if config.packs else ReadyThinWriter
    return StagedKernel(writer, config, processor(config.dtype)[0])
