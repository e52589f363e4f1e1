"""Common parts of attention and its gradient: shapes, batches, splits, and weights."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from eagerflow import primitives
from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import Split
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import abs as absolute
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal, greater_equal, less, logical_or
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Batch
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import TensorSpec

__all__: list[str] = []


# Shapes ------------------------------------------------------------------------------------------


def attention_spec(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    mask: TensorSpec | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[TensorSpec, TensorSpec]:
    """The averages, like ``q`` but for the width, and a logarithm for each query."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ShapeError(
                f"{x.ndim} axes given",
                argument=name,
                expected="shape (batch, heads, length, width)",
                hint=f"{name}.reshape(...), with sizes of 1 for what there is not",
            )
    for name, x, axis, what in (
        ("k", k, 0, "batch sizes"),
        ("v", v, 0, "batch sizes"),
        ("k", k, 3, "widths"),
    ):
        if x.shape[axis] != q.shape[axis]:
            raise ShapeError(
                f"{what} differ: {q.shape[axis]} in q, {x.shape[axis]} in {name}",
                argument=name,
                expected=f"equal {what} in q, k and v" if axis == 0 else "equal widths in q and k",
            )
    if k.shape[1:3] != v.shape[1:3]:
        raise ShapeError(
            f"k has {k.shape[1]} heads of length {k.shape[2]}, v has {v.shape[1]} of {v.shape[2]}",
            argument="v",
            expected="one value for each key",
        )
    if q.shape[1] != k.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        raise ShapeError(
            f"{q.shape[1]} heads of q cannot share {k.shape[1]} heads of k",
            argument="k",
            expected="as many heads as q, or a number that divides them",
        )
    whole = (*q.shape[:3], k.shape[2])
    if mask is not None and not _fits(mask.shape, whole):
        raise ShapeError(
            f"shape {mask.shape} does not broadcast to {whole}",
            argument="mask",
            expected="(batch, heads, length of q, length of k), or sizes of 1, or fewer axes",
        )
    return q.like((*q.shape[:3], v.shape[3])), q.like(q.shape[:3])


def _fits(shape: Any, whole: Any) -> bool:
    """Whether a shape broadcasts to another."""
    sizes = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in sizes)


@lru_cache(1024, typed=True)
def check_shapes(*shapes: Any) -> None:
    """Refuse mismatched shapes of q, k, v and the mask; each combination is checked once."""
    q, k, v, mask = (None if shape is None else TensorSpec(shape, "float32") for shape in shapes)
    attention_spec(q, k, v, mask)  # type: ignore[arg-type]


def refuse_integers(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments unchanged, but a mask of integers is refused.

    It would be added to the scores as 0 and 1, which is never intended.
    """
    mask = args[3] if len(args) > 3 else named.get("mask")
    if isinstance(mask, list | tuple):
        mask = as_tensor(mask)
    kind = getattr(getattr(mask, "dtype", None), "kind", "")
    if kind in ("i", "u") or isinstance(mask, int):
        raise DTypeError(
            "a mask of integers could mean two things",
            op="dot_product_attention",
            argument="mask",
            hint="mask.astype('bool'), True where a query may see a key",
            expected="bools, or floats that are added to the scores",
        )
    return args, named


def scale_of(q: Any, scale: float | None) -> float:
    """The factor of products of queries and keys."""
    if scale is not None:
        return scale
    return 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0


# Public ops --------------------------------------------------------------------------------------


def folded(x: Any, k: Any) -> Any:
    """The heads of ``x`` that share a head of ``k`` as rows of one matrix."""
    batch, heads, length, width = x.shape
    if heads == k.shape[1]:
        return x
    return reshape(x, (batch, k.shape[1], heads // k.shape[1] * length, width))


def rows_of(x: Any, k: Any) -> Any:
    """A number for each query as a column that matches the rows of ``folded``."""
    return folded(reshape(x, (*x.shape, 1)), k)


def scores_of(q: Any, k: Any, mask: Any, is_causal: bool, factor: float) -> Any:
    """How well each key fits each query, in rows that are folded as the queries are."""
    scores = multiply(matmul(folded(q, k), transposed(k)), factor)
    shape = (*q.shape[:3], k.shape[2])
    if mask is not None:
        scores = reshape(scores, shape)
        if mask.dtype in BOOL:
            scores = where(mask, scores, -math.inf)
        else:
            added = astype(mask, q.dtype)
            scores = where(equal(added, -math.inf), -math.inf, add(scores, added))
    if is_causal:
        scores = where(_causal(q, k), reshape(scores, shape), -math.inf)
    return folded(scores, k)


def weights_of(q: Any, k: Any, log_sums: Any, mask: Any, is_causal: bool, factor: float) -> Any:
    """The weight of each key for each query, in rows that are folded as the queries are."""
    scores, levels = scores_of(q, k, mask, is_causal, factor), rows_of(log_sums, k)
    weights = exp(subtract(scores, levels))
    sums = total(weights, axis=-1, keepdims=True)
    exact = less(absolute(levels), primitives.attention.MAX_LOG_SUM)
    return divide(weights, where(logical_or(exact, equal(sums, 0)), 1, sums))


def _causal(q: Any, k: Any) -> Any:
    """The causal mask: keys up to each query's own position."""
    places = eye(q.shape[2], k.shape[2], dtype=q.dtype, device=str(q.device))
    return greater_equal(cumulative_sum(places, axis=0), 1)


# The other facts ---------------------------------------------------------------------------------


def examples_as_batch(mask_at: int, results: int) -> Batch:
    """The rule for vmap of an op with a single mask, its argument ``mask_at``.

    Examples become further entries of the batch.
    """

    def rule(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
        found, mask = list(args), args[mask_at]
        inner = found[0].shape[batched[0]]
        if mask is not None and (batched[mask_at] or mask.ndim == 4):
            own = mask.shape[1:] if batched[mask_at] else mask.shape
            lead = size if batched[mask_at] else 1
            mask = reshape(mask, (lead, *(1,) * (4 - len(own)), *own))
            mask = broadcast_to(mask, (size, inner, *mask.shape[2:]))
            found[mask_at] = reshape(mask, (size * inner, *mask.shape[2:]))
        axes = [None if i == mask_at else 0 for i in range(len(args))]
        return call_merged(call, found, batched, size, axes, (0,) * results, **attributes)

    return Batch(rule)


def cut_heads(mask_at: int, q: TensorSpec, k: TensorSpec, *specs: Any) -> list[Split]:
    """Along the batch, and along heads if queries and keys have the same number."""
    axes = (0, 1) if q.shape[1] == k.shape[1] else (0,)
    return [Split(cuts_along(axis, mask_at, q, k, *specs), axis) for axis in axes]


def cuts_along(axis: int, mask_at: int, *specs: Any) -> tuple[int | None, ...]:
    """Where arguments are cut along an axis that all have, and the mask may have."""
    cuts: list[int | None] = [None if x is None else axis for x in specs]
    mask = specs[mask_at]
    if mask is not None:
        at = axis - 4 + mask.ndim
        whole = at < 0 or mask.shape[at] != specs[0].shape[axis]
        cuts[mask_at] = None if whole else at
    return tuple(cuts)
