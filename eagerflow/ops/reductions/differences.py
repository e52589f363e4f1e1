"""Differences of neighbours along an axis."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import BOOL
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.ops.elementwise.arithmetic import subtract
from eagerflow.ops.elementwise.comparison import not_equal
from eagerflow.ops.family import as_operand
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import normalize_axis

__all__ = ["diff"]


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Each element minus the one before it along an axis, ``n`` times over.

    ``x`` is a tensor with at least one axis; bools give whether neighbours differ. ``prepend``
    and ``append`` are put at the ends of ``axis`` first: tensors of the sizes of ``x`` along
    the other axes, or numbers. The result is ``n`` shorter than that, or empty; ``n=0`` gives
    ``x`` itself. Raises ShapeError for axes and sizes that do not fit, ArgumentError for ``n``
    below 0.

    >>> ef.diff(ef.tensor([1, 4, 9, 16]))
    Tensor([3, 5, 7], int64, cpu:0)
    >>> ef.diff(ef.tensor([1, 4, 9, 16]), prepend=0)
    Tensor([1, 3, 5, 7], int64, cpu:0)
    """
    x = as_tensor(x)
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ArgumentError(
            f"{short_repr(n)} is not a number of times",
            op="diff",
            argument="n",
            expected="an integer from 0 on",
        )
    try:
        axis = normalize_axis(axis, x.ndim)
    except ShapeError as error:
        error.op, error.received = "diff", summary(x)
        raise
    if n == 0:
        return x
    before, after = _edge(prepend, "prepend", x, axis), _edge(append, "append", x, axis)
    if before is not None or after is not None:
        x = concat([part for part in (before, x, after) if part is not None], axis=axis)
    minus = not_equal if x.dtype in BOOL else subtract
    whole = (slice(None),) * axis
    for _ in range(n):
        if x.shape[axis] == 0:
            break  # empty, and it stays so
        x = minus(x[(*whole, slice(1, None))], x[(*whole, slice(None, -1))])
    return x


def _edge(value: Any, argument: str, x: Any, axis: int) -> Any:
    """What goes to one end of ``x``, with as many axes."""
    if value is None:
        return None
    value = as_operand(value, x)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if value.ndim == 0:
        return broadcast_to(value, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    if value.ndim != x.ndim or (*value.shape[:axis], *value.shape[axis + 1 :]) != rest:
        raise ShapeError(
            f"the shapes differ in more than axis {axis}",
            op="diff",
            argument=argument,
            received=f"x {summary(x)}, {argument} {summary(value)}",
            expected="a number, or the sizes of x along the other axes",
        )
    return value
