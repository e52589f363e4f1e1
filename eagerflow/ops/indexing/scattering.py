"""Ops that scatter sums, one-hot encode, and find indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import INTEGERS, as_dtype, default_dtype
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.op import Missing, Onnx
from eagerflow.ops.attributes import DTypeLike, Size, Sizes
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.family import STANDARD, batch_first, define
from eagerflow.ops.indexing.gathering import gather
from eagerflow.ops.indexing.indexing import getitem
from eagerflow.ops.indexing.indices import check_values, indexing_op, integer_argument
from eagerflow.ops.indexing.positions import summed_at
from eagerflow.ops.late import load
from eagerflow.ops.shapes.joining import concat, unstack
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape, sized
from eagerflow.spec import Array, Namespace, TensorSpec, as_shape, normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "embedding_lookup",
    "gather_nd",
    "masked_select",
    "nonzero",
    "one_hot",
    "scatter",
]


# Sums into places ---------------------------------------------------------------------------------


def _scattered_spec(indices: TensorSpec, updates: TensorSpec, shape: Any) -> TensorSpec:
    wanted = sized(shape, "shape")
    if not indices.ndim or not isinstance(indices.shape[-1], int):
        raise ShapeError(
            f"indices of shape {indices.shape} hold no positions",
            argument="indices",
            expected="a last axis with one integer for each axis that is indexed",
        )
    depth = indices.shape[-1]
    if depth > len(wanted):
        raise ShapeError(
            f"positions of {depth} integers are too long for {len(wanted)} axes",
            argument="indices",
            expected=f"a last axis of size {len(wanted)} at most",
        )
    rows = (*indices.shape[:-1], *wanted[depth:])
    if updates.shape != rows:
        raise ShapeError(
            "the updates do not fit the indices", argument="updates", expected=f"shape {rows}"
        )
    return updates.like(wanted)


def _batched_scatter(args: Any, batched: Any, size: Any, shape: Any) -> Any:
    indices, updates = batch_first(args, batched, size)
    return scatter(with_examples(indices), updates, (size, *as_shape(shape)))


def with_examples(positions: Any) -> Any:
    """Rows of positions with the number of the example, along the first axis, in front."""
    size, rank = positions.shape[0], positions.ndim
    column = reshape(arange(size, device=str(positions.device)), (size,) + (1,) * (rank - 1))
    column = broadcast_to(column, (*positions.shape[:-1], 1))
    return concat([column, positions.astype("int64")], axis=rank - 1)


@indexing_op(
    dtypes=(INTEGERS, STANDARD),
    together=(1,),
    integers="indices",
    infer=_scattered_spec,
    vjp=(None, lambda g, y, indices, updates, shape: gather_nd(g, indices)),
    batch=_batched_scatter,
    onnx=lambda w, indices, updates, *, shape: w.summed(
        "ScatterND", indices, updates, w.results[0].shape
    ),
)
def scatter(xp: Namespace, indices: Array, updates: Array, /, shape: Sizes) -> Array:
    """Zeros of a shape with updates added at positions, as ``tf.scatter_nd`` has it.

    Each row of ``indices`` (its last axis) holds the integers, from 0, of one position in the
    first axes of ``shape``; ``updates`` has the shape ``indices.shape[:-1]`` and then the axes
    that are left. Updates at repeated positions are summed. Raises IndexRangeError for
    positions outside of ``shape``, ShapeError for shapes that do not fit.

    >>> ef.scatter([[0], [2], [2]], ef.tensor([1.0, 2.0, 4.0]), (3,))
    Tensor([1., 0., 6.], float32, cpu:0)
    """
    shape = as_shape(shape)
    columns = [indices[..., k] for k in range(indices.shape[-1])]
    for axis, column in enumerate(columns):
        check_values(xp, column, axis, shape[axis], low=0)
    if not columns:  # every update is for the whole
        axes = tuple(range(indices.ndim - 1))
        return xp.astype(xp.sum(updates, axis=axes), updates.dtype)
    return summed_at(xp, shape, tuple(columns), updates)


def gather_nd(x: Any, indices: Any) -> Tensor:
    """The elements, or slices, of a tensor at positions given by rows of integers.

    Each row of ``indices`` (its last axis) is one position in the first axes of ``x``;
    negative integers count from the end. Raises IndexRangeError for positions outside of
    ``x``, ShapeError for rows that are longer than ``x`` has axes.

    >>> ef.gather_nd(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), [[0, 1], [1, 0]])
    Tensor([2., 3.], float32, cpu:0)
    """
    x, indices = as_tensor(x), as_tensor(indices)
    if not indices.ndim or indices.shape[-1] > x.ndim:
        raise ShapeError(
            f"indices of shape {indices.shape} hold no positions in {x.ndim} axes",
            op="gather_nd",
            argument="indices",
            received=f"shape {indices.shape}",
            expected=f"a last axis of size {x.ndim} at most",
        )
    depth = indices.shape[-1]
    if depth == 0:
        return broadcast_to(x, (*indices.shape[:-1], *x.shape))
    return getitem(x, *unstack(indices, -1), index=("array",) * depth)


def check_number(value: Any, what: str) -> None:
    if isinstance(value, tuple | list | bool):
        raise ShapeError(
            f"{value!r} is not a number of {what}",
            argument=f"num_{what}",
            expected="an integer from 0",
        )


# Marking and finding ------------------------------------------------------------------------------


def _one_hot_spec(x: TensorSpec, num_classes: Any, axis: int = -1, dtype: Any = None) -> TensorSpec:
    at = normalize_axis(axis, x.ndim + 1)
    check_number(num_classes, "classes")
    made = default_dtype(float) if dtype is None else as_dtype(dtype)
    return x.like(sized((*x.shape[:at], num_classes, *x.shape[at:]), "num_classes"), made)


def _batched_one_hot(
    args: Any, batched: Any, size: Any, num_classes: Any, axis: int, dtype: Any
) -> Any:
    at = normalize_axis(axis, args[0].ndim) + 1
    return one_hot(args[0], num_classes, at, dtype)


@define(
    "indexing",
    dtypes=INTEGERS,
    arrange=integer_argument("one_hot", 0, "x"),
    infer=_one_hot_spec,
    vjp=Missing("the argument holds integers"),
    batch=_batched_one_hot,
    fails=True,
)
def one_hot(
    xp: Namespace, x: Array, /, num_classes: Size, axis: int = -1, dtype: DTypeLike = None
) -> Array:
    """One-hot encoding: class numbers as rows of zeros with a one at the class.

    ``x`` holds integers from 0 to ``num_classes - 1``; the new axis of size ``num_classes`` is
    ``axis`` of the result, whose ``dtype`` defaults to float32. Raises IndexRangeError for invalid
    class numbers.

    >>> ef.one_hot([0, 2], 3)
    Tensor([[1., 0., 0.],
            [0., 0., 1.]], shape=(2, 3), float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim + 1)
    check_values(xp, x, at, num_classes, low=0)
    line = (1,) * at + (num_classes,) + (1,) * (x.ndim - at)
    marked = xp.expand_dims(x, axis=at) == xp.reshape(xp.arange(num_classes, dtype=x.dtype), line)
    return xp.astype(marked, dtype or default_dtype(float))


