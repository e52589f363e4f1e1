"""Connectionist temporal classification: the loss of a label sequence without its times.

Paths through states are computed by two recurrences over time, in which a state is reached from
itself or from one of the two before: of logarithms, and of the gradients' weights.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS, as_dtype, float32, float64, is_floating
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import full_like
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.comparison import equal, less, not_equal
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Batch, define
from eagerflow.ops.indexing.gathering import take_along_axis
from eagerflow.ops.reductions.softmax import log_softmax, logsumexp
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.joining import concat, stack
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, squeeze
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["ctc_loss"]

_DTYPES = frozenset({float32, float64})
MOVES = 3  # a state is reached from 0, 1 or 2 states before


def stacked_in_front(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
    """The axis of vmap is one more in front of all arguments."""
    args = (
        x if own else broadcast_to(x, (size, *x.shape))
        for x, own in zip(args, batched, strict=True)
    )
    return call(*args, **attributes)


def _before(x: Any, first: float = 0.0) -> Any:
    """For each time and state, the values of the three states before, at the time before."""
    width = [(0, 0)] * (x.ndim - 2)
    x = pad(x, [*width, (1, 0), (2, 0)], constant_values=first)[..., :-1, :]
    return stack([x[..., 2:], x[..., 1:-1], x[..., :-2]], axis=-1)


def _padded(xp: Namespace, x: Any, value: float) -> Any:
    fill = xp.full((*x.shape[:-1], 2), value, dtype=x.dtype)
    return xp.concat([fill, x], axis=-1)


# The recurrence of weights -----------------------------------------------------------------------


def _band_spec(weights: TensorSpec, b: TensorSpec, reverse: bool = False) -> TensorSpec:
    if b.ndim < 2 or weights.shape != (*b.shape, MOVES):
        raise ShapeError(
            "there are not three weights for each time and state",
            argument="weights",
            expected=f"shape {(*b.shape, MOVES)}, b with times and states",
        )
    return b


def _band_rules(g: Any, y: Any, weights: Any, b: Any, reverse: bool) -> tuple[Any, Any]:
    moved = band_recurrence(weights, g, reverse=not reverse)
    late, early = (y, moved) if reverse else (moved, y)
    return expand_dims(late, axis=-1) * _before(early), moved


@define(
    "scan",
    dtypes=_DTYPES,
    infer=_band_spec,
    vjp=_band_rules,
    saves="weights y",
    batch=Batch(stacked_in_front),
)
def band_recurrence(xp: Namespace, weights: Array, b: Array, /, *, reverse: bool = False) -> Array:
    """The sequence y[t, s] = b[t, s] + sum over k of weights[t, s, k] y[t - 1, s - k].

    ``b`` has shape (..., times, states), ``weights`` (..., times, states, 3); k is 0, 1 or 2, and
    values before the first state or time are 0. ``reverse`` runs the transposed recurrence from the
    end. Raises ShapeError where the shapes do not fit.

    >>> band_recurrence(ef.ones((3, 3, 3)), ef.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]]))
    Tensor([[1., 0., 0.],
            [1., 1., 1.],
            [1., 2., 3.]], shape=(3, 3), float32, cpu:0)
    """
    times, states = b.shape[-2:]
    rows: list[Any] = []
    for t in reversed(range(times)) if reverse else range(times):
        row = b[..., t, :]
        if rows and reverse:
            parts = [
                _padded(xp, xp.flip(weights[..., t + 1, :, k] * rows[-1], axis=-1), 0.0)
                for k in range(MOVES)
            ]
            for k, part in enumerate(parts):
                row = row + xp.flip(part[..., 2 - k : 2 - k + states], axis=-1)
        elif rows:
            last = _padded(xp, rows[-1], 0.0)
            for k in range(MOVES):
                row = row + weights[..., t, :, k] * last[..., 2 - k : 2 - k + states]
        rows.append(row)
    return xp.stack(rows[::-1] if reverse else rows, axis=-2) if rows else xp.zeros_like(b)


# The recurrence of logarithms --------------------------------------------------------------------


def _paths_spec(scores: TensorSpec, skips: TensorSpec) -> TensorSpec:
    if scores.ndim < 2 or skips.shape != (*scores.shape[:-2], 1, scores.shape[-1]):
        raise ShapeError(
            "there is not one number for each state",
            argument="skips",
            expected="shape (..., 1, states), and scores (..., times, states)",
        )
    return scores


def _paths_rules(g: Any, y: Any, scores: Any, skips: Any) -> tuple[Any, Any]:
    earlier = _before(y, -math.inf)
    moves = stack([earlier[..., 0], earlier[..., 1], earlier[..., 2] + skips], axis=-1)
    total = logsumexp(moves, axis=-1, keepdims=True)
    nothing = equal(total, -math.inf)
    weights = where(nothing, 0.0, exp(moves - where(nothing, 0.0, total)))
    moved = band_recurrence(weights, g, reverse=True)
    return moved, sum(moved * weights[..., 2], axis=-2, keepdims=True)


@define(
    "scan",
    dtypes=_DTYPES,
    infer=_paths_spec,
    vjp=_paths_rules,
    saves="skips y",
    batch=Batch(stacked_in_front),
)
def log_paths(xp: Namespace, scores: Array, skips: Array, /) -> Array:
    """The logarithm of the sum over all paths that end in a state at a time.

    ``scores`` has shape (..., times, states) and has the log-weights of the states. From one time
    to the next a path stays, or advances by one state or two; the latter adds ``skips``, also
    logarithms, of shape (..., 1, states). Raises ShapeError where the shapes do not fit.

    >>> log_paths(ef.zeros((2, 3)), ef.tensor([[0.0, 0.0, -ef.inf]]))
    Tensor([[0.    , 0.    , 0.    ],
            [0.    , 0.6931, 0.6931]], shape=(2, 3), float32, cpu:0)
    """
    times, states = scores.shape[-2:]
    rows = [scores[..., 0, :]] if times else []
    for t in range(1, times):
        last = _padded(xp, rows[-1], -math.inf)
        skipped = last[..., :states] + skips[..., 0, :]
        moved = xp.logaddexp(rows[-1], last[..., 1 : 1 + states])
        rows.append(scores[..., t, :] + xp.logaddexp(moved, skipped))
    return xp.stack(rows, axis=-2) if rows else xp.zeros_like(scores)


# The loss ----------------------------------------------------------------------------------------


def ctc_loss(
    logits: Any,
    labels: Any,
    logit_lengths: Any = None,
    label_lengths: Any = None,
    blank: int = 0,
) -> Tensor:
    """The loss of unaligned label sequences in logits (CTC), for each sequence.

    ``logits`` has shape (..., times, classes), ``labels`` (..., length) and holds class numbers;
    ``logit_lengths`` and ``label_lengths`` are the valid lengths, at least 1 and 0 (None: all). The
    result is -log of the probability, in nats, of all alignments, with a class or ``blank`` at each
    time, that give the labels after merging repeats and removing blanks; a blank among the labels
    is one more label. Without any alignment it is infinite, with a gradient of 0. Raises ShapeError
    for mismatched shapes, DTypeError for non-integer labels. Source: Graves et al., 2006.

    >>> ef.ctc_loss(ef.zeros((3, 2)), ef.tensor([1]))
    Tensor(0.2877, float32, cpu:0)
    """
    logits, labels = as_tensor(logits), as_tensor(labels)
    _check(logits, labels)
    own = logits.dtype if is_floating(logits.dtype) else as_dtype("float32")
    logits = astype(logits, own if own.itemsize >= 4 else "float32")  # half precision is too narrow
    front, times = logits.shape[:-2], logits.shape[-2]
    blanks = full_like(labels, blank)
    pairs = stack([blanks, labels], axis=-1).reshape((*front, 2 * labels.shape[-1]))
    end = full_like(broadcast_to(as_tensor(blank, labels.dtype), (*front, 1)), blank)
    classes = concat([pairs, end], axis=-1)
    states = classes.shape[-1]
    at, when = arange(states), arange(times)

    chosen = broadcast_to(expand_dims(classes, axis=-2), (*front, times, states))
    scores = take_along_axis(log_softmax(logits, axis=-1), chosen, axis=-1)
    starts = less(at, 2) | not_equal(expand_dims(when, axis=-1), 0)
    scores = where(starts, scores, -math.inf)
    width = [(0, 0)] * len(front)
    earlier = pad(classes, [*width, (2, 0)], constant_values=blank)[..., :-2]
    skipping = equal(at % 2, 1) & not_equal(classes, earlier) & (at > 1)
    skips = astype(where(skipping, 0.0, -math.inf), scores.dtype)
    paths = log_paths(scores, expand_dims(skips, axis=-2))

    if logit_lengths is None:
        last = paths[..., -1, :]
    else:
        lengths: Any = as_tensor(logit_lengths)
        index = expand_dims(lengths - 1, axis=(-1, -2))
        index = broadcast_to(index, (*front, 1, states))
        last = squeeze(take_along_axis(paths, index, axis=-2), axis=-2)
    count: Any = labels.shape[-1]
    if label_lengths is not None:
        count = expand_dims(as_tensor(label_lengths), axis=-1)
    ends = 2 * count
    total = logsumexp(where(equal(at, ends) | equal(at, ends - 1), last, -math.inf), axis=-1)
    return astype(-total, own)


def _check(logits: Any, labels: Any) -> None:
    if logits.ndim < 2 or labels.shape[:-1] != logits.shape[:-2] or not labels.ndim:
        raise ShapeError(
            "labels do not fit logits",
            op="ctc_loss",
            received=f"logits {summary(logits)}, labels {summary(labels)}",
            expected="shapes (..., times, classes) and (..., length)",
        )
    if labels.dtype not in INTEGERS:
        raise DTypeError(
            "class numbers are integers", op="ctc_loss", argument="labels", received=summary(labels)
        )
