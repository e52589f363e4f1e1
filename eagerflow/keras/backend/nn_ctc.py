"""Connectionist temporal classification of ``keras.ops.nn``: the loss and two decoders."""

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
