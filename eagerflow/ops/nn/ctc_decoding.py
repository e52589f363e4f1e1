"""Decoding of labels from logits at each time (connectionist temporal classification).

The prefix beam search keeps, for each label sequence that may become the most probable one, the
probability of all its alignments that end in a blank, and of those that end in its last label.
Graves et al., 2006; Hannun et al., arXiv:1408.2873.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dims import Dim, product
from eagerflow.dtypes import FLOATS, INTEGERS, float32, float64, is_floating
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import stop_gradient
from eagerflow.ops.creation.filled import full
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.comparison import equal, less, logical_or
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Batch, define
from eagerflow.ops.indexing.gathering import take_along_axis
from eagerflow.ops.nn.ctc import stacked_in_front
from eagerflow.ops.reductions.softmax import log_softmax
from eagerflow.ops.reductions.sorting import argsort, argsort_kernel, top_places
from eagerflow.ops.reductions.sums import argmax, max, sum
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import expand_dims
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["ctc_beam_search_decode", "ctc_greedy_decode"]

_DTYPES = frozenset({float32, float64})


def _check(logits: Any, lengths: Any, blank: Any) -> None:
    """Raise unless there are times, classes, one length for each sequence, and the blank."""
    if logits.ndim < 2 or (lengths is not None and lengths.shape != logits.shape[:-2]):
        raise ShapeError(
            "lengths and sequences differ in number",
            argument="sequence_lengths",
            expected="shape (...), and logits (..., times, classes)",
        )
    classes = logits.shape[-1]
    known = not isinstance(classes, Dim)
    if type(blank) is not int or blank < 0 or (known and blank >= classes):
        raise ArgumentError(
            f"{blank!r} is not a class",
            argument="blank",
            expected=f"an integer from 0 to {classes - 1}" if known else "an integer from 0",
        )


# The beam search ----------------------------------------------------------------------------------


class _Beams(NamedTuple):
    """The sequences that are kept of each example: arrays (examples, beams), paths with times.

    ``blank`` and ``label`` are log-probabilities of all alignments that end in a blank, and in the
    last label. ``code`` is a number that equal paths share, ``before`` that of the path without its
    last label.
    """

    paths: Any
    length: Any
    last: Any
    code: Any
    before: Any
    blank: Any
    label: Any


def _started(xp: Namespace, logs: Any, width: int) -> _Beams:
    """The empty path alone."""
    n, times, _ = logs.shape
    zeros = xp.zeros((n, width), dtype=xp.int64)
    first = xp.broadcast_to(xp.arange(width) == 0, (n, width))
    none = xp.full((n, width), -math.inf, dtype=logs.dtype)
    empty = xp.where(first, xp.zeros_like(none), none)
    paths = xp.full((n, width, times), -1, dtype=xp.int64)
    return _Beams(paths, zeros, zeros - 1, zeros, zeros, empty, none)


def _parents(xp: Namespace, beams: _Beams, total: Any) -> tuple[Any, Any]:
    """For each path the index of its prefix without the last label, and whether it is kept."""
    alive = total > -math.inf
    long, short = beams.length[:, :, None], beams.length[:, None, :]
    same = (beams.before[:, :, None] == beams.code[:, None, :]) & (long == short + 1)
    same = same & alive[:, :, None] & alive[:, None, :]
    parent = xp.argmax(xp.astype(same, xp.int64), axis=-1)
    # Equal codes indicate equality with near certainty; now compare.
    places = xp.broadcast_to(parent[:, :, None], beams.paths.shape)
    theirs = xp.take_along_axis(beams.paths, places, axis=1)
    at_end = xp.arange(beams.paths.shape[-1]) == beams.length[:, :, None] - 1
    own = xp.where(at_end, xp.full_like(beams.paths, -1), beams.paths)
    return parent, xp.any(same, axis=-1) & xp.all(theirs == own, axis=-1)


def _stepped(xp: Namespace, beams: _Beams, logs: Any, blank: int, code: int) -> _Beams:
    """The beams after one more time step with the class probabilities ``logs``."""
    (n, width), classes = beams.last.shape, logs.shape[-1]
    names, never = xp.arange(classes), xp.full((), -math.inf, dtype=logs.dtype)
    total = xp.logaddexp(beams.blank, beams.label)
    known = xp.where(beams.last < 0, xp.zeros_like(beams.last), beams.last)
    again = beams.label + xp.take_along_axis(logs, known, axis=1)
    label = xp.where(beams.last < 0, never, again)
    ended = total + logs[:, blank : blank + 1]

    # One label more; after itself only where a blank was between.
    is_last = names == beams.last[:, :, None]
    before = xp.where(is_last, beams.blank[:, :, None], total[:, :, None])
    longer = xp.where(names == blank, never, before + logs[:, None, :])
    parent, kept = _parents(xp, beams, total)
    flat = xp.reshape(longer, (n, width * classes))
    gained = xp.take_along_axis(flat, parent * classes + known, axis=1)
    label = xp.logaddexp(label, xp.where(kept, gained, never))
    child = kept[:, :, None] & (xp.arange(width) == parent[:, :, None])
    merged = xp.matmul(xp.astype(child, logs.dtype).mT, xp.astype(is_last, logs.dtype)) > 0
    flat = xp.where(xp.reshape(merged, flat.shape), never, flat)

    every = xp.concat([xp.logaddexp(ended, label), flat], axis=1)
    best = _best(xp, every, width)
    stays = best < width
    rest = xp.where(stays, xp.zeros_like(best), best - width)
    source = xp.where(stays, best, rest // classes)
    new = xp.where(stays, xp.full_like(best, -1), rest % classes)

    def of(x: Any) -> Any:
        return xp.take_along_axis(x, source, axis=1)

    length, last, codes = of(beams.length), of(beams.last), of(beams.code)
    places = xp.broadcast_to(source[:, :, None], beams.paths.shape)
    at_end = (xp.arange(beams.paths.shape[-1]) == length[:, :, None]) & ~stays[:, :, None]
    return _Beams(
        xp.where(at_end, new[:, :, None], xp.take_along_axis(beams.paths, places, axis=1)),
        xp.where(stays, length, length + 1),
        xp.where(stays, last, new),
        xp.where(stays, codes, codes * code + new + 1),
        xp.where(stays, of(beams.before), codes),
        xp.where(stays, of(ended), never),
        xp.where(stays, of(label), xp.take_along_axis(flat, rest, axis=1)),
    )


def _best(xp: Namespace, x: Any, count: int) -> Any:
    """Indices of the largest elements of each row, the largest first."""
    if xp is np and 0 < count < x.shape[-1]:
        return top_places(x, count)
    return argsort_kernel(xp, x, -1, True, True)[:, :count]


_CODE = 6364136223846793005  # an odd multiplier whose products spread over all 64 bits


def _search_spec(
    logs: TensorSpec, lengths: TensorSpec, beam_width: Any, top_paths: Any, blank: Any
) -> tuple[TensorSpec, TensorSpec]:
    _check(logs, lengths, blank)
    fits = type(beam_width) is int and beam_width > 0
    if not fits or type(top_paths) is not int or not 0 < top_paths <= beam_width:
        raise ArgumentError(
            f"{top_paths!r} of {beam_width!r} paths cannot be found",
            argument="top_paths" if fits else "beam_width",
            expected="integers from 1, with no more top_paths than beam_width",
        )
    front, times = logs.shape[:-2], logs.shape[-2]
    return logs.like((*front, top_paths, times), "int64"), logs.like((*front, top_paths))


@define(
    "scan",
    dtypes=(_DTYPES, INTEGERS),
    together=(0,),
    outputs=2,
    infer=_search_spec,
    vjp=Missing("a search has no derivative"),
    batch=Batch(stacked_in_front),
)
def ctc_beam_search(
    xp: Namespace,
    logs: Array,
    lengths: Array,
    /,
    beam_width: int = 100,
    top_paths: int = 1,
    blank: int = 0,
) -> Any:
    """The label sequences that are most probable, and the logarithms of their probabilities.

    ``logs`` has log-probabilities, shape (..., times, classes), with valid ``lengths`` (...). The
    results are those of ``ctc_beam_search_decode``.

    >>> ef.ctc_beam_search_decode(ef.tensor([[0.0, 9.0], [9.0, 0.0], [0.0, 9.0]]))[0]
    Tensor([[ 1,  1, -1]], shape=(1, 3), int64, cpu:0)
    """
    front, (times, classes) = logs.shape[:-2], logs.shape[-2:]
    flat = xp.reshape(logs, (product(front), times, classes))
    ends = xp.reshape(xp.astype(lengths, xp.int64), (product(front), 1))
    beams = _started(xp, flat, beam_width)
    for t in range(times):
        after, runs = _stepped(xp, beams, flat[:, t, :], blank, _CODE), ends > t
        beams = _Beams(
            xp.where(runs[:, :, None], after.paths, beams.paths),
            *(xp.where(runs, a, b) for a, b in zip(after[1:], beams[1:], strict=True)),
        )
    total = xp.logaddexp(beams.blank, beams.label)
    best = argsort_kernel(xp, total, -1, True, True)[:, :top_paths]
    scores = xp.take_along_axis(total, best, axis=1)
    places = xp.broadcast_to(best[:, :, None], (*best.shape, times))
    paths = xp.take_along_axis(beams.paths, places, axis=1)
    paths = xp.where(scores[:, :, None] > -math.inf, paths, xp.full_like(paths, -1))
    shape = (*front, top_paths)
    return xp.reshape(paths, (*shape, times)), xp.reshape(scores, shape)


# The decoders -------------------------------------------------------------------------------------


def _wide(logits: Any) -> Any:
    wide = is_floating(logits.dtype) and logits.dtype.itemsize >= 4
    return logits if wide else logits.astype("float32")


@composed(tensors=2, dtypes=FLOATS, gradient=Missing("the labels are integers"))
def ctc_greedy_decode(
    logits: Any, sequence_lengths: Any = None, merge_repeated: bool = True, blank: int = 0
) -> tuple[Tensor, Tensor]:
    """The labels of the largest logit at each time, and the sum of these logits, negated.

    ``logits`` has shape (..., times, classes), ``sequence_lengths`` (...) are the valid times, by
    default all. Repeats are merged, unless ``merge_repeated`` is False, and blanks removed. The
    labels, int64, have shape (..., times), with -1 after the last one; the scores have shape (...).
    No gradient passes. Raises ShapeError where the shapes do not fit, ArgumentError for a ``blank``
    that is not a class.

    >>> ef.ctc_greedy_decode(ef.tensor([[0.0, 9.0], [0.0, 8.0], [7.0, 0.0]]))
    (Tensor([ 1, -1, -1], int64, cpu:0), Tensor(-24., float32, cpu:0))
    """
    _check(logits, sequence_lengths, blank)
    logits, times = stop_gradient(_wide(logits)), logits.shape[-2]
    at = arange(times, device=str(logits.device))
    best, values = argmax(logits, axis=-1), max(logits, axis=-1)
    if sequence_lengths is not None:
        runs = less(at, expand_dims(sequence_lengths, axis=-1))
        best, values = where(runs, best, blank), where(runs, values, 0)
    hidden = equal(best, blank)
    if merge_repeated:
        first = full((*best.shape[:-1], 1), -1, dtype=best.dtype, device=str(best.device))
        hidden = logical_or(hidden, equal(best, concat([first, best], axis=-1)[..., :-1]))
    order = argsort(where(hidden, times, at), axis=-1)
    labels = take_along_axis(where(hidden, -1, best), order, axis=-1)
    return labels, negative(sum(values, axis=-1))


@composed(
    tensors=2,
    dtypes=FLOATS,
    gradient=Missing("a search has no derivative"),
    sizes=Missing("the search takes one step for each time"),
    small=Missing("equal sequences and near ones change places"),
)
def ctc_beam_search_decode(
    logits: Any,
    sequence_lengths: Any = None,
    beam_width: int = 100,
    top_paths: int = 1,
    blank: int = 0,
) -> tuple[Tensor, Tensor]:
    """The label sequences that are most probable, and the logarithms of their probabilities.

    ``logits`` has shape (..., times, classes), ``sequence_lengths`` (...) are the valid times, by
    default all. At each time the ``beam_width`` best sequences are kept; the best ``top_paths`` of
    them are the result. Labels, int64, have shape (..., top_paths, times), with -1 after the last
    one; scores have shape (..., top_paths), and are -inf for missing sequences. No gradient passes.
    Raises ShapeError where the shapes do not fit, ArgumentError for invalid numbers of paths or
    ``blank``. Source: Graves et al., 2006.

    >>> x = ef.tensor([[0.0, 1.0], [0.0, 1.0]])
    >>> ef.ctc_beam_search_decode(x, top_paths=2)
    (Tensor([[ 1, -1],
            [-1, -1]], shape=(2, 2), int64, cpu:0), Tensor([-0.0751, -2.6265], float32, cpu:0))
    """
    _check(logits, sequence_lengths, blank)
    logs = log_softmax(_wide(logits), axis=-1)
    if sequence_lengths is None:
        size = logits.shape[-2]
        sequence_lengths = full(logits.shape[:-2], size, dtype="int64", device=str(logits.device))
    return ctc_beam_search(
        logs, sequence_lengths, beam_width=beam_width, top_paths=top_paths, blank=blank
    )