def _nonzero_spec(x: TensorSpec) -> Any:
    if not x.ndim:
        raise ShapeError(
            "a tensor without axes has no positions",
            argument="x",
            expected="at least one axis",
            hint="ef.reshape(x, (1,))",
        )
    raise CaptureError(
        "how many elements are nonzero depends on the values",
        argument="x",
        received=str(x),
        hint="ef.where(x != 0, a, b) keeps the shape",
    )


@define(
    "indexing",
    dtypes=STANDARD,
    infer=_nonzero_spec,
    trusted=True,
    outputs=0,  # one for each axis
    vjp=Missing("the results are positions"),
    batch=Missing("the examples of a batch have results of different lengths"),
    onnx=Onnx("NonZero"),
)
def nonzero(xp: Namespace, x: Array, /) -> Array:
    """The positions of all elements that are not 0: a tuple of one tensor of integers per axis.

    ``x`` is a tensor with at least one axis. Raises ShapeError if it has none, CaptureError
    under capture, where the values are not known.

    >>> ef.nonzero(ef.tensor([0.0, 2.0, 3.0]))
    (Tensor([1, 2], int64, cpu:0),)
    """
    if not x.ndim:
        raise ValueError("no axes")
    return tuple(xp.nonzero(x))


# Compositions -------------------------------------------------------------------------------------


def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements of a tensor where a mask is true, in row-major order: ``x[mask]``.

    ``mask`` is a tensor of bools that broadcasts with ``x``. Raises ShapeError where the
    shapes do not fit, DTypeError for a mask of another dtype, CaptureError under capture.

    >>> x = ef.tensor([1.0, 2.0, 3.0])
    >>> ef.masked_select(x, x > 1.5)
    Tensor([2., 3.], float32, cpu:0)
    """
    x, mask = as_tensor(x), as_tensor(mask)
    if mask.dtype.kind != "b":
        raise DTypeError(
            f"{mask.dtype.name} values are not a mask",
            op="masked_select",
            argument="mask",
            received=f"{mask.dtype.name}{mask.shape}",
            expected="bools",
            hint="mask != 0",
        )
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return getitem(broadcast_to(x, shape), broadcast_to(mask, shape))


def embedding_lookup(params: Any, ids: Any, *, sparse_gradient: bool = False) -> Tensor:
    """The rows of a table that belong to numbers.

    ``params`` is a tensor of rows, one for each number, ``ids`` a tensor of integers from 0
    of any shape; the result has the shape ``ids.shape + params.shape[1:]``. With
    ``sparse_gradient`` the gradient of a Variable is an ``ef.IndexedSlices`` of these rows, as far
    as only such look-ups use it. Raises IndexRangeError for numbers that have no row.

    >>> ef.embedding_lookup(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 1]).shape
    (2, 2)
    """
    if sparse_gradient:
        return load("indexing.slices").looked_up(lambda x, at: gather(x, at, 0), params, ids)
    return gather(params, ids, 0)
