"""Pixels that move between channels and space."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
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


@composed()
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


@composed()
def pixel_unshuffle(x: Any, /, factor: Any) -> Tensor:
    """Blocks of pixels that become channels: the inverse of ``pixel_shuffle``.

    ``x`` is (batch, *spatial, channels), ``factor`` an integer or one for each spatial axis. Raises
    ShapeError where the pixels are not whole blocks.

    >>> ef.pixel_unshuffle(ef.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    return _to_channels(x, factor, False)


@composed()
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


@composed()
def space_to_depth(x: Any, /, factor: Any) -> Tensor:
    """Blocks of pixels that become channels: the inverse of ``depth_to_space``.

    ``x`` is (batch, *spatial, channels), ``factor`` an integer or one for each spatial axis. Raises
    ShapeError where the pixels are not whole blocks.

    >>> ef.space_to_depth(ef.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    return _to_channels(x, factor, True)
