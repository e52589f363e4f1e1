"""Batch normalization of NumPy arrays with the statistics of the batch, and its gradient.

Generated kernels compute the sums over each channel, then the result, and read their operands from
memory once for each. Contiguous channels in whole vectors use one call, also for few elements,
others only large arrays. The rest is processed in tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.rows import add_up, each_tile, tile_height
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.batch_normalization import BatchNormConfig, BatchNormWriter
from eagerflow.primitives.llvm.staged_kernel import (
    Held,
    Prepared,
    Room,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import scratch

# NumPy calls are short: below these sizes, call overhead exceeds the arithmetic, and threads
# contend for the lock.
FOLDED_ROW_ELEMENTS = 1 << 12  # of a row that folds several positions
TILE_ELEMENTS = 1 << 17
MIN_SHARED_TILE_ELEMENTS = 1 << 19  # of all tiles, from which threads share them
MIN_PLANE_ELEMENTS = 16  # contiguous elements of a channel from which they form a row
LINE_ELEMENTS = 1 << 10  # of a row of several positions with all channels
LINES_PER_SUM = 4  # rows that are added before their sum is added to the channels' sum
LINES_PER_SAMPLE = 64  # one in so many rows is sampled for the location of a channel's numbers
MIN_COMPILED_PLANES, MIN_COMPILED_LINES = 1 << 13, 1 << 16  # elements, for generated kernels
PIECE_ELEMENTS = 1 << 13  # summed before the sums are combined in float64
MAX_PIECES = 512
MAX_CHANNELS = 1 << 12  # so that a piece has several rows
MIN_SHARED_ELEMENTS = 1 << 18  # threshold for using another thread


class _Moments(NamedTuple):
    """Sums over channels; ``near`` is subtracted from all elements, the mean is ``near + rest``.

    In large arrays all but ``near`` are float64. ``total`` is the sum of a second array g,
    ``products`` that of g times the deviations.
    """

    near: Any
    rest: Any
    mean: Any
    variance: Any
    total: Any = None
    products: Any = None


def training(x: Any, scale: Any, offset: Any, at: int, epsilon: float) -> tuple[Any, Any, Any]:
    """``x`` normalized over all axes but ``at``, scaled and shifted; means and variances.

    ``scale`` and ``offset``, or None, have one element for each channel.
    """
    if lanes := _lanes_of(x, at):
        return _program(x, epsilon, lanes, scale=scale, offset=offset)
    form = _form(at, x)
    moments = form.moments()
    factor = 1 / np.sqrt(moments.variance + epsilon)
    if scale is not None:
        factor = factor * scale
    shift = -moments.rest * factor
    if offset is not None:
        shift = shift + offset
    y = form.apply(moments.near, factor, shift)
    mean = moments.mean.astype(x.dtype, copy=False)
    variance = moments.variance.astype(x.dtype, copy=False)
    return (y, mean, variance) if x.size else (y, mean + np.nan, variance + np.nan)


def gradient(
    x: Any, g: Any, g_mean: Any, g_variance: Any, scale: Any, *, at: int, epsilon: float
) -> tuple[Any, Any, Any]:
    """Gradients of ``training`` for x, scale and offset, from those of its three results."""
    if lanes := _lanes_of(x, at):
        own = {"g": g, "of_mean": g_mean, "of_variance": g_variance}
        return _program(x, epsilon, lanes, scale=scale, **own)
    form = _form(at, x, g)
    moments = form.moments()
    factor = 1 / np.sqrt(moments.variance + epsilon)
    of_scale = moments.products * factor
    # The gradient of x is weight * g + slope * (x - mean) + level.
    weight = factor if scale is None else factor * scale
    slope = (2 * g_variance - weight * factor * of_scale) / form.count
    level = (g_mean - weight * moments.total) / form.count - moments.rest * slope
    of_x = form.apply(moments.near, slope, level, weight)
    of_offset = moments.total.astype(x.dtype, copy=False)
    return of_x, of_scale.astype(x.dtype, copy=False), of_offset


# Channels side by side, in whole vectors ---------------------------------------------------------


def _lanes_of(x: Any, at: int) -> int:
    """The vector length in elements if channels consist of whole vectors; otherwise 0."""
    if (
        not generated.pays(math.prod(x.shape))
        or at != len(x.shape) - 1
        or x.dtype.char not in "fd"
        or x.shape[-1] > MAX_CHANNELS
    ):
        return 0
    lanes, _ = processor(dtype_name(x.dtype))
    fits = [n for n in (lanes, lanes // 2) if n > 1 and x.shape[-1] % n == 0]
    return fits[0] if fits else 0


@kept
def _kernel(config: BatchNormConfig) -> StagedKernel[BatchNormWriter]:
    return StagedKernel(BatchNormWriter, config)


def _program(x: Any, epsilon: float, lanes: int, **given: Any) -> tuple[Any, Any, Any]:
    """The three results of ``training``, or with ``g`` those of ``gradient``."""
    given = {k: np.ascontiguousarray(v, x.dtype) for k, v in given.items() if v is not None}
    x = np.ascontiguousarray(x)
    made = buffers.empty(x.shape, x.dtype), *np.empty((2, x.shape[-1]), x.dtype)
    _staged(x, made, epsilon, lanes, **given).run()
    return made


def _staged(x: Any, made: Sequence[Any], epsilon: float, lanes: int, **given: Any) -> StagedCall:
    """The kernel that writes the three results, for contiguous arrays of one dtype."""
    prepared = _prepared(x.size // x.shape[-1], x.shape[-1], x.dtype, epsilon, lanes, *given)
    y, first, second = made
    return prepared.on(x=x, y=y, first=first, second=second, **given)


@kept
def _prepared(
    rows: int, channels: int, dtype: Any, epsilon: float, lanes: int, *given: str
) -> Prepared:
    """The kernel for so many rows; ``given`` are the names of the arrays besides x."""
    about = (name in given for name in ("scale", "offset", "g"))
    kernel = _kernel(BatchNormConfig(dtype_name(dtype), channels, lanes, *about))
    height = max(PIECE_ELEMENTS // channels, -(-rows // MAX_PIECES), 1)
    line = channels * dtype.itemsize
    return Prepared(
        kernel,
        (rows, 1, height, 1),
        rows * channels >= MIN_SHARED_ELEMENTS,
        sums=Room(-(-rows // height) * kernel.writer.kinds * line),
        lines=Room(4 * line),
        numbers=Held(np.array([epsilon, rows], np.float64)),
    )


_GIVEN = ("x", "scale", "offset"), ("x", "g", "of_mean", "of_variance", "scale")


def native(*like: Any, at: int, epsilon: float, back: bool) -> Callable[..., Any] | None:
    """A segment's call of ``training``, or of its gradient if ``back``; None if unsuitable.

    ``like`` are specs of the arguments, or None. The call takes the arrays of the arguments, then
    those of the results.
    """
    names, x = _GIVEN[back], like[0]
    lanes = _lanes_of(x, at)
    if not lanes or any(v is not None and v.dtype != x.dtype for v in like):
        return None

    def staged(*arrays: Any) -> StagedCall | None:
        own, made = arrays[: len(names)], arrays[len(names) :]
        given = {k: v for k, v in zip(names, own, strict=True) if v is not None}
        if not all(v.flags.c_contiguous for v in given.values()):
            return None
        return _staged(given.pop("x"), made, epsilon, lanes, **given)

    return staged


# Large arrays ------------------------------------------------------------------------------------


def _affine_body(s: Any, x: Any, near: Any, slope: Any, level: Any) -> Any:
    return s.add(s.multiply(s.subtract(x, near), slope), level)


def _affine_sum_body(s: Any, x: Any, g: Any, near: Any, slope: Any, level: Any, weight: Any) -> Any:
    return s.add(s.multiply(g, weight), _affine_body(s, x, near, slope, level))


# Each class for large arrays has ``count``, the elements of a channel, ``moments()``, and
# ``apply(near, slope, level, weight)``: a new array, (x - near) * slope + level, to which g *
# weight is added if there is one. All four have one number for each channel.


class _Planes:
    """Channels-first arrays: a contiguous plane for each example and channel."""

    def __init__(self, at: int, *arrays: Any) -> None:
        self.shape = shape = arrays[0].shape
        self.length = math.prod(shape[at + 1 :])
        planes = math.prod(shape[:at]), shape[at], self.length
        self.matrices = [x.reshape(planes) for x in arrays]
        self.count = planes[0] * self.length

    def moments(self) -> _Moments:
        """The moments of all planes, combined (Chan, Golub and LeVeque 1983)."""
        dtype = self.matrices[0].dtype
        operands = ((dtype_name(dtype), "a m n"),) * len(self.matrices)
        found = generated.run(generated.region(_plane_body, "a m n", operands), *self.matrices)
        means, squares, *sums = (v.astype(np.float64) for v in found)
        mean = add_up(means, 0) / len(means)
        apart = means - mean
        squares = add_up(squares, 0) + add_up(apart * apart, 0) * self.length
        near = np.where(np.isfinite(mean), mean, 0).astype(dtype)
        own = [add_up(sums[0], 0), add_up(sums[1] + sums[0] * apart, 0)] if sums else []
        return _Moments(near, mean - near, mean, squares / self.count, *own)

    def apply(self, near: Any, slope: Any, level: Any, weight: Any = None) -> Any:
        """An affine function of all elements."""
        region, lines = _region("a m n", "m", self.matrices, near, slope, level, weight)
        return generated.run(region, *self.matrices, *lines).reshape(self.shape)


def _region(
    axes: str, along: str, matrices: Any, near: Any, slope: Any, level: Any, weight: Any
) -> tuple[Any, list[Any]]:
    """The region of ``apply``, and its operands besides the matrices."""
    dtype, lines = matrices[0].dtype, [near, slope, level]
    body: generated.Body = _affine_body
    if weight is not None:
        body, lines = _affine_sum_body, [*lines, weight]
    name = dtype_name(dtype)
    operands = ((name, axes),) * len(matrices) + ((name, along),) * len(lines)
    region = generated.region(body, axes, operands)
    return region, [line.astype(dtype, copy=False) for line in lines]


def _plane_body(s: Any, x: Any, *g: Any) -> Any:
    mean = s.mean(x, "n")
    apart = s.subtract(x, mean)
    squares = s.sum(s.multiply(apart, apart), "n")
    if not g:
        return mean, squares
    return mean, squares, s.sum(g[0], "n"), s.sum(s.multiply(g[0], apart), "n")


class _Lines:
    """Channels-last arrays: lines with all channels of several positions, and a remainder.

    Lines are long enough for fast inner loops with few channels.
    """

    def __init__(self, at: int, *arrays: Any) -> None:
        self.shape, self.at = arrays[0].shape, at
        self.channels = self.shape[at]
        self.count = math.prod(self.shape) // self.channels
        self.places = max(1, LINE_ELEMENTS // self.channels)
        even = math.gcd(
            self.count, 1 << self.places.bit_length() - 1 + LINES_PER_SUM.bit_length() - 1
        )
        if even * 2 > self.places * LINES_PER_SUM:
            self.places = even // LINES_PER_SUM  # no remainder
        self.matrices = [_channels_last(x, at).reshape(-1, self.channels) for x in arrays]

    def cut(self, x: Any, lines: int = 1) -> tuple[Any, Any]:
        """A matrix as groups of lines, and the remaining positions."""
        step = self.places * lines
        whole = len(x) // step * step
        return x[:whole].reshape(-1, lines, self.places * self.channels), x[whole:]

    def wide(self, line: Any) -> Any:
        """One number for each channel, repeated for each element of a line."""
        return _repeated(line, self.places)

    def moments(self) -> _Moments:
        """The moments of numbers shifted by one near the mean.

        The variance is then a difference of two means of squares, the larger of which is at most
        ``LINES_PER_SAMPLE`` times the result: ``near`` is the mean of a sample, and its squared
        distance from the mean, times the sample's share, is bounded by the variance.
        """
        near = self._near(self.matrices[0])
        (groups, rest), *more = (self.cut(v, LINES_PER_SUM) for v in self.matrices)
        lines = [v[:, i] for v in (groups, *(m[0] for m in more)) for i in range(LINES_PER_SUM)]
        name = dtype_name(near.dtype)
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
        return _Moments(near, beyond, near + beyond, variance, *own)

    def _near(self, x: Any) -> Any:
        """A number near the mean of each channel; 0 for channels with non-finite numbers."""
        groups, rest = self.cut(x)
        places = groups[::LINES_PER_SAMPLE].reshape(-1, self.channels) if len(groups) else rest
        found = add_up(places, 0) / len(places)
        return np.where(np.isfinite(found), found, 0).astype(x.dtype, copy=False)

    def apply(self, near: Any, slope: Any, level: Any, weight: Any = None) -> Any:
        """An affine function of all elements."""
        region, lines = _region("m n", "n", self.matrices, near, slope, level, weight)
        out = buffers.empty((self.count, self.channels), near.dtype)
        (groups, rest), *cuts = (self.cut(v) for v in (out, *self.matrices))
        wide = [self.wide(line) for line in lines]
        generated.compute(region, [*(m[:, 0] for m, _ in cuts), *wide], [groups[:, 0]])
        if len(rest):
            generated.compute(region, [*(m for _, m in cuts), *lines], [rest])
        return _in_shape(out, self.shape, self.at)


def _line_body(s: Any, near: Any, *lines: Any) -> Any:
    apart = [s.subtract(x, near) for x in lines[:LINES_PER_SUM]]
    terms = [apart, [s.multiply(x, x) for x in apart]]
    if g := lines[LINES_PER_SUM:]:
        terms += [list(g), [s.multiply(u, x) for u, x in zip(g, apart, strict=True)]]
    return tuple(s.sum(_total(s, column), "m") for column in terms)


def _total(s: Any, terms: Any) -> Any:
    """The sum of a power of two of values, by pairwise halving."""
    while len(terms) > 1:
        terms = [s.add(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def _repeated(line: Any, count: int) -> Any:
    """A line, repeated."""
    wide = np.empty((count, len(line)), line.dtype)
    wide[...] = line
    return wide.reshape(-1)


def _channels_last(x: Any, at: int) -> Any:
    """A contiguous array with the channels along its last axis."""
    return np.ascontiguousarray(x if at == x.ndim - 1 else np.moveaxis(x, at, -1))


def _in_shape(matrix: Any, shape: tuple[int, ...], at: int) -> Any:
    """An array of this shape from a channels-last one."""
    if at == len(shape) - 1:
        return matrix.reshape(shape)
    moved = matrix.reshape(*shape[:at], *shape[at + 1 :], shape[at])
    return np.moveaxis(moved, -1, at)


def _in_planes(shape: tuple[int, ...], at: int) -> bool:
    return math.prod(shape[at + 1 :]) >= MIN_PLANE_ELEMENTS


def _form(at: int, *arrays: Any) -> _Planes | _Lines | _Columns:
    if not _pays(arrays[0].shape, at):
        return _Columns(at, *arrays)
    return (_Planes if _in_planes(arrays[0].shape, at) else _Lines)(at, *arrays)


def _pays(shape: tuple[int, ...], at: int) -> bool:
    size = math.prod(shape)
    return size > 0 and generated.pays(
        size, MIN_COMPILED_PLANES if _in_planes(shape, at) else MIN_COMPILED_LINES
    )


# Other arrays ------------------------------------------------------------------------------------


class _Columns:
    """A matrix with a column for each channel, with several rows folded into one.

    So NumPy's inner loops are long with few channels. Each tile of rows has its own ``near``.
    """

    def __init__(self, at: int, *arrays: Any) -> None:
        x = arrays[0]
        self.shape, self.at = x.shape, at
        self.channels = x.shape[at]
        places = x.size // self.channels if self.channels else 0
        self.count = max(places, 1)
        folded = max(0, (FOLDED_ROW_ELEMENTS // max(self.channels, 1)).bit_length())
        self.folds = max(math.gcd(places, 1 << folded), 1)
        shape = places // self.folds, self.folds * self.channels
        self.x, *self.g = (_channels_last(a, at).reshape(shape) for a in arrays)
        self.out = np.empty_like(self.x)
        self.height = tile_height(shape[1], TILE_ELEMENTS)

    def each_tile(self, work: Any) -> None:
        """Call ``work(number, its rows)`` for every tile."""
        rows, width = self.x.shape
        each_tile(rows, width, work, TILE_ELEMENTS, MIN_SHARED_TILE_ELEMENTS)

    def spread(self, vector: Any) -> Any:
        """A value per channel, repeated for each column of a matrix."""
        return _repeated(vector, self.folds).reshape(1, -1)

    def total(self, rows: Any) -> Any:
        """Sums per channel."""
        return add_up(add_up(rows, 0).reshape(self.folds, self.channels), 0)

    def moments(self) -> _Moments:
        """The moments of all tiles, combined as those of planes are; deviations are kept."""
        starts = np.arange(0, len(self.x), self.height)
        moments = np.zeros((2 + 2 * len(self.g), len(starts), self.channels), self.x.dtype)

        def measure(i: int, s: slice) -> None:
            tile, apart = self.x[s], self.out[s]
            center = self.total(tile) / (tile.size // self.channels)
            np.subtract(tile, self.spread(center), apart)
            products = scratch("squares", apart.shape, apart.dtype)
            moments[0, i] = center
            moments[1, i] = self.total(np.multiply(apart, apart, products))
            for g in self.g:
                moments[2, i] = self.total(g[s])
                moments[3, i] = self.total(np.multiply(g[s], apart, products))

        self.each_tile(measure)
        sizes = np.minimum(self.height, len(self.x) - starts) * self.folds
        sizes = sizes.astype(self.x.dtype).reshape(-1, 1)
        centers, squares, *sums = moments
        mean = add_up(centers * sizes, 0) / self.count
        apart = centers - mean
        variance = (add_up(squares, 0) + add_up(sizes * apart**2, 0)) / self.count
        own = [add_up(sums[0], 0), add_up(sums[1] + sums[0] * apart, 0)] if sums else []
        return _Moments(centers, -apart, mean, variance, *own)

    def apply(self, near: Any, slope: Any, level: Any, weight: Any = None) -> Any:
        """As above, but ``level`` has numbers for each tile and channel."""
        slope = self.spread(slope)
        weight = None if weight is None else self.spread(weight)

        def fill(i: int, s: slice) -> None:
            tile = np.multiply(self.out[s], slope, self.out[s])
            np.add(tile, self.spread(level[i]), tile)
            for g in self.g:
                weighted = scratch("squares", tile.shape, tile.dtype)
                np.add(tile, np.multiply(g[s], weight, weighted), tile)

        self.each_tile(fill)
        return _in_shape(self.out, self.shape, self.at)
