"""Filters of images: blurred by a bell curve, edges, and channels divided by their neighbors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, DType, promote
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import divide
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.powers import pow as power
from eagerflow.ops.nn.convolution import conv
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.ops.samples import make
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


def _blur_reference(x: Any, sigma: Any, kernel_size: Any) -> Any:
    found, rank = x.astype(float), x.ndim - 2
    sizes = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank
    for axis, (n, s) in enumerate(zip(sizes, np.broadcast_to(sigma, rank), strict=True), 1):
        heights = [math.exp(-(((i - (n - 1) / 2) / float(s)) ** 2) / 2) for i in range(n)]
        bell = np.array(heights) / sum(heights)
        whole = np.pad(
            found, [((n - 1) // 2, n // 2) if a == axis else (0, 0) for a in range(x.ndim)]
        )
        size = x.shape[axis]
        found = sum(w * whole.take(range(i, i + size), axis) for i, w in enumerate(bell))
    return found


def _blur_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    def of(shape: Any, sigma: Any, kernel_size: Any) -> Sample:
        return Sample(
            (make(rng, dtype, shape), np.array(sigma, dtype)), {"kernel_size": kernel_size}
        )

    return [
        of((2, 4, 5, 2), 1.0, 3),
        of((1, 5, 4, 1), [0.5, 2.0], (3, 5)),
        of((1, 4, 3, 2), [1.5, 1.0], (2, 1)),
        of((2, 6, 2), [0.8], 7),
        of((1, 3, 2, 3, 1), 1.2, 3),
        of((0, 3, 3, 1), 1.0, 3),
    ]


@composed(
    samples=_blur_samples,
    reference=_blur_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((1, 3, 3, 1)), 1.0), {"kernel_size": 0}, ShapeError, "too small"),
        ErrorSample((np.ones((1, 3, 3, 1)), np.ones(3)), {}, ShapeError, "sigma of shape"),
        ErrorSample((np.ones((3, 3)), 1.0), {}, ShapeError, "too few"),
    ],
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


def _edges_reference(x: Any) -> Any:
    whole = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = np.zeros((*x.shape, 2))
    for i, j in np.ndindex(x.shape[1:3]):
        part = whole[:, i : i + 3, j : j + 3]
        smooth = np.array([1, 2, 1])[:, None]
        found[:, i, j, :, 0] = ((part[:, 2] - part[:, 0]) * smooth).sum(1)
        found[:, i, j, :, 1] = ((part[:, :, 2] - part[:, :, 0]) * smooth).sum(1)
    return found


@composed(
    samples=lambda rng, dtype: [
        Sample((make(rng, dtype, shape),))
        for shape in (
            (2, 4, 5, 2),
            (1, 1, 3, 1),
            (1, 3, 2, 3),
            (0, 3, 3, 1),
            (2, 2, 2, 1),
            (1, 5, 1, 1),
        )
    ],
    reference=_edges_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((3, 3, 1)),), {}, ShapeError, "are not those of images")
    ],
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


def _norm_reference(x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    found, channels = np.zeros(x.shape), x.shape[-1]
    for c in range(channels):
        near = x[..., max(c - size // 2, 0) : c + (size + 1) // 2].astype(float)
        found[..., c] = x[..., c] / (k + alpha / size * (near**2).sum(-1)) ** beta
    return found


@composed(
    samples=lambda rng, dtype: [
        Sample((make(rng, dtype, shape),), more)
        for shape, more in (
            ((2, 3, 6), {}),
            ((1, 2, 2, 4), {"size": 3, "alpha": 0.5, "beta": 0.5, "k": 2.0}),
            ((2, 5), {"size": 4, "alpha": 1.0}),
            ((3, 3), {"size": 1, "alpha": 2.0}),
            ((2, 2, 3), {"size": 9, "alpha": 2.0}),
            ((0, 2, 3), {}),
        )
    ],
    reference=_norm_reference,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)),), {"size": 0}, ShapeError, "too small"),
        ErrorSample((1.0,), {}, ShapeError, "no channels"),
    ],
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
