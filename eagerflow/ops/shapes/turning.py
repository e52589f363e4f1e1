"""Matrices flipped and turned."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import ShapeError, short_repr
from eagerflow.ops.composition import composed
from eagerflow.ops.family import STANDARD
from eagerflow.ops.operands import whole_number
from eagerflow.ops.shapes.padding import flip
from eagerflow.ops.shapes.reshaping import swapaxes
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["fliplr", "flipud", "rot90"]


@composed(dtypes=STANDARD)
def fliplr(x: Any, /) -> Tensor:
    """The tensor with its second axis in reverse order: columns from right to left.

    ``x`` has two axes or more. Raises ShapeError for fewer.

    >>> ef.fliplr(ef.tensor([[1, 2], [3, 4]]))
    Tensor([[2, 1],
            [4, 3]], shape=(2, 2), int64, cpu:0)
    """
    return flip(x, axis=1)


@composed(dtypes=STANDARD)
def flipud(x: Any, /) -> Tensor:
    """The tensor with its first axis in reverse order: rows from the last to the first.

    ``x`` has one axis or more. Raises ShapeError for 0-d tensors.

    >>> ef.flipud(ef.tensor([1, 2, 3]))
    Tensor([3, 2, 1], int64, cpu:0)
    """
    return flip(x, axis=0)


@composed(dtypes=STANDARD)
def rot90(x: Any, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """The tensor turned by ``k`` right angles, from the first of two axes to the second.

    ``x`` has two axes or more. Raises ShapeError for axes that are equal or do not exist.

    >>> ef.rot90(ef.tensor([[1, 2], [3, 4]]))
    Tensor([[2, 4],
            [1, 3]], shape=(2, 2), int64, cpu:0)
    """
    k = whole_number(k, "k") % 4
    if (
        not isinstance(axes, tuple | list)
        or len(axes) != 2
        or len({normalize_axis(axis, x.ndim, "axes") for axis in axes}) != 2
    ):
        raise ShapeError(f"{short_repr(axes)} are not two different axes", argument="axes")
    first, second = axes
    if k == 0:
        return x
    if k == 2:
        return flip(x, axis=(first, second))
    if k == 1:
        return swapaxes(flip(x, axis=second), first, second)
    return flip(swapaxes(x, first, second), axis=second)
