"""Reductions of the rows of a tensor that have the same number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import INTEGERS, NARROW, NUMERIC, REAL, DType, is_floating
from eagerflow.errors import ShapeError
from eagerflow.ops.attributes import Size
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import divide, multiply
from eagerflow.ops.elementwise.comparison import equal, greater_equal, less, logical_or
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import STANDARD, Batch
from eagerflow.ops.indexing.gathering import gather
from eagerflow.ops.indexing.indices import check_values, indexing_op, integer_argument
from eagerflow.ops.indexing.positions import add_at, summed_at
from eagerflow.ops.indexing.scattering import check_number
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.shapes.reshaping import broadcast_to, moveaxis, reshape, sized
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _segment_spec(x: TensorSpec, segment_ids: TensorSpec, num_segments: Any) -> TensorSpec:
    rank = segment_ids.ndim
    if rank == 0 or x.shape[:rank] != segment_ids.shape:
        raise ShapeError(
            f"segment_ids of shape {segment_ids.shape} do not fit x of shape {x.shape}",
            argument="segment_ids",
            expected="the sizes of the first axes of x",
        )
    check_number(num_segments, "segments")
    return x.like(sized((num_segments, *x.shape[rank:]), "num_segments"))


def _arrange(op: str) -> Any:
    """Convert numbers to a tensor of integers, and count the segments if that is not given."""
    as_integers = integer_argument(op, 1, "segment_ids")

    def arrange(*args: Any, **named: Any) -> tuple[Any, Any]:
        args, named = as_integers(*args, **named)
        told = args[2] if len(args) > 2 else named.get("num_segments")
        ids = args[1] if len(args) > 1 else named.get("segment_ids")
        if told is None and ids is not None and ids.dtype in INTEGERS:
            count = int(largest(ids)) + 1 if ids.size else 0
            return args[:2], named | {"num_segments": count}
        return args, named

    return arrange


def _batched_segments(call: Any, args: Any, batched: Any, size: Any, num_segments: Any) -> Any:
    x, ids = args
    if not batched[1]:
        found = call(moveaxis(x, 0, ids.ndim), ids, num_segments)
        return moveaxis(found, 1, 0)
    if not batched[0]:
        x = broadcast_to(x, (size, *x.shape))
    # The segments of all examples in a row; invalid ones stay invalid.
    rank = ids.ndim
    ids = ids.astype("int64")
    first = reshape(arange(size, device=str(ids.device)), (size,) + (1,) * (rank - 1))
    wrong = logical_or(less(ids, 0), greater_equal(ids, num_segments))
    found = call(x, where(wrong, -1, ids + first * num_segments), size * num_segments)
    return reshape(found, (size, num_segments, *x.shape[rank:]))


def identity_of(ufunc: str, dtype: DType) -> Any:
    """The neutral element of a function of two numbers of a dtype."""
    if ufunc in ("add", "multiply"):
        return int(ufunc == "multiply")
    if is_floating(dtype):
        return -math.inf if ufunc == "maximum" else math.inf
    ends = np.iinfo(dtype)
    return ends.min if ufunc == "maximum" else ends.max


def _segments(name: str, ufunc: str, operator: str, **facts: Any) -> Any:
    """An op that joins the rows of each segment by a function of two numbers."""

    def rule(w: Any, x: Any, ids: Any, *, num_segments: Any) -> Any:
        given, identity = w.computable(x), identity_of(ufunc, x.dtype)
        moved = x.dtype == np.uint64 and ufunc in ("maximum", "minimum")
        if moved:  # in the order of int64, in which ONNX compares them
            least = w.constant(np.iinfo(np.int64).min, "int64")
            given, identity = w.Add(given, least), identity - 2**63
        blank = w.filled(identity, w.results[0].shape, given.dtype)
        places = w.index(w.Unsqueeze(ids, w.axes(-1)))
        found = w.ScatterND(blank, places, given, reduction=operator)
        return w.Add(found, least) if moved else found

    own: dict[str, Any] = {
        "integers": "segment_ids",
        "arrange": _arrange(name),
        "infer": _segment_spec,
        "batch": Batch(_batched_segments),
        "onnx": rule,
    }
    return indexing_op(**own | facts)


def _joined(xp: Namespace, ufunc: str, x: Any, ids: Any, num_segments: int) -> Any:
    """The rows of each segment joined by a ufunc."""
    check_values(xp, ids, 0, num_segments, low=0)
    shape = (num_segments, *x.shape[ids.ndim :])
    if ufunc == "add":
        return summed_at(xp, shape, (ids,), x)
    wide = xp.astype(x, xp.float32) if ufunc == "multiply" and x.dtype in NARROW else x
    blank = xp.full(shape, identity_of(ufunc, wide.dtype), dtype=wide.dtype)
    found = add_at(xp, blank, (ids,), wide, ufunc)
    return found if wide is x else xp.astype(found, x.dtype)


@_segments(
    "segment_sum",
    "add",
    "add",
    dtypes=(STANDARD, INTEGERS),
    vjp=(lambda g, y, x, segment_ids, num_segments: gather(g, segment_ids, 0), None),
)
def segment_sum(xp: Namespace, x: Array, segment_ids: Array, /, num_segments: Size = None) -> Array:
    """Sums of the rows of a tensor that have the same number.

    ``segment_ids`` is a tensor of integers from 0, in any order, with the sizes of the first
    axes of ``x``; the result has ``num_segments`` rows, by default up to the largest number,
    and those without a number are 0. Raises IndexRangeError for numbers outside of
    ``num_segments``, ShapeError for shapes that do not fit, CaptureError where the default
    would have to be known in captured code.

    >>> ef.segment_sum(ef.tensor([1.0, 2.0, 4.0]), [0, 1, 0], 3)
    Tensor([5., 2., 0.], float32, cpu:0)
    """
    return _joined(xp, "add", x, segment_ids, num_segments)


def _extreme_back(g: Any, y: Any, x: Any, segment_ids: Any, num_segments: Any) -> tuple[Any, None]:
    """The gradient goes to the elements equal to the result; ties share it."""
    won = equal(x, gather(y, segment_ids, 0))  # in the dtype that both are rounded to
    return _shares(g, won, segment_ids, num_segments=num_segments), None


@in_float32
def _shares(g: Any, won: Any, segment_ids: Any, num_segments: Any) -> Any:
    won = won.astype(g.dtype)
    ties = segment_sum(won, segment_ids, num_segments)
    return multiply(gather(g / where(equal(ties, 0), 1, ties), segment_ids, 0), won)


def _extreme_forward(tangents: Any, y: Any, x: Any, segment_ids: Any, num_segments: Any) -> Any:
    """The mean of the tangents of tied elements."""
    won = equal(x, gather(y, segment_ids, 0))
    return _mean_of(tangents[0], won, segment_ids, num_segments=num_segments)


@in_float32
def _mean_of(tangent: Any, won: Any, segment_ids: Any, num_segments: Any) -> Any:
    won = won.astype(tangent.dtype)
    ties = segment_sum(won, segment_ids, num_segments)
    moved = segment_sum(multiply(tangent, won), segment_ids, num_segments)
    return moved / where(equal(ties, 0), 1, ties)


_EXTREME: dict[str, Any] = {
    "dtypes": (REAL, INTEGERS),
    "vjp": _extreme_back,
    "jvp": _extreme_forward,
    "saves": "x segment_ids y",
}


@_segments("segment_max", "maximum", "max", **_EXTREME)
def segment_max(xp: Namespace, x: Array, segment_ids: Array, /, num_segments: Size = None) -> Array:
    """The largest elements of the rows of a tensor that have the same number.

    Arguments and errors are those of ``segment_sum``; ``x`` is real. Rows without a number are
    -inf, or the least integer of the dtype. Elements that tie share the gradient.

    >>> ef.segment_max(ef.tensor([1.0, 2.0, 4.0]), [0, 1, 0], 3)
    Tensor([  4.,   2., -inf], float32, cpu:0)
    """
    return _joined(xp, "maximum", x, segment_ids, num_segments)


@_segments("segment_min", "minimum", "min", **_EXTREME)
def segment_min(xp: Namespace, x: Array, segment_ids: Array, /, num_segments: Size = None) -> Array:
    """The smallest elements of the rows of a tensor that have the same number.

    Arguments and errors are those of ``segment_sum``; ``x`` is real. Rows without a number are
    inf, or the largest integer of the dtype. Elements that tie share the gradient.

    >>> ef.segment_min(ef.tensor([1.0, 2.0, 4.0]), [0, 1, 0], 3)
    Tensor([ 1.,  2., inf], float32, cpu:0)
    """
    return _joined(xp, "minimum", x, segment_ids, num_segments)


def _others(x: Any, segment_ids: Any, num_segments: Any) -> Any:
    """For each element the product of all other elements of its segment, also with zeros."""
    zero = equal(x, 0)
    filled = where(zero, 1, x)
    rest = divide(gather(segment_prod(filled, segment_ids, num_segments), segment_ids, 0), filled)
    zeros = zero.astype("int64")
    count = gather(segment_sum(zeros, segment_ids, num_segments), segment_ids, 0) - zeros
    return where(equal(count, 0), rest, 0)


@_segments(
    "segment_prod",
    "multiply",
    "mul",
    dtypes=(NUMERIC, INTEGERS),
    vjp=(
        lambda g, y, x, segment_ids, num_segments: multiply(
            gather(g, segment_ids, 0), conj(_others(x, segment_ids, num_segments))
        ),
        None,
    ),
    jvp=lambda tangents, y, x, segment_ids, num_segments: segment_sum(
        multiply(tangents[0], _others(x, segment_ids, num_segments)), segment_ids, num_segments
    ),
    saves="x segment_ids",
)
def segment_prod(
    xp: Namespace, x: Array, segment_ids: Array, /, num_segments: Size = None
) -> Array:
    """Products of the rows of a tensor that have the same number.

    Arguments and errors are those of ``segment_sum``; rows without a number are 1.

    >>> ef.segment_prod(ef.tensor([2.0, 3.0, 4.0]), [0, 1, 0], 3)
    Tensor([8., 3., 1.], float32, cpu:0)
    """
    return _joined(xp, "multiply", x, segment_ids, num_segments)
