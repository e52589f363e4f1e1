"""Ops that change shape or order and leave the values alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product, symbolic
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.op import Split
from eagerflow.ops.attributes import Axes, Sizes
from eagerflow.ops.creation.cast import own_value
from eagerflow.ops.family import ANY, Batch, Cost, as_operands, define
from eagerflow.ops.keywords import check_same
from eagerflow.spec import (
    Array,
    Namespace,
    TensorSpec,
    as_shape,
    broadcast,
    normalize_axes,
    normalize_axis,
    reduced_axes,
)
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "reshape",
    "squeeze",
    "swapaxes",
]


def no_work(x: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
    """Views are free."""
    return Cost(0, 0)


def sized(shape: Any, argument: str) -> tuple[Any, ...]:
    """``as_shape`` of a user's argument, which is named in errors."""
    try:
        return as_shape(shape)
    except ShapeError as error:
        error.argument = argument
        raise


@cache
def copy_kernels() -> Any:
    """Generated copies, loaded when they are first wanted."""
    from eagerflow.primitives import copies

    return copies


def shape_op(**facts: Any) -> Any:
    """A linear op that only moves values."""
    own: dict[str, Any] = {"dtypes": ANY, "jvp": "linear"} | facts
    return define("shape", **own)


def view_op(**facts: Any) -> Any:
    """A method that shows the values of one tensor in another shape or order."""
    own = {"views": "all", "method": True, "cost": no_work, "trusted": True}
    return shape_op(**own | facts)


