"""The gradients of attention in LLVM IR.

Each lane of a vector is a key. Weights are recomputed, tile by tile, from scores, which are
bit-identical to those of the forward kernel, and from their log-sum-exp. A piece is a part of the
queries that share a head of keys: a chunk of them is copied, with all data of queries, and combined
with one block of keys after the other. If a head has several parts, their contributions to its keys
are summed at the end, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow.codegen.functions.parts import at_most
from eagerflow.primitives.llvm.attention_writer import AttentionWriter, Rows, place_slots
from eagerflow.primitives.llvm.vectors import RegisterBlock

QUERIES, KEYS = 32, 32  # of a tile
QUERIES_PER_BLOCK = 8  # with scores accumulated in registers
CHUNK_BYTES = 1 << 17  # of the queries of a chunk; three such arrays stay in the L2 cache
MAX_EXPONENT = 88.0  # of weights, which are 1 at most except for rounding
MAX_LOG_SUM = 1024.0  # from this size on few of its digits are of the sum beside the largest score

Place = dict[str, str]
"""The addresses of a head's rows in each array."""


def tiles(v: Any, count: str) -> str:
    """A number of queries, rounded up to whole tiles."""
    whole = v.number("udiv", v.number("add", count, QUERIES - 1), QUERIES)
    return str(v.number("mul", whole, QUERIES))


