"""Products of matrices by generated kernels: choice of kernel, and division of work.

An element of the result is the sum over all terms in order, for any division of work; so results
are bit-identical for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.layout import Like, like
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.matrix_product import (
    PackedProductWriter,
    PackedRowsWriter,
    PackWriter,
    ProductWriter,
)
from eagerflow.primitives.llvm.product_packing import DEPTH, HEIGHT, ProductConfig
from eagerflow.primitives.llvm.product_terms import Terms
from eagerflow.primitives.llvm.staged_kernel import (
    FixedStages,
    Operand,
    StagedKernel,
    aligned,
    kept,
    machine,
    new_lines,
    processor,
)
from eagerflow.primitives.llvm.vectors import RegisterBlock, round_up
from eagerflow.primitives.thin_product import MAX_COLUMNS, in_rows, is_turned, thin
from eagerflow.runtime import machine_code, threads
from eagerflow.spec import Array

MIN_SHARED_TERMS = {1: 1 << 19, 2: 1 << 22, 4: 1 << 24}
"""Multiplications from which several threads pay, by the number of terms in a lane."""
MIN_GENERATED = 1 << 15  # multiplications of bytes, or by them, from which a kernel's call pays
MIN_PIECE_TERMS = 1 << 17
PIECES_OF_A_THREAD = 4
SUMS_BYTES = 1 << 18  # of a piece
SHARED_HEIGHT = 128  # rows of a piece if a product has several
PANEL_BYTES = 1 << 15  # of a panel that leaves room for rows in the L1 cache
BEYOND = 0.02  # the relative slowdown of panels of twice that size
MIN_SUMS = 10  # independent sums
ROW_CYCLES = 6  # of overhead for each row of a block
BLOCK_WIDTHS = (1, 2, 3, 4, 6, 8, 12)

_FLOATS = ("float32", "float64")
_HALVES = ("float16", "bfloat16")
_BYTES = ("int8", "uint8")
_SUMS = {
    **{(x, x, x): x for x in _FLOATS},
    **{(x, x, out): "float32" for x in _HALVES for out in (x, "float32")},
    **{(x, "int8", "int32"): "int32" for x in _BYTES},
}
"""From the types of two factors and of the result to that of the sums."""


@cache
def terms_of(a: str, b: str, out: str) -> Terms | None:
    """The method for products of these types; None if there are no kernels for them."""
    many = 4 if machine_code.host().has_byte_products else 2
    if a == b == out and out in _BYTES:  # the low bits do not depend on the signs
        return Terms("uint8", "int8", "int8", "int32", many)
    sums = _SUMS.get((a, b, out))
    if sums is None:
        return None
    return Terms(a, b, out, sums, many if sums == "int32" else 1)


class Matrices(NamedTuple):
    """Shapes and strides, in bytes, of a sequence of products ``a @ b``."""

    terms: Terms
    products: int
    rows: int
    depth: int
    columns: int
    a: tuple[int, int, int]
    """Strides in bytes of matrices, rows and terms."""
    b: tuple[int, int, int]
    """Strides in bytes of matrices, terms and columns."""
    c: tuple[int, int]
    """Strides in bytes of matrices and rows."""

    @property
    def multiplications(self) -> int:
        """The number of products."""
        return self.products * self.rows * self.depth * self.columns


def matrices(a: Array, b: Array, out: Array) -> Matrices | None:
    """The products of arrays; None if kernels do not support their layout."""
    terms = terms_of(*(dtype_name(x.dtype) for x in (a, b, out)))
    if terms is None:
        return None
    if a.ndim > 2 == b.ndim and in_rows(a) and in_rows(out):
        a, out = (x.reshape(-1, x.shape[-1]) for x in (a, out))  # one product of all rows
    *_, m, k = a.shape
    n = b.shape[-1]
    if out.strides[-1] != out.itemsize and n > 1:
        return None
    of_a, of_b, of_c = (_steps(x, out.shape[:-2]) for x in (a, b, out))
    if of_a is None or of_b is None or of_c is None:
        return None
    found = Matrices(
        terms,
        prod(out.shape[:-2]),
        m,
        k,
        n,
        (of_a, *_told(a.strides[-2:], (m, k), a.itemsize)),
        (of_b, *_told(b.strides[-2:], (k, n), b.itemsize)),
        (of_c, out.strides[-2]),
    )
    return found if a.itemsize in found.a[1:] and b.itemsize in found.b[1:] else None


def _steps(x: Array, batch: tuple[int, ...]) -> int | None:
    """The stride in bytes of the matrices of a stack; None if it is not constant."""
    lead = x.ndim - 2
    shape = (1,) * (len(batch) - lead) + x.shape[:lead]
    strides = (0,) * (len(batch) - lead) + x.strides[:lead]
    strides = tuple(0 if have == 1 else s for have, s in zip(shape, strides, strict=True))
    found = None
    for size, stride in reversed(list(zip(batch, strides, strict=True))):
        if size == 1:
            continue
        if found is None:
            found, after = stride, stride * size
        elif stride != after:
            return None
        else:
            after *= size
    return found or 0


def _told(strides: tuple[int, ...], sizes: tuple[int, ...], item: int) -> tuple[int, int]:
    """Strides, with those of axes of size 1, which are arbitrary, set as for contiguous arrays."""
    first, last = strides
    if sizes[1] == 1:
        last = item if first != item or sizes[0] == 1 else last
    if sizes[0] == 1 and last != item:
        first = item
    return first, last


def block_for(rows: int, vectors: int, units: int, registers: int, size: int) -> RegisterBlock:
    """The block of sums that minimizes cycles for a number of rows and vectors of columns.

    A cycle does two products and reads two operands; each sum has a latency of four cycles, plus
    occasional memory stalls. Each row of a block adds overhead. Panels of ``units`` units of
    vectors of ``size`` bytes are repeatedly read from the L1 cache.
    """
    found, units = [], min(units, DEPTH)
    for high, wide in _blocks(registers):
        beyond = max(0, units * wide * size - PANEL_BYTES) / PANEL_BYTES
        cycles = max(high * wide, high + wide, MIN_SUMS) / 2 * (1 + BEYOND * beyond)
        blocks = -(-rows // high) * -(-vectors // wide)
        cost = blocks * (cycles * units + high * ROW_CYCLES)
        found.append((cost, abs(high - 8), RegisterBlock(high, wide)))
    return min(found)[2]


def _blocks(registers: int) -> Iterator[tuple[int, int]]:
    for wide in BLOCK_WIDTHS:
        for high in BLOCK_WIDTHS:
            if high * wide + wide + 1 <= registers:
                yield high, wide


def config_of(given: Matrices, repeated: bool) -> ProductConfig:
    """The kernel for matrices of these layouts; ``repeated`` with a single second matrix."""
    terms = given.terms
    lanes, registers = processor(terms.sums)
    vectors, units = -(-given.columns // lanes), -(-given.depth // terms.group)
    size = machine_code.host().vector_bytes
    block = block_for(given.rows, vectors, units, registers, size)
    of_a, of_b = np.dtype(terms.a).itemsize, np.dtype(terms.b).itemsize
    if given.a[2] != of_a:
        rows = "interleaved"
    else:
        rows = "direct" if terms.are_plain else "copied"
    one = given.products == 1 or given.b[0] == 0
    ahead = one and (repeated or given.rows > HEIGHT)
    if given.b[2] != of_b:
        panel = "transposed"
    elif given.rows <= 2 * block.rows and terms.are_plain and not ahead:
        panel = "direct"  # not packed, as each is read only a few times
    else:
        panel = "packed"
    return ProductConfig(terms, block, rows, panel, ahead)


@kept
def kernel(config: ProductConfig, writer: type[ProductWriter]) -> StagedKernel[Any]:
    """The kernel, compiled or from the cache."""
    return StagedKernel(writer, config, processor(config.terms.sums)[0])


class ProductCall:
    """Prepared products of matrices of known shapes and strides.

    If they are ``repeated`` with a single second matrix, that is packed in advance.
    """

    def __init__(self, given: Matrices, repeated: bool = False) -> None:
        self.given, self.repeated = given, repeated
        self.config, self.writer = self._chosen()
        self.rows, self.span = self._cut()
        self.pieces = -(-given.rows // self.rows)
        writer = self.writer(None, (), self.config, processor(given.terms.sums)[0])
        sizes = (given.depth, given.columns)
        sum_row, sums = writer.sums(given.products, given.rows, *sizes)
        self.room = {"sums": sums}
        if isinstance(writer, PackedProductWriter):
            self.room["packed_panels"] = writer.panels(*sizes)
        self.workspace = sum(self.room.values())
        """Bytes of memory for data that is packed for all threads."""
        self.many = threads.thread_count() if self._shared else 1
        self._whole: tuple[StagedKernel[Any], Any] | None = None
        """The kernel of all stages, and its frame."""
        self.numbers = {
            "a_next": given.a[0],
            "b_next": given.b[0],
            "c_next": given.c[0],
            "a_row": given.a[1],
            "a_term": given.a[2],
            "b_term": given.b[1],
            "b_column": given.b[2],
            "c_row": given.c[1],
            "sum_row": sum_row,
            "row_count": given.rows,
            "term_count": given.depth,
            "column_count": given.columns,
            "row_pieces": self.pieces,
            "piece_rows": self.rows,
        }

    def _chosen(self) -> tuple[ProductConfig, type[ProductWriter]]:
        """The parameters of the kernel, and its writer class."""
        config = config_of(self.given, self.repeated)
        return config, PackedProductWriter if config.ahead else ProductWriter

    @property
    def _shared(self) -> bool:
        return self.given.multiplications >= MIN_SHARED_TERMS[self.given.terms.group]

    def _cut(self) -> tuple[int, int]:
        """Rows and columns of a piece."""
        given, block = self.given, self.config.block
        panel = block.vectors * processor(given.terms.sums)[0]
        panels, across = -(-given.columns // panel), 1
        blocks, down = -(-given.rows // block.rows), -(-given.rows // HEIGHT)
        parts = -(-given.rows // SHARED_HEIGHT)
        if self._shared:
            wanted = PIECES_OF_A_THREAD * threads.thread_count()
            wanted = min(wanted, max(1, given.multiplications // MIN_PIECE_TERMS))
            wanted = -(-wanted // given.products)  # of each product
            if self.config.ahead:
                down = min(max(parts, wanted), blocks)
                across = min(-(-wanted // down), panels)
            else:  # each piece packs its panels
                down = parts if wanted > 1 else down
                across = min(-(-wanted // down), panels)
                down = max(down, -(-wanted // across))
            down = min(down, blocks)
        height = round_up(-(-given.rows // down), block.rows)
        # Sums of several parts stay in the L2 cache.
        size = height * given.columns * np.dtype(given.terms.sums).itemsize
        across = max(across, min(-(-size // SUMS_BYTES), panels))
        span = -(-panels // across) * panel
        return min(height, given.rows), min(span, given.columns)

    def packed(self, b: Array) -> Array:
        """The packed panels of a second matrix, in memory of their own."""
        own = kernel(self.config, PackWriter)
        panels = new_lines(self.room["packed_panels"])
        frame = self._frame(own, 0, panels)
        frame[own.at["b"]] = machine().launch.address(b)
        own.start(frame)
        return panels

    def _frame(self, own: StagedKernel[Any], memory: int, panels: Array | None = None) -> Any:
        """The frame of one of the kernels, with shared memory at this address.

        ``panels`` are panels that were packed elsewhere.
        """
        given = self.given
        cut = (given.products * self.pieces, given.columns, 1, self.span)
        if own.writer.stages == PackWriter.stages:
            cut = (PIECES_OF_A_THREAD * self.many if self._shared else 1, 1, 1, 1)
        rooms = {}
        for name, size in self.room.items():
            rooms[name], memory = memory, memory + size
        if panels is not None:
            rooms["packed_panels"] = machine().launch.address(panels)
        numbers = {name: n for name, n in self.numbers.items() if name in own.at}
        return own.filled(cut, self.many, **numbers, **rooms)

    def __call__(self, a: Array, b: Array, out: Array) -> None:
        """Write the products to ``out``."""
        self.run(a=a, b=b, c=out)

    def run(self, **arrays: Array) -> None:
        """Compute the products of arrays, given by their names in the frame."""
        if self._whole is None:
            own = kernel(self.config, self.writer)
            self._whole = own, self._frame(own, 0)
        whole, template = self._whole
        at, address = whole.at, machine().launch.address
        frame = whole.frame.from_buffer_copy(template)
        if self.workspace:
            held = aligned("products", self.workspace)
            for name in self.room:
                frame[at[name]] += address(held)
        for name, array in arrays.items():
            frame[at[name]] = address(array)
        whole.start(frame)

    def new_jobs(
        self, step: int, workspace: int, likes: Any, panels: Array | None = None
    ) -> list[Any]:
        """The jobs of a segment's step on the arrays ``a``, ``b`` and the result.

        ``workspace`` is the address of aligned memory, and ``likes`` are the required layouts of
        the three. Packing is a separate job, unless ``panels`` are given.
        """
        own = {name: Operand(i, likes[i]) for i, name in enumerate(("a", "b", "c"))}
        if panels is not None:
            del own["b"]
            return [self._job(self.writers[-1], own, step, workspace, panels)]
        read = [{"b": own.pop("b")}, own] if self.config.ahead else [own]
        pairs = zip(self.writers, read, strict=True)
        return [self._job(writer, operands, step, workspace) for writer, operands in pairs]

    @property
    def writers(self) -> list[type[ProductWriter]]:
        """The writers of the kernels of its jobs."""
        return [PackWriter, PackedRowsWriter] if self.config.ahead else [self.writer]

    def member(self, rows: int) -> Any:
        """The job as part of a chain over rows of the first matrix and of the result."""
        given, chains = self.given, machine().chains
        if not self.config.ahead or given.products != 1 or given.rows != rows:
            return None
        of_a, of_c = (np.dtype(x).itemsize for x in (given.terms.a, given.terms.out))
        row = given.a[1] if given.a[2] == of_a else None
        accesses = (
            chains.Access(0, 0, row, given.depth * of_a, False),
            chains.Access(1, 0, None, 0, False, -1),
            chains.Access(2, 0, given.c[1], given.columns * of_c, True),
        )
        function = kernel(self.config, PackedRowsWriter).linked.pieces["multiply"]
        block = self.config.block.rows
        return chains.Member(rows, function, 1, 1, accesses, self._cut_anew, block)

    def _cut_anew(self, frame: Any, height: int) -> Any:
        """Set the rows of a job's pieces, with all columns."""
        at, given = kernel(self.config, PackedRowsWriter).at, self.given
        count = -(-given.rows // height)
        frame[at["piece_rows"]], frame[at["row_pieces"]] = height, count
        return machine().chains.Ranges(1, count, 1, 0, given.columns)

    def _job(
        self,
        writer: type[ProductWriter],
        operands: dict[str, Operand],
        step: int,
        memory: int,
        panels: Array | None = None,
    ) -> Any:
        own = kernel(self.config, writer)
        found = own.job(self._frame(own, memory, panels), operands, step, panels)
        found.prepares = self.repeated and writer is PackWriter
        return found


class FixedProduct:
    """Products of arrays of known shapes and strides, for a plan's segment."""

    def __init__(self, call: ProductCall, likes: Sequence[Like]) -> None:
        self.call, self.likes = call, likes
        for writer in call.writers:  # compiled from now on
            kernel(call.config, writer)

    @property
    def workspace(self) -> int:
        """Bytes of memory that all threads share during a run."""
        return self.call.workspace

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """Its jobs."""
        return self.call.new_jobs(step, workspace, self.likes)

    @property
    def chain_rows(self) -> int | None:
        """The rows of a chain that can begin with it."""
        alone = self.call.config.ahead and self.call.given.products == 1
        return self.call.given.rows if alone else None

    @property
    def movable(self) -> bool:
        """Whether it may be reordered with its neighbors."""
        return True

    def member(self, rows: int) -> Any:
        """The call as part of a chain over rows; None if its rows do not match."""
        return self.call.member(rows)

    def repeated(self) -> FixedProduct:
        """The call for many matrices with the same second one."""
        return FixedProduct(prepared(self.call.given, threads.thread_count(), True), self.likes)

    def held(self, b: Array) -> FixedProduct:
        """The call with a constant ``b``: 8-bit integers are packed in advance.

        Packing takes a quarter of the time of multiplying 30 rows.
        """
        given = self.call.given
        if given.terms.b != "int8" or (given.products > 1 and given.b[0]):
            return self
        call = prepared(given, threads.thread_count(), True)
        return HeldProduct(call, self.likes, call.packed(b))


class HeldProduct(FixedProduct):
    """Products by a constant with packed panels."""

    chain_rows = None

    def __init__(self, call: ProductCall, likes: Sequence[Like], panels: Array) -> None:
        super().__init__(call, likes)
        self.panels = panels

    @property
    def workspace(self) -> int:
        """Bytes of memory that all threads share during a run."""
        return self.call.room["sums"]

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """Its single job."""
        return self.call.new_jobs(step, workspace, self.likes, self.panels)

    def member(self, rows: int) -> Any:
        """Not part of chains."""

    def repeated(self) -> FixedProduct:
        """The call itself: nothing is packed in advance."""
        return self


@kept
def prepared(given: Matrices, thread_count: int, repeated: bool = False) -> ProductCall:
    """The call for matrices of these layouts."""
    return ProductCall(given, repeated)


def takes(a: Array, b: Array, out: Any = None) -> bool:
    """Whether there are kernels for matrices of these dtypes; ``out`` is the product's."""
    names = [dtype_name(x) for x in (a.dtype, b.dtype, out or a.dtype)]
    return generated.enabled() and terms_of(*names) is not None


def is_thin(a: Array, b: Array) -> bool:
    """Whether a product of matrices is bound by memory, for any kernel."""
    return bool(min(a.shape[-2], b.shape[-1]) <= MAX_COLUMNS)


def multiply(a: Array, b: Array, out: Array) -> Array:
    """``a @ b`` for stacks of matrices, into ``out``, for dtypes supported by ``takes``.

    Those are float32 and float64; float16 and bfloat16, whose sums are float32, rounded once if
    ``out`` is not float32; int8, or uint8 and int8, with sums of int32, which wrap; int8 or uint8
    alone, whose sums wrap. The axes before the last two of both broadcast to those of ``out``.
    """
    if not out.size:
        return out
    if not a.shape[-1]:
        out.fill(0)
        return out
    few = thin(a, b, out)
    if few is not None:
        few.run()
        return out
    found = matrices(a, b, out)
    if found is None:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        aim = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        found = matrices(a, b, aim)
        if found is None:  # stacks that broadcast along other axes than the first ones
            a, b = (
                np.ascontiguousarray(np.broadcast_to(x, out.shape[:-2] + x.shape[-2:]))
                for x in (a, b)
            )
            found = matrices(a, b, aim)
            assert found is not None, "stacks of contiguous matrices have one stride each"
    else:
        aim = out
    prepared(found, threads.thread_count())(a, b, aim)
    if aim is not out:
        out[...] = aim
    return out


def fixed(a: Array, b: Array, out: Array) -> FixedProduct | FixedStages | None:
    """The call for a product of such arrays in a segment; None if no kernel supports them."""
    if not (takes(a, b, out.dtype) and out.size and a.shape[-1]):
        return None
    likes = like(a, b, out)
    a, b, out = as_matrices(a, b, out)
    few = thin(a, b, out)
    if few is not None:
        places = (1, 0, 2) if is_turned(a, b) else (0, 1, 2)
        names = zip("abc", places, strict=True)
        return few.placed({name: Operand(i, likes[i]) for name, i in names})
    given = matrices(a, b, out)
    return None if given is None else FixedProduct(prepared(given, threads.thread_count()), likes)


def as_matrices(a: Array, b: Array, out: Array) -> tuple[Array, Array, Array]:
    """Factors and result, with vectors viewed as matrices of one row or column."""
    if a.ndim < 2:
        a, out = a[None], out[..., None, :] if b.ndim > 1 else out[..., None]
    if b.ndim < 2:
        b, out = b[:, None], out[..., None]
    return a, b, out
