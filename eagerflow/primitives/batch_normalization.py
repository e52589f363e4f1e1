"""Batch normalization of NumPy arrays with the statistics of the batch, and its gradient.

Large arrays take generated kernels: one looks for the sums over each channel, one computes the
result, and each reads its operands from memory once. Others are worked through in tiles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.rows import add_up, each_tile, tile_height
from eagerflow.primitives.llvm.batch_normalization import BatchNormConfig, BatchNormWriter
from eagerflow.primitives.llvm.staged_kernel import StagedKernel, kept, processor
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import scratch

# NumPy's steps are short: below these sizes, calling them takes longer than their arithmetic, and
# threads wait for each other's.
FOLDED_ROW_ELEMENTS = 1 << 12  # of a row into which several places are folded
TILE_ELEMENTS = 1 << 17
MIN_SHARED_TILE_ELEMENTS = 1 << 19  # of all tiles, from which threads share them
MIN_PLANE_ELEMENTS = 16  # neighbours in one channel from which they are a row of their own
LINE_ELEMENTS = 1 << 10  # of a row of several places with all channels
LINES_PER_SUM = 4  # rows that are added up before their sum is added to that of the channels
LINES_PER_SAMPLE = 64  # of so many rows one tells where the numbers of a channel lie
MIN_COMPILED_PLANES, MIN_COMPILED_LINES = 1 << 13, 1 << 16  # elements, for generated kernels
PIECE_ELEMENTS = 1 << 13  # that are summed up before the sums are joined in float64
MAX_PIECES = 512
MAX_CHANNELS = 1 << 12  # so that a piece has more than one row
MIN_SHARED_ELEMENTS = 1 << 18  # from which waking another thread pays


def training(x: Any, scale: Any, offset: Any, at: int, epsilon: float) -> tuple[Any, Any, Any]:
    """``x`` normalized over all axes but ``at``, scaled and shifted; means and variances.

    ``scale`` and ``offset``, or None, have one element for each channel.
    """
    if not _pays(x.shape, at):
        return _tiled_training(x, scale, offset, at, epsilon)
    if lanes := _lanes_of(x, at):
        return _program_training(x, scale, offset, epsilon, lanes)
    form = _form(x.shape, at)
    moments = form.moments(form.matrix(x))
    factor = 1 / np.sqrt(moments.variance + epsilon)
    if scale is not None:
        factor = factor * scale
    shift = -moments.rest * factor
    if offset is not None:
        shift = shift + offset
    lines = [v.astype(x.dtype, copy=False) for v in (moments.near, factor, shift)]
    y = form.apply(_training_body, (form.matrix(x),), lines)
    mean = (moments.near + moments.rest).astype(x.dtype, copy=False)
    return y, mean, moments.variance.astype(x.dtype, copy=False)


def _training_body(s: Any, x: Any, near: Any, factor: Any, shift: Any) -> Any:
    return s.add(s.multiply(s.subtract(x, near), factor), shift)


def gradient(
    x: Any, g: Any, g_mean: Any, g_variance: Any, scale: Any, *, at: int, epsilon: float
) -> tuple[Any, Any, Any]:
    """Gradients of ``training`` by x, scale and offset, from those of its three results."""
    if not _pays(x.shape, at):
        return _tiled_gradient(x, g, g_mean, g_variance, scale, at, epsilon)
    if lanes := _lanes_of(x, at):
        return _program_gradient(x, g, g_mean, g_variance, scale, epsilon, lanes)
    form = _form(x.shape, at)
    matrices = form.matrix(x), form.matrix(g)
    moments = form.moments(*matrices)
    of_scale, weight, slope, level = _factors(
        moments, g_mean, g_variance, scale, epsilon, form.count
    )
    level = level - moments.rest * slope
    lines = [v.astype(x.dtype, copy=False) for v in (moments.near, weight, slope, level)]
    of_x = form.apply(_gradient_body, matrices, lines)
    of_scale, of_offset = (v.astype(x.dtype, copy=False) for v in (of_scale, moments.total))
    return of_x, of_scale, of_offset


def _factors(
    moments: _Moments, g_mean: Any, g_variance: Any, scale: Any, epsilon: float, count: int
) -> tuple[Any, Any, Any, Any]:
    """The gradient by scale, and what that by x is: weight * g + slope * (x - mean) + level."""
    factor = 1 / np.sqrt(moments.variance + epsilon)
    of_scale = moments.products * factor
    weight = factor if scale is None else factor * scale
    slope = (2 * g_variance - weight * factor * of_scale) / count
    return of_scale, weight, slope, (g_mean - weight * moments.total) / count


def _gradient_body(s: Any, x: Any, g: Any, near: Any, weight: Any, slope: Any, level: Any) -> Any:
    rest = s.add(s.multiply(s.subtract(x, near), slope), level)
    return s.add(s.multiply(g, weight), rest)


# Channels side by side, in whole vectors ---------------------------------------------------------


def _lanes_of(x: Any, at: int) -> int:
    """Elements of the vectors that channels are made of; 0 where they are not."""
    if at != x.ndim - 1 or x.dtype.char not in "fd" or x.shape[-1] > MAX_CHANNELS:
        return 0
    lanes, _ = processor(x.dtype.name)
    fits = [n for n in (lanes, lanes // 2) if n > 1 and x.shape[-1] % n == 0]
    return fits[0] if fits else 0


@kept
def _kernel(config: BatchNormConfig) -> StagedKernel[BatchNormWriter]:
    return StagedKernel(BatchNormWriter, config)


def _run(config: BatchNormConfig, x: Any, epsilon: float, **arrays: Any) -> Any:
    """Run the stages; the result of the shape of ``x``."""
    rows, kernel = x.size // config.channels, _kernel(config)
    height = max(PIECE_ELEMENTS // config.channels, -(-rows // MAX_PIECES), 1)
    count = -(-rows // height)
    y = buffers.empty(x.shape, x.dtype)
    given = {name: np.ascontiguousarray(v, x.dtype) for name, v in arrays.items() if v is not None}
    kernel.run(
        (rows, 1, height, 1),
        x.size >= MIN_SHARED_ELEMENTS,
        x=np.ascontiguousarray(x),
        y=y,
        sums=scratch("sums", (count, kernel.writer.kinds, config.channels), x.dtype),
        lines=scratch("lines", (4, config.channels), x.dtype),
        numbers=np.array([epsilon, rows], np.float64),
        **given,
    )
    return y


def _program_training(
    x: Any, scale: Any, offset: Any, epsilon: float, lanes: int
) -> tuple[Any, Any, Any]:
    config = BatchNormConfig(
        x.dtype.name, x.shape[-1], lanes, scale is not None, offset is not None, gradient=False
    )
    mean, variance = np.empty((2, x.shape[-1]), x.dtype)
    y = _run(config, x, epsilon, scale=scale, offset=offset, first=mean, second=variance)
    return y, mean, variance


def _program_gradient(
    x: Any, g: Any, g_mean: Any, g_variance: Any, scale: Any, epsilon: float, lanes: int
) -> tuple[Any, Any, Any]:
    config = BatchNormConfig(
        x.dtype.name, x.shape[-1], lanes, scale is not None, False, gradient=True
    )
    of_scale, of_offset = np.empty((2, x.shape[-1]), x.dtype)
    of_x = _run(
        config,
        x,
        epsilon,
        g=g,
        scale=scale,
        of_mean=g_mean,
        of_variance=g_variance,
        first=of_scale,
        second=of_offset,
    )
    return of_x, of_scale, of_offset


# Large arrays ------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """Sums over channels, in large arrays float64 but for ``near``: ``near + rest`` is the mean.

    ``total`` is the sum of a second array g, ``products`` that of g times the deviations.
    """

    near: Any
    rest: Any
    variance: Any
    total: Any = None
    products: Any = None


class _Planes:
    """Channels whose elements lie side by side: a plane for each example and channel."""

    def __init__(self, shape: tuple[int, ...], at: int) -> None:
        self.shape = shape
        self.planes = math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])
        self.count = self.planes[0] * self.planes[2]

    def matrix(self, x: Any) -> Any:
        """An array as planes."""
        return x.reshape(self.planes)

    def moments(self, x: Any, *g: Any) -> _Moments:
        """Those of all planes, joined (Chan, Golub and LeVeque 1983)."""
        operands = ((x.dtype.name, "a m n"),) * (1 + len(g))
        found = generated.run(generated.region(_plane_body, "a m n", operands), x, *g)
        means, squares, *sums = (v.astype(np.float64) for v in found)
        mean = add_up(means, 0) / len(means)
        apart = means - mean
        squares = add_up(squares, 0) + add_up(apart * apart, 0) * self.planes[2]
        near = np.where(np.isfinite(mean), mean, 0).astype(x.dtype)
        own = [add_up(sums[0], 0), add_up(sums[1] + sums[0] * apart, 0)] if g else []
        return _Moments(near, mean - near, squares / self.count, *own)

    def apply(self, body: generated.Body, matrices: Any, lines: Any) -> Any:
        """A new array: ``body`` of the elements, and of one number for each channel."""
        name = matrices[0].dtype.name
        operands = ((name, "a m n"),) * len(matrices) + ((name, "m"),) * len(lines)
        region = generated.region(body, "a m n", operands)
        return generated.run(region, *matrices, *lines).reshape(self.shape)


def _plane_body(s: Any, x: Any, *g: Any) -> Any:
    mean = s.mean(x, "n")
    apart = s.subtract(x, mean)
    squares = s.sum(s.multiply(apart, apart), "n")
    if not g:
        return mean, squares
    return mean, squares, s.sum(g[0], "n"), s.sum(s.multiply(g[0], apart), "n")


class _Lines:
    """Channels that lie side by side: lines with all channels of some places, and a rest.

    A line is long enough to be walked along at speed where channels are few.
    """

    def __init__(self, shape: tuple[int, ...], at: int) -> None:
        self.shape, self.at = shape, at
        self.channels = shape[at]
        self.count = math.prod(shape) // self.channels
        self.places = max(1, LINE_ELEMENTS // self.channels)
        even = math.gcd(
            self.count, 1 << self.places.bit_length() - 1 + LINES_PER_SUM.bit_length() - 1
        )
        if even * 2 > self.places * LINES_PER_SUM:
            self.places = even // LINES_PER_SUM  # nothing is left

    def matrix(self, x: Any) -> Any:
        """An array with a row for each place."""
        if self.at != x.ndim - 1:
            x = np.moveaxis(x, self.at, -1)
        return np.ascontiguousarray(x).reshape(self.count, self.channels)

    def cut(self, x: Any, lines: int = 1) -> tuple[Any, Any]:
        """A matrix as groups of so many lines, and the places that are left."""
        step = self.places * lines
        whole = len(x) // step * step
        return x[:whole].reshape(-1, lines, self.places * self.channels), x[whole:]

    def wide(self, line: Any) -> Any:
        """One number for each channel as one for each element of a line."""
        return _repeated(line, self.places)

    def moments(self, x: Any, *g: Any) -> _Moments:
        """Those of numbers from which one near the mean is subtracted.

        The variance is then a difference of two means of squares, of which the larger one is
        at most ``LINES_PER_SAMPLE`` times the result: the numbers whose mean is near are a part
        of all, and its squared distance from the mean, times their share, is within the variance.
        """
        near = self._near(x)
        (groups, rest), *more = (self.cut(v, LINES_PER_SUM) for v in (x, *g))
        lines = [v[:, i] for v in (groups, *(m[0] for m in more)) for i in range(LINES_PER_SUM)]
        name = x.dtype.name
        operands = ((name, "n"), *((name, "m n") for _ in lines))
        found = generated.run(
            generated.region(_line_body, "m n", operands), self.wide(near), *lines
        )
        totals = [add_up(v.reshape(self.places, -1), 0, np.float64) for v in found]
        if len(rest):
            apart = rest - near
            left = [apart, apart * apart, *(v for _, m in more for v in (m, m * apart))]
            for total, v in zip(totals, left, strict=True):
                total += add_up(v, 0, np.float64)
        sums, squares, *own = totals
        beyond = sums / self.count
        variance = np.maximum(squares / self.count - beyond * beyond, 0)
        if own:
            own[1] = own[1] - own[0] * beyond
        return _Moments(near, beyond, variance, *own)

    def _near(self, x: Any) -> Any:
        """A number near the mean of each channel; 0 where some are not finite."""
        groups, rest = self.cut(x)
        places = groups[::LINES_PER_SAMPLE].reshape(-1, self.channels) if len(groups) else rest
        found = add_up(places, 0) / len(places)
        return np.where(np.isfinite(found), found, 0).astype(x.dtype, copy=False)

    def apply(self, body: generated.Body, matrices: Any, lines: Any) -> Any:
        """A new array: ``body`` of the elements, and of one number for each channel."""
        dtype = matrices[0].dtype
        out = buffers.empty((self.count, self.channels), dtype)
        operands = ((dtype.name, "m n"),) * len(matrices) + ((dtype.name, "n"),) * len(lines)
        region = generated.region(body, "m n", operands)
        (groups, rest), *cuts = (self.cut(v) for v in (out, *matrices))
        wide = [self.wide(line) for line in lines]
        generated.compute(region, [*(m[:, 0] for m, _ in cuts), *wide], [groups[:, 0]])
        if len(rest):
            generated.compute(region, [*(m for _, m in cuts), *lines], [rest])
        if self.at == len(self.shape) - 1:
            return out.reshape(self.shape)
        kept = (*self.shape[: self.at], *self.shape[self.at + 1 :], self.channels)
        return np.moveaxis(out.reshape(kept), -1, self.at)


def _line_body(s: Any, near: Any, *lines: Any) -> Any:
    apart = [s.subtract(x, near) for x in lines[:LINES_PER_SUM]]
    terms = [apart, [s.multiply(x, x) for x in apart]]
    if g := lines[LINES_PER_SUM:]:
        terms += [list(g), [s.multiply(u, x) for u, x in zip(g, apart, strict=True)]]
    return tuple(s.sum(_total(s, column), "m") for column in terms)


def _total(s: Any, terms: Any) -> Any:
    """The sum of a power of two of values, by halves."""
    while len(terms) > 1:
        terms = [s.add(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def _repeated(line: Any, count: int) -> Any:
    """A line so many times, one behind the other."""
    wide = np.empty((count, len(line)), line.dtype)
    wide[...] = line
    return wide.reshape(-1)


def _in_planes(shape: tuple[int, ...], at: int) -> bool:
    return math.prod(shape[at + 1 :]) >= MIN_PLANE_ELEMENTS


def _form(shape: tuple[int, ...], at: int) -> _Planes | _Lines:
    return (_Planes if _in_planes(shape, at) else _Lines)(shape, at)


def _pays(shape: tuple[int, ...], at: int) -> bool:
    size = math.prod(shape)
    return size > 0 and generated.pays(
        size, MIN_COMPILED_PLANES if _in_planes(shape, at) else MIN_COMPILED_LINES
    )


# Other arrays ------------------------------------------------------------------------------------


class _Columns:
    """``x`` as a matrix with a column per channel, and several rows side by side in one.

    So NumPy's inner loops are long where channels are few.
    """

    def __init__(self, x: Any, at: int) -> None:
        moved = np.ascontiguousarray(np.moveaxis(x, at, -1))
        self.channels = x.shape[at]
        self.count = x.size // self.channels if self.channels else 0
        self.folds = math.gcd(
            self.count, 1 << max(0, (FOLDED_ROW_ELEMENTS // max(self.channels, 1)).bit_length())
        )
        self.folds = max(self.folds, 1)
        self.rows = moved.reshape(self.count // self.folds, self.folds * self.channels)
        self.shape, self.at = moved.shape, at
        self.height = tile_height(self.rows.shape[1], TILE_ELEMENTS)
        self.tiles = -(-self.rows.shape[0] // self.height)

    def each_tile(self, work: Any) -> None:
        """Call ``work(number, its rows)`` for every tile."""
        each_tile(*self.rows.shape, work, TILE_ELEMENTS, MIN_SHARED_TILE_ELEMENTS)

    def like(self, x: Any) -> Any:
        """Another array of the same shape in the same form."""
        moved = np.moveaxis(x, self.at, -1)
        return np.ascontiguousarray(moved).reshape(self.rows.shape)

    def back(self, rows: Any) -> Any:
        """The array that ``rows`` is a form of."""
        return np.moveaxis(rows.reshape(self.shape), -1, self.at)

    def spread(self, vector: Any) -> Any:
        """A value per channel for each column of ``rows``."""
        return _repeated(vector, self.folds).reshape(1, -1)

    def total(self, rows: Any) -> Any:
        """Sums per channel."""
        return add_up(add_up(rows, 0).reshape(self.folds, self.channels), 0)


def _tile_moments(columns: _Columns, tile: Any, buffer: Any) -> tuple[Any, Any]:
    """Mean and sum of squared deviations per channel; ``buffer`` holds the deviations."""
    size = tile.size // columns.channels
    center = columns.total(tile) / size
    np.subtract(tile, columns.spread(center), buffer)
    squares = np.multiply(buffer, buffer, scratch("squares", buffer.shape, buffer.dtype))
    return center, columns.total(squares)


def _joined_moments(columns: _Columns, moments: Any, sizes: Any) -> tuple[Any, Any]:
    """Mean and variance from those of tiles (Chan, Golub and LeVeque 1983)."""
    total = max(columns.count, 1)
    center = add_up(moments[0] * sizes, 0) / total
    squares = add_up(moments[1], 0) + add_up(sizes * (moments[0] - center) ** 2, 0)
    return center, squares / total


def _tile_sizes(columns: _Columns, dtype: Any) -> Any:
    """Elements per channel in each tile."""
    starts = np.arange(columns.tiles) * columns.height
    rows = np.minimum(starts + columns.height, columns.rows.shape[0]) - starts
    return (rows * columns.folds).astype(dtype).reshape(-1, 1)


def _tiled_training(
    x: Any, scale: Any, offset: Any, at: int, epsilon: float
) -> tuple[Any, Any, Any]:
    columns = _Columns(x, at)
    moments = np.zeros((2, columns.tiles, columns.channels), x.dtype)
    out = np.empty_like(columns.rows)

    def measure(i: int, s: slice) -> None:
        moments[0, i], moments[1, i] = _tile_moments(columns, columns.rows[s], out[s])

    columns.each_tile(measure)
    center, variance = _joined_moments(columns, moments, _tile_sizes(columns, x.dtype))
    factor = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    if scale is not None:
        factor *= scale
    wide_factor = columns.spread(factor)
    shifts = (moments[0] - center) * factor
    if offset is not None:
        shifts += offset

    def apply(i: int, s: slice) -> None:
        # The tile holds deviations from its own mean; what is missing is a number per channel.
        tile = np.multiply(out[s], wide_factor, out[s])
        np.add(tile, columns.spread(shifts[i]), tile)

    columns.each_tile(apply)
    if not columns.count:
        center, variance = np.full_like(center, np.nan), np.full_like(center, np.nan)
    return columns.back(out), center, variance


def _tiled_gradient(
    x: Any, g: Any, g_mean: Any, g_variance: Any, scale: Any, at: int, epsilon: float
) -> tuple[Any, Any, Any]:
    columns = _Columns(x, at)
    g_rows = columns.like(g)
    out = np.empty_like(columns.rows)
    centers, moments = _gradient_moments(columns, g_rows, out)
    of_scale, weight, slope, level = _factors(
        moments, g_mean, g_variance, scale, epsilon, max(columns.count, 1)
    )
    levels = level + (centers - moments.near) * slope
    wide_weight, wide_slope = columns.spread(weight), columns.spread(slope)

    def apply(i: int, s: slice) -> None:
        # As in training, the tile holds deviations from its own mean.
        tile = np.multiply(out[s], wide_slope, out[s])
        np.add(tile, columns.spread(levels[i]), tile)
        weighted = scratch("squares", tile.shape, tile.dtype)
        np.add(tile, np.multiply(g_rows[s], wide_weight, weighted), tile)

    columns.each_tile(apply)
    return columns.back(out), of_scale, moments.total


def _gradient_moments(columns: _Columns, g_rows: Any, buffer: Any) -> tuple[Any, _Moments]:
    """The means of tiles, and the moments of all; ``buffer`` gets deviations from the means."""
    moments = np.zeros((4, columns.tiles, columns.channels), buffer.dtype)

    def measure(i: int, s: slice) -> None:
        tile = buffer[s]
        moments[0, i], moments[1, i] = _tile_moments(columns, columns.rows[s], tile)
        moments[2, i] = columns.total(g_rows[s])
        products = scratch("squares", tile.shape, tile.dtype)
        moments[3, i] = columns.total(np.multiply(g_rows[s], tile, products))

    columns.each_tile(measure)
    center, variance = _joined_moments(columns, moments, _tile_sizes(columns, buffer.dtype))
    # The deviations were those from the means of the tiles.
    products = add_up(moments[3] + moments[2] * (moments[0] - center), 0)
    return moments[0], _Moments(center, 0, variance, add_up(moments[2], 0), products)