def known_shape(x: TensorSpec, shape: Any) -> tuple[Any, ...]:
    """``shape`` with -1 replaced by its size; ShapeError if the sizes do not match.

    NumPy takes any negative number for -1, and on the hot path it decides.
    """
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    unknown = [i for i, d in enumerate(given) if isinstance(d, int) and d < 0]
    wanted = sized(tuple(1 if i in unknown else d for i, d in enumerate(given)), "shape")
    rest = product(wanted)
    if len(unknown) == 1 and rest != 0 and x.size % rest == 0:
        at = unknown[0]
        wanted = (*wanted[:at], x.size // rest, *wanted[at + 1 :])
    elif unknown or rest != x.size:
        raise ShapeError(
            f"{x.size} elements do not fit into shape {given}",
            argument="shape",
            expected=f"sizes whose product is {x.size}, at most one of them -1",
        )
    return wanted


@view_op(
    infer=lambda x, shape: x.like(known_shape(x, shape)),
    also={"copy": None},
    direct=lambda xp: xp.ndarray.reshape,
    vjp=(lambda g, y, x, shape: reshape(g, x.shape),),
    batch=Batch(
        lambda call, args, batched, size, shape: call(
            args[0], (size, *known_shape(TensorSpec(args[0].shape[1:], args[0].dtype), shape))
        )
    ),
    onnx=lambda w, x, *, shape: w.Reshape(x, w.shape(w.results[0].shape), allowzero=1),
    method=False,
)
def reshape(xp: Namespace, x: Array, /, shape: Sizes) -> Array:
    """The same values, in row-major order, in another shape.

    ``shape`` is a tuple of sizes whose product is ``x.size``; one size may be -1 and is
    then computed. Raises ShapeError where the sizes do not fit.

    >>> ef.reshape(ef.arange(6), (2, -1)).shape
    (2, 3)
    """
    return xp.reshape(x, shape)


def _reshape_method(self: Any, *shape: Any, order: str | None = None) -> Tensor:
    """The same values in another shape, given as a tuple or as several sizes."""
    if order is not None:
        check_same("reshape", order=order)
    return reshape(self, shape[0] if len(shape) == 1 else shape)


Operators.reshape = _reshape_method  # type: ignore[method-assign]


def memory_order(axes: Any, rank: int) -> tuple[int, ...]:
    """The axes counted from the front; None means their reverse order."""
    if axes is None:
        return tuple(range(rank - 1, -1, -1))
    if axes.__class__ is int:  # NumPy takes it as the only axis
        axes = (axes,)
    if not isinstance(axes, tuple | list):
        raise ShapeError(
            f"{axes!r} is not an order of axes", argument="axes", expected="a tuple of integers"
        )
    order = normalize_axes(tuple(axes), rank, "axes")
    if len(order) != rank:
        raise ShapeError(
            f"axes {tuple(axes)} do not name each axis once",
            argument="axes",
            expected=f"a permutation of {rank} axes",
        )
    return order


def _permuted(x: TensorSpec, axes: Any = None) -> TensorSpec:
    return x.like(tuple(x.shape[i] for i in memory_order(axes, x.ndim)))


def _inverse(axes: Any, rank: int) -> tuple[int, ...]:
    order = memory_order(axes, rank)
    return tuple(order.index(i) for i in range(rank))


@view_op(
    views="some",
    infer=_permuted,
    direct=lambda xp: xp.ndarray.transpose,
    vjp=(lambda g, y, x, axes: permute_dims(g, _inverse(axes, g.ndim)),),
    batch=lambda args, batched, size, axes: permute_dims(
        args[0], (0, *(i + 1 for i in memory_order(axes, args[0].ndim - 1)))
    ),
    split=lambda x, axes: [Split((i,), at) for at, i in enumerate(memory_order(axes, x.ndim))],
    onnx=lambda w, x, *, axes: w.Transpose(x, perm=memory_order(axes, x.ndim)),
)
def permute_dims(xp: Namespace, x: Array, /, axes: Axes = None) -> Array:
    """The axes in another order.

    ``axes`` is a tuple that names each axis once; without it the order is reversed. Raises
    ShapeError otherwise.

    >>> ef.permute_dims(ef.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return xp.permute_dims(x, memory_order(axes, x.ndim))


def _broadcast_spec(x: TensorSpec, shape: Any) -> TensorSpec:
    wanted = sized(shape, "shape")
    if broadcast(x.shape, wanted) != wanted:
        raise ShapeError(
            f"shape {x.shape} does not broadcast to {wanted}",
            argument="shape",
            expected="sizes that are equal or 1 in x, counted from the last axis",
        )
    return x.like(wanted)


def unbroadcast(g: Any, shape: Any) -> Any:
    """``g`` summed over the axes along which ``shape`` was broadcast to ``g.shape``."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    axes = tuple(i for i in range(g.ndim) if i < extra or (shape[i - extra] == 1 != g.shape[i]))
    total = g.sum(axis=axes) if axes else g
    return total if total.shape == shape else reshape(total, shape)


def _broadcast_numpy(x: Any, shape: Any) -> Any:
    """The result of ``np.broadcast_to``, for most arrays in a third of its time."""
    extra = len(shape) - x.ndim if type(shape) is tuple else -1
    if extra < 0 or x.dtype.isbuiltin != 1 or not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    steps = [0] * extra
    for own, size, step in zip(x.shape, shape[extra:], x.strides, strict=True):
        if own != size and own != 1:
            return np.broadcast_to(x, shape)  # which refuses it
        steps.append(step if own == size else 0)
    repeated = np.ndarray(shape, x.dtype, x, 0, steps)
    repeated.flags.writeable = False
    return repeated


@view_op(
    infer=_broadcast_spec,
    direct=lambda xp: _broadcast_numpy if xp is np else xp.broadcast_to,
    keeps_order=False,
    vjp=(lambda g, y, x, shape: unbroadcast(g, x.shape),),
    batch=lambda args, batched, size, shape: broadcast_to(
        args[0].reshape(
            (size, *(1,) * (len(as_shape(shape)) - args[0].ndim + 1), *args[0].shape[1:])
        ),
        (size, *as_shape(shape)),
    ),
    onnx=lambda w, x, *, shape: w.Expand(x, w.shape(w.results[0].shape)),
)
def broadcast_to(xp: Namespace, x: Array, /, shape: Sizes) -> Array:
    """The values repeated along axes of size 1, and along new axes in front.

    ``shape`` is a tuple of sizes. Raises ShapeError where ``x.shape`` does not broadcast to it.

    >>> ef.broadcast_to(ef.tensor([1.0, 2.0]), (2, 2))
    Tensor([[1., 2.],
            [1., 2.]], shape=(2, 2), float32, cpu:0)
    """
    return xp.broadcast_to(x, shape)


# Axes of size 1 -----------------------------------------------------------------------------------


def _expanded_spec(x: TensorSpec, axis: Any) -> TensorSpec:
    listed = axis if isinstance(axis, tuple) else (axis,)
    rank = x.ndim + len(listed)
    new = normalize_axes(listed, rank)
    rest = iter(x.shape)
    return x.like(sized([1 if i in new else next(rest) for i in range(rank)], "axis"))


def _expand(array: Any, axis: Any) -> Any:
    """``expand_dims`` for the hot path, by an index with None."""
    if type(axis) is int:
        if 0 <= axis <= array.ndim:
            return array[(slice(None),) * axis + (None,)]
        if -array.ndim <= axis + 1 <= 0:
            return array[(..., None) + (slice(None),) * (-1 - axis)]
        axis = (axis,)
    rank = array.ndim + len(axis)
    new = normalize_axes(axis, rank)
    return array[tuple(None if i in new else slice(None) for i in range(rank))]


def _shifted_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """``axis`` of one example of this rank, as axes of a batch."""
    return tuple(i + 1 for i in normalize_axes(axis, rank))


def _batched_expand(args: Any, batched: Any, size: Any, axis: Any) -> Any:
    listed = axis if isinstance(axis, tuple) else (axis,)
    return expand_dims(args[0], _shifted_axes(listed, args[0].ndim - 1 + len(listed)))


@view_op(
    infer=_expanded_spec,
    direct=lambda xp: _expand,
    vjp=(lambda g, y, x, axis: reshape(g, x.shape),),
    batch=_batched_expand,
    onnx=lambda w, x, *, axis: w.Unsqueeze(x, w.axes(axis)),
)
def expand_dims(xp: Namespace, x: Array, /, axis: Axes = 0) -> Array:
    """The tensor with new axes of size 1.

    ``axis`` is the position of the new axis in the result: an integer, or a tuple of them. Raises
    ShapeError for axes that the result does not have.

    >>> ef.expand_dims(ef.zeros((2, 3)), -1).shape
    (2, 3, 1)
    """
    return _expand(x, axis)


def _squeezed_axes(x: TensorSpec, axis: Any) -> tuple[int, ...]:
    """The axes that ``squeeze`` removes."""
    if axis is None:
        if symbolic(x.shape):
            raise CaptureError(
                "which axes have size 1 is not known for every size",
                argument="axis",
                received=str(x),
                hint="name the axes to remove: ef.squeeze(x, axis=...)",
            )
        return tuple(i for i, size in enumerate(x.shape) if size == 1)
    axes = reduced_axes(axis, x.ndim)
    for i in axes:
        if x.shape[i] != 1:
            raise ShapeError(
                f"axis {i} has size {x.shape[i]}", argument="axis", expected="axes of size 1"
            )
    return axes


def _squeezed_spec(x: TensorSpec, axis: Any = None) -> TensorSpec:
    axes = _squeezed_axes(x, axis)
    return x.like(tuple(size for i, size in enumerate(x.shape) if i not in axes))


def _batched_squeeze(args: Any, batched: Any, size: Any, axis: Any) -> Any:
    (x,) = args
    axes = _squeezed_axes(TensorSpec(x.shape[1:], x.dtype), axis)
    return squeeze(x, tuple(i + 1 for i in axes))


@view_op(
    infer=_squeezed_spec,
    direct=lambda xp: xp.ndarray.squeeze,
    vjp=(lambda g, y, x, axis: reshape(g, x.shape),),
    batch=_batched_squeeze,
    onnx=lambda w, x, *, axis: w.Reshape(x, w.shape(w.results[0].shape), allowzero=1),
)
def squeeze(xp: Namespace, x: Array, /, axis: Axes = None) -> Array:
    """The tensor without axes of size 1.

    ``axis`` is an integer or a tuple of integers; None removes all axes of size 1. Raises
    ShapeError for an axis of another size, CaptureError for None where sizes are symbolic.

    >>> ef.squeeze(ef.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    return xp.squeeze(x, axis=axis if axis is not None else _squeezed_axes(x, None))


# Compositions -------------------------------------------------------------------------------------


def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """The tensor with some axes at other positions and the rest in order.

    ``source`` and ``destination`` are integers, or tuples of the same length. Raises
    ShapeError for axes that do not exist or repeat.

    >>> ef.moveaxis(ef.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_tensor(x)
    old = normalize_axes(source, x.ndim, "source")
    new = normalize_axes(destination, x.ndim, "destination")
    if len(old) != len(new):
        raise ShapeError(
            f"{len(old)} axes cannot move to {len(new)} places",
            op="moveaxis",
            argument="destination",
            expected="as many places as axes",
        )
    rest = iter(i for i in range(x.ndim) if i not in old)
    order = tuple(old[new.index(i)] if i in new else next(rest) for i in range(x.ndim))
    return permute_dims(x, order)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """The tensor with two axes exchanged.

    ``axis1`` and ``axis2`` are integers. Raises ShapeError for axes that do not exist.

    >>> ef.swapaxes(ef.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_tensor(x)
    a, b = (normalize_axis(axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return permute_dims(x, tuple(order))


def matrix_transpose(x: Any) -> Tensor:
    """Each matrix of a stack transposed: the last two axes exchanged.

    ``x`` has at least two axes. Raises ShapeError if it has fewer.

    >>> ef.matrix_transpose(ef.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = as_tensor(x)
    rank = x.ndim
    if rank < 2:
        raise ShapeError(
            "a matrix has two axes",
            op="matrix_transpose",
            argument="x",
            received=f"a tensor with {rank} ax{'i' if rank == 1 else 'e'}s",
            expected="at least 2 axes",
            hint="ef.expand_dims(x, 0) makes a row of a vector",
        )
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The broadcast shape of shapes.

    Each shape is an integer or a tuple of sizes. Raises ShapeError where they do not fit.

    >>> ef.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return broadcast(*[as_shape(x) for x in shapes])  # type: ignore[return-value]


def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """All tensors broadcast to their common shape.

    Raises ShapeError where their shapes do not broadcast.

    >>> [x.shape for x in ef.broadcast_arrays(ef.zeros((2, 1)), ef.zeros((3,)))]
    [(2, 3), (2, 3)]
    """
    tensors = as_operands(*arrays)
    shape = broadcast(*(x.shape for x in tensors))
    return tuple(x if x.shape == shape else broadcast_to(x, shape) for x in tensors)


# Methods ------------------------------------------------------------------------------------------


def _flatten(self: Any, order: str = "C") -> Tensor:
    """The same values along one axis, in row-major order."""
    if order != "C":
        check_same("flatten", order=order)
    return own_value(reshape(self, (-1,)))


def _transpose(self: Any, *axes: Any) -> Tensor:
    """The axes in another order, given as a tuple or as several integers; none: reversed."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return permute_dims(self, tuple(order) if order else None)


def _t(self: Any) -> Tensor:
    """The tensor with its axes in reverse order: a matrix transposed."""
    return permute_dims(self)


def _m_t(self: Any) -> Tensor:
    """Each matrix of a stack transposed: the last two axes exchanged."""
    return matrix_transpose(self)


Operators.flatten = _flatten  # type: ignore[method-assign]
Operators.transpose = _transpose  # type: ignore[method-assign]
Operators.moveaxis = moveaxis  # type: ignore[assignment, method-assign]
Operators.swapaxes = swapaxes  # type: ignore[assignment, method-assign]
Operators.T = property(_t)  # type: ignore[assignment, method-assign]
Operators.mT = property(_m_t)  # type: ignore[assignment, method-assign]
