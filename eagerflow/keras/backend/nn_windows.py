"""Convolutions, pooling and patches of ``keras.ops.nn``."""

from keras.src.backend import standardize_data_format
from keras.src.backend.common.backend_utils import (
    check_conv_input_channels,
    check_conv_transpose_input_channels,
    compute_conv_transpose_padding_args_for_jax,
)

import eagerflow as ef
from eagerflow.keras.backend.operands import floating, promoted
from eagerflow.keras.backend.tensors import convert_to_tensor

__all__ = [
    "adaptive_average_pool",
    "adaptive_max_pool",
    "average_pool",
    "conv",
    "conv_transpose",
    "depth_to_space",
    "depthwise_conv",
    "fold",
    "max_pool",
    "separable_conv",
    "space_to_depth",
    "unfold",
]


def _channels_last(x):
    return ef.moveaxis(x, 1, -1)


def _channels_first(x):
    return ef.moveaxis(x, -1, 1)


def _in_format(function, x, data_format):
    """``function`` applied to channels-last images, whatever their format."""
    if standardize_data_format(data_format) == "channels_last":
        return function(x)
    return _channels_first(function(_channels_last(x)))


# Convolutions -------------------------------------------------------------------------------------


def conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    data_format = standardize_data_format(data_format)
    inputs, kernel = promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    channels = inputs.shape[-1 if data_format == "channels_last" else 1]
    own = kernel.shape[-2]
    if channels % own > 0:
        raise ValueError(
            "The number of input channels must be evenly divisible by kernel's in_channels. "
            f"Received input channels {channels} and kernel in_channels {own}. "
        )
    found = _in_format(
        lambda x: ef.conv(
            x,
            kernel,
            strides=strides,
            padding=_padding(padding),
            dilation=dilation_rate,
            groups=channels // own,
        ),
        inputs,
        data_format,
    )
    if 0 in found.shape and 0 not in inputs.shape:
        raise ValueError(
            "The convolution operation resulted in an empty output. This can happen if the "
            "input is too small for the given kernel size, strides, dilation rate, and padding "
            "mode. Please check the input shape and convolution parameters."
        )
    return found


def _padding(padding):
    return padding.lower() if isinstance(padding, str) else tuple(tuple(p) for p in padding)


def depthwise_conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    data_format = standardize_data_format(data_format)
    inputs, kernel = promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    check_conv_input_channels(inputs, kernel, data_format)
    *window, channels, multiplier = kernel.shape
    kernel = ef.reshape(kernel, (*window, 1, channels * multiplier))
    return _in_format(
        lambda x: ef.conv(
            x,
            kernel,
            strides=strides,
            padding=_padding(padding),
            dilation=dilation_rate,
            groups=channels,
        ),
        inputs,
        data_format,
    )


def separable_conv(
    inputs,
    depthwise_kernel,
    pointwise_kernel,
    strides=1,
    padding="valid",
    data_format=None,
    dilation_rate=1,
):
    check_conv_input_channels(
        convert_to_tensor(inputs),
        convert_to_tensor(depthwise_kernel),
        standardize_data_format(data_format),
    )
    found = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(found, pointwise_kernel, 1, "valid", data_format, dilation_rate)


def conv_transpose(
    inputs,
    kernel,
    strides=1,
    padding="valid",
    output_padding=None,
    data_format=None,
    dilation_rate=1,
):
    data_format = standardize_data_format(data_format)
    inputs, kernel = promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    check_conv_transpose_input_channels(inputs, kernel, data_format)
    window = kernel.shape[:-2]
    dilation = _each(dilation_rate, len(window))
    # JAX's padding of the dilated input; ours crops the full result.
    pads = compute_conv_transpose_padding_args_for_jax(
        inputs.shape, kernel.shape, strides, padding, output_padding, dilation_rate
    )
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    cuts = tuple((r - left, r - right) for r, (left, right) in zip(reach, pads, strict=True))
    inside = tuple((max(0, left), max(0, right)) for left, right in cuts)
    around = [(0, 0), *((max(0, -left), max(0, -right)) for left, right in cuts), (0, 0)]
    found = _in_format(
        lambda x: ef.pad(
            ef.conv_transpose(x, kernel, strides=strides, padding=inside, dilation=dilation),
            around,
        ),
        inputs,
        data_format,
    )
    return found


