"""Attention of NumPy arrays, and its gradients: as machine code, or tile by tile in NumPy.

Neither materializes the scores of all queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eagerflow.primitives import compiled_attention
from eagerflow.primitives.compiled_attention import Options
from eagerflow.primitives.llvm.attention_gradient import MAX_LOG_SUM
from eagerflow.runtime import threads
from eagerflow.spec import Array, Namespace

TILE_SCORES = 2**16  # so many scores of a tile stay in the caches of a core


def biases(xp: Namespace, q: Any, k: Any, mask: Any, is_causal: bool) -> Any:
    """The bias of the scores: the mask, with -inf for hidden keys; None if there is none."""
    found = None
    hidden = xp.asarray(-math.inf, dtype=q.dtype)
    if mask is not None:
        shown = str(mask.dtype).endswith("bool")
        found = xp.where(mask, xp.zeros_like(hidden), hidden) if shown else mask
        found = xp.astype(found, q.dtype)
    if is_causal:
        rows, columns = (xp.arange(x.shape[2]) for x in (q, k))
        order = xp.where(rows[:, None] >= columns[None, :], xp.zeros_like(hidden), hidden)
        found = order if found is None else found + order
    return found


def masked(xp: Namespace, scores: Any, added: Any) -> Any:
    """Scores plus ``biases``; hidden keys are excluded even if their scores are NaN or infinite."""
    if added is None:
        return scores
    hidden = xp.asarray(-math.inf, dtype=scores.dtype)
    return xp.where(added == hidden, hidden, scores + added)


def forward(q: Array, k: Array, v: Array, options: Options) -> tuple[Any, Any]:
    """The weighted averages of values, and the log-sum-exp of the scores."""
    if compiled_attention.takes(q, v):
        return compiled_attention.forward(q, k, v, options)
    tiles = _Tiles(q, k, v, options)
    out, log_sums = tiles.of_queries(v.shape[3]), tiles.of_queries()
    hidden = options.mask is not None or (options.is_causal and tiles.group > 1)
    tiles.run(lambda stacks, rows, end: _average(tiles, stacks, rows, end, out, log_sums, hidden))
    return out.reshape(*q.shape[:3], v.shape[3]), log_sums.reshape(q.shape[:3])


def gradient(
    given: tuple[Array, Any],
    found: tuple[Array, Array],
    q: Array,
    k: Array,
    v: Array,
    options: Options,
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, from those of the averages and, or None, of the logarithms."""
    if compiled_attention.takes(q, v):
        return compiled_attention.gradient(given, found, q, k, v, options)
    tiles = _Tiles(q, k, v, options)
    (g, of_log_sums), (y, log_sums) = given, found
    means = np.einsum("bhqd,bhqd->bhq", g, y)
    if of_log_sums is not None:
        means = means - of_log_sums
    means, levels = (x.reshape(*tiles.rows, 1) for x in (means, log_sums))
    g = g.reshape(*tiles.rows, v.shape[3])
    of_q = tiles.of_queries(q.shape[3])
    of_k, of_v = np.zeros(tiles.keys.shape, q.dtype), np.zeros(tiles.values.shape, q.dtype)
    inexact = np.abs(levels) >= MAX_LOG_SUM
    some_inexact = bool(inexact.any())

    def work(stacks: slice, rows: slice, end: int) -> None:
        weights = tiles.scores(stacks, rows, end)
        np.subtract(weights, levels[stacks, rows], weights)
        np.exp(weights, weights)
        if some_inexact:
            sums = weights.sum(axis=-1, keepdims=True)
            np.divide(weights, sums, weights, where=inexact[stacks, rows] & (sums != 0))
        own, queries = g[stacks, rows], tiles.queries[stacks, rows]
        of_v[stacks, :end] += np.matmul(weights.swapaxes(1, 2), own)
        slopes = threads.scratch("slopes", weights.shape, q.dtype)
        np.matmul(own, tiles.values[stacks, :end].swapaxes(1, 2), out=slopes)
        np.subtract(slopes, means[stacks, rows], slopes)
        np.multiply(slopes, weights, slopes)
        of_k[stacks, :end] += np.matmul(slopes.swapaxes(1, 2), queries)
        part = np.matmul(slopes, tiles.keys[stacks, :end], out=of_q[stacks, rows])
        part *= q.dtype.type(options.scale)

    tiles.run(work, apart=False)
    return of_q.reshape(q.shape), of_k.reshape(k.shape), of_v.reshape(v.shape)


