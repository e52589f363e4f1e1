"""Common parts of recurrent kernels, in LLVM IR.

Units lie along the lanes of vectors. A block is a few vectors of units with all their gates, with
sums in registers for a few examples at once: each element of an example's row is multiplied with
its line of weights. Weights are packed in this order, block by block. The step's elementwise part
follows immediately.

In one turn of the stage ``steps``, threads compute either a part of the units of one step, or all
steps of a part of the examples. The bits are the same: each sum is independent, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock
from eagerflow.primitives.recurrent_cells import CELLS, Values

STATES = ("h", "c")
NUMBERS = ("steps", "turn_steps", "start", "stride")
"""The scalar arguments: the number of steps, and of steps in a turn; the time of the first one, and
the distance to the next."""


class RecurrenceConfig(NamedTuple):
    """The parameters of a kernel."""

    dtype: str
    cell: str
    units: int
    width: int
    """Features of the inputs."""
    ahead: RegisterBlock | None
    """Of inputs with products computed before all steps: their register block."""
    lanes: int
    vectors: int
    """Vectors of units in a block."""
    rows: int
    """Examples in a block, at most."""
    kept: bool
    """Whether there is an array of gate values: written forward, read by the gradient."""
    masked: bool
    biased: bool
    given: tuple[bool, ...]
    """Which initial states are given; the others are zeros."""
    by_cells: bool = False
    """Whether there are gradients of the cell states of all steps."""
    streamed: bool = False
    """Whether gate values, which are many, bypass the caches."""


class Place(NamedTuple):
    """A vector of units of one example and step."""

    row: str
    """The example."""
    time: str
    """Its step, counted through all examples."""
    before: str
    """The step before, if there is one."""
    units: str
    """Byte offset of the block's units."""
    vector: int
    mask: str


