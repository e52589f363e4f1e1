"""Indices into flattened tensors, and elements selected by conditions."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, INTEGERS
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.elementwise.arithmetic import add, floor_divide, multiply, remainder
from eagerflow.ops.elementwise.comparison import not_equal
from eagerflow.ops.elementwise.selection import clip, where
from eagerflow.ops.family import as_operands
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.operands import chosen, real_numbers
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import as_shape
from eagerflow.tensor import Tensor

__all__ = [
    "argwhere",
    "compress",
    "extract",
    "flatnonzero",
    "ravel_multi_index",
    "select",
    "unravel_index",
]

_INDEX = Missing("the result is an index, which does not change smoothly")


def _within(places: Any, size: Any) -> Any:
    """Indices with negative ones counted from the end; others out of range are refused."""
    # A broadcast array of many elements has the memory of one.
    none = broadcast_to(zeros((1,), "int64", str(places.device)), (size,))
    return add(take(none, places, axis=0), remainder(places, size))


@composed(dtypes=INTEGERS, gradient=_INDEX)
def unravel_index(indices: Any, /, shape: Any) -> tuple[Tensor, ...]:
    """Indices along each axis, of indices into a flattened tensor.

    ``indices`` is a tensor of integers, negative ones counted from the end; ``shape`` is that of
    the tensor. The results, one for each axis, are int64. Raises IndexRangeError for indices that
    it does not have.

    >>> ef.unravel_index(ef.tensor([1, 5]), (2, 3))
    (Tensor([0, 1], int64, cpu:0), Tensor([1, 2], int64, cpu:0))
    """
    rest = astype(real_numbers(indices, "indices", INTEGERS | BOOL), "int64")
    sizes = as_shape(shape)
    found: list[Any] = []
    for size in reversed(sizes[1:]):
        found.append(remainder(rest, size))
        rest = floor_divide(rest, size)
    if sizes:
        found.append(_within(rest, sizes[0]))
    return tuple(reversed(found))


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise") -> Tensor:
    """Indices into a flattened tensor, of indices along each axis.

    ``multi_index`` is a tuple of tensors of integers, one for each axis, ``dims`` the shape.
    Indices out of range are refused with ``mode="raise"``, where negative ones are counted from the
    end, wrapped around with ``"wrap"``, and clipped with ``"clip"``; ``mode`` may be one for each
    axis. The result is int64. Raises IndexRangeError and ShapeError.

    >>> ef.ravel_multi_index((ef.tensor([0, 1]), ef.tensor([1, 2])), (2, 3))
    Tensor([1, 5], int64, cpu:0)
    """
    sizes = as_shape(dims)
    parts = as_operands(*multi_index)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    if not len(parts) == len(sizes) == len(modes):
        raise ShapeError(
            f"{len(parts)} indices for {len(sizes)} axes",
            op="ravel_multi_index",
            argument="multi_index",
        )
    found: Any = 0
    for part, size, how in zip(parts, sizes, modes, strict=True):
        place = astype(real_numbers(part, "multi_index", INTEGERS | BOOL), "int64")
        if chosen(how, "mode", ("raise", "wrap", "clip")) == "raise":
            place = _within(place, size)
        else:
            place = remainder(place, size) if how == "wrap" else clip(place, 0, size - 1)
        found = add(multiply(found, size), place)
    return found


# Chosen by conditions -----------------------------------------------------------------------------


def argwhere(x: Any) -> Tensor:
    """Indices of the elements that are not zero, one row for each.

    ``x`` is a tensor; the result is int64, of shape (elements, axes). Raises CaptureError while a
    graph is captured, since the shape depends on values.

    >>> ef.argwhere(ef.tensor([[0, 1], [2, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    x = as_tensor(x)
    if x.ndim == 0:
        return reshape(nonzero(reshape(x, (1,)))[0], (-1, 1))[:, :0]
    return stack(list(nonzero(x)), axis=-1)


def flatnonzero(x: Any) -> Tensor:
    """Indices into the flattened tensor of the elements that are not zero.

    ``x`` is a tensor; the result is int64. Raises CaptureError while a graph is captured, since the
    shape depends on values.

    >>> ef.flatnonzero(ef.tensor([[0, 1], [2, 0]]))
    Tensor([1, 2], int64, cpu:0)
    """
    return nonzero(reshape(as_tensor(x), (-1,)))[0]


def compress(condition: Any, x: Any, axis: Any = None) -> Tensor:
    """The slices along an axis for which a condition is true; without one, of the flattened tensor.

    ``condition`` is a vector of truth values, at most as long as the axis; ``x`` is a tensor.
    Raises CaptureError while a graph is captured, since the shape depends on values.

    >>> ef.compress([False, True], ef.tensor([[1, 2], [3, 4]]), axis=0)
    Tensor([[3, 4]], shape=(1, 2), int64, cpu:0)
    """
    x, condition = as_tensor(x), as_tensor(condition)
    if condition.ndim != 1:
        raise ShapeError(
            f"{condition.ndim} axes, where one is needed", op="compress", argument="condition"
        )
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    return take(x, flatnonzero(condition), axis=axis)


def extract(condition: Any, x: Any) -> Tensor:
    """The elements for which a condition is true, as a vector.

    ``condition`` and ``x`` are tensors of as many elements. Raises CaptureError while a graph is
    captured, since the shape depends on values.

    >>> ef.extract(ef.tensor([True, False, True]), ef.tensor([1, 2, 3]))
    Tensor([1, 3], int64, cpu:0)
    """
    return take(reshape(as_tensor(x), (-1,)), flatnonzero(condition), axis=0)


@plain
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    """The elements of the first of several tensors whose condition is true.

    ``condlist`` is a list of tensors of truth values, ``choicelist`` one of as many tensors or
    numbers, ``default`` the value where no condition is true; all shapes broadcast. Raises
    ArgumentError for lists of different lengths.

    >>> x = ef.arange(5)
    >>> ef.select([x < 2, x > 3], [-x, x * 10], 7)
    Tensor([ 0, -1,  7,  7, 40], int64, cpu:0)
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(
            f"{len(condlist)} conditions for {len(choicelist)} choices",
            op="select",
            argument="condlist",
            expected="as many of both, one at least",
        )
    *choices, found = as_operands(*choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        condition = as_tensor(condition)
        truth = condition if condition.dtype in BOOL else not_equal(condition, 0)
        found = where(truth, choice, found)
    return found