class _Tiles:
    """Scores in tiles: some stacks of rows with common keys, and some rows of each."""

    def __init__(self, q: Array, k: Array, v: Array, options: Options) -> None:
        (batch, heads, length, width), (_, shared, keys, _) = q.shape, k.shape
        self.group = heads // shared if shared else 1
        self.rows = stack, rows = batch * shared, self.group * length
        self.queries = (q * q.dtype.type(options.scale)).reshape(stack, rows, width)
        self.keys, self.values = (x.reshape(stack, keys, x.shape[3]) for x in (k, v))
        shape = batch, shared, self.group, length, keys
        added = biases(np, q, k, options.mask, options.is_causal)
        self.bias = _bias_of(added, *shape)
        # Under a causal mask alone, each query sees the first key, and all before its tile.
        self.ordered = options.is_causal and self.group == 1
        self.plain = options.mask is None and self.group == 1
        scores = max(rows * keys, 1)
        self.wide = max(1, TILE_SCORES // scores)
        self.step = rows if scores <= TILE_SCORES else max(8, TILE_SCORES // keys)

    def of_queries(self, *more: int) -> Array:
        """Zeros for each row of queries."""
        return np.zeros((*self.rows, *more), self.queries.dtype)

    def run(self, work: Callable[[slice, slice, int], None], apart: bool = True) -> None:
        """Call ``work(stacks, rows, end)`` for all tiles; rows see no key from ``end`` on.

        ``apart`` means that rows of the same stack are independent.
        """
        (stack, rows), keys = self.rows, self.keys.shape[1]
        if 0 in (stack, rows, keys):
            return

        def tiles(i: int) -> Iterator[tuple[slice, slice, int]]:
            at = slice(i * self.wide, min((i + 1) * self.wide, stack))
            for first in range(0, rows, self.step):
                part = slice(first, min(first + self.step, rows))
                yield at, part, min(keys, part.stop) if self.ordered else keys

        whole = [list(tiles(i)) for i in range(-(-stack // self.wide))]
        if apart:
            whole = [[tile] for own in whole for tile in own]

        def each(i: int) -> None:
            for tile in whole[i]:
                work(*tile)

        threads.run(each, len(whole))

    def scores(self, stacks: slice, rows: slice, end: int) -> Array:
        """The scores of a tile, in reused memory."""
        block = self.queries[stacks, rows]
        found = threads.scratch("scores", (*block.shape[:2], end), block.dtype)
        np.matmul(block, self.keys[stacks, :end].swapaxes(1, 2), out=found)
        if self.bias is not None:
            start = min(rows.start, end) if self.plain else 0
            for j in range(len(block)):
                part = found[j, :, start:]
                part[...] = masked(np, part, self.bias(stacks.start + j)[rows, start:end])
        return found


def _bias_of(added: Any, batch: int, shared: int, group: int, length: int, keys: int) -> Any:
    """A function that returns the bias of one stack of rows; None without any."""
    if added is None:
        return None
    if added.ndim < 3 or added.shape[:-2].count(1) == added.ndim - 2:
        both = np.broadcast_to(added.reshape(added.shape[-2:]), (length, keys))
        one = np.tile(both, (group, 1)) if group > 1 else both
        return lambda i: one
    whole = np.broadcast_to(added, (batch, shared * group, length, keys))

    def at(i: int) -> Any:
        b, h = divmod(i, shared)
        return whole[b, h * group : (h + 1) * group].reshape(group * length, keys)

    return at


def _average(
    tiles: _Tiles, stacks: slice, rows: slice, end: int, out: Array, log_sums: Array, hidden: bool
) -> None:
    """Averages of values weighted by the exponentials of scores, and the log-sum-exp.

    ``hidden`` means that some queries may see no key.
    """
    scores = tiles.scores(stacks, rows, end)
    top = scores.max(axis=-1, keepdims=True)
    if hidden:
        np.copyto(top, 0, where=top == -math.inf)
    np.subtract(scores, top, scores)
    np.exp(scores, scores)
    y = np.matmul(scores, tiles.values[stacks, :end], out=out[stacks, rows])
    sums = scores.sum(axis=-1, keepdims=True)
    if hidden:
        np.copyto(sums, 1, where=sums == 0)
    np.divide(y, sums, y)
    np.add(np.log(sums), top, out=log_sums[stacks, rows][..., None])
