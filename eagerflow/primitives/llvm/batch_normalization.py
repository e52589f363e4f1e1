"""Batch normalization of channels-last arrays as LLVM's code.

Each piece of rows is read once for its sums, from which a number near its mean is subtracted:
the mean of its first rows. The sums of all pieces are joined in float64, in their order, and each
piece is read once more for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.primitives.llvm.vectors import VectorWriter

ROWS_PER_SAMPLE = 16  # of so many rows one tells where the numbers of a piece lie
MAX_BLOCK_VECTORS = 4  # of channels that are worked on together


class BatchNormConfig(NamedTuple):
    """What a kernel depends on."""

    dtype: str
    channels: int
    lanes: int
    scaled: bool
    shifted: bool
    gradient: bool


class BatchNormWriter(StageWriter):
    """Writes the stages: ``measure`` adds up pieces, ``join`` joins them, ``apply`` computes."""

    stages = ("measure", "join", "apply")
    slots = (
        "x",
        "g",
        "y",
        "scale",
        "offset",
        "of_mean",
        "of_variance",
        "first",
        "second",
        "sums",
        "lines",
        "numbers",
    )
    """``first`` and ``second`` are the results for each channel, ``numbers`` epsilon and the number
    of rows in float64; ``sums`` and ``lines`` are memory to work in.
    """

    def __init__(self, code: Any, frame: Sequence[str], config: BatchNormConfig) -> None:
        super().__init__(code, frame, config.dtype, config.lanes)
        self.config = config
        self.exact = VectorWriter(code, "float64", config.lanes)
        self.line = config.channels * self.v.itemsize
        self.vectors = config.channels // config.lanes
        most = min(MAX_BLOCK_VECTORS, self.vectors)
        self.wide = next(n for n in range(most, 0, -1) if self.vectors % n == 0)
        self.kinds = 5 if config.gradient else 3  # near, two sums of x, two of g

    def _blocks(self, first: str, last: str, wide: int, body: Callable[[str], None]) -> None:
        """Call ``body(offset)`` for blocks of ``wide`` vectors of channels."""
        with self.code.loop("channels", first, last) as (block, _):
            body(self.v.number("mul", block, wide * self.v.size))

    def _rows(
        self,
        count: str,
        unrolled: int,
        sums: list[str],
        body: Callable[[str, list[str]], list[str]],
    ) -> list[str]:
        """Sums over rows; ``body(row, sums)`` gives the next ones.

        There is a list of them for each of ``unrolled`` rows; they are added up at the end.
        """
        v, size = self.v, len(sums)
        whole = v.number("and", count, -unrolled)
        with v.loop("row", "0", whole, unrolled, sums * unrolled) as (row, held):
            for at in range(unrolled):
                own = slice(at * size, (at + 1) * size)
                held[own] = body(v.number("add", row, at) if at else row, held[own])
        if unrolled > 1:
            with v.loop("row", whole, count, 1, held) as (row, held):
                held[:size] = body(row, held[:size])
        while len(held) > size:
            half = len(held) // 2
            held = [v.add(a, b) for a, b in zip(held[:half], held[half:], strict=True)]
        return held

    # Sums ----------------------------------------------------------------------------------------

    def _measure(self) -> None:
        v = self.v
        count = v.number("sub", "%r1", "%r0")
        to = v.step(self.pointer("sums"), self.piece(), self.kinds * self.line)
        x = v.step(self.pointer("x"), "%r0", self.line)
        g = v.step(self.pointer("g"), "%r0", self.line) if self.config.gradient else ""
        few = v.number("add", v.number("udiv", count, ROWS_PER_SAMPLE), 1)
        small = self.code.value(f"icmp ult i64 {few}, {count}")
        few = self.code.value(f"select i1 {small}, i64 {few}, i64 {count}")
        share = self._one_over(few)

        def block(at: str) -> None:
            near = self._near(v.at(x, at), few, share)
            start = v.at(to, at)
            for j, own in enumerate(near):
                v.store(own, start, j * v.size)
            found = self._piece_sums(v.at(x, at), v.at(g, at) if g else "", count, near)
            for kind in range(self.kinds - 1):
                for j in range(self.wide):
                    total = found[kind * self.wide + j]
                    v.store(total, start, (kind + 1) * self.line + j * v.size)

        self._blocks("0", str(self.vectors // self.wide), self.wide, block)

    def _one_over(self, count: str) -> str:
        """1 / count in all lanes."""
        v, code = self.v, self.code
        number = code.value(f"uitofp i64 {count} to {v.element}")
        share = code.value(f"fdiv {v.element} 1.0, {number}")
        return v.splat(share)

    def _near(self, x: str, count: str, share: str) -> list[str]:
        """The means of the first rows."""
        v = self.v

        def row(at: str, sums: list[str]) -> list[str]:
            start = v.step(x, at, self.line)
            return [v.add(s, v.load(start, j * v.size)) for j, s in enumerate(sums)]

        return [v.multiply(s, share) for s in self._rows(count, 1, [v.zero] * self.wide, row)]

    def _piece_sums(self, x: str, g: str, count: str, near: list[str]) -> list[str]:
        """Sums of deviations and of their squares; of g, and of its products with them."""
        v, wide = self.v, self.wide

        def row(at: str, sums: list[str]) -> list[str]:
            start = v.step(x, at, self.line)
            apart = [v.subtract(v.load(start, j * v.size), near[j]) for j in range(wide)]
            found = [v.add(s, a) for s, a in zip(sums[:wide], apart, strict=True)]
            squares = sums[wide : 2 * wide]
            found += [v.fma(a, a, s) for s, a in zip(squares, apart, strict=True)]
            if g:
                other = v.step(g, at, self.line)
                given = [v.load(other, j * v.size) for j in range(wide)]
                totals, products = sums[2 * wide : 3 * wide], sums[3 * wide :]
                found += [v.add(s, h) for s, h in zip(totals, given, strict=True)]
                found += [v.fma(h, a, s) for s, h, a in zip(products, given, apart, strict=True)]
            return found

        unrolled = {1: 4, 2: 2}.get(wide, 1)
        return self._rows(count, unrolled, [v.zero] * (wide * (self.kinds - 1)), row)

    # Together ------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Each piece joins its share of the channels."""
        v, code = self.v, self.code
        rows, height = (self.argument(name) for name in ("rows", "height"))
        _, count, first, last = self.share(self.vectors)
        self.numbers = self.pointer("numbers")
        self.count = self.exact.load_splat(self.numbers, 8)
        before = v.number("mul", v.number("sub", count, 1), height)
        sizes = [
            self.exact.splat(code.value(f"uitofp i64 {size} to double"))
            for size in (height, v.number("sub", rows, before))
        ]
        sums, final = self.pointer("sums"), v.number("sub", count, 1)
        self.targets = {
            name: self.pointer(name)
            for name in ("first", "second", "lines", "scale", "offset", "of_mean", "of_variance")
        }

        def block(at: str) -> None:
            start = v.at(sums, at)
            mean, total, squares, products = self._totals(start, final, sizes)
            (self._gradient if self.config.gradient else self._training)(
                at, mean, squares, total, products
            )

        self._blocks(first, last, 1, block)

    def _wide(self, place: str, offset: str | int = 0) -> str:
        """A vector of the arrays' type, as float64."""
        return self._widened(self.v.load(place, offset))

    def _widened(self, value: str) -> str:
        if self.v.dtype == "float64":
            return value
        found: str = self.code.value(f"fpext {self.v.type} {value} to {self.exact.type}")
        return found

    def _store(self, value: str, place: str, offset: str | int = 0) -> str:
        """Write float64 in the arrays' type; what was written."""
        if self.v.dtype != "float64":
            value = self.code.value(f"fptrunc {self.exact.type} {value} to {self.v.type}")
        self.v.store(value, place, offset)
        return value

    def _totals(self, start: str, final: str, sizes: list[str]) -> tuple[str, str, str, str]:
        """Mean, sum of g, sums of squared deviations and of g times deviations."""
        e, line = self.exact, self.line
        total = self._over_pieces(
            start,
            final,
            sizes,
            1 + self.config.gradient,
            lambda near, at, size, sums: [
                e.add(sums[0], e.fma(near, size, self._wide(at, line))),
                *([e.add(sums[1], self._wide(at, 3 * line))] if self.config.gradient else []),
            ],
        )
        mean = e.divide(total[0], self.count)

        def around(near: str, at: str, size: str, sums: list[str]) -> list[str]:
            apart = e.subtract(near, mean)
            own = self._wide(at, line)
            # sum (x - mean)^2 = sum (x - near)^2 + apart (2 sum (x - near) + apart size)
            more = e.fma(apart, size, e.add(own, own))
            found = [e.add(sums[0], e.fma(apart, more, self._wide(at, 2 * line)))]
            if self.config.gradient:
                part = e.fma(apart, self._wide(at, 3 * line), self._wide(at, 4 * line))
                found.append(e.add(sums[1], part))
            return found

        beyond = self._over_pieces(start, final, sizes, 1 + self.config.gradient, around)
        return mean, total[-1], beyond[0], beyond[-1]

    def _over_pieces(
        self,
        start: str,
        final: str,
        sizes: list[str],
        many: int,
        body: Callable[[str, str, str, list[str]], list[str]],
    ) -> list[str]:
        """Sums over all pieces; the last one has a size of its own."""
        v, e = self.v, self.exact
        with e.loop("piece", "0", final, 1, [e.zero] * many) as (i, held):
            at = v.step(start, i, self.kinds * self.line)
            held[:] = body(self._wide(at), at, sizes[0], held)
        at = v.step(start, final, self.kinds * self.line)
        return body(self._wide(at), at, sizes[1], held)

    def _factor(self, squares: str) -> tuple[str, str]:
        """The variance, and 1 / sqrt(variance + epsilon)."""
        e = self.exact
        variance = e.divide(squares, self.count)
        root = e.sqrt(e.add(variance, e.load_splat(self.numbers)))
        return variance, e.divide(e.constant(1), root)

    def _places(self, at: str, *names: str) -> list[str]:
        return [self.v.at(self.targets[name], at) for name in names]

    def _rest(self, mean: str, line: str) -> str:
        """Store a number near the mean; what is left of it."""
        return self.exact.subtract(mean, self._widened(self._store(mean, line)))

    def _training(self, at: str, mean: str, squares: str, *_: str) -> None:
        e, config = self.exact, self.config
        of_mean, of_variance, scale, offset, line = self._places(
            at, "first", "second", "scale", "offset", "lines"
        )
        variance, factor = self._factor(squares)
        self._store(mean, of_mean)
        self._store(variance, of_variance)
        if config.scaled:
            factor = e.multiply(factor, self._wide(scale))
        shift = e.subtract(e.zero, e.multiply(self._rest(mean, line), factor))
        if config.shifted:
            shift = e.add(shift, self._wide(offset))
        self._store(factor, line, self.line)
        self._store(shift, line, 2 * self.line)

    def _gradient(self, at: str, mean: str, squares: str, total: str, products: str) -> None:
        e, config = self.exact, self.config
        of_scale, of_offset, scale, of_mean, of_variance, line = self._places(
            at, "first", "second", "scale", "of_mean", "of_variance", "lines"
        )
        _, factor = self._factor(squares)
        slope = e.multiply(products, factor)
        self._store(slope, of_scale)
        self._store(total, of_offset)
        weight = e.multiply(factor, self._wide(scale)) if config.scaled else factor
        twice = e.add(known := self._wide(of_variance), known)
        slope = e.subtract(twice, e.multiply(e.multiply(weight, factor), slope))
        level = e.subtract(self._wide(of_mean), e.multiply(weight, total))
        slope, level = e.divide(slope, self.count), e.divide(level, self.count)
        level = e.subtract(level, e.multiply(self._rest(mean, line), slope))
        for i, value in enumerate((weight, slope, level), 1):
            self._store(value, line, i * self.line)

    # Results -------------------------------------------------------------------------------------

    def _apply(self) -> None:
        v, gradient = self.v, self.config.gradient
        count = v.number("sub", "%r1", "%r0")
        names = ("x", "y", "g") if gradient else ("x", "y")
        starts = {name: v.step(self.pointer(name), "%r0", self.line) for name in names}
        lines = self.pointer("lines")

        def block(at: str) -> None:
            known = [
                [v.load(v.at(lines, at), k * self.line + j * v.size) for j in range(self.wide)]
                for k in range(4 if gradient else 3)
            ]

            def row(number: str, _: list[str]) -> list[str]:
                start = v.number("add", v.number("mul", number, self.line), at)
                places = {name: v.at(where, start) for name, where in starts.items()}
                for j in range(self.wide):
                    value = v.subtract(v.load(places["x"], j * v.size), known[0][j])
                    if gradient:
                        value = v.fma(value, known[2][j], known[3][j])
                        given = v.load(places["g"], j * v.size)
                        value = v.fma(given, known[1][j], value)
                    else:
                        value = v.fma(value, known[1][j], known[2][j])
                    v.store(value, places["y"], j * v.size)
                return []

            self._rows(count, 2 if self.wide < MAX_BLOCK_VECTORS else 1, [], row)

        self._blocks("0", str(self.vectors // self.wide), self.wide, block)