class RecurrenceWriter(StageWriter):
    """Common parts of both kernels.

    Subclasses define ``planes``, the number of planes per unit by which examples pass state to the
    next step, and ``sums``, the number of sums per unit.
    """

    stages: ClassVar[tuple[str, ...]] = ("weights", "steps")
    repeated = frozenset({"steps"})
    onward: ClassVar[bool]
    """Whether steps are in the order of the network."""
    begun = False
    """Whether state is passed to the first step."""
    planes: int
    sums: int

    def __init__(self, llvm: Any, frame: Sequence[str], config: RecurrenceConfig) -> None:
        super().__init__(llvm, frame, config.dtype, config.lanes)
        self.config, self.cell = config, CELLS[config.cell]
        self.blocks = -(-config.units // (config.lanes * config.vectors))
        self.block_bytes = config.vectors * self.v.size
        self.plane_bytes = self.blocks * self.block_bytes
        self.unit_bytes = config.units * self.v.itemsize

    @property
    def line(self) -> int:
        """Bytes of the weights of one row element in a block."""
        raise NotImplementedError

    @property
    def depth(self) -> int:
        """Elements of a row."""
        raise NotImplementedError

    @property
    def packed(self) -> int:
        """Bytes of the packed weights."""
        return self.blocks * self.depth * self.line

    @property
    def handed(self) -> int:
        """Bytes that an example passes to the next step."""
        return self.planes * self.plane_bytes

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread: for the sums of a block."""
        return self.config.rows * self.sums * self.block_bytes

    def module(self) -> str:
        """The code of all stages, and of products for blocks of each height."""
        for height in range(1, self.config.rows + 1):
            given = "ptr %rows, ptr %x, i64 %x_row, ptr %weights, i64 %count, ptr %sums"
            with self.code.function(f"product{height}({given})"):
                block = RegisterBlock(height, self.sums * self.config.vectors)
                found = self._product(height, self.v.no_sums(block))
                self.store_block(block, found, "%sums", self.sums * self.block_bytes)
        return super().module()

    # Products ------------------------------------------------------------------------------------

    def _product(self, height: int, sums: Values) -> Values:
        """The addends of sums for ``height`` rows; sums are ordered by row, then by k."""
        raise NotImplementedError

    def _accumulate(
        self, sums: Values, which: list[int], rows: list[str], size: str | int, lines: str
    ) -> None:
        """Add the products of each row's elements with their lines to some of the row's sums."""
        v, many = self.v, self.config.vectors
        own = [
            (r * self.sums + k) * many + j
            for r in range(len(rows))
            for k in which
            for j in range(many)
        ]
        found = v.accumulate(
            RegisterBlock(len(rows), len(which) * many),
            [sums[at] for at in own],
            size,
            lambda k, r: (v.step(rows[r], k, v.itemsize), 0),
            lambda k: v.step(lines, k, self.line),
        )
        for at, value in zip(own, found, strict=True):
            sums[at] = value

    # Steps ---------------------------------------------------------------------------------------

    def _steps(self) -> None:
        v, code = self.v, self.code
        names = [name for name in self.slots if name not in NUMBERS]
        self.pointers = {name: self.pointer(name) for name in names}
        self.numbers = {name: self.argument(name) for name in (*NUMBERS, "rows")}
        first = v.number("mul", "%turn", self.numbers["turn_steps"])
        last = v.number("add", first, self.numbers["turn_steps"])
        stride = self.numbers["stride"]
        size = v.number("mul", self.numbers["rows"], self.handed)
        with code.loop("step", first, self.least(last, self.numbers["steps"])) as (step, _):
            time = v.number("add", self.numbers["start"], v.number("mul", step, stride))
            before = v.number("sub" if self.onward else "add", time, stride)
            odd = v.number("and", step, 1)
            planes = [
                v.step(self.pointers["handed"], at, size) for at in (odd, v.number("xor", odd, 1))
            ]
            with code.loop("block", "%c0", "%c1") as (block, _):
                self._block(step, time, before, block, planes)

    def _block(self, step: str, time: str, before: str, block: str, planes: list[str]) -> None:
        """Compute a block of units: all examples of the piece, in parts of even heights."""
        v, code, config = self.v, self.code, self.config
        weights = v.step(self.pointers["weights"], block, self.depth * self.line)
        units = v.number("mul", block, self.block_bytes)
        masks = self.masks(block, config.vectors, config.units)
        with self._even_parts("%r0", "%r1", config.rows) as (first, last):
            self._call_product(step, time, first, v.number("sub", last, first), planes[0], weights)
            with code.loop("row", first, last) as (row, _):
                sums = v.number("sub", row, first)
                sums = v.step("%scratch", sums, self.sums * self.block_bytes)
                at = v.number("mul", row, self.numbers["steps"])
                now, earlier = (v.number("add", at, x) for x in (time, before))
                place = Place(row, now, earlier, units, 0, "")
                for j, mask in enumerate(masks):
                    found = [
                        v.load(sums, k * self.block_bytes + j * v.size) for k in range(self.sums)
                    ]
                    self._vector(place._replace(vector=j, mask=mask), step, found, planes)

    def _call_product(
        self, step: str, time: str, first: str, height: str, rows: str, weights: str
    ) -> None:
        """Store the sums of a few examples, from ``first`` on, in the thread's memory."""
        v, code, size = self.v, self.code, self.config.width * self.v.itemsize
        count = str(self.config.units)
        if not self.begun:
            begun = code.value(f"icmp ne i64 {step}, 0")
            count = code.value(f"select i1 {begun}, i64 {count}, i64 0")
        x, x_row = "null", "0"
        if "x" in self.pointers:
            x_row = v.number("mul", self.numbers["steps"], size)
            x = v.step(v.step(self.pointers["x"], first, x_row), time, size)
        rows = v.step(rows, first, self.handed)
        given = f"ptr {rows}, ptr {x}, i64 {x_row}, ptr {weights}, i64 {count}, ptr %scratch"
        self._call_for(height, self.config.rows, "product", given)

    def _vector(self, place: Place, step: str, sums: Values, planes: list[str]) -> None:
        """The elementwise step of a vector of units, from its sums and the planes of two steps."""
        raise NotImplementedError

    @contextmanager
    def _even_parts(self, first: str, last: str, most: int) -> Iterator[tuple[str, str]]:
        """A loop over the parts of a range, of even and bounded sizes; yields their bounds."""
        v = self.v
        count = v.number("sub", last, first)
        parts = v.number("udiv", v.number("add", count, most - 1), most)
        with self.code.loop("part", 0, parts) as (part, _):
            ends = [v.number("mul", x, count) for x in (part, v.number("add", part, 1))]
            begin, end = (v.number("add", first, v.number("udiv", x, parts)) for x in ends)
            yield begin, end

    def _call_for(self, height: str, most: int, name: str, given: str) -> None:
        """Call the function for a number of rows."""
        for many in range(1, most + 1):
            with self.code.where(self.code.value(f"icmp eq i64 {height}, {many}")):
                self.code.line(f"call void @{name}{many}({given})")

    # Vectors of arrays ---------------------------------------------------------------------------

    def _at(self, name: str, number: str, place: Place, column: int = 0, columns: int = 1) -> str:
        """The address in an array with ``columns`` elements for each unit, in numbered rows."""
        v = self.v
        here = v.step(self.pointers[name], number, columns * self.unit_bytes)
        return v.at(v.at(here, place.units), column * self.unit_bytes + place.vector * v.size)

    def _store_values(self, values: Values, name: str, place: Place) -> None:
        """Store gate values in the array of all gates."""
        columns = len(values)
        for k, value in enumerate(values):
            at = self._at(name, place.time, place, k, columns)
            if self.config.streamed:
                self.v.stream(value, at)
            else:
                self.v.store(value, at, mask=place.mask)

    def _in_plane(self, plane: str, place: Place, k: int = 0, size: int = 0) -> str:
        """The address in the k-th plane, in which an example has ``size`` bytes."""
        v = self.v
        here = v.at(v.step(plane, place.row, size or self.handed), place.units)
        return v.at(here, k * self.plane_bytes + place.vector * v.size)

    def _seen(self, place: Place) -> Any:
        """Whether a step of an example is unmasked."""
        return self.v.memory.load_one(self.v.at(self.pointers["mask"], place.time), "bool")
