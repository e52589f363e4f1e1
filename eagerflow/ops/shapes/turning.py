"""Matrices flipped and turned."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, ShapeError, short_repr
from eagerflow.op import ErrorSample
from eagerflow.ops.composition import composed
from eagerflow.ops.family import STANDARD
from eagerflow.ops.operands import whole_number
from eagerflow.ops.samples import shaped
from eagerflow.ops.shapes.padding import flip
from eagerflow.ops.shapes.reshaping import swapaxes
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["fliplr", "flipud", "rot90"]

_flipped = shaped("", ((2, 3),), ((4, 2, 2),), ((1, 1),), ((0, 3),), turned={}, repeated={})


@composed(
    samples=_flipped,
    reference=lambda x: x[:, ::-1],
    errors=lambda rng: [ErrorSample((np.ones(3),), {}, AxisError, "axis 1 does not exist")],
    dtypes=STANDARD,
)
def fliplr(x: Any, /) -> Tensor:
    """The tensor with its second axis in reverse order: columns from right to left.

    ``x`` has two axes or more. Raises ShapeError for fewer.

    >>> ef.fliplr(ef.tensor([[1, 2], [3, 4]]))
    Tensor([[2, 1],
            [4, 3]], shape=(2, 2), int64, cpu:0)
    """
    return flip(x, axis=1)


@composed(
    samples=_flipped,
    reference=lambda x: x[::-1],
    errors=lambda rng: [ErrorSample((np.float64(3),), {}, AxisError, "axis 0 does not exist")],
    dtypes=STANDARD,
)
def flipud(x: Any, /) -> Tensor:
    """The tensor with its first axis in reverse order: rows from the last to the first.

    ``x`` has one axis or more. Raises ShapeError for 0-d tensors.

    >>> ef.flipud(ef.tensor([1, 2, 3]))
    Tensor([3, 2, 1], int64, cpu:0)
    """
    return flip(x, axis=0)


@composed(
    samples=shaped(
        "k axes",
        *(((2, 3), k, (0, 1)) for k in (0, 1, 2, 3, -1, 5)),
        ((2, 3, 4), 1, (1, 2)),
        ((2, 3, 4), 3, (2, 0)),
        ((2, 3, 4), 1, (-1, 0)),
        turned={"k": 1},
        repeated={"k": 3},
    ),
    reference=lambda x, k=1, axes=(0, 1): np.rot90(x, k, axes),
    errors=lambda rng: [
        ErrorSample((np.ones((2, 2)),), {"axes": (0, -2)}, ShapeError, "two different axes"),
        ErrorSample((np.ones((2, 2)),), {"axes": (0, 2)}, AxisError, "axis 2 does not exist"),
        ErrorSample((np.ones((2, 2)),), {"k": 0.5}, ArgumentError, "is not taken"),
    ],
    dtypes=STANDARD,
)
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
