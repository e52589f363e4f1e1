"""Connectionist temporal classification of ``keras.ops.nn``: the loss and two decoders."""

import math

import eagerflow as ef
from eagerflow.keras.backend.operands import joined
from eagerflow.keras.backend.tensors import cast, convert_to_tensor


def ctc_loss(target, output, target_length, output_length, mask_index=0):
    output = convert_to_tensor(output)
    return ef.ctc_loss(
        cast(output, joined(output.dtype.name, "float32")),
        cast(target, "int32"),
        cast(output_length, "int32"),
        cast(target_length, "int32"),
        blank=mask_index,
    )


def ctc_decode(
    inputs,
    sequence_lengths,
    strategy="greedy",
    beam_width=100,
    top_paths=1,
    merge_repeated=True,
    mask_index=0,
):
    inputs = convert_to_tensor(inputs)
    inputs = cast(inputs, joined(inputs.dtype.name, "float32"))
    lengths = cast(sequence_lengths, "int32")
    mask_index = inputs.shape[-1] - 1 if mask_index is None else mask_index
    if strategy == "greedy":
        return _greedy(inputs, lengths, merge_repeated, mask_index)
    if strategy == "beam_search":
        return _beam_search(inputs, lengths, beam_width, top_paths, mask_index)
    raise ValueError(
        f"Invalid strategy {strategy}. Supported values are 'greedy' and 'beam_search'."
    )


def _greedy(inputs, lengths, merge_repeated, mask_index):
    times = inputs.shape[1]
    beyond = ef.greater_equal(ef.arange(times), ef.expand_dims(lengths, axis=1))
    classes = ef.where(beyond, mask_index, cast(ef.argmax(inputs, axis=-1), "int32"))
    scores = ef.where(beyond, 0, ef.max(inputs, axis=-1))
    kept = ef.not_equal(classes, mask_index)
    if merge_repeated:
        repeats = ef.equal(classes[:, 1:], classes[:, :-1])
        kept = ef.logical_and(kept, ef.logical_not(ef.pad(repeats, [(0, 0), (1, 0)])))
    order = ef.argsort(cast(ef.logical_not(kept), "int32"), axis=-1)  # stable: labels go first
    labels = ef.take_along_axis(ef.where(kept, classes, -1), order, axis=-1)
    total = ef.negative(ef.sum(scores, axis=1, keepdims=True))
    return ef.expand_dims(labels, axis=0), total


# Beam search: labels of which nothing else can follow, each with the probability of all ways to
# write it that end in a blank, and of all that end in a label. (A. Hannun et al., arXiv:1408.2873.)


def _beam_search(inputs, lengths, width, top_paths, blank):
    logs = ef.log_softmax(inputs, axis=-1)
    batch, times, _ = logs.shape
    row = ef.arange(width) + ef.zeros((batch, 1), dtype="int64")
    first = ef.where(ef.equal(row, 0), 0.0, -math.inf)
    state = (
        ef.full((batch, width, times), -1, dtype="int32"),
        ef.zeros((batch, width), dtype="int32"),
        cast(first, logs.dtype),
        ef.full((batch, width), -math.inf, dtype=logs.dtype),
    )

    def step(state, now):
        scores, is_within = now
        moved = _extended(state, scores, width, blank)
        kept = [
            ef.where(ef.reshape(is_within, (-1,) + (1,) * (old.ndim - 1)), new, old)
            for new, old in zip(moved, state, strict=True)
        ]
        return tuple(kept), ()

    within = ef.less(ef.expand_dims(ef.arange(times), axis=1), lengths)
    state, _ = ef.scan(step, state, (ef.swapaxes(logs, 0, 1), within))
    paths, _, by_blank, by_label = state
    scores, best = ef.top_k(ef.logaddexp(by_blank, by_label), top_paths)
    return ef.swapaxes(_rows(paths, best), 0, 1), scores


def _extended(state, scores, width, blank):
    """The best paths one time later, of those that stay and those that grow by a label."""
    paths, lengths, by_blank, by_label = state
    classes, times = scores.shape[-1], paths.shape[-1]
    place = ef.arange(times, dtype="int32")
    ends = ef.equal(place, ef.expand_dims(lengths, axis=-1) - 1)
    last = ef.max(ef.where(ends, paths, -1), axis=-1)
    total = ef.logaddexp(by_blank, by_label)
    number = ef.arange(classes, dtype="int32")
    ends_so = ef.equal(ef.expand_dims(last, axis=-1), number)
    grown = ef.where(ends_so, ef.expand_dims(by_blank, axis=-1), ef.expand_dims(total, axis=-1))
    grown = ef.add(grown, ef.expand_dims(scores, axis=1))
    grown = ef.where(ef.equal(number, blank), -math.inf, grown)
    label = ef.maximum(last, 0)

    # A path that grew into one that is there already belongs to that one.
    shorter = ef.expand_dims(ef.where(ends, -1, paths), axis=2)
    is_child = ef.all(ef.equal(shorter, ef.expand_dims(paths, axis=1)), axis=-1)
    is_child = ef.logical_and(is_child, ef.expand_dims(ef.greater(lengths, 0), axis=-1))
    into = ef.broadcast_to(ef.expand_dims(label, axis=1), is_child.shape)
    joining = ef.where(ef.swapaxes(is_child, 1, 2), ef.take_along_axis(grown, into), -math.inf)
    stays = ef.add(by_label, ef.take_along_axis(scores, label))
    stays = ef.logaddexp(stays, ef.logsumexp(joining, axis=1))
    parents = cast(ef.swapaxes(is_child, 1, 2), scores.dtype)
    is_joined = ef.greater(ef.matmul(parents, cast(ends_so, scores.dtype)), 0)
    grown = ef.where(is_joined, -math.inf, grown)

    waits = ef.add(total, scores[:, blank : blank + 1])
    flat = ef.reshape(grown, (grown.shape[0], -1))
    found, best = ef.top_k(ef.concat(ef.logaddexp(waits, stays), flat, axis=1), width)
    is_grown = ef.greater_equal(best, width)
    parent = ef.where(is_grown, ef.floor_divide(best - width, classes), best)
    new = cast(ef.expand_dims(ef.remainder(best - width, classes), axis=-1), "int32")
    paths, size = _rows(paths, parent), ef.take_along_axis(lengths, parent)
    is_end = ef.equal(place, ef.expand_dims(size, axis=-1))
    is_end = ef.logical_and(is_end, ef.expand_dims(is_grown, axis=-1))
    return (
        ef.where(is_end, new, paths),
        ef.add(size, cast(is_grown, "int32")),
        ef.where(is_grown, -math.inf, ef.take_along_axis(waits, parent)),
        ef.where(is_grown, found, ef.take_along_axis(stays, parent)),
    )


def _rows(x, indices):
    """Rows of each example's matrix."""
    indices = ef.expand_dims(indices, axis=-1)
    return ef.take_along_axis(
        x, ef.broadcast_to(indices, (*indices.shape[:-1], x.shape[-1])), axis=1
    )
