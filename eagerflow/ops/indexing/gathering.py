"""Ops that pick elements by tensors of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import ShapeError
from eagerflow.handlers import raised_here
from eagerflow.op import Split
from eagerflow.ops.attributes import Axis, Sizes
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.family import ANY, STANDARD, batch_first, split_elementwise
from eagerflow.ops.indexing.indexing import along_batch, getitem, index_scatter, ordered
from eagerflow.ops.indexing.indices import ALL, check_values, indexing_op, signed
from eagerflow.ops.indexing.positions import flat_positions, native, summed_at, taken_at
from eagerflow.ops.shapes.reshaping import moveaxis, permute_dims, reshape, sized, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["gather", "take", "take_along_axis"]


# Along one axis -----------------------------------------------------------------------------------


def _taken_spec(x: TensorSpec, indices: TensorSpec, axis: Any = None) -> TensorSpec:
    if axis is None:
        return x.like(indices.shape)
    at = normalize_axis(axis, x.ndim)
    return x.like(sized((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), "indices"))


def _take_index(axis: Any, rank: int) -> tuple[Any, ...]:
    """The index equivalent to ``take``."""
    return (*(ALL,) * normalize_axis(axis, rank), "array")


def _take_back(g: Any, y: Any, x: Any, indices: Any, axis: Any) -> Any:
    if axis is None:
        flat = index_scatter(g, indices, shape=(x.size,), index=("array",))
        return reshape(flat, x.shape)
    return index_scatter(g, indices, shape=x.shape, index=_take_index(axis, x.ndim))


def _batched_take(args: Any, batched: Any, size: Any, axis: Any) -> Any:
    x, indices = args
    shape = x.shape[1:] if batched[0] else x.shape
    if axis is None:
        x = reshape(x, (size, product(shape)) if batched[0] else (product(shape),))
        shape, axis = (product(shape),), 0
    index = _take_index(axis, len(shape))
    items, lined, order = along_batch(index, shape, [indices], batched[1:], size, batched[0])
    return ordered(getitem(x, *lined, index=items), order)


def _take_split(x: TensorSpec, indices: TensorSpec, axis: Any = None) -> list[Split]:
    """Along every axis of the indices, and along the axes of ``x`` that are not indexed."""
    at = 0 if axis is None else normalize_axis(axis, x.ndim)
    found = [Split((None, i), at + i) for i in range(indices.ndim)]
    if axis is not None:
        later = indices.ndim - 1
        found += [Split((i, None), i + later * (i > at)) for i in range(x.ndim) if i != at]
    return found


def _quick_take(array: Any, indices: Any, axis: Any = None) -> Any:
    """``take`` for the hot path, of indices that are a Tensor."""
    if type(indices) is not Tensor or indices._kind.dtype.kind != "i":
        raise TypeError("not for the hot path")
    return array.take(indices._array, axis)


@indexing_op(
    dtypes=(ANY, INTEGERS),
    integers="indices",
    infer=_taken_spec,
    trusted=True,
    direct=lambda xp: _quick_take if xp is np else None,
    vjp=(_take_back, None),
    batch=_batched_take,
    split=_take_split,
    onnx=lambda w, x, indices, *, axis: w.Gather(
        w.flat(x) if axis is None else x, w.index(indices), axis=axis or 0
    ),
    method=True,
)
def take(xp: Namespace, x: Array, indices: Array, /, axis: Axis = None) -> Array:
    """The elements, or slices, of a tensor at given positions along an axis.

    ``indices`` is an integer or a tensor of integers of any shape, which replaces ``axis`` in the
    result; negative ones count from the end. Without ``axis`` the tensor is flattened. Raises
    IndexRangeError for indices that the axis does not have.

    >>> ef.take(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 0, 1], axis=0)
    Tensor([[3., 4.],
            [1., 2.],
            [3., 4.]], shape=(3, 2), float32, cpu:0)
    """
    if axis is None:
        x, axis = xp.reshape(x, (-1,)), 0
    at = normalize_axis(axis, x.ndim)
    if xp is not np:
        check_values(xp, indices, at, x.shape[at])
        rows = xp.where(indices < 0, indices + x.shape[at], indices)
        shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
        return xp.reshape(xp.take(x, xp.reshape(rows, (-1,)), axis=at), shape)
    try:
        return x.take(signed(indices), at)
    except raised_here(IndexError):
        check_values(xp, indices, at, x.shape[at])
        raise


def _along_axis(xp: Namespace, indices: Any, shape: Any, axis: int) -> tuple[Any, ...]:
    """The index equivalent to ``take_along_axis``, for a tensor of a shape."""
    places = []
    for i, size in enumerate(shape):
        if i == axis:
            places.append(indices)
        else:
            line = (1,) * i + (size,) + (1,) * (len(shape) - 1 - i)
            places.append(xp.reshape(xp.arange(size), line))
    return tuple(places)


def _check_ranks(x_rank: int, indices: Any) -> None:
    if x_rank != indices.ndim:
        raise ShapeError(
            f"x has {x_rank} axes, indices {indices.ndim}",
            argument="indices",
            expected="as many axes as x",
        )


def _along_shape(shape: tuple[Any, ...], indices: TensorSpec, axis: int) -> tuple[Any, ...]:
    """The shape of ``take_along_axis`` of a tensor of a shape."""
    _check_ranks(len(shape), indices)
    at = normalize_axis(axis, len(shape))
    own = indices.shape
    met = broadcast((*shape[:at], 1, *shape[at + 1 :]), (*own[:at], 1, *own[at + 1 :]))
    return (*met[:at], own[at], *met[at + 1 :])


def _along_operator(w: Any, x: Any, indices: Any, *, axis: int) -> Any:
    at, shape = normalize_axis(axis, x.ndim), w.results[0].shape
    own = (*shape[:at], x.shape[at], *shape[at + 1 :])
    x, indices = (
        y if y.shape == wanted else w.Expand(y, w.shape(wanted))
        for y, wanted in ((x, own), (w.index(indices), shape))
    )
    return w.GatherElements(x, indices, axis=at)


def _batched_along(args: Any, batched: Any, size: Any, axis: int) -> Any:
    x, indices = (
        a if flag else reshape(a, (1, *a.shape)) for a, flag in zip(args, batched, strict=True)
    )
    return take_along_axis(x, indices, normalize_axis(axis, x.ndim - 1) + 1)


def _along_split(x: TensorSpec, indices: TensorSpec, axis: Any = -1) -> list[Split]:
    """Along the indices, and along every other axis; broadcast axes stay whole."""
    at = normalize_axis(axis, x.ndim)
    others = split_elementwise(x.like(_with(x, at)), indices.like(_with(indices, at)))
    return [Split((None, at), at), *(split for split in others if split.axis != at)]


def _with(spec: TensorSpec, at: int) -> Any:
    """The shape with a single element along an axis."""
    return (*spec.shape[:at], 1, *spec.shape[at + 1 :])


@indexing_op(
    dtypes=(ANY, INTEGERS),
    integers="indices",
    infer=lambda x, indices, axis=-1: x.like(_along_shape(x.shape, indices, axis)),
    vjp=(
        lambda g, y, x, indices, axis: unbroadcast(
            scatter_along_axis(g, indices, _spread(x, g, axis), axis), x.shape
        ),
        None,
    ),
    batch=_batched_along,
    split=_along_split,
    onnx=_along_operator,
)
def take_along_axis(xp: Namespace, x: Array, indices: Array, /, axis: int = -1) -> Array:
    """One element for each index, along an axis, with all other axes in step.

    ``indices`` is a tensor of integers with as many axes as ``x``; the other axes broadcast.
    Negative indices count from the end. The results of ``argsort`` and ``argmax`` can be used.
    Raises IndexRangeError for indices that the axis does not have, ShapeError for shapes
    that do not fit.

    >>> x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> ef.take_along_axis(x, ef.tensor([[1], [0]]), axis=1)
    Tensor([[2.],
            [3.]], shape=(2, 1), float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    check_values(xp, indices, at, x.shape[at])
    places = _along_axis(xp, indices, x.shape, at)
    return x[places] if native(xp) else taken_at(xp, x, flat_positions(xp, places, x.shape)[..., 0])


def _spread(x: Any, g: Any, axis: int) -> tuple[Any, ...]:
    """The shape of x with the axes of the result, apart from the one that is indexed."""
    at = normalize_axis(axis, x.ndim)
    return (*g.shape[:at], x.shape[at], *g.shape[at + 1 :])


def _batched_scatter_along(args: Any, batched: Any, size: Any, shape: Any, axis: int) -> Any:
    updates, indices = batch_first(args, batched, size)
    at = normalize_axis(axis, len(shape)) + 1
    return scatter_along_axis(updates, indices, (size, *shape), at)


def _scatter_along_spec(
    updates: TensorSpec, indices: TensorSpec, shape: Any, axis: int
) -> TensorSpec:
    wanted = sized(shape, "shape")
    met = _along_shape(wanted, indices, axis)
    at = normalize_axis(axis, len(wanted))
    if (*met[:at], *met[at + 1 :]) != (*wanted[:at], *wanted[at + 1 :]):
        raise ShapeError(
            f"indices of shape {indices.shape} do not broadcast to {wanted}",
            argument="indices",
            expected="sizes that are equal or 1, apart from the axis",
        )
    if updates.shape != met:
        raise ShapeError(
            "the updates do not have the shape of the places",
            argument="updates",
            expected=f"shape {met}",
        )
    return updates.like(wanted)


def _scatter_along_operator(w: Any, updates: Any, indices: Any, *, shape: Any, axis: int) -> Any:
    at = normalize_axis(axis, len(shape))
    if indices.shape != updates.shape:
        indices = w.Expand(indices, w.shape(updates.shape))
    return w.summed("ScatterElements", indices, updates, shape, axis=at)


@indexing_op(
    dtypes=(STANDARD, INTEGERS),
    integers="indices",
    infer=_scatter_along_spec,
    vjp=(lambda g, y, updates, indices, shape, axis: take_along_axis(g, indices, axis), None),
    batch=_batched_scatter_along,
    onnx=_scatter_along_operator,
)
def scatter_along_axis(
    xp: Namespace, updates: Array, indices: Array, /, shape: Sizes, axis: int = -1
) -> Array:
    """Zeros of a shape with each update added at its index along an axis.

    It is the transpose of ``take_along_axis``: ``updates`` has the shape of that result.
    Updates at repeated places are summed. Raises IndexRangeError and ShapeError.

    >>> from eagerflow.op import ops
    >>> ops["scatter_along_axis"].call(ef.tensor([1.0, 2.0, 4.0]), [0, 2, 2], (3,), 0)
    Tensor([1., 0., 6.], float32, cpu:0)
    """
    at = normalize_axis(axis, len(shape))
    check_values(xp, indices, at, shape[at])
    return summed_at(xp, tuple(shape), _along_axis(xp, indices, shape, at), updates)


# With batches, and by several indices -------------------------------------------------------------


def _gather_axes(x: Any, indices: Any, axis: Any, batch_dims: int) -> tuple[int, int]:
    """The axis and the number of batch axes, counted from the front."""
    if type(batch_dims) is not int or not 0 <= batch_dims <= min(indices.ndim, x.ndim - 1):
        raise ShapeError(
            f"there cannot be {batch_dims!r} batch axes",
            argument="batch_dims",
            expected=f"an integer from 0 to {max(0, min(indices.ndim, x.ndim - 1))}",
        )
    at = batch_dims if axis is None else normalize_axis(axis, x.ndim)
    if at < batch_dims:
        raise ShapeError(
            f"axis {at} is a batch axis", argument="axis", expected=f"an axis from {batch_dims}"
        )
    return at, batch_dims


def gathered_spec(
    x: TensorSpec, indices: TensorSpec, axis: Any = None, batch_dims: int = 0
) -> TensorSpec:
    at, b = _gather_axes(x, indices, axis, batch_dims)
    if x.shape[:b] != indices.shape[:b]:
        raise ShapeError(
            f"the batch axes differ: {x.shape[:b]} and {indices.shape[:b]}",
            argument="indices",
            expected="the sizes of the batch axes of x",
        )
    return x.like(sized((*x.shape[:at], *indices.shape[b:], *x.shape[at + 1 :]), "indices"))


def _gather_back(g: Any, y: Any, x: Any, indices: Any, axis: Any, batch_dims: int) -> Any:
    at, b = _gather_axes(x, indices, axis, batch_dims)
    if b == 0:
        return index_scatter(g, indices, shape=x.shape, index=_take_index(at, x.ndim))
    batch, before, size, after = _gather_parts(x.shape, at, b)
    count = product(indices.shape[b:])
    whole = permute_dims(reshape(g, (batch, before, count, after)), (0, 2, 1, 3))
    rows = reshape(indices, (batch, count)).astype("int64")
    rows = rows + reshape(arange(batch, device=str(g.device)), (batch, 1)) * size
    shape = (batch * size, before, after)
    back = index_scatter(whole, rows, shape=shape, index=("array",))
    return reshape(permute_dims(reshape(back, (batch, size, before, after)), (0, 2, 1, 3)), x.shape)


def _gather_parts(shape: Any, at: int, b: int) -> tuple[Any, Any, Any, Any]:
    """Elements in the batch axes, between these and the axis, in the axis, and after it."""
    return product(shape[:b]), product(shape[b:at]), shape[at], product(shape[at + 1 :])


def _batched_gather(args: Any, batched: Any, size: Any, axis: Any, batch_dims: int) -> Any:
    x, indices = args
    logical = TensorSpec(x.shape[1:] if batched[0] else x.shape, x.dtype)
    places = TensorSpec(indices.shape[1:] if batched[1] else indices.shape, indices.dtype)
    at, b = _gather_axes(logical, places, axis, batch_dims)
    if b == 0 and not batched[1]:
        return gather(x, indices, at + 1, 0)
    if b == 0 and not batched[0]:
        return moveaxis(gather(x, indices, at, 0), at, 0)
    x, indices = batch_first(args, batched, size)
    return gather(x, indices, at + 1, b + 1)


@indexing_op(
    dtypes=(ANY, INTEGERS),
    integers="indices",
    infer=gathered_spec,
    vjp=(_gather_back, None),
    batch=_batched_gather,
)
def gather(
    xp: Namespace, x: Array, indices: Array, /, axis: Axis = None, batch_dims: int = 0
) -> Array:
    """The slices of a tensor at given positions along an axis, like ``tf.gather``.

    ``indices`` is a tensor of integers from 0, of any shape, which replaces ``axis`` in the result.
    The first ``batch_dims`` axes are common to ``x`` and ``indices``; ``axis`` defaults to the
    first axis after them. Raises IndexRangeError for indices that are negative or too large,
    ShapeError for shapes that do not fit.

    >>> x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> ef.gather(x, [[1], [0]], batch_dims=1)
    Tensor([[2.],
            [3.]], shape=(2, 1), float32, cpu:0)
    """
    at, b = _gather_axes(x, indices, axis, batch_dims)
    check_values(xp, indices, at, x.shape[at], low=0)
    shape = (*x.shape[:at], *indices.shape[b:], *x.shape[at + 1 :])
    if b == 0:
        rows = xp.reshape(xp.astype(indices, xp.int64), (-1,))
        return xp.reshape(xp.take(x, rows, axis=at), shape)
    batch, before, size, after = _gather_parts(x.shape, at, b)
    count = int(product(indices.shape[b:]))
    rows = xp.reshape(xp.astype(indices, xp.int64), (batch, count))
    rows = xp.reshape(rows + xp.reshape(xp.arange(batch), (batch, 1)) * size, (-1,))
    lines = xp.permute_dims(xp.reshape(x, (batch, before, size, after)), (0, 2, 1, 3))
    picked = xp.take(xp.reshape(lines, (batch * size, before, after)), rows, axis=0)
    picked = xp.permute_dims(xp.reshape(picked, (batch, count, before, after)), (0, 2, 1, 3))
    return xp.reshape(picked, shape)
