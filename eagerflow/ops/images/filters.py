"""Filters of images: blurred by a bell curve, edges, and channels divided by their neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import divide
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.powers import pow as power
from eagerflow.ops.nn.convolution import conv
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import broadcast_to, moveaxis, reshape
from eagerflow.primitives.windows import per_axis, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["gaussian_blur", "local_response_norm", "sobel_edges"]


def _along(x: Any, axis: int, weights: Any) -> Any:
    """Weighted sums of each element and its neighbors along an axis, zero-padded."""
    last = moveaxis(x, axis, -1)
    rows = reshape(last, (product(last.shape[:-1]), last.shape[-1], 1))
    return moveaxis(reshape(conv(rows, reshape(weights, (-1, 1, 1))), last.shape), -1, axis)


def _wide(x: Any) -> Any:
    return astype(x, promote(x.dtype, np.dtype("float32")))


# Bell curves --------------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
)
def gaussian_blur(x: Any, sigma: Any = 1.0, /, kernel_size: Any = 3) -> Tensor:
    """Gaussian blur of images, with zero padding.

    ``x`` is (batch, *spatial, channels). ``sigma`` is the standard deviation in pixels, a number or
    one for each spatial axis, and may be a tensor to which gradients pass; ``kernel_size`` is
    likewise the number of pixels of the kernel; the weights add up to 1. Raises ShapeError for
    shapes and sizes that do not fit.

    >>> ef.gaussian_blur(ef.tensor([0.0, 0.0, 1.0, 0.0, 0.0]).reshape((1, 5, 1))).reshape((-1,))
    Tensor([0.    , 0.2741, 0.4519, 0.2741, 0.    ], float32, cpu:0)
    """
    rank = spatial_rank(x, "x")
    sizes = per_axis(kernel_size, rank, "kernel_size")
    if sigma.ndim > 1 or (sigma.ndim == 1 and sigma.shape[0] not in (1, rank)):
        raise ShapeError(
            f"sigma of shape {sigma.shape} for {rank} spatial axes",
            argument="sigma",
            expected="a number, or one for each spatial axis",
        )
    sigmas, found = broadcast_to(_wide(sigma), (rank,)), _wide(x)
    for axis, n in enumerate(sizes):
        steps = astype(arange(n, device=str(x.device)), sigmas.dtype) - (n - 1) / 2
        scaled = steps / sigmas[axis]
        bell = exp(scaled * scaled * -0.5)
        found = _along(found, axis + 1, astype(bell / summed(bell), found.dtype))
    return astype(found, x.dtype)


# Edges --------------------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
)
def sobel_edges(x: Any, /) -> Tensor:
    """Sobel filters of images along rows and columns, with zero padding.

    ``x`` is (batch, rows, columns, channels), the result (batch, rows, columns, channels, 2): how
    the image grows from row to row, and from column to column, eightfold. Raises ShapeError for
    other shapes.

    >>> x = ef.broadcast_to(ef.arange(4.0).reshape((1, 1, 4, 1)), (1, 3, 4, 1))
    >>> ef.sobel_edges(x)[0, 1, 1, 0]
    Tensor([0., 8.], float32, cpu:0)
    """
    if x.ndim != 4:
        raise ShapeError(
            f"{x.ndim} axes are not those of images",
            argument="x",
            expected="(batch, rows, columns, channels)",
        )
    wide = _wide(x)
    slope, smooth = (as_tensor(np.array(w), wide.dtype, x.device) for w in ((-1, 0, 1), (1, 2, 1)))
    edges = [_along(_along(wide, 1, a), 2, b) for a, b in ((slope, smooth), (smooth, slope))]
    return astype(stack(edges, axis=-1), x.dtype)


# Neighboring channels -----------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
)
def local_response_norm(
    x: Any, /, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Each value over a power of the mean square of the channels around it.

    ``x / (k + alpha * mean) ** beta`` (Krizhevsky et al., 2012), where the mean is that of the
    squares in ``size`` channels, zero-padded at both ends; ``x`` is (..., channels). As in PyTorch;
    TensorFlow's ``alpha`` is ``alpha / size`` here. Raises ShapeError without channels and for
    sizes below 1.

    >>> ef.local_response_norm(ef.tensor([[1.0, 2.0, 2.0]]), 3, alpha=3.0, beta=1.0)
    Tensor([[0.1667, 0.2   , 0.2222]], shape=(1, 3), float32, cpu:0)
    """
    (count,) = per_axis(size, 1, "size")
    if not x.ndim:
        raise ShapeError("a number has no channels", argument="x", expected="(..., channels)")
    wide, channels = _wide(x), x.shape[-1]
    squares = pad(wide * wide, ((0, 0),) * (x.ndim - 1) + ((count // 2, (count - 1) // 2),))
    total = squares[..., :channels]
    for i in range(1, count):
        total = total + squares[..., i : i + channels]
    return astype(divide(wide, power(k + total * (alpha / count), beta)), x.dtype)
