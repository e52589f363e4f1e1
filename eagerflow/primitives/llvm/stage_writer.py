"""Functions of pieces of work, as LLVM's code: what all primitives are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from eagerflow.primitives.llvm.vectors import RegisterBlock, VectorWriter, splat

CACHE_LINE_BYTES = 64


class StageWriter:
    """Writes the stages of a kernel: functions of a piece, a range of rows and one of columns.

    A stage is begun when all pieces of the one before are complete. ``frame`` are the names of
    what the functions find in the frame: numbers of the driver, then ``slots``. Lengths are in
    bytes unless they count something.
    """

    stages: ClassVar[tuple[str, ...]]
    """Names of the stages; ``_name`` writes what the stage ``name`` does."""
    slots: ClassVar[tuple[str, ...]]
    """What a call gives by name: numbers, or arrays, whose addresses the functions find."""

    def __init__(self, code: Any, frame: Sequence[str], dtype: str, lanes: int) -> None:
        self.code, self.lanes, self.frame = code, lanes, frame
        self.v = VectorWriter(code, dtype, lanes)

    @property
    def scratch(self) -> int:
        """Bytes that each thread needs to work in."""
        return 0

    def module(self) -> str:
        """The text of all stages."""
        ranges = ", ".join(f"i64 %{x}" for x in ("r0", "r1", "c0", "c1"))
        for name in self.stages:
            head = f"define void @{name}({ranges}, ptr %frame, ptr %scratch) nounwind {{"
            self.code.lines.append(head)
            self.code.label("entry")
            getattr(self, f"_{name}")()
            self.code.line("ret void")
            self.code.lines.append("}")
        return "\n".join([*self.code.lines, *self.code.declarations.values(), ""])

    def argument(self, name: str) -> str:
        """A number of the frame."""
        return self.v.argument(self.frame.index(name))

    def pointer(self, name: str) -> str:
        """An address of the frame."""
        return self.v.pointer(self.frame.index(name))

    def piece(self) -> str:
        """The number of the piece that a function is called for."""
        v, value = self.v, self.code.value
        row = value(f"udiv i64 %r0, {self.argument('height')}")
        column = value(f"udiv i64 %c0, {self.argument('span')}")
        line = v.number("mul", row, self.argument("blocks"))
        return v.number("add", line, column)

    def share(self, size: int) -> tuple[str, str, str, str]:
        """The piece's number, how many there are, and which ones of ``size`` are its own."""
        v, piece, count = self.v, self.piece(), self.argument("count")
        ends = [v.number("mul", v.number("add", piece, i), size) for i in (0, 1)]
        first, last = (self.code.value(f"udiv i64 {end}, {count}") for end in ends)
        return piece, count, first, last

    def least(self, a: str, b: str) -> str:
        """The smaller one of two counts."""
        below = self.code.value(f"icmp ult i64 {a}, {b}")
        return self.code.value(f"select i1 {below}, i64 {a}, i64 {b}")

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """What is written in this context is done where a condition holds; "" always does."""
        if not condition:
            yield
            return
        then, end = self.code.name("then_"), self.code.name("end_")
        self.code.line(f"br i1 {condition}, label %{then}, label %{end}")
        self.code.label(then)
        yield
        self.code.line(f"br label %{end}")
        self.code.label(end)

    def masks(self, panel: str, vectors: int, size: int) -> list[str]:
        """For each vector of a panel the mask of elements below ``size``; "" where all are."""
        v, code = self.v, self.code
        if size % self.lanes == 0:
            return [""] * vectors
        first = v.number("mul", panel, vectors * self.lanes)
        numbers = ", ".join(f"i64 {i}" for i in range(self.lanes))
        kind, masks = f"<{self.lanes} x i64>", []
        for j in range(vectors):
            left = splat(code, "i64", self.lanes, v.number("sub", size - j * self.lanes, first))
            masks.append(code.value(f"icmp slt {kind} <{numbers}>, {left}"))
        return masks

    def parts(self, size: int, one: Callable[[str, int], None]) -> None:
        """Call ``one(offset, count)`` in a loop over whole vectors, and for what is left."""
        whole, rest = divmod(size, self.lanes)
        if whole:
            with self.code.loop("part", "0", str(whole)) as (i, _):
                one(self.v.number("mul", i, self.v.size), self.lanes)
        if rest:
            one(str(whole * self.v.size), rest)

    def store_block(self, block: RegisterBlock, values: list[str], to: str, line: int) -> None:
        """Write a block, whose rows are ``line`` apart."""
        for i in range(block.rows):
            for j in range(block.vectors):
                self.v.store(values[i * block.vectors + j], to, i * line + j * self.v.size)

    def add_block(self, block: RegisterBlock, values: list[str], to: str, line: int) -> None:
        """Add a block to what is there."""
        for i in range(block.rows):
            for j in range(block.vectors):
                at = i * line + j * self.v.size
                total = self.v.add(self.v.load(to, at), values[i * block.vectors + j])
                self.v.store(total, to, at)
