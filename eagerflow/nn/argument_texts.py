"""One line for each argument of layers, which ``help`` and notebooks show.

Initializers, regularizers and constraints are those of the weight that their names begin with.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["TEXTS", "documented", "text_of"]

TEXTS = {
    "activation": "a name or a function, applied to the result",
    "activity_regularizer": "a function of the outputs, added to the loss",
    "alpha": "the factor of negative values, or of the sum of squares",
    "antialias": "whether a smaller image is smoothed before",
    "arguments": "more arguments of the function, by name",
    "attention_axes": "the axes to attend over; None: all but the first and the last",
    "axes": "the axes to multiply along",
    "axis": "the axis, or axes, that this works along",
    "backward_layer": "the layer for the reversed sequence; None: a copy of the other",
    "batch_size": "the size of the first axis; None: any",
    "beta": "the exponent",
    "bias": "the number added to the sum of squares",
    "bias_axes": "the axes of the output that have a bias, by letter",
    "bin_boundaries": "the boundaries between intervals, rising; None: learned by adapt",
    "cell": "the layer that makes one step",
    "cells": "the layers that make one step, in order",
    "center": "whether an offset, beta, is learned",
    "crop_to_aspect_ratio": "whether the image is cropped where the proportions differ",
    "cropping": "how much is cut off at both ends of each axis",
    "data_format": "where the channels are: 'channels_last', or 'channels_first'",
    "depth_multiplier": "the number of outputs for each input channel",
    "depth_radius": "the number of channels on each side",
    "dilation_rate": "the distance between the elements of a window",
    "dims": "the order of the axes, counted from 1, without the first",
    "dropout": "the share of inputs that training drops, from 0 to 1",
    "dtype": "the dtype of weights and computation, or a policy such as 'mixed_bfloat16'",
    "encoding": "the encoding of texts",
    "epsilon": "a small number added to a variance, or the error of approximate quantiles",
    "equation": "the product, in the form of einsum",
    "fill_mode": "the values outside of the image",
    "fill_value": "the number outside of the image where these are constant",
    "filters": "the number of output channels",
    "flash_attention": "whether a fused kernel is used; None: where it can be",
    "function": "the function of the inputs",
    "go_backwards": "whether the sequence is read from its end",
    "groups": "the number of groups of channels that are computed apart",
    "head_dim": "the size of each head",
    "height": "the height of the result in pixels",
    "idf_weights": "the weight of each token, for 'tf_idf'",
    "input_dim": "the number of different indices",
    "inputs": "the symbolic inputs of the model",
    "interpolation": "the method between pixels, such as 'bilinear'",
    "invert": "whether this maps back: indices to tokens, or normalized to original numbers",
    "keepdims": "whether reduced axes stay, with size 1",
    "kernel_size": "the size of the window, one number or one for each axis",
    "key_dim": "the size of each head, for queries and keys",
    "l1": "the factor of the sum of magnitudes",
    "l2": "the factor of the sum of squares",
    "layer": "the layer inside",
    "layers": "the layers, in order",
    "logit_soft_cap": "the bound that logits approach; None: none",
    "mask": "the mask of the outputs, or a function that makes it",
    "mask_token": "the token that is masked, with index 0; None: none",
    "mask_value": "the value of steps to skip",
    "mask_zero": "whether index 0 marks steps to skip",
    "max_tokens": "the largest size of the vocabulary; None: any",
    "max_value": "the largest result; None: any",
    "max_wavelength": "the longest wavelength, in positions",
    "mean": "the mean to subtract; None: learned by adapt",
    "merge_mode": "how both directions are joined: 'concat', 'sum', 'mul', 'ave' or None",
    "momentum": "the share of the moving averages that each step keeps",
    "n": "the number of repetitions",
    "name": "a name; by default that of the class, numbered",
    "negative_slope": "the factor of values below the threshold",
    "ngrams": "the largest number of words in one token, or the numbers; None: 1",
    "noise_shape": "the shape of the mask, with 1 for axes that share it; None: that of the input",
    "normalize": "whether vectors are scaled to length 1 before",
    "num_bins": "the number of intervals, or of hash values",
    "num_heads": "the number of heads",
    "num_key_value_heads": "the number of heads for keys and values",
    "num_oov_indices": "the number of indices for unknown tokens",
    "num_query_heads": "the number of heads for queries",
    "num_tokens": "the number of categories",
    "offset": "the number added",
    "oov_method": "what maps unknown integers to their indices",
    "oov_token": "the token that stands for unknown ones",
    "output_dim": "the size of each vector",
    "output_mode": "the form of the result, such as 'int', 'one_hot' or 'count'",
    "output_padding": "how much the result is longer at the end of each axis",
    "output_sequence_length": "the length that results are cut or padded to; None: the longest",
    "output_shape": "the shape of the result, without the batch",
    "output_size": "the size of the result, one number or one for each axis",
    "outputs": "the symbolic outputs of the model",
    "pad_to_aspect_ratio": "whether the image is padded where the proportions differ",
    "pad_to_max_tokens": "whether results have max_tokens columns from the beginning",
    "padding": "'valid': no padding, 'same': that of the input's size; or its amounts",
    "pool_size": "the size of the window, one number or one for each axis",
    "power_iterations": "the number of steps that improve the estimate of the norm",
    "ragged": "whether results are ragged, which is not supported",
    "rate": "the share of inputs that training drops, from 0 to 1",
    "recurrent_activation": "a name or a function, applied to the gates",
    "recurrent_dropout": "the share of the state that training drops, from 0 to 1",
    "reset_after": "whether the reset gate is applied after the product",
    "return_sequences": "whether the outputs of all steps are returned, not only the last",
    "return_state": "whether the last state is returned as well",
    "reverse_dtype": "the dtype of the product that maps back",
    "rms_scaling": "whether only the variance is normalized, without the mean",
    "salt": "one or two integers that change the hash",
    "scale": "whether a factor, gamma, is learned; in Rescaling the factor itself",
    "scaling_factor": "the factor that stretches positions",
    "score_mode": "the score: 'dot', or 'concat'",
    "seed": "the seed of the layer's own random numbers; None: the global generator",
    "sequence_axis": "the axis of the positions",
    "sequence_length": "the largest number of positions",
    "shape": "the shape of the inputs, without the batch; None: any size",
    "shared_axes": "the axes along which the parameter is shared",
    "size": "how often rows and columns are repeated",
    "sliding_window": "how far back a query attends; None: without limit",
    "sparse": "whether results, or gradients, are sparse",
    "split": "what tokens are: 'whitespace', 'character', a function, or None",
    "standardize": "what is done to texts first: a name, a function, or None",
    "stateful": "whether the state is kept for the next batch",
    "stddev": "the standard deviation of the noise",
    "strides": "the distance between windows, one number or one for each axis",
    "synchronized": "whether statistics are those of all replicas",
    "target_shape": "the shape of the result, without the batch; -1 for one free size",
    "threshold": "the value up to which results are those of the slope",
    "tie_weights": "whether the product that maps back uses the same weights",
    "trainable": "whether training changes the weights",
    "unit_forget_bias": "whether the bias of the forget gate begins with 1",
    "units": "the number of outputs",
    "unroll": "whether steps are computed one by one, not in a loop",
    "use_bias": "whether a bias is added",
    "use_cudnn": "whether cuDNN is used: 'auto', True or False",
    "use_gate": "whether a learned gate is applied to the result",
    "use_scale": "whether a factor of the scores is learned",
    "value_dim": "the size of each head, for values; None: that of the keys",
    "variance": "the variance to divide by; None: learned by adapt",
    "vocabulary": "the tokens in order, or a file with one in each line; None: learned by adapt",
    "vocabulary_dtype": "the dtype of the tokens: 'int64' or 'int32'",
    "weights": "the initial weights, or those of the results",
    "width": "the width of the result in pixels",
    "zero_output_for_mask": "whether outputs of masked steps are 0, not the last ones",
}
_ENDS = {
    "initializer": "the initial values of the {}",
    "regularizer": "a function of the {}, added to the loss",
    "constraint": "a function of the {}, applied after each step",
}


def text_of(name: str) -> str | None:
    """The line about an argument; None for one that only a single class has.

    >>> from eagerflow.nn.argument_texts import text_of
    >>> text_of("units"), text_of("kernel_initializer")
    ('the number of outputs', 'the initial values of the kernel')
    """
    if name in TEXTS:
        return TEXTS[name]
    weight, _, end = name.rpartition("_")
    return _ENDS[end].format(weight.replace("_", " ") or "weights") if end in _ENDS else None


def documented(names: Iterable[str]) -> str:
    """The documentation of a constructor: a line for each argument that is known here."""
    return "\n".join(f"{name}: {text}" for name in names if (text := text_of(name)))
