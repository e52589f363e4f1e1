"""Attention in LLVM IR.

Each lane of a vector is a query, so that there are no sums across lanes. A piece is some queries of
a head; for each block of them the largest score, the sum of the weights and the weighted sums of
values are carried from one tile of keys to the next, and rescaled when the largest score grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

from eagerflow.primitives.llvm.attention_writer import (
    UNROLLED_VECTORS,
    AttentionWriter,
    Rows,
    place_slots,
)

QUERIES, KEYS = 32, 64  # of a tile
KEYS_PER_BLOCK = 8  # with scores accumulated in registers
CHUNK_BYTES = 1 << 18  # of keys and values that stay in the L2 cache
MAX_PIECE_QUERIES = 256


class AttentionForwardWriter(AttentionWriter):
    """Writes ``attend``, with heads as rows, and queries as columns."""

    stages = ("attend",)
    slots = (
        *place_slots("q", "k", "v", "y", "mask"),
        *("log_sums", "scale", "heads", "group", "keys"),
    )

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, size = self.config, self.itemsize
        self.vectors = QUERIES // self.lanes
        self.of_scores = self.block(KEYS_PER_BLOCK, QUERIES)
        self.of_values = self.block(QUERIES, self.value_width)
        self.query_line, self.key_line = QUERIES * size, config.width * size
        self.chunk = max(CHUNK_BYTES // (self.key_line + self.value_line) // KEYS, 1) * KEYS
        self.at_q = self.room(self.width * self.query_line)
        self.at_changes = self.room(self.query_line)
        self.at_scores = self.room(KEYS * self.query_line)
        self.at_k = self.room(self.chunk * self.key_line)
        self.at_v = self.room(self.chunk * self.value_line)
        self.at_mask = 0
        if config.mask:
            self.of_mask = KEYS * self.query_line if config.by_query else self.chunk * size
            self.at_mask = self.room(self.of_mask)
        self.block_bytes = QUERIES * self.value_line + 2 * self.query_line
        self.at_blocks = self.room(MAX_PIECE_QUERIES // QUERIES * self.block_bytes)

    def _attend(self) -> None:
        v, config = self.v, self.config
        keys, heads, group = (self.argument(name) for name in ("keys", "heads", "group"))
        line = v.number("mul", self.argument("whole"), self.itemsize)
        end = self.least(keys, "%c1") if config.is_causal else keys
        self.clear(self.at_q, self.width * self.query_line)
        if config.mask:
            self.clear(self.at_mask, self.of_mask)
        with self.code.loop("head", "%r0", "%r1") as (number, _):
            batch, head = (v.number(op, number, heads) for op in ("udiv", "urem"))
            shared = v.number("udiv", head, group)
            own = {name: self.head(name, batch, head) for name in ("q", "y", "mask")}
            own |= {name: self.head(name, batch, shared) for name in "kv"}
            with self._blocks():
                self._begin()
            with self.code.loop("chunk", 0, end, self.chunk) as (chunk, _):
                last = self.least(v.number("add", chunk, self.chunk), end)
                self._copy_keys(own, chunk, v.number("sub", last, chunk))
                with self._blocks() as (first, rows):
                    self._block(own, first, rows, chunk, last)
            log_sums = v.step(self.pointer("log_sums"), number, line)
            with self._blocks() as (first, rows):
                to = v.step(log_sums, first, self.itemsize)
                self._finish(rows, self.rows("y", own["y"], first), to)

    @contextmanager
    def _blocks(self) -> Iterator[tuple[str, str]]:
        """Each block of queries of the piece: its first query, and their number."""
        v = self.v
        with self.code.loop("block", "%c0", "%c1", QUERIES) as (first, _):
            rows = v.number("sub", self.least(v.number("add", first, QUERIES), "%c1"), first)
            number = v.number("udiv", v.number("sub", first, "%c0"), QUERIES)
            self.sums = v.step(self.own(self.at_blocks), number, self.block_bytes)
            self.top = v.at(self.sums, QUERIES * self.value_line)
            self.total = v.at(self.top, self.query_line)
            yield first, rows

    def _begin(self) -> None:
        v, s = self.v, self.s
        low = s.splat(s.constant(-math.inf, v.dtype), self.lanes)
        v.fill(self.sums, QUERIES * self.value_line // v.size)
        for at in range(0, self.query_line, v.size):
            v.store(low, self.top, at)
            v.store(v.zero, self.total, at)

    def _copy_keys(self, own: dict[str, str], chunk: str, count: str) -> None:
        """Copy a chunk of keys and values, and the query-independent part of the mask."""
        v, config = self.v, self.config
        k, values = (self.rows(name, own[name], chunk) for name in "kv")
        # Zeros for missing keys of the last block.
        size, many = v.size, self.of_scores.rows
        blocks = v.number("udiv", v.number("add", count, many - 1), many)
        first = v.number("udiv", v.number("mul", count, self.key_line), size)
        end = v.number("add", v.number("mul", blocks, many * self.key_line), size - 1)
        last = v.number("udiv", end, size)
        v.fill(v.step(self.own(self.at_k), first, size), v.number("sub", last, first))
        self.copy(count, config.width, k, (self.own(self.at_k), self.key_line))
        to = self.own(self.at_v), self.value_line
        self.copy(count, config.value_width, values, to, padded=True)
        if config.mask and not config.by_query:
            with self.code.loop("key", 0, count, self.lanes) as (i, _):
                mask = self.below(v.number("sub", count, i))
                x = self.added(own["mask"], v.number("add", chunk, i), mask)
                v.store(x, v.step(self.own(self.at_mask), i, self.itemsize), mask=mask)

    # A block of queries, and a chunk of keys -----------------------------------------------------

    def _block(self, own: dict[str, str], first: str, rows: str, chunk: str, last: str) -> None:
        v, config = self.v, self.config
        end = free = last
        if config.is_causal:
            end, free = (self.least(last, v.number("add", first, n)) for n in (rows, 1))
        sees = self.code.value(f"icmp ult i64 {chunk}, {end}") if config.is_causal else ""
        with self.code.where(sees):
            q, turned = self.rows("q", own["q"], first), (self.own(self.at_q), self.query_line)
            scale = v.memory.load_one(self.pointer("scale"), v.dtype)
            self.turn(rows, config.width, q, turned, scale)
            with self.code.loop("tile", chunk, end, KEYS) as (tile, _):
                count = v.number("sub", self.least(v.number("add", tile, KEYS), end), tile)
                inside = v.number("sub", tile, chunk)
                self._scores(inside, count)
                self._adjust(own, first, rows, chunk, tile, count, free, end)
                self._weights(count)
                self._average(inside, count)

    def _turn_mask(self, mask: Rows, rows: str, tile: str, count: str) -> None:
        """Store the mask's bias for the scores of a tile."""
        v = self.v
        with (
            self.code.loop("query", 0, rows, self.lanes) as (i, _),
            self.code.loop("key", 0, count, self.lanes) as (j, _),
        ):
            seen, first = self.below(v.number("sub", count, j)), v.number("add", tile, j)
            lines = [self.added(row, first, seen) for row in self.neighbours(i, rows, mask)]
            to = v.step(self.own(self.at_mask), j, self.query_line)
            for k, x in enumerate(v.transposed(lines)):
                v.store(x, v.step(to, i, self.itemsize), k * self.query_line)

    def _scores(self, inside: str, count: str) -> None:
        """The scores of a tile's keys, a line for each, in whole blocks."""
        v, block = self.v, self.of_scores
        keys = v.step(self.own(self.at_k), inside, self.key_line)

        def row(i: str, k: str) -> tuple[str, int]:
            return v.step(v.step(keys, i, self.key_line), k, self.itemsize), self.key_line

        def store(i: str, at: str, sums: list[Any]) -> None:
            to = v.at(v.step(self.own(self.at_scores), i, self.query_line), at)
            self.store_block(block, sums, to, self.query_line)

        extents = count, QUERIES, self.config.width
        columns = self.own(self.at_q), self.query_line
        self.product(block, extents, row, columns, lambda i, at: v.no_sums(block), store)

    def _adjust(
        self,
        own: dict[str, str],
        first: str,
        rows: str,
        chunk: str,
        tile: str,
        count: str,
        free: str,
        end: str,
    ) -> None:
        """Add the mask to scores, and set them to -inf for hidden and missing keys.

        Keys before ``free`` are visible to all queries, and ``end`` is the end of the keys.
        """
        v, s, config, size = self.v, self.s, self.config, self.of_scores.rows
        whole = v.number("mul", v.number("udiv", v.number("add", count, size - 1), size), size)
        start = self.least(v.number("sub", self.most(free, tile), tile), whole)
        if config.mask:
            start = "0"
        if config.by_query:
            self._turn_mask(self.rows("mask", own["mask"], first), rows, tile, count)
        final, mask = self.index(v.number("sub", end, 1)), self.own(self.at_mask)
        with self.code.loop("vector", 0, self.vectors) as (j, _):
            at, last = v.number("mul", j, v.size), final
            if config.is_causal:
                query = v.number("add", first, v.number("mul", j, self.lanes))
                last = s.minimum(self.indices(query), final)
            scores = v.at(self.own(self.at_scores), at)
            with self.code.loop("key", start, whole) as (i, _):
                place, key = v.step(scores, i, self.query_line), v.number("add", tile, i)
                x = v.load(place)
                if config.by_query:
                    x = self.masked(x, v.load(v.step(v.at(mask, at), i, self.query_line)))
                elif config.mask:
                    inside = v.number("sub", key, chunk)
                    x = self.masked(x, v.load_splat(v.step(mask, inside, self.itemsize)))
                v.store(s.select(s.less_equal(self.index(key), last), x, -math.inf), place)

    def _weights(self, count: str) -> None:
        """Exponentiate scores in place; their sums, and the factors that rescale earlier sums."""
        v, s, rows = self.v, self.s, self.of_scores.rows
        with self.code.loop("vector", 0, self.vectors) as (j, _):
            at = v.number("mul", j, v.size)
            known, total, scores = (
                v.at(x, at) for x in (self.top, self.total, self.own(self.at_scores))
            )
            with self.code.loop("key", 0, count, rows, [v.load(known)]) as (i, tops):
                here = v.step(scores, i, self.query_line)
                own = [v.load(here, r * self.query_line) for r in range(rows)]
                tops[0] = s.larger(tops[0], reduce(s.larger, own))
            top = level = tops[0]
            if self.config.mask:  # queries without a visible key so far
                level = s.select(s.equal(top, -math.inf), 0, top)
            change = self.power(s.subtract(v.load(known), level))
            v.store(top, known)
            v.store(change, self.own(self.at_changes), at)
            with self.code.loop("key", 0, count, rows, [s.multiply(v.load(total), change)]) as (
                i,
                sums,
            ):
                here = v.step(scores, i, self.query_line)
                for r in range(rows):
                    offset = r * self.query_line
                    weight = self.power(s.subtract(v.load(here, offset), level))
                    v.store(weight, here, offset)
                    sums[0] = s.add(sums[0], weight)
            v.store(sums[0], total)

    def _average(self, inside: str, count: str) -> None:
        """Add the weighted values of a tile's keys to the sums."""
        v, s, block = self.v, self.s, self.of_values

        def row(i: str, k: str) -> tuple[str, int]:
            line = v.step(self.own(self.at_scores), k, self.query_line)
            return v.step(line, i, self.itemsize), self.itemsize

        def begin(i: str, at: str) -> list[Any]:
            start = v.at(v.step(self.sums, i, self.value_line), at)
            changes = v.step(self.own(self.at_changes), i, self.itemsize)
            found = []
            for r in range(block.rows):
                change = v.load_splat(changes, r * self.itemsize)
                for j in range(block.vectors):
                    x = v.load(start, r * self.value_line + j * v.size)
                    found.append(s.multiply(x, change))
            return found

        def store(i: str, at: str, sums: list[Any]) -> None:
            to = v.at(v.step(self.sums, i, self.value_line), at)
            self.store_block(block, sums, to, self.value_line)

        columns = v.step(self.own(self.at_v), inside, self.value_line), self.value_line
        self.product(block, (QUERIES, self.value_width, count), row, columns, begin, store)

    def _finish(self, rows: str, y: Rows, log_sums: str) -> None:
        """Write the averages of a block of queries, and their log-sum-exp."""
        v, s = self.v, self.s
        for j in range(self.vectors):
            total, top = (v.load(x, j * v.size) for x in (self.total, self.top))
            if self.config.mask:  # queries without visible keys
                total = s.select(s.equal(total, 0), 1, total)
                top = s.select(s.equal(top, -math.inf), 0, top)
            mask = self.below(v.number("sub", rows, j * self.lanes))
            v.store(s.add(s.log(total), top), log_sums, j * v.size, mask=mask)
            v.store(s.divide(1, total), self.own(self.at_changes), j * v.size)
        with self.code.loop("row", 0, rows) as (i, _):
            inverse = v.load_splat(v.step(self.own(self.at_changes), i, self.itemsize))
            start, to = v.step(self.sums, i, self.value_line), v.step(y[0], i, y[1])

            def one(at: str, many: int) -> None:
                v.store(s.multiply(v.load(start, at), inverse), to, at, many)

            self.parts(self.config.value_width, one, UNROLLED_VECTORS)