class AttentionGradientWriter(AttentionWriter):
    """Writes ``attend``, with heads of keys as rows and parts as columns, and ``join``."""

    stages = ("attend", "join")
    slots = (
        *place_slots("q", "k", "v", "y", "g", "of_q", "of_k", "of_v", "mask"),
        *(*place_slots("sums_k"), "sums_k_part", *place_slots("sums_v"), "sums_v_part"),
        *("log_sums", "of_log_sums", "scale", "shared", "group", "queries", "keys", "chunk"),
    )

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, size = self.config, self.itemsize
        self.widths = {"k": config.width, "v": config.value_width}
        self.chunk = max(CHUNK_BYTES // max(self.line, self.value_line) // QUERIES, 1) * QUERIES
        self.of_scores = self.block(QUERIES_PER_BLOCK, KEYS)
        self.of_queries, self.of_keys = (self.block(n, self.width) for n in (QUERIES, KEYS))
        self.of_values = self.block(KEYS, self.value_width)
        self.key_line = KEYS * size
        self.at_weights, self.at_slopes = (self.room(QUERIES * self.key_line) for _ in range(2))
        self.at_turned_k = self.room(self.width * self.key_line)
        self.at_turned_v = self.room(self.value_width * self.key_line)
        self.at_k, self.at_of_k = (self.room(KEYS * self.line) for _ in range(2))
        self.at_of_v = self.room(KEYS * self.value_line)
        self.at_q, self.at_of_q = (self.room(self.chunk * self.line) for _ in range(2))
        self.at_g = self.room(self.chunk * self.value_line)
        self.at_means, self.at_log_sums, self.at_factors = (
            self.room(self.chunk * size) for _ in range(3)
        )

    def _attend(self) -> None:
        v = self.v
        shared, group = self.argument("shared"), self.argument("group")
        queries, size = self.argument("queries"), self.argument("chunk")
        chunks = v.number("udiv", v.number("add", queries, v.number("sub", size, 1)), size)
        self.clear(self.at_turned_k, self.width * self.key_line)
        self.clear(self.at_turned_v, self.value_width * self.key_line)
        for at in (self.at_weights, self.at_slopes):
            self.clear(at, QUERIES * self.key_line)
        items = v.number("mul", group, chunks)
        with (
            self.code.loop("head", "%r0", "%r1") as (number, _),
            self.code.loop("part", "%c0", "%c1") as (part, _),
        ):
            batch, head = (v.number(op, number, shared) for op in ("udiv", "urem"))
            own = {name: self.head(name, batch, head) for name in "kv"}
            own |= self._sums(batch, head, part)
            for name, width in self.widths.items():
                sums = self.rows(f"sums_{name}", own[f"sums_{name}"], "0")
                clear = lambda to, many: v.store(v.zero, to, 0, many)
                self.each_vector(self.argument("keys"), width, clear, sums)
            first, last = self._share(items, part)
            with self.code.loop("item", first, last) as (item, _):
                inner, inside = (v.number(op, item, chunks) for op in ("udiv", "urem"))
                query_head = v.number("add", v.number("mul", head, group), inner)
                names = ("q", "y", "g", "of_q", "mask")
                own |= {name: self.head(name, batch, query_head) for name in names}
                line = v.number("add", v.number("mul", number, group), inner)
                line = v.number("mul", line, v.number("mul", queries, self.itemsize))
                own |= {x: v.at(self.pointer(x), line) for x in ("log_sums", "of_log_sums")}
                start = v.number("mul", inside, size)
                self._chunk(own, start, self.least(v.number("add", start, size), queries))

    def _sums(self, batch: str, head: str, part: str) -> Place:
        """The addresses of the sums for keys and values of a part of a head."""
        names = [f"sums_{name}" for name in self.widths]
        heads = {name: self.head(name, batch, head) for name in names}
        return {x: self.v.step(at, part, self.argument(f"{x}_part")) for x, at in heads.items()}

    def _share(self, size: str, part: str) -> tuple[str, str]:
        """The first and the last of ``size`` items in the share of each part of a head."""
        v, parts = self.v, self.argument("whole")
        ends = [v.number("mul", v.number("add", part, i), size) for i in (0, 1)]
        first, last = (v.number("udiv", end, parts) for end in ends)
        return first, last

    # A chunk of queries --------------------------------------------------------------------------

    def _chunk(self, own: Place, first: str, last: str) -> None:
        v, config = self.v, self.config
        count, keys = v.number("sub", last, first), self.argument("keys")
        q, g, y, of_q = (self.rows(name, own[name], first) for name in ("q", "g", "y", "of_q"))
        scale = v.load_splat(self.pointer("scale"))
        self._copy_queries(count, config.width, q, (self.own(self.at_q), self.line), scale)
        self._copy_queries(
            count, config.value_width, g, (self.own(self.at_g), self.value_line), None
        )
        largest = self._measure(own, first, count, g, y)
        v.fill(self.own(self.at_of_q), v.number("mul", tiles(v, count), self.width // self.lanes))
        end = self.least(keys, last) if config.is_causal else keys
        with self.code.where(self.s.less_equal(MAX_LOG_SUM, largest).text):
            self._normalize(own, first, count, end)
        with self.code.loop("block", 0, end, KEYS) as (key, _):
            many = v.number("sub", self.least(v.number("add", key, KEYS), keys), key)
            self._block(own, first, count, key, many)
        self.copy(count, config.width, (self.own(self.at_of_q), self.line), of_q, scale)

    def _copy_queries(
        self, count: str, width: int, source: Rows, target: tuple[str, int], factor: Any
    ) -> None:
        """Copy rows of queries, zero-padded to the last tile."""
        v, (to, line) = self.v, target
        rest = v.number("sub", tiles(v, count), count)
        v.fill(v.step(to, count, line), v.number("mul", rest, line // v.size))
        self.copy(count, width, source, target, factor, padded=True)

    def _measure(self, own: Place, first: str, count: str, g: Rows, y: Rows) -> Any:
        """For each query, the mean gradient of its scores, its log-sum-exp, and a factor of 1.

        The result is the largest magnitude of a log-sum-exp.
        """
        v, s, (whole, rest) = self.v, self.s, divmod(self.config.value_width, self.lanes)
        log_sums, of_log_sums = (
            v.step(own[name], first, self.itemsize) for name in ("log_sums", "of_log_sums")
        )
        zero, one = (s.constant(n, v.dtype) for n in (0, 1))
        with self.code.loop("query", 0, count, 1, [zero]) as (i, largest):
            pair = [v.step(start, i, stride) for start, stride in (g, y)]

            def add(total: Any, at: str, many: int) -> Any:
                return s.multiply_add(*(v.load(v.at(x, at), 0, many) for x in pair), total)

            with self.code.loop("part", 0, whole, 1, [v.zero]) as (part, sums):
                sums[0] = add(sums[0], v.number("mul", part, v.size), self.lanes)
            if rest:
                sums[0] = add(sums[0], str(whole * v.size), rest)
            at = v.number("mul", i, self.itemsize)
            known, given = (
                v.memory.load_one(v.at(x, at), v.dtype) for x in (log_sums, of_log_sums)
            )
            mean = s.subtract(v.total(sums[0]), given)
            found = (mean, self.at_means), (known, self.at_log_sums), (one, self.at_factors)
            for value, to in found:
                v.memory.store_one(v.at(self.own(to), at), value, v.dtype)
            largest[0] = s.larger(s.abs(known), largest[0])
        return largest[0]

    def _normalize(self, own: Place, first: str, count: str, end: str) -> None:
        """The inverse sums of weights as factors of those queries whose log-sum-exp is inexact."""
        v, s, width, keys = self.v, self.s, self.config.width, self.argument("keys")
        factors, log_sums = self.own(self.at_factors), self.own(self.at_log_sums)
        turned, scores = self.own(self.at_turned_k), self.own(self.at_weights)
        v.fill(factors, v.number("udiv", tiles(v, count), self.lanes))
        with self.code.loop("block", 0, end, KEYS) as (key, _):
            many = v.number("sub", self.least(v.number("add", key, KEYS), keys), key)
            self.turn(many, width, self.rows("k", own["k"], key), (turned, self.key_line))
            with self.code.loop("tile", 0, count, QUERIES) as (tile, _):
                rows = v.number("sub", self.least(v.number("add", tile, QUERIES), count), tile)
                q = v.step(self.own(self.at_q), tile, self.line)
                self._products((q, self.line), rows, width, self.at_turned_k, scores)
                with self.code.loop("query", 0, rows) as (i, _):
                    inside = v.number("add", tile, i)
                    weight = self._weight_of(own["mask"], first, inside, key, True)
                    place = v.step(factors, inside, self.itemsize)
                    with self.code.loop("vector", 0, KEYS, self.lanes, [v.zero]) as (j, sums):
                        at = v.number("add", v.number("mul", i, KEYS), j)
                        x = v.load(v.step(scores, at, self.itemsize))
                        sums[0] = s.add(sums[0], weight(x, j))
                    known = v.memory.load_one(place, v.dtype)
                    v.memory.store_one(place, s.add(known, v.total(sums[0])), v.dtype)
        with self.code.loop("query", 0, count) as (i, _):
            place = v.step(factors, i, self.itemsize)
            level, total = (
                v.memory.load_one(at, v.dtype) for at in (v.step(log_sums, i, self.itemsize), place)
            )
            factor = s.select(s.equal(total, 0), 1, s.divide(1, total))
            factor = s.select(s.less_equal(MAX_LOG_SUM, s.abs(level)), factor, 1)
            v.memory.store_one(place, factor, v.dtype)

    # A block of keys -----------------------------------------------------------------------------

    def _block(self, own: Place, first: str, count: str, key: str, many: str) -> None:
        v, config = self.v, self.config
        k, values = (self.rows(name, own[name], key) for name in "kv")
        self.turn(many, config.width, k, (self.own(self.at_turned_k), self.key_line))
        self.turn(many, config.value_width, values, (self.own(self.at_turned_v), self.key_line))
        self.copy(many, config.width, k, (self.own(self.at_k), self.line), padded=True)
        sums = {"k": (self.own(self.at_of_k), self.line)}
        sums["v"] = self.own(self.at_of_v), self.value_line
        for start, line in sums.values():
            v.fill(start, KEYS * line // v.size)
        tile = "0"
        if config.is_causal:
            tile = v.number("sub", self.most(key, first), first)
            tile = v.number("mul", v.number("udiv", tile, QUERIES), QUERIES)
        with self.code.loop("tile", tile, count, QUERIES) as (tile, _):
            rows = v.number("sub", self.least(v.number("add", tile, QUERIES), count), tile)
            self._tile(own, first, tile, rows, key, many)
        for name, width in self.widths.items():
            aim = self.rows(f"sums_{name}", own[f"sums_{name}"], key)
            self.each_vector(many, width, self._add, sums[name], aim)

    def _add(self, start: str, to: str, many: int) -> None:
        """Add a vector to memory."""
        v = self.v
        v.store(self.s.add(v.load(to, 0, many), v.load(start)), to, 0, many)

    def _tile(self, own: Place, first: str, tile: str, rows: str, key: str, many: str) -> None:
        v = self.v
        q, of_q = (v.step(self.own(at), tile, self.line) for at in (self.at_q, self.at_of_q))
        g = v.step(self.own(self.at_g), tile, self.value_line)
        weights, slopes = self.own(self.at_weights), self.own(self.at_slopes)
        self._products((q, self.line), rows, self.config.width, self.at_turned_k, weights)
        self._products(
            (g, self.value_line), rows, self.config.value_width, self.at_turned_v, slopes
        )
        # The first query that sees all keys of the block.
        free = "0"
        if self.config.is_causal:
            query = v.number("add", first, tile)
            free = v.number("sub", self.most(v.number("add", key, KEYS - 1), query), query)
        whole = self.code.value(f"icmp eq i64 {many}, {KEYS}")
        free = self.least(self.code.value(f"select i1 {whole}, i64 {free}, i64 {rows}"), rows)
        self._weights(own["mask"], first, tile, "0", free, key, True)
        self._weights(own["mask"], first, tile, free, rows, key, False)
        down, across = self.key_line, self.itemsize
        of_values, of_keys, k = (self.own(at) for at in (self.at_of_v, self.at_of_k, self.at_k))
        value_line, line = self.value_line, self.line
        self._sum(self.of_values, (KEYS, rows), (weights, across, down), g, (of_values, value_line))
        self._sum(self.of_keys, (KEYS, rows), (slopes, across, down), q, (of_keys, line))
        self._sum(self.of_queries, (rows, many), (slopes, down, across), k, (of_q, line))

    def _products(self, rows: Rows, count: str, terms: int, columns: int, to: str) -> None:
        """The products of a number of rows with all columns of a block of keys."""
        v, block, (start, stride) = self.v, self.of_scores, rows

        def row(i: str, k: str) -> tuple[str, int]:
            return v.step(v.step(start, i, stride), k, self.itemsize), int(stride)

        def store(i: str, at: str, sums: list[Any]) -> None:
            aim = v.at(v.step(to, i, self.key_line), at)
            self.store_block(block, sums, aim, self.key_line)

        begin = lambda i, at: v.no_sums(block)
        turned = self.own(columns), self.key_line
        self.product(block, (count, KEYS, terms), row, turned, begin, store)

    def _weights(
        self, mask: str, first: str, tile: str, start: str, end: str, key: str, hidden: bool
    ) -> None:
        """Replace the scores of some queries by weights, and compute the scores' gradients.

        The gradients are those of weights, minus their mean, times the weights. With ``hidden``,
        some queries do not see all keys of the block, or there are fewer keys.
        """
        v, s = self.v, self.s
        with self.code.loop("query", start, end) as (i, _):
            inside = v.number("add", tile, i)
            mean, factor = (
                v.load_splat(v.step(self.own(at), inside, self.itemsize))
                for at in (self.at_means, self.at_factors)
            )
            weight = self._weight_of(mask, first, inside, key, hidden)
            with self.code.loop("vector", 0, KEYS, self.lanes) as (j, _):
                at = v.number("add", v.number("mul", i, KEYS), j)
                weights, slopes = (
                    v.step(self.own(x), at, self.itemsize)
                    for x in (self.at_weights, self.at_slopes)
                )
                x = s.multiply(weight(v.load(weights), j), factor)
                v.store(x, weights)
                v.store(s.multiply(s.subtract(v.load(slopes), mean), x), slopes)

    def _weight_of(
        self, mask: str, first: str, inside: str, key: str, hidden: bool
    ) -> Callable[[Any, str], Any]:
        """A function that turns a vector of scores of a query, from key j on, into weights."""
        v, s, config = self.v, self.s, self.config
        final, query = v.number("sub", self.argument("keys"), 1), v.number("add", first, inside)
        level = v.load_splat(v.step(self.own(self.at_log_sums), inside, self.itemsize))
        last = self.index(self.least(final, query) if config.is_causal else final)
        line = v.step(mask, query, self.argument("mask_row")) if config.mask else ""

        def weight(x: Any, j: str) -> Any:
            number = v.number("add", key, j)
            if config.mask:
                left = v.number("sub", self.argument("keys"), number)
                x = self.masked(x, self.added(line, number, self.below(left) if hidden else ""))
            if hidden:
                x = s.select(s.less_equal(self.indices(number), last), x, -math.inf)
            return self.power(at_most(s, s.subtract(x, level), MAX_EXPONENT))

        return weight

    def _sum(
        self,
        block: RegisterBlock,
        extents: tuple[str | int, str],
        factors: tuple[str, int, int],
        columns: str,
        to: tuple[str, int],
    ) -> None:
        """Add the product of a tile's ``factors`` and rows ``columns`` to rows of the same width.

        ``extents`` are rows of the result and terms; ``factors`` are an address, and the strides in
        bytes of rows of the result and of terms.
        """
        v, (start, across, along), (sums, line) = self.v, factors, to

        def row(i: str, k: str) -> tuple[str, int]:
            return v.step(v.step(start, i, across), k, along), across

        def begin(i: str, at: str) -> list[Any]:
            here = v.at(v.step(sums, i, line), at)
            places = [(r, j) for r in range(block.rows) for j in range(block.vectors)]
            return [v.load(here, r * line + j * v.size) for r, j in places]

        def store(i: str, at: str, values: list[Any]) -> None:
            self.store_block(block, values, v.at(v.step(sums, i, line), at), line)

        whole = extents[0], line // self.itemsize, extents[1]
        self.product(block, whole, row, (columns, line), begin, store)

    # Several parts -------------------------------------------------------------------------------

    def _join(self) -> None:
        """Sum the contributions of the parts of a head, each piece for a share of the keys."""
        v = self.v
        parts, keys, shared = (self.argument(name) for name in ("whole", "keys", "shared"))
        with (
            self.code.where(self.code.value(f"icmp ugt i64 {parts}, 1")),
            self.code.loop("head", "%r0", "%r1") as (number, _),
            self.code.loop("part", "%c0", "%c1") as (part, _),
        ):
            batch, head = (v.number(op, number, shared) for op in ("udiv", "urem"))
            first, last = self._share(keys, part)
            known = self._sums(batch, head, "0")
            for name, width in self.widths.items():
                source = self.rows(f"sums_{name}", known[f"sums_{name}"], first)
                target = self.rows(f"of_{name}", self.head(f"of_{name}", batch, head), first)
                one = partial(self._total, parts, self.argument(f"sums_{name}_part"))
                self.each_vector(v.number("sub", last, first), width, one, source, target)

    def _total(self, parts: str, stride: str, start: str, to: str, many: int) -> None:
        """Write the sum of a vector over all parts."""
        v = self.v
        with self.code.loop("sum", 1, parts, 1, [v.load(start, 0, many)]) as (i, sums):
            sums[0] = self.s.add(sums[0], v.load(v.step(start, i, stride), 0, many))
        v.store(sums[0], to, 0, many)