def _each(number, count):
    return (number,) * count if isinstance(number, int) else tuple(number)


# Pools --------------------------------------------------------------------------------------------


def max_pool(inputs, pool_size, strides=None, padding="valid", data_format=None):
    return _pool(ef.max_pool, inputs, pool_size, strides, padding, data_format)


def average_pool(inputs, pool_size, strides=None, padding="valid", data_format=None):
    return _pool(ef.avg_pool, floating(inputs), pool_size, strides, padding, data_format)


def _pool(pooled, inputs, pool_size, strides, padding, data_format):
    if padding not in ("same", "valid"):
        raise ValueError(f"Invalid padding '{padding}', must be 'same' or 'valid'.")
    strides = pool_size if strides is None else strides
    return _in_format(
        lambda x: pooled(x, window=pool_size, strides=strides, padding=padding),
        convert_to_tensor(inputs),
        data_format,
    )


def adaptive_average_pool(inputs, output_size, data_format=None):
    x = floating(inputs)
    return _in_format(lambda x: ef.adaptive_avg_pool(x, output_size), x, data_format)


def adaptive_max_pool(inputs, output_size, data_format=None):
    x = convert_to_tensor(inputs)
    return _in_format(lambda x: ef.adaptive_max_pool(x, output_size), x, data_format)


# Patches ------------------------------------------------------------------------------------------


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    x = convert_to_tensor(input)
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        _each(n, 2) for n in (kernel_size, dilation, padding, stride)
    )
    x = ef.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)])
    rows = (x.shape[2] - (kh - 1) * dh - 1) // sh + 1
    columns = (x.shape[3] - (kw - 1) * dw - 1) // sw + 1
    parts = [
        x[
            :,
            :,
            i * dh : i * dh + (rows - 1) * sh + 1 : sh,
            j * dw : j * dw + (columns - 1) * sw + 1 : sw,
        ]
        for i in range(kh)
        for j in range(kw)
    ]
    stacked = ef.stack(parts, axis=2)
    return ef.reshape(stacked, (x.shape[0], x.shape[1] * kh * kw, rows * columns))


def fold(x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    x = convert_to_tensor(x)
    (height, width), (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        _each(n, 2) for n in (output_size, kernel_size, dilation, padding, stride)
    )
    rows = (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    columns = (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    channels = x.shape[1] // (kh * kw)
    parts = ef.reshape(x, (x.shape[0], channels, kh, kw, rows, columns))
    found = ef.zeros((x.shape[0], channels, height + 2 * ph, width + 2 * pw), dtype=x.dtype)
    for i, j in ((i, j) for i in range(kh) for j in range(kw)):
        down = slice(i * dh, i * dh + (rows - 1) * sh + 1, sh)
        across = slice(j * dw, j * dw + (columns - 1) * sw + 1, sw)
        found = found.at[:, :, down, across].add(parts[:, :, i, j])
    return found[:, :, ph : ph + height, pw : pw + width]


def depth_to_space(x, block_size, data_format="channels_last"):
    moved = ef.depth_to_space if data_format == "channels_last" else ef.pixel_shuffle
    return _in_format(lambda x: moved(x, block_size), convert_to_tensor(x), data_format)


def space_to_depth(x, block_size, data_format="channels_last"):
    moved = ef.space_to_depth if data_format == "channels_last" else ef.pixel_unshuffle
    return _in_format(lambda x: moved(x, block_size), convert_to_tensor(x), data_format)
