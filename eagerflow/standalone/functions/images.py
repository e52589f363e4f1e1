"""Convolution and pooling of images (batch, *sizes, channels)."""

import math

import numpy as np


def per_axis(value, rank):
    """One number for all spatial axes as one for each."""
    return tuple(value) if isinstance(value, tuple) else (value,) * rank


def pad_widths(sizes, window, strides, padding, dilation):
    """Padding before and after each spatial axis; "same" as in TensorFlow."""
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    if padding != "same":
        return [per_axis(pair, 2) for pair in per_axis(padding, len(sizes))]
    widths = []
    for size, length, stride, step in zip(sizes, window, strides, dilation):
        reach = (-(-size // stride) - 1) * stride + (length - 1) * step + 1
        total = max(reach - size, 0)
        widths.append((total // 2, total - total // 2))
    return widths


def padded(x, widths, value=0):
    """Images with a number added around them."""
    return np.pad(x, [(0, 0), *widths, (0, 0)], constant_values=value)


def taps(window, positions, strides, dilation):
    """Each offset in a window, with the part of the images under it at all positions."""
    for place in np.ndindex(*window):
        part = [
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, count, stride, step in zip(place, positions, strides, dilation)
        ]
        yield place, (slice(None), *part)


def count_positions(sizes, widths, window, strides, dilation):
    """The number of positions of a window along each axis."""
    found = []
    for size, width, length, stride, step in zip(sizes, widths, window, strides, dilation):
        found.append((size + sum(width) - (length - 1) * step - 1) // stride + 1)
    return found


def conv(x, w, strides=1, padding="same", dilation=1, groups=1):
    """Convolution of images (batch, *sizes, channels) with (*window, channels, filters)."""
    if groups > 1:
        parts = zip(np.split(x, groups, -1), np.split(w, groups, -1))
        return np.concatenate([conv(a, b, strides, padding, dilation) for a, b in parts], -1)
    sizes, window = x.shape[1:-1], w.shape[:-2]
    strides, dilation = per_axis(strides, len(sizes)), per_axis(dilation, len(sizes))
    widths = pad_widths(sizes, window, strides, padding, dilation)
    positions = count_positions(sizes, widths, window, strides, dilation)
    x = padded(x, widths)
    columns = [x[part] for _, part in taps(window, positions, strides, dilation)]
    rows, window = len(x) * math.prod(positions), w[..., 0].size
    columns = np.concatenate(columns, -1).reshape(rows, window)
    return (columns @ w.reshape(window, w.shape[-1])).reshape(len(x), *positions, w.shape[-1])


def conv_input_gradient(g, w, size, strides=1, padding="same", dilation=1, groups=1):
    """The gradient of a convolution with respect to its images, of spatial sizes ``size``."""
    if groups > 1:
        parts = zip(np.split(g, groups, -1), np.split(w, groups, -1))
        more = size, strides, padding, dilation
        return np.concatenate([conv_input_gradient(a, b, *more) for a, b in parts], -1)
    window, positions = w.shape[:-2], g.shape[1:-1]
    size = per_axis(size, len(window))
    strides, dilation = per_axis(strides, len(window)), per_axis(dilation, len(window))
    widths = pad_widths(size, window, strides, padding, dilation)
    x = padded(np.zeros((len(g), *size, w.shape[-2]), g.dtype), widths)
    for place, part in taps(window, positions, strides, dilation):
        x[part] += g @ w[place].T
    return x[(slice(None), *(slice(a, a + n) for (a, _), n in zip(widths, size)))]


def conv_filter_gradient(x, g, size, strides=1, padding="same", dilation=1, groups=1):
    """The gradient of a convolution with respect to its filters, of a window of ``size``."""
    if groups > 1:
        parts = zip(np.split(x, groups, -1), np.split(g, groups, -1))
        more = size, strides, padding, dilation
        return np.concatenate([conv_filter_gradient(a, b, *more) for a, b in parts], -1)
    sizes, positions = x.shape[1:-1], g.shape[1:-1]
    window = per_axis(size, len(sizes))
    strides, dilation = per_axis(strides, len(sizes)), per_axis(dilation, len(sizes))
    x = padded(x, pad_widths(sizes, window, strides, padding, dilation))
    w = np.zeros((*window, x.shape[-1], g.shape[-1]), x.dtype)
    count = len(x) * math.prod(positions)
    rows = g.reshape(count, g.shape[-1])
    for place, part in taps(window, positions, strides, dilation):
        w[place] = x[part].reshape(count, x.shape[-1]).T @ rows
    return w


def pooled_parts(x, window, strides, padding, dilation, ceil_mode, value):
    """The elements under each offset of a window at all positions."""
    sizes = x.shape[1:-1]
    window, dilation = per_axis(window, len(sizes)), per_axis(dilation, len(sizes))
    strides = window if strides is None else per_axis(strides, len(sizes))
    widths = pad_widths(sizes, window, strides, padding, dilation)
    if ceil_mode and padding != "same":
        widths = with_last_window(sizes, widths, window, strides, dilation)
    positions = count_positions(sizes, widths, window, strides, dilation)
    parts = [part for _, part in taps(window, positions, strides, dilation)]
    return padded(x, widths, value), widths, parts


def with_last_window(sizes, widths, window, strides, dilation):
    """Widths that add a last window for a remainder, if it starts inside."""
    found = []
    for size, (before, after), length, stride, step in zip(
        sizes, widths, window, strides, dilation
    ):
        room = size + before + after - (length - 1) * step - 1
        count = -(-room // stride)
        more = count * stride - room if count * stride < size + before else 0
        found.append((before, after + more))
    return found


def max_pool(x, window, strides=None, padding="valid", dilation=1, ceil_mode=False):
    """The largest element of each window of images (batch, *sizes, channels)."""
    x, _, parts = pooled_parts(x, window, strides, padding, dilation, ceil_mode, -np.inf)
    return np.max([x[part] for part in parts], axis=0)


def first_largest(x, parts):
    """For each offset of a window: the positions at which it holds the first maximum."""
    largest = np.max([x[part] for part in parts], axis=0)
    free = np.ones(largest.shape, bool)
    for part in parts:
        below = x[part] < largest
        yield part, free & ~below
        free &= below


def max_pool_gradient(
    x,
    g,
    window,
    strides=None,
    padding="valid",
    dilation=1,
    ceil_mode=False,
):
    """For each window the element of ``g`` at the window's maximum."""
    sizes = x.shape[1:-1]
    x, widths, parts = pooled_parts(x, window, strides, padding, dilation, ceil_mode, -np.inf)
    found = np.zeros_like(x)
    for part, here in first_largest(x, parts):
        found[part] += np.where(here, g, 0)
    return found[(slice(None), *(slice(a, a + n) for (a, _), n in zip(widths, sizes)))]


def max_pool_gather(x, t, window, strides=None, padding="valid", dilation=1, ceil_mode=False):
    """The elements of ``t`` at the positions of the maxima of ``x``, by window."""
    x, widths, parts = pooled_parts(x, window, strides, padding, dilation, ceil_mode, -np.inf)
    t = padded(t, widths)
    return sum(np.where(here, t[part], 0) for part, here in first_largest(x, parts))


def avg_pool(x, window, strides=None, padding="valid", dilation=1, ceil_mode=False):
    """The mean of each window of images (batch, *sizes, channels); padding does not count."""
    ones = np.ones((1, *x.shape[1:-1], 1), x.dtype)
    ones, _, parts = pooled_parts(ones, window, strides, padding, dilation, ceil_mode, 0)
    x, _, parts = pooled_parts(x, window, strides, padding, dilation, ceil_mode, 0)
    return sum(x[part] for part in parts) / sum(ones[part] for part in parts)


def avg_pool_gradient(
    g,
    size,
    window,
    strides=None,
    padding="valid",
    dilation=1,
    ceil_mode=False,
):
    """Each element of ``g``, distributed over its window; the spatial sizes are ``size``."""
    sizes = per_axis(size, g.ndim - 2)
    ones = np.ones((1, *sizes, 1), g.dtype)
    ones, widths, parts = pooled_parts(ones, window, strides, padding, dilation, ceil_mode, 0)
    shared = g / sum(ones[part] for part in parts)
    x = padded(np.zeros((len(g), *sizes, g.shape[-1]), g.dtype), widths)
    for part in parts:
        x[part] += shared
    return x[(slice(None), *(slice(a, a + n) for (a, _), n in zip(widths, sizes)))]
