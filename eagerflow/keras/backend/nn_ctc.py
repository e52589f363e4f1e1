"""Connectionist temporal classification of ``keras.ops.nn``: the loss and the decoders."""

import eagerflow as ef
from eagerflow.keras.backend.operands import joined
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "ctc_decode",
    "ctc_loss",
]


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
        labels, scores = ef.ctc_greedy_decode(
            inputs, lengths, merge_repeated=merge_repeated, blank=mask_index
        )
        return cast(ef.expand_dims(labels, axis=0), "int32"), ef.expand_dims(scores, axis=1)
    if strategy == "beam_search":
        labels, scores = ef.ctc_beam_search_decode(
            inputs, lengths, beam_width=beam_width, top_paths=top_paths, blank=mask_index
        )
        return cast(ef.swapaxes(labels, 0, 1), "int32"), scores
    raise ValueError(
        f"Invalid strategy {strategy}. Supported values are 'greedy' and 'beam_search'."
    )
