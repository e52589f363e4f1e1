"""Functions of pieces of work in LLVM IR: the common base of all primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from eagerflow.primitives.llvm.vectors import RegisterBlock, VectorWriter

CACHE_LINE_BYTES = 64


class StageWriter:
    """Writes the stages of a kernel: functions of a piece, a range of rows and a range of columns.

    A stage begins when all pieces of the previous one are complete. ``frame`` are the names of the
    frame's entries: numbers of the driver, then ``slots``. Lengths are in bytes, except counts.
    """

    stages: ClassVar[tuple[str, ...]]
    """Names of the stages; ``_name`` writes the stage ``name``."""
    repeated: ClassVar[frozenset[str]] = frozenset()
    """Stages that are run turn by turn; their functions also take the number of the ``turn``."""
    slots: ClassVar[tuple[str, ...]]
    """The arguments of a call by name: numbers, or arrays, which are passed as addresses."""

    def __init__(self, llvm: Any, frame: Sequence[str], dtype: str, lanes: int) -> None:
        self.lanes, self.frame = lanes, frame
        self.v = VectorWriter(llvm, dtype, lanes)
        if llvm is not None:
            self.code, self.s = self.v.code, self.v.s

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        return 0

    def module(self) -> str:
        """The code of all stages."""
        for name in self.stages:
            numbers = ["r0", "r1", "c0", "c1", *(["turn"] if name in self.repeated else [])]
            ranges = ", ".join(f"i64 %{x}" for x in numbers)
            with self.code.function(f"{name}({ranges}, ptr %frame, ptr %scratch)"):
                getattr(self, f"_{name}")()
        return str(self.code.text())

    def argument(self, name: str, kind: str = "i64") -> str:
        """A number of the frame."""
        return str(self.code.word(kind, "%frame", self.frame.index(name)))

    def pointer(self, name: str) -> str:
        """An address of the frame."""
        return self.argument(name, "ptr")

    def piece(self) -> str:
        """The index of the piece that a function is called for."""
        v = self.v
        row = v.number("udiv", "%r0", self.argument("height"))
        column = v.number("udiv", "%c0", self.argument("span"))
        line = v.number("mul", row, self.argument("blocks"))
        return v.number("add", line, column)

    def share(self, size: int | str) -> tuple[str, str, str, str]:
        """The piece's index, the number of pieces, and its own share of ``size``."""
        v, piece, count = self.v, self.piece(), self.argument("count")
        ends = [v.number("mul", v.number("add", piece, i), size) for i in (0, 1)]
        first, last = (v.number("udiv", end, count) for end in ends)
        return piece, count, first, last

    def least(self, a: str, b: str) -> str:
        """The smaller one of two counts."""
        return str(self.s.minimum(self.v.count(a), self.v.count(b)).text)

    def most(self, a: str, b: str) -> str:
        """The larger one of two counts."""
        return str(self.s.maximum(self.v.count(a), self.v.count(b)).text)

    def masks(self, panel: str, vectors: int, size: int) -> list[str]:
        """For each vector of a panel the mask of elements below ``size``; "" if all are."""
        v = self.v
        if size % self.lanes == 0:
            return [""] * vectors
        first = v.number("mul", panel, vectors * self.lanes)
        left = (v.number("sub", size - j * self.lanes, first) for j in range(vectors))
        return [self.s.less(v.memory.iota, v.count(number)).text for number in left]

    def parts(self, size: int, one: Callable[[str, int], None], unrolled: int = 1) -> None:
        """Call ``one(offset, count)`` for whole vectors, and for the remainder.

        ``unrolled`` calls are emitted without a loop, more of them within one.
        """
        v, (whole, rest) = self.v, divmod(size, self.lanes)
        looped = whole // unrolled * unrolled
        if looped > unrolled or (looped and unrolled == 1):
            with self.code.loop("part", 0, looped, unrolled) as (i, _):
                start = v.number("mul", i, v.size)
                for j in range(unrolled):
                    one(v.number("add", start, j * v.size) if j else start, self.lanes)
        else:
            looped = 0
        for j in range(looped, whole):
            one(str(j * v.size), self.lanes)
        if rest:
            one(str(whole * v.size), rest)

    def store_block(
        self, block: RegisterBlock, values: list[Any], to: str, line: int, add: bool = False
    ) -> None:
        """Store a block with rows ``line`` apart, or add it to memory."""
        for number, value in enumerate(values):
            row, column = divmod(number, block.vectors)
            at = row * line + column * self.v.size
            self.v.store(self.s.add(self.v.load(to, at), value) if add else value, to, at)
