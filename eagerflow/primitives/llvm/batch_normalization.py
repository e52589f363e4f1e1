"""Batch normalization of channels-last arrays in LLVM IR.

Each piece of rows is read once for its sums, shifted by an estimate of its mean: the mean of its
first rows. The sums of all pieces are combined in float64, in order, and each piece is read once
more for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter

ROWS_PER_SAMPLE = 16  # one in so many rows is sampled for the location of a piece's numbers
MAX_BLOCK_VECTORS = 4  # of channels that are processed together


class BatchNormConfig(NamedTuple):
    """The parameters of a kernel."""

    dtype: str
    channels: int
    lanes: int
    scaled: bool
    shifted: bool
    gradient: bool


class BatchNormWriter(StageWriter):
    """Writes the stages: ``measure`` sums pieces, ``join`` combines them, ``apply`` computes."""

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
    of rows in float64; ``sums`` and ``lines`` are working memory.
    """

    def __init__(self, llvm: Any, frame: Sequence[str], config: BatchNormConfig) -> None:
        super().__init__(llvm, frame, config.dtype, config.lanes)
        self.config = config
        self.line = config.channels * self.v.itemsize
        self.vectors = config.channels // config.lanes
        most = min(MAX_BLOCK_VECTORS, self.vectors)
        self.wide = next(n for n in range(most, 0, -1) if self.vectors % n == 0)
        self.kinds = 5 if config.gradient else 3  # near, two sums of x, two of g

    def _blocks(
        self, first: str | int, last: str | int, wide: int, body: Callable[[str], None]
    ) -> None:
        """Call ``body(offset)`` for blocks of ``wide`` vectors of channels."""
        with self.code.loop("channels", first, last) as (block, _):
            body(self.v.number("mul", block, wide * self.v.size))

    def _rows(
        self,
        count: str,
        unrolled: int,
        sums: list[Any],
        body: Callable[[str, list[Any]], list[Any]],
    ) -> list[Any]:
        """Sums over rows; ``body(row, sums)`` returns the next ones.

        There is a list of sums for each of ``unrolled`` rows; they are added at the end.
        """
        v, code, size = self.v, self.code, len(sums)
        whole = v.number("and", count, -unrolled)
        with code.loop("row", 0, whole, unrolled, sums * unrolled) as (row, held):
            for at in range(unrolled):
                own = slice(at * size, (at + 1) * size)
                held[own] = body(v.number("add", row, at) if at else row, held[own])
        if unrolled > 1:
            with code.loop("row", whole, count, 1, held) as (row, held):
                held[:size] = body(row, held[:size])
        while len(held) > size:
            half = len(held) // 2
            held = [self.s.add(a, b) for a, b in zip(held[:half], held[half:], strict=True)]
        return held

    # Sums ----------------------------------------------------------------------------------------

    def _measure(self) -> None:
        v = self.v
        count = v.number("sub", "%r1", "%r0")
        to = v.step(self.pointer("sums"), self.piece(), self.kinds * self.line)
        x = v.step(self.pointer("x"), "%r0", self.line)
        g = v.step(self.pointer("g"), "%r0", self.line) if self.config.gradient else ""
        few = v.number("add", v.number("udiv", count, ROWS_PER_SAMPLE), 1)
        few = self.least(few, count)
        share = self.s.divide(1, self.s.convert(v.count(few), v.dtype))
        share = self.s.splat(share, self.lanes)

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

        self._blocks(0, self.vectors // self.wide, self.wide, block)

    def _near(self, x: str, count: str, share: Any) -> list[Any]:
        """The means of the first rows; ``share`` is the inverse of their number."""
        v, s = self.v, self.s

        def row(at: str, sums: list[Any]) -> list[Any]:
            start = v.step(x, at, self.line)
            return [s.add(total, v.load(start, j * v.size)) for j, total in enumerate(sums)]

        return [
            s.multiply(total, share) for total in self._rows(count, 1, [v.zero] * self.wide, row)
        ]

    def _piece_sums(self, x: str, g: str, count: str, near: list[Any]) -> list[Any]:
        """Sums of deviations and of their squares; of g, and of its products with them."""
        v, s, wide = self.v, self.s, self.wide

        def row(at: str, sums: list[Any]) -> list[Any]:
            start = v.step(x, at, self.line)
            apart = [s.subtract(v.load(start, j * v.size), near[j]) for j in range(wide)]
            found = [s.add(total, a) for total, a in zip(sums[:wide], apart, strict=True)]
            squares = sums[wide : 2 * wide]
            found += [s.multiply_add(a, a, total) for total, a in zip(squares, apart, strict=True)]
            if g:
                other = v.step(g, at, self.line)
                given = [v.load(other, j * v.size) for j in range(wide)]
                totals, products = sums[2 * wide : 3 * wide], sums[3 * wide :]
                found += [s.add(total, h) for total, h in zip(totals, given, strict=True)]
                found += [
                    s.multiply_add(h, a, total)
                    for total, h, a in zip(products, given, apart, strict=True)
                ]
            return found

        unrolled = {1: 4, 2: 2}.get(wide, 1)
        return self._rows(count, unrolled, [v.zero] * (wide * (self.kinds - 1)), row)

    # Together ------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Each piece combines its share of the channels."""
        v, s = self.v, self.s
        rows, height = (self.argument(name) for name in ("rows", "height"))
        _, count, first, last = self.share(self.vectors)
        self.numbers = self.pointer("numbers")
        self.count = v.load_splat(self.numbers, 8, "float64")
        before = v.number("mul", v.number("sub", count, 1), height)
        sizes = [
            s.splat(s.convert(v.count(size), "float64"), self.lanes)
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

    def _wide(self, place: str, offset: str | int = 0) -> Any:
        """A vector of the arrays' type, converted to float64."""
        return self.s.convert(self.v.load(place, offset), "float64")

    def _store(self, value: Any, place: str, offset: str | int = 0) -> Any:
        """Store float64 in the arrays' type; returns the stored value."""
        value = self.s.convert(value, self.v.dtype)
        self.v.store(value, place, offset)
        return value

    def _totals(self, start: str, final: str, sizes: list[Any]) -> tuple[Any, Any, Any, Any]:
        """Mean, sum of g, sums of squared deviations and of g times deviations."""
        s, line = self.s, self.line
        total = self._over_pieces(
            start,
            final,
            sizes,
            1 + self.config.gradient,
            lambda near, at, size, sums: [
                s.add(sums[0], s.multiply_add(near, size, self._wide(at, line))),
                *([s.add(sums[1], self._wide(at, 3 * line))] if self.config.gradient else []),
            ],
        )
        mean = s.divide(total[0], self.count)

        def around(near: Any, at: str, size: Any, sums: list[Any]) -> list[Any]:
            apart = s.subtract(near, mean)
            own = self._wide(at, line)
            # sum (x - mean)^2 = sum (x - near)^2 + apart (2 sum (x - near) + apart size)
            more = s.multiply_add(apart, size, s.add(own, own))
            found = [s.add(sums[0], s.multiply_add(apart, more, self._wide(at, 2 * line)))]
            if self.config.gradient:
                part = s.multiply_add(apart, self._wide(at, 3 * line), self._wide(at, 4 * line))
                found.append(s.add(sums[1], part))
            return found

        beyond = self._over_pieces(start, final, sizes, 1 + self.config.gradient, around)
        return mean, total[-1], beyond[0], beyond[-1]

    def _over_pieces(
        self,
        start: str,
        final: str,
        sizes: list[Any],
        many: int,
        body: Callable[[Any, str, Any, list[Any]], list[Any]],
    ) -> list[Any]:
        """Sums over all pieces; the last one has a different size."""
        v = self.v
        none = self.s.splat(self.s.constant(0, "float64"), self.lanes)
        with self.code.loop("piece", 0, final, 1, [none] * many) as (i, held):
            at = v.step(start, i, self.kinds * self.line)
            held[:] = body(self._wide(at), at, sizes[0], held)
        at = v.step(start, final, self.kinds * self.line)
        return body(self._wide(at), at, sizes[1], held)

    def _factor(self, squares: Any) -> tuple[Any, Any]:
        """The variance, and 1 / sqrt(variance + epsilon)."""
        s = self.s
        variance = s.divide(squares, self.count)
        epsilon = self.v.load_splat(self.numbers, dtype="float64")
        return variance, s.divide(1, s.sqrt(s.add(variance, epsilon)))

    def _places(self, at: str, *names: str) -> list[str]:
        return [self.v.at(self.targets[name], at) for name in names]

    def _rest(self, mean: Any, line: str) -> Any:
        """Store the estimate of the mean; returns the remainder."""
        return self.s.subtract(mean, self.s.convert(self._store(mean, line), "float64"))

    def _training(self, at: str, mean: Any, squares: Any, *_: Any) -> None:
        s, config = self.s, self.config
        of_mean, of_variance, scale, offset, line = self._places(
            at, "first", "second", "scale", "offset", "lines"
        )
        variance, factor = self._factor(squares)
        self._store(mean, of_mean)
        self._store(variance, of_variance)
        if config.scaled:
            factor = s.multiply(factor, self._wide(scale))
        shift = s.subtract(0, s.multiply(self._rest(mean, line), factor))
        if config.shifted:
            shift = s.add(shift, self._wide(offset))
        self._store(factor, line, self.line)
        self._store(shift, line, 2 * self.line)

    def _gradient(self, at: str, mean: Any, squares: Any, total: Any, products: Any) -> None:
        s, config = self.s, self.config
        of_scale, of_offset, scale, of_mean, of_variance, line = self._places(
            at, "first", "second", "scale", "of_mean", "of_variance", "lines"
        )
        _, factor = self._factor(squares)
        slope = s.multiply(products, factor)
        self._store(slope, of_scale)
        self._store(total, of_offset)
        weight = s.multiply(factor, self._wide(scale)) if config.scaled else factor
        twice = s.add(known := self._wide(of_variance), known)
        slope = s.subtract(twice, s.multiply(s.multiply(weight, factor), slope))
        level = s.subtract(self._wide(of_mean), s.multiply(weight, total))
        slope, level = s.divide(slope, self.count), s.divide(level, self.count)
        level = s.subtract(level, s.multiply(self._rest(mean, line), slope))
        for i, value in enumerate((weight, slope, level), 1):
            self._store(value, line, i * self.line)

    # Results -------------------------------------------------------------------------------------

    def _apply(self) -> None:
        v, s, gradient = self.v, self.s, self.config.gradient
        count = v.number("sub", "%r1", "%r0")
        names = ("x", "y", "g") if gradient else ("x", "y")
        starts = {name: v.step(self.pointer(name), "%r0", self.line) for name in names}
        lines = self.pointer("lines")

        def block(at: str) -> None:
            known = [
                [v.load(v.at(lines, at), k * self.line + j * v.size) for j in range(self.wide)]
                for k in range(4 if gradient else 3)
            ]

            def row(number: str, _: list[Any]) -> list[Any]:
                start = v.number("add", v.number("mul", number, self.line), at)
                places = {name: v.at(where, start) for name, where in starts.items()}
                for j in range(self.wide):
                    value = s.subtract(v.load(places["x"], j * v.size), known[0][j])
                    if gradient:
                        value = s.multiply_add(value, known[2][j], known[3][j])
                        given = v.load(places["g"], j * v.size)
                        value = s.multiply_add(given, known[1][j], value)
                    else:
                        value = s.multiply_add(value, known[1][j], known[2][j])
                    v.store(value, places["y"], j * v.size)
                return []

            self._rows(count, 2 if self.wide < MAX_BLOCK_VECTORS else 1, [], row)

        self._blocks(0, self.vectors // self.wide, self.wide, block)
