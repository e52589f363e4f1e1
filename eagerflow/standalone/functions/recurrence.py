"""Recurrences along an axis of time."""

import numpy as np


def linear_recurrence(a, b, axis=-1, reverse=False):
    """The sequence y[t] = a[t] y[t-1] + b[t]; in reverse y[t] = a[t+1] y[t+1] + b[t]."""
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    y = np.array(b)
    for t in range(1, len(b)):
        if reverse:
            y[-1 - t] += a[-t] * y[-t]
        else:
            y[t] += a[t] * y[t - 1]
    return np.moveaxis(y, 0, axis)


def moved(row, k, value=0):
    """The elements of a row ``k`` places further along the last axis, or back."""
    size = row.shape[-1]
    widths = [(0, 0)] * (row.ndim - 1) + [(max(k, 0), max(-k, 0))]
    wide = np.pad(row, widths, constant_values=value)
    return wide[..., :size] if k > 0 else wide[..., -k : size - k]


def band_recurrence(weights, b, reverse=False):
    """The sequence y[t, s] = b[t, s] + sum of weights[t, s, k] y[t-1, s-k], k from 0 to 2."""
    y = np.array(b)
    for t in range(1, b.shape[-2]):
        for k in range(3):
            if reverse:
                last = weights[..., -t, :, k] * y[..., -t, :]
                y[..., -1 - t, :] += moved(last, -k)
            else:
                y[..., t, :] += weights[..., t, :, k] * moved(y[..., t - 1, :], k)
    return y


def log_paths(scores, skips):
    """The logarithm of the sum over all paths that end in a state at a time."""
    y = np.array(scores)
    for t in range(1, scores.shape[-2]):
        last = y[..., t - 1, :]
        skipped = moved(last, 2, -np.inf) + skips[..., 0, :]
        y[..., t, :] += np.logaddexp(np.logaddexp(last, moved(last, 1, -np.inf)), skipped)
    return y


def block_recurrence(x, held, gates, kernel, reverse=False, transposed=False):
    """States s[t] = x[t] + held[t] s[t-1] + gates[t] (h[t-1] @ kernel), or the transpose of that.

    The first block of a state is h.
    """
    order = list(range(x.shape[-3]))[:: 1 if reverse == transposed else -1]
    y = np.array(x)
    for last, t in zip(order, order[1:]):
        state = y[..., last, :, :]
        if transposed:
            outer = state[..., :, None, :]
            products = np.sum(gates[..., last, :, :, :] * outer, axis=-3)
            onward = products.reshape(*products.shape[:-2], kernel.shape[-1]) @ kernel.mT
            y[..., t, :, :] += np.sum(held[..., last, :, :, :] * outer, axis=-3)
            y[..., t, 0, :] += onward
        else:
            onward = state[..., 0, :] @ kernel
            onward = onward.reshape(*onward.shape[:-1], *gates.shape[-2:])
            y[..., t, :, :] += np.sum(held[..., t, :, :, :] * state[..., None, :, :], axis=-2)
            y[..., t, :, :] += np.sum(gates[..., t, :, :, :] * onward[..., None, :, :], axis=-2)
    return y
