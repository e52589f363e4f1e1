"""Pixels that move between channels and space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import P, R, composed
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.primitives.windows import per_axis, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["depth_to_space", "pixel_shuffle", "pixel_unshuffle", "space_to_depth"]


def _factors(x: Any, factor: Any) -> tuple[int, ...]:
    return per_axis(factor, spatial_rank(x, "x"), "factor")


def _to_space(x: Any, factor: Any, last: bool) -> Any:
    """Channels as blocks of pixels; ``last`` means that the new channels are the fastest index."""
    factors = _factors(x, factor)
    rank, whole, channels = len(factors), math.prod(factors), x.shape[-1]
    if isinstance(channels, int) and channels % whole:
        raise ShapeError(
            f"{channels} channels are not whole blocks of {whole}",
            argument="x",
            expected=f"a multiple of {whole} channels",
        )
    left = channels // whole
    block = (*factors, left) if last else (left, *factors)
    apart = reshape(x, (*x.shape[:-1], *block))
    first = 1 + rank + (not last)
    order = [axis for i in range(rank) for axis in (1 + i, first + i)]
    found = permute_dims(apart, (0, *order, 1 + 2 * rank if last else 1 + rank))
    sizes = (n * r for n, r in zip(x.shape[1:-1], factors, strict=True))
    return reshape(found, (x.shape[0], *sizes, left))


def _to_channels(x: Any, factor: Any, last: bool) -> Any:
    """Blocks of pixels as channels: the inverse of ``_to_space``."""
    factors = _factors(x, factor)
    rank, whole, sizes = len(factors), math.prod(factors), x.shape[1:-1]
    for n, r in zip(sizes, factors, strict=True):
        if isinstance(n, int) and n % r:
            raise ShapeError(
                f"{n} elements are not whole blocks of {r}",
                argument="x",
                expected=f"sizes that {factors} divide",
            )
    pairs = [m for n, r in zip(sizes, factors, strict=True) for m in (n // r, r)]
    apart = reshape(x, (x.shape[0], *pairs, x.shape[-1]))
    outer, inner = (tuple(range(first, 2 * rank + 1, 2)) for first in (1, 2))
    channels = (*inner, 2 * rank + 1) if last else (2 * rank + 1, *inner)
    found = permute_dims(apart, (0, *outer, *channels))
    return reshape(found, (x.shape[0], *found.shape[1 : 1 + rank], x.shape[-1] * whole))


def _space_reference(last: bool) -> Any:
    def reference(x: Any, factor: Any) -> Any:
        rank = x.ndim - 2
        factors = factor if isinstance(factor, tuple) else (factor,) * rank
        whole, left = math.prod(factors), x.shape[-1] // math.prod(factors)
        sizes = [n * r for n, r in zip(x.shape[1:-1], factors, strict=True)]
        found = np.zeros((len(x), *sizes, left), x.dtype)
        for n, *at, c in np.ndindex(found.shape):
            inner = int(
                np.ravel_multi_index([p % r for p, r in zip(at, factors, strict=True)], factors)
            )
            outer = [p // r for p, r in zip(at, factors, strict=True)]
            found[(n, *at, c)] = x[(n, *outer, inner * left + c if last else c * whole + inner)]
        return found

    return reference


def _channels_reference(last: bool) -> Any:
    def reference(x: Any, factor: Any) -> Any:
        rank = x.ndim - 2
        factors = factor if isinstance(factor, tuple) else (factor,) * rank
        sizes = [n // r for n, r in zip(x.shape[1:-1], factors, strict=True)]
        shape = (len(x), *sizes, x.shape[-1] * math.prod(factors))
        places = np.arange(math.prod(shape)).reshape(shape)
        back = _space_reference(last)(places, factor)
        found = np.zeros(math.prod(shape), x.dtype)
        found[back.ravel()] = x.ravel()
        return found.reshape(shape)

    return reference


_BLOCKS = (
    ((2, 2, 3, 8), 2),
    ((1, 2, 2, 6), (3, 2)),
    ((2, 3, 4), 2),
    ((1, 2, 1, 2, 8), 2),
    ((1, 2, 2, 3), 1),
    ((0, 2, 2, 4), 2),
)


def _block_samples(back: bool) -> Any:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = []
        for shape, factor in _BLOCKS:
            given = _space_reference(True)(np.zeros(shape), factor).shape if back else shape
            found.append(Sample((make(rng, dtype, given),), {"factor": factor}))
        return found

    return samples


def _block_errors(words: str) -> Any:
    return lambda rng: [
        ErrorSample((np.ones((1, 2, 3, 3)),), {"factor": 2}, ShapeError, words),
        ErrorSample((np.ones((1, 2, 4, 4)),), {"factor": 0}, ShapeError, "too small"),
        ErrorSample((np.ones((2, 4)),), {"factor": 2}, ShapeError, "too few"),
    ]


def _space(back: bool, last: bool) -> Callable[[Callable[P, R]], Callable[P, R]]:
    reference = _channels_reference(last) if back else _space_reference(last)
    words = "are not whole blocks"
    return composed(samples=_block_samples(back), reference=reference, errors=_block_errors(words))


@_space(False, False)
def pixel_shuffle(x: Any, /, factor: Any) -> Tensor:
    """Channels that become blocks of pixels, as PyTorch orders them.

    ``x`` is (batch, *spatial, channels); spatial sizes grow by ``factor``, an integer or one for
    each axis, and of the channels the last ones of each group go into the block. Raises ShapeError
    where the channels are not whole blocks.

    >>> ef.pixel_shuffle(ef.arange(4.0).reshape((1, 1, 1, 4)), 2)[0, :, :, 0]
    Tensor([[0., 1.],
            [2., 3.]], shape=(2, 2), float32, cpu:0)
    """
    return _to_space(x, factor, False)


@_space(True, False)
def pixel_unshuffle(x: Any, /, factor: Any) -> Tensor:
    """Blocks of pixels that become channels: the inverse of ``pixel_shuffle``.

    ``x`` is (batch, *spatial, channels), ``factor`` an integer or one for each spatial axis. Raises
    ShapeError where the pixels are not whole blocks.

    >>> ef.pixel_unshuffle(ef.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    return _to_channels(x, factor, False)


@_space(False, True)
def depth_to_space(x: Any, /, factor: Any) -> Tensor:
    """Channels that become blocks of pixels, as TensorFlow orders them.

    ``x`` is (batch, *spatial, channels); spatial sizes grow by ``factor``, an integer or one for
    each axis, and the channels are pixels of a block one after another. Raises ShapeError where the
    channels are not whole blocks.

    >>> ef.depth_to_space(ef.arange(8.0).reshape((1, 1, 1, 8)), 2)[0, 0]
    Tensor([[0., 1.],
            [2., 3.]], shape=(2, 2), float32, cpu:0)
    """
    return _to_space(x, factor, True)


@_space(True, True)
def space_to_depth(x: Any, /, factor: Any) -> Tensor:
    """Blocks of pixels that become channels: the inverse of ``depth_to_space``.

    ``x`` is (batch, *spatial, channels), ``factor`` an integer or one for each spatial axis. Raises
    ShapeError where the pixels are not whole blocks.

    >>> ef.space_to_depth(ef.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    return _to_channels(x, factor, True)
