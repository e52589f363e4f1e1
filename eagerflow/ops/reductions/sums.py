"""Reductions: sum and its relatives, and where the largest element is."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.rows import add_up
from eagerflow.dims import product
from eagerflow.dtypes import BOOL, INTEGERS, REAL, STANDARD
from eagerflow.errors import ShapeError
from eagerflow.op import Missing
from eagerflow.ops.attributes import Axes, Axis, DTypeLike
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Batch, Rows, expand_reduced, reduced_shape, reduction
from eagerflow.ops.reductions.accumulation import (
    accumulator,
    cast_first,
    conjugate,
    part_of,
    wide_dtype,
)
from eagerflow.ops.reductions.cumulative import cumulative_prod
from eagerflow.ops.shapes.reshaping import broadcast_to, permute_dims
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis, passed_on, reduced_axes

__all__ = ["all", "any", "argmax", "argmin", "count_nonzero", "max", "min", "prod", "sum"]

_BOOL_RESULT = Missing("the result is true or false, which does not change smoothly")
INDEX_RESULT = Missing("the result is an index, which does not change smoothly")
_COUNT_RESULT = Missing("the result is a count, which does not change smoothly")


MIN_COMPILED_ELEMENTS = 1 << 14
"""From so many floats on, machine code is faster than NumPy."""


def reduced_by(name: str, body: Any) -> dict[str, Any]:
    """The kernels of a reduction by a ufunc, over all axes by default.

    On large arrays of floats the ``body`` of its rows is machine code. If ``dtype`` were passed to
    the hot path, NumPy would accumulate in it: 5,000 ones in bfloat16 sum to 256. The TypeError
    sends such calls to the general path, through ``cast_first``.
    """
    reduce: Any = getattr(np, name).reduce

    def on_numpy(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if (
            array.size >= MIN_COMPILED_ELEMENTS
            and array.dtype.char in "fd"
            and generated.pays(array.size)
        ):
            return generated.reduced(body, axis, keepdims, array, reduce)
        return reduce(array, axis, None, None, keepdims)

    def direct(xp: Namespace) -> Any:
        if xp is np:
            return on_numpy
        of_library = getattr(xp, name).reduce

        def reduce_array(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
            return of_library(array, axis, None, None, keepdims)

        return reduce_array

    def long_way(xp: Namespace, x: Any, axis: Any, keepdims: bool, dtype: Any = None) -> Any:
        wide = accumulator(dtype)
        if wide is not None:
            return reduce(x, axis, wide, None, keepdims)
        return on_numpy(x, axis, keepdims)

    return {"direct": direct, "overrides": {"numpy": long_way}}


def _body_of(instruction: str, read: Callable[..., Any] = lambda s, x: x) -> Callable[..., Any]:
    """The body of rows that are reduced by an instruction, as they are ``read``."""

    def body(s: Any, x: Any) -> Any:
        return getattr(s, instruction)(read(s, x), "n")

    body.__name__ = instruction
    return body


# Sums and products -------------------------------------------------------------------------------


def _wide(s: Any, x: Any, dtype: Any = None) -> Any:
    """A value of a region in the dtype that its sum has."""
    wide = dtype if dtype in INTEGERS else wide_dtype(np.dtype(x.dtype))
    return x if wide.name == x.dtype else s.convert(x, wide.name)


def _sum_body(s: Any, x: Any, dtype: Any = None) -> Any:
    return s.any(x, "n") if dtype in BOOL else s.sum(_wide(s, x, dtype), "n")


def _product_body(s: Any, x: Any, dtype: Any = None) -> Any:
    return s.all(x, "n") if dtype in BOOL else s.product(_wide(s, x, dtype), "n")


_SUM = reduced_by("add", _sum_body)
total: Any = _SUM["direct"](np)
"""``total(array, axis, keepdims)``: the sum of a NumPy array."""


@reduction(
    dtypes=STANDARD,
    result=wide_dtype,
    combine="add",
    scalar=Rows(_sum_body, columns=True),
    **_SUM,
    arrange=cast_first,
    vjp=(
        lambda g, y, x, axis, keepdims, dtype: broadcast_to(
            expand_reduced(g, x, axis, keepdims), x.shape
        ),
    ),
    jvp="linear",
    onnx=lambda w, x, *, axis, keepdims, dtype: w.reduce("ReduceSum", w.wide(x), axis, keepdims),
)
def sum(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Sum of the elements over axes.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Integers and bools are summed in 64 bits; with
    ``dtype`` the elements are cast to it first, and bools are added by ``or``. The sum of no
    elements is 0. Raises ShapeError for an axis that does not exist.

    >>> ef.sum(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=-1, keepdims=True)
    Tensor([[3.],
            [7.]], shape=(2, 1), float32, cpu:0)
    """
    return xp.sum(x, axis=axis, dtype=accumulator(dtype), keepdims=keepdims)


