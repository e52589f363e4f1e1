"""Images turned, sheared, shifted, seen from elsewhere, and parts of them at another size."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones_like, zeros_like
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.images.coordinates import ORDERS
from eagerflow.ops.images.sampling import MODES, check_places, places_dtype, sampled
from eagerflow.ops.linear_algebra.systems import solve
from eagerflow.ops.operands import chosen
from eagerflow.ops.shapes.joining import concat, stack
from eagerflow.ops.shapes.repeating import meshgrid
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.primitives.windows import differ, sizes_of
from eagerflow.tensor import Tensor

__all__ = ["affine_transform", "crop_and_resize", "homography", "perspective_transform"]

FLAT_ORDERS = (0, 1)
"""Nearest and linear: of splines there would be no gain worth their cost."""


def _check_images(x: Any) -> None:
    if x.ndim != 4:
        raise ShapeError(
            f"{x.ndim} axes are not those of images",
            argument="x",
            expected="(batch, rows, columns, channels)",
        )
    check_places(x.shape[1:3])


# Affine and projective ----------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
    singular=True,
)
def affine_transform(
    x: Any,
    transform: Any,
    /,
    order: int = 1,
    mode: str = "grid-constant",
    cval: float = 0.0,
    size: Any = None,
) -> Tensor:
    """Images turned, scaled, sheared, shifted or projected, by eight numbers each.

    ``x`` is (batch, rows, columns, channels), ``transform`` (batch, 8), or (8,) for all: with
    ``[a0, a1, a2, b0, b1, b2, c0, c1]`` the result at column x and row y is the image at column
    ``(a0 x + a1 y + a2) / k`` and row ``(b0 x + b1 y + b2) / k``, where ``k = c0 x + c1 y + 1``, as
    TensorFlow has it. ``order`` is 0 (nearest) or 1 (linear); ``mode`` and ``cval`` extend the
    image, as in ``map_coordinates``; ``size`` are other numbers of rows and columns. Raises
    ShapeError for shapes that do not fit, ArgumentError for other choices.

    >>> x = ef.tensor([1.0, 2.0, 3.0]).reshape((1, 1, 3, 1))
    >>> ef.affine_transform(x, [1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0]).reshape((-1,))
    Tensor([1.5, 2.5, 1.5], float32, cpu:0)
    """
    _check_images(x)
    chosen(order, "order", FLAT_ORDERS)
    chosen(mode, "mode", MODES)
    batch, wanted = x.shape[0], x.shape[1:3] if size is None else sizes_of(size, 2)
    if transform.ndim not in (1, 2) or differ(transform.shape, (batch, 8)[2 - transform.ndim :]):
        raise ShapeError(
            f"a transform of shape {transform.shape} was given for {batch} images",
            argument="transform",
            expected=f"shape (8,) or ({batch}, 8)",
        )
    wide, rows = places_dtype(x, transform), product(transform.shape[:-1])
    a0, a1, a2, b0, b1, b2, c0, c1 = (
        broadcast_to(reshape(astype(transform, wide)[..., i], (rows, 1)), (batch, 1))
        for i in range(8)
    )
    lines = [arange(n, dtype=wide, device=str(x.device)) for n in wanted]
    row, column = (reshape(a, (1, product(wanted))) for a in meshgrid(*lines, indexing="ij"))
    k = c0 * column + c1 * row + 1
    places = ((b0 * column + b1 * row + b2) / k, (a0 * column + a1 * row + a2) / k)
    found = sampled(x, places, ORDERS[order], mode, cval)
    return reshape(found, (batch, *wanted, x.shape[-1]))


# Perspective --------------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
)
def homography(start_points: Any, end_points: Any, /) -> Tensor:
    """The eight numbers for ``affine_transform`` that map four points to four others.

    ``start_points`` and ``end_points`` are (..., 4, 2), each point (column, row); the result is
    (..., 8). Raises ShapeError for other shapes, and EagerflowError where three of the points lie
    on one line.

    >>> points = ef.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    >>> ef.abs(ef.homography(points, points + 1)).round()
    Tensor([1., 0., 1., 0., 1., 1., 0., 0.], float32, cpu:0)
    """
    for name, points in (("start_points", start_points), ("end_points", end_points)):
        if tuple(map(index, points.shape[-2:])) != (4, 2):
            raise ShapeError(
                f"points of shape {points.shape}", argument=name, expected="shape (..., 4, 2)"
            )
    if differ(start_points.shape, end_points.shape):
        raise ShapeError(
            f"points of shape {end_points.shape} for points of shape {start_points.shape}",
            argument="end_points",
            expected="equal shapes",
        )
    dtype = promote(start_points.dtype, end_points.dtype)
    wide = promote(dtype, np.dtype("float32"))
    u, v = (astype(start_points[..., i], wide) for i in range(2))
    x, y = (astype(end_points[..., i], wide) for i in range(2))
    one, none = ones_like(x), zeros_like(x)
    rows = stack([x, y, one, none, none, none, -(u * x), -(u * y)], axis=-1)
    more = stack([none, none, none, x, y, one, -(v * x), -(v * y)], axis=-1)
    found = solve(concat([rows, more], axis=-2), concat([u, v], axis=-1)[..., None])
    return astype(found[..., 0], dtype)


@composed(
    dtypes=FLOATS,
    singular=True,
)
def perspective_transform(
    x: Any,
    start_points: Any,
    end_points: Any,
    /,
    order: int = 1,
    mode: str = "grid-constant",
    cval: float = 0.0,
) -> Tensor:
    """Perspective transform of images: four points are mapped to four others.

    ``x`` is (batch, rows, columns, channels); ``start_points`` and ``end_points`` are (batch, 4,
    2), or (4, 2) for all, each point (column, row). ``order``, ``mode`` and ``cval`` are as in
    ``affine_transform``. Raises ShapeError for shapes that do not fit, and EagerflowError where
    three of the points lie on one line.

    >>> x = ef.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).reshape((1, 2, 3, 1))
    >>> points = ef.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> ef.perspective_transform(x, points, points + ef.tensor([1.0, 0.0]))[0, :, :, 0].round()
    Tensor([[0., 1., 2.],
            [0., 4., 5.]], shape=(2, 3), float32, cpu:0)
    """
    return affine_transform(x, homography(start_points, end_points), order, mode, cval)


# Parts --------------------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
    singular=True,
)
def crop_and_resize(
    x: Any, boxes: Any, box_indices: Any, /, size: Any, order: int = 1, cval: float = 0.0
) -> Tensor:
    """Parts of images, all at one size, as TensorFlow's function of this name.

    ``x`` is (batch, rows, columns, channels). ``boxes`` (count, 4) has the first row and column and
    the last row and column of each part, from 0 (the first pixel) to 1 (the last one);
    ``box_indices`` (count,) are the images. The result is (count, *size, channels). ``order`` is 0
    (nearest) or 1 (linear), ``cval`` the value outside of the images. Raises ShapeError for shapes
    that do not fit, ArgumentError for another order, IndexRangeError for images out of range.

    >>> x = ef.tensor([1.0, 2.0, 3.0]).reshape((1, 1, 3, 1))
    >>> ef.crop_and_resize(x, [[0.0, 0.0, 0.0, 0.5]], [0], (1, 3)).reshape((-1,))
    Tensor([1. , 1.5, 2. ], float32, cpu:0)
    """
    _check_images(x)
    chosen(order, "order", FLAT_ORDERS)
    wanted = sizes_of(size, 2)
    if boxes.ndim != 2 or differ(boxes.shape, (*box_indices.shape, 4)):
        raise ShapeError(
            f"boxes of shape {boxes.shape} with box_indices of shape {box_indices.shape}",
            argument="boxes",
            expected="shapes (count, 4) and (count,)",
        )
    if box_indices.dtype.kind not in "iu":
        raise DTypeError(
            f"{box_indices.dtype.name} values cannot be indices",
            argument="box_indices",
            expected="integers",
        )
    wide = places_dtype(x, boxes)
    boxes, lines = astype(boxes, wide), []
    for axis, (n, made) in enumerate(zip(x.shape[1:3], wanted, strict=True)):
        steps = arange(made, dtype=wide, device=str(x.device))
        part = steps * 0 + 0.5 if isinstance(made, int) and made == 1 else steps / (made - 1)
        first, last = boxes[:, axis : axis + 1], boxes[:, axis + 2 : axis + 3]
        lines.append((first + (last - first) * part) * (n - 1))
    count, shape = boxes.shape[0], (boxes.shape[0], *wanted)
    rows = reshape(broadcast_to(lines[0][:, :, None], shape), (count, product(wanted)))
    columns = reshape(broadcast_to(lines[1][:, None, :], shape), (count, product(wanted)))
    images = astype(box_indices, "int64")
    found = sampled(x, (rows, columns), ORDERS[order], "constant", cval, images)
    return reshape(found, (*shape, x.shape[-1]))
