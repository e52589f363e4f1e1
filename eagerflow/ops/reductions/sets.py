"""Tensors as sets of values."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import BOOL, REAL
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.elementwise.arithmetic import subtract
from eagerflow.ops.elementwise.comparison import equal, logical_not
from eagerflow.ops.elementwise.selection import minimum
from eagerflow.ops.family import as_operands
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.reductions.sorting import searchsorted, sort
from eagerflow.ops.reductions.unique import unique
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.tensor import Tensor

__all__ = ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d"]


@composed(dtypes=REAL | BOOL, gradient=Missing("the result is a truth value"))
def isin(x: Any, test_elements: Any, /, invert: bool = False) -> Tensor:
    """Whether each element is in a set; with ``invert``, whether it is not.

    ``x`` and ``test_elements`` are real tensors, arrays or numbers of any shapes; NaN is in no set.
    Raises DTypeError for complex numbers.

    >>> ef.isin(ef.tensor([1, 2, 5]), [2, 3, 5])
    Tensor([False,  True,  True], bool, cpu:0)
    """
    values = sort(reshape(test_elements, (-1,)))
    size = values.shape[0]
    if type(size) is int and size == 0:
        found = zeros(x.shape, "bool", str(x.device))
    else:
        places = searchsorted(values, x)
        # There is none past the end; the last one differs, then.
        last = subtract(searchsorted(values, values[-1], side="right"), 1)
        found = equal(take(values, minimum(places, last), axis=0), x)
    return logical_not(found) if invert else found


# Sets whose sizes depend on values ----------------------------------------------------------------


def _members(x1: Any, x2: Any, assume_unique: bool = False) -> list[Any]:
    x1, x2 = (reshape(x, (-1,)) for x in as_operands(x1, x2))
    return [x1, x2] if assume_unique else [unique(x1), unique(x2)]


def union1d(x1: Any, x2: Any) -> Tensor:
    """The different values of two tensors, in ascending order.

    ``x1`` and ``x2`` are real tensors, arrays or numbers. Raises CaptureError while a graph is
    captured, since the shape depends on values.

    >>> ef.union1d(ef.tensor([3, 1]), [1, 2])
    Tensor([1, 2, 3], int64, cpu:0)
    """
    return unique(concat(_members(x1, x2, True), axis=0))


def intersect1d(x1: Any, x2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """The values that two tensors have in common, in ascending order.

    ``x1`` and ``x2`` are real tensors, arrays or numbers; ``assume_unique`` asserts that no value
    is repeated in either; with ``return_indices`` the indices of the values in both are returned.
    Raises CaptureError while a graph is captured, since the shape depends on values.

    >>> ef.intersect1d(ef.tensor([3, 1, 2]), [2, 3, 5])
    Tensor([2, 3], int64, cpu:0)
    """
    x1, x2 = (reshape(x, (-1,)) for x in as_operands(x1, x2))
    first, places1 = unique(x1, return_index=True)
    second, places2 = unique(x2, return_index=True)
    in_both, in_first = isin(first, second), isin(second, first)
    if not return_indices:
        return first[in_both]
    return first[in_both], places1[in_both], places2[in_first]


def setdiff1d(x1: Any, x2: Any, assume_unique: bool = False) -> Tensor:
    """The different values of one tensor that another does not have, in ascending order.

    ``x1`` and ``x2`` are real tensors, arrays or numbers; ``assume_unique`` asserts that no value
    is repeated in ``x1``, whose order is kept then. Raises CaptureError while a graph is captured,
    since the shape depends on values.

    >>> ef.setdiff1d(ef.tensor([3, 1, 2, 3]), [2])
    Tensor([1, 3], int64, cpu:0)
    """
    first, second = _members(x1, x2, assume_unique)
    return first[isin(first, second, invert=True)]


def setxor1d(x1: Any, x2: Any, assume_unique: bool = False) -> Tensor:
    """The values that just one of two tensors has, in ascending order.

    ``x1`` and ``x2`` are real tensors, arrays or numbers; ``assume_unique`` asserts that no value
    is repeated in either. Raises CaptureError while a graph is captured, since the shape depends on
    values.

    >>> ef.setxor1d(ef.tensor([3, 1]), [1, 2])
    Tensor([2, 3], int64, cpu:0)
    """
    first, second = _members(x1, x2, assume_unique)
    alone = [first[isin(first, second, invert=True)], second[isin(second, first, invert=True)]]
    return sort(concat(alone, axis=0))