def _prod_rule(g: Any, y: Any, x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
    """The product of all other elements, from both sides, so that zeros need no division."""
    axes = reduced_axes(axis, x.ndim)
    g = expand_reduced(g, x, axis, keepdims)
    if len(axes) == 1:
        return g * _product_of_others(x, axes[0])
    kept = [i for i in range(x.ndim) if i not in axes]
    order = (*kept, *axes)
    moved = permute_dims(x, order)
    rows = moved.reshape((*(x.shape[i] for i in kept), product(x.shape[i] for i in axes)))
    others = _product_of_others(rows, len(kept)).reshape(moved.shape)
    back = tuple(order.index(i) for i in range(x.ndim))
    return g * permute_dims(others, back)


def _product_of_others(x: Any, axis: int) -> Any:
    before = cumulative_prod(x, axis=axis, include_initial=True)
    after = cumulative_prod(x, axis=axis, include_initial=True, reverse=True)
    return conjugate(part_of(before, axis, None, -1) * part_of(after, axis, 1, None))


@reduction(
    dtypes=STANDARD,
    result=wide_dtype,
    combine="multiply",
    scalar=Rows(_product_body, columns=True),
    **reduced_by("multiply", _product_body),
    arrange=cast_first,
    vjp=(in_float32(_prod_rule),),
    saves="x",
    onnx=lambda w, x, *, axis, keepdims, dtype: w.reduce("ReduceProd", w.wide(x), axis, keepdims),
)
def prod(
    xp: Namespace,
    x: Array,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """Product of the elements over axes.

    ``x`` is a tensor of any shape, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Integers and bools are multiplied in 64 bits and
    wrap around; with ``dtype`` the elements are cast to it first. The product of no elements is 1.
    Gradients are correct for zero elements. Raises ShapeError for an axis that does not exist.

    >>> ef.prod(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([3., 8.], float32, cpu:0)
    """
    return xp.prod(x, axis=axis, dtype=accumulator(dtype), keepdims=keepdims)


# Extremes ----------------------------------------------------------------------------------------


def _shared_by_ties(g: Any, y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """The gradient in equal shares to all elements that are the extreme one."""
    # Compared in the dtype that both are rounded to: in float32 a kernel may not have rounded x.
    hits = x == expand_reduced(y, x, axis, keepdims)
    return _shares(expand_reduced(g, x, axis, keepdims), hits, axis=axis)


@in_float32
def _shares(g: Any, hits: Any, axis: Any) -> Any:
    hits = hits.astype(g.dtype)
    return hits * (g / sum(hits, axis=axis, keepdims=True))


def _extreme(name: str, onnx: str) -> Any:
    instruction = name[:3]
    body = _body_of(instruction)
    return reduction(
        dtypes=REAL | BOOL,
        combine=name,
        scalar=Rows(body, columns=True),
        empty=False,
        trusted=True,  # the library refuses empty axes, and infer then explains
        **reduced_by(name, body),
        vjp=(_shared_by_ties,),
        saves="x y",
        onnx=lambda w, x, *, axis, keepdims: w.reduce(onnx, x, axis, keepdims),
    )


@_extreme("maximum", "ReduceMax")
def max(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The largest element over axes; NaN if an element is NaN.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Equal largest elements share the gradient.
    Raises ShapeError where a reduced axis has size 0, DTypeError for complex numbers.

    >>> ef.max(ef.tensor([[1.0, 5.0], [3.0, 2.0]]), axis=1)
    Tensor([5., 3.], float32, cpu:0)
    """
    return xp.max(x, axis=axis, keepdims=keepdims)


@_extreme("minimum", "ReduceMin")
def min(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The smallest element over axes; NaN if an element is NaN.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. Equal smallest elements share the gradient.
    Raises ShapeError where a reduced axis has size 0, DTypeError for complex numbers.

    >>> ef.min(ef.tensor([[1.0, 5.0], [3.0, 2.0]]), axis=1)
    Tensor([1., 2.], float32, cpu:0)
    """
    return xp.min(x, axis=axis, keepdims=keepdims)


# True and false ----------------------------------------------------------------------------------


def _truth(s: Any, x: Any) -> Any:
    return x if x.dtype == "bool" else s.not_equal(x, 0)


def _truth_operator(operator: str, w: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    """The rule of ONNX; the largest of no numbers is below 0, the smallest above."""
    found = w.reduce(operator, w.truth(x), axis, keepdims)
    return w.Greater(found, w.constant(0, found.dtype), dtype=bool)


def _logical(ufunc: str) -> Any:
    instruction = {"logical_or": "any", "logical_and": "all"}[ufunc]
    body = _body_of(instruction, _truth)
    return reduction(
        dtypes=STANDARD,
        result="bool",
        combine=ufunc,
        scalar=Rows(body, columns=True),
        **reduced_by(ufunc, body),
        vjp=_BOOL_RESULT,
        onnx=partial(_truth_operator, "ReduceMax" if instruction == "any" else "ReduceMin"),
    )


@_logical("logical_or")
def any(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether any element over axes is true (nonzero).

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. The result is false if there are no elements; NaN
    is true. Raises ShapeError for an axis that does not exist.

    >>> ef.any(ef.tensor([[True, False], [False, False]]), axis=1)
    Tensor([ True, False], bool, cpu:0)
    """
    return xp.any(x, axis=axis, keepdims=keepdims)


@_logical("logical_and")
def all(xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether all elements over axes are true (nonzero).

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all axes;
    ``keepdims`` keeps reduced axes with size 1. The result is true if there are no elements; NaN is
    true. Raises ShapeError for an axis that does not exist.

    >>> ef.all(ef.tensor([[True, True], [False, True]]), axis=1)
    Tensor([ True, False], bool, cpu:0)
    """
    return xp.all(x, axis=axis, keepdims=keepdims)


def _count(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    # The sum of a comparison, as np.count_nonzero does for an axis.
    return add_up(array != 0, axis, None, None, keepdims)


@reduction(
    dtypes=STANDARD,
    result="int64",
    combine="add",
    scalar=Rows(lambda s, x: s.sum(_wide(s, _truth(s, x)), "n"), columns=True),
    direct=lambda xp: _count if xp is np else None,
    vjp=_COUNT_RESULT,
)
def count_nonzero(
    xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False
) -> Array:
    """Number of elements over axes that are not zero.

    ``x`` is a tensor of any dtype, ``axis`` an integer, a tuple of integers or None for all
    axes; ``keepdims`` keeps reduced axes with size 1. The result is int64. Raises ShapeError
    for an axis that does not exist.

    >>> ef.count_nonzero(ef.tensor([[1, 0, 2], [0, 0, 0]]), axis=1)
    Tensor([2, 0], int64, cpu:0)
    """
    return xp.sum(x != 0, axis=axis, keepdims=keepdims)


# Where the extremes are --------------------------------------------------------------------------


def _searched_axis(axis: Any, rank: int) -> int | None:
    """The axis counted from the front; None for all, also for 0 and -1 on 0-d tensors."""
    return None if axis is None or not reduced_axes(axis, rank) else normalize_axis(axis, rank)


def _index_spec(x: TensorSpec, axis: Any = None, keepdims: bool = False) -> TensorSpec:
    at = _searched_axis(axis, x.ndim)
    axes = reduced_axes(at, x.ndim)
    if builtins.any(x.shape[i] == 0 for i in axes):
        raise ShapeError(
            "nothing to search: an axis has size 0", argument="x", expected="non-empty axes"
        )
    return x.like(reduced_shape(x.shape, at, keepdims), "int64")


def _batched_index(call: Any, args: Any, batched: Any, size: Any, axis: Any, keepdims: bool) -> Any:
    (x,) = args
    at = _searched_axis(axis, x.ndim - 1)
    if at is not None:
        return call(x, axis=at + 1, keepdims=keepdims)
    rows = call(x.reshape((x.shape[0], product(x.shape[1:]))), axis=1)
    return rows.reshape((x.shape[0], *(1,) * (x.ndim - 1))) if keepdims else rows


def _arg_extreme(name: str, onnx: str) -> Any:
    def direct(xp: Any) -> Any:
        search = getattr(xp.ndarray, name)
        return lambda a, axis=None, keepdims=False: search(a, passed_on(axis), keepdims=keepdims)

    return reduction(
        dtypes=REAL | BOOL,
        infer=_index_spec,
        trusted=True,
        direct=direct,
        vjp=INDEX_RESULT,
        batch=Batch(_batched_index),
        onnx=lambda w, x, *, axis, keepdims: w.position(onnx, x, axis, keepdims),
    )


@_arg_extreme("argmax", "ArgMax")
def argmax(xp: Namespace, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Index of the largest element along an axis, the first of equal ones.

    ``x`` is a real tensor, ``axis`` an integer, or None for the index into all elements in
    row-major order; ``keepdims`` keeps the reduced axes with size 1. The result is int64; a
    NaN counts as largest. Raises ShapeError where there is nothing to search.

    >>> ef.argmax(ef.tensor([[1.0, 5.0], [3.0, 2.0]]), axis=1)
    Tensor([1, 0], int64, cpu:0)
    """
    return xp.argmax(x, axis=passed_on(axis), keepdims=keepdims)


@_arg_extreme("argmin", "ArgMin")
def argmin(xp: Namespace, x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Index of the smallest element along an axis, the first of equal ones.

    ``x`` is a real tensor, ``axis`` an integer, or None for the index into all elements in
    row-major order; ``keepdims`` keeps the reduced axes with size 1. The result is int64; a
    NaN counts as smallest. Raises ShapeError where there is nothing to search.

    >>> ef.argmin(ef.tensor([[1.0, 5.0], [3.0, 2.0]]), axis=1)
    Tensor([0, 1], int64, cpu:0)
    """
    return xp.argmin(x, axis=passed_on(axis), keepdims=keepdims)
