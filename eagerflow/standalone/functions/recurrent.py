"""Recurrent networks over sequences (batch, steps, width), step by step."""

import numpy as np

from eagerflow.standalone.functions.elements import sigmoid


def times_kernel(x, kernel):
    """The inputs' contribution to the gates at all steps."""
    return x @ (kernel if kernel.ndim == 2 else kernel[..., None, :, :])


def start_of(x, recurrent_kernel, state):
    """The state before the first step: zeros if none is given."""
    shape = (*x.shape[:-2], recurrent_kernel.shape[-2])
    return np.zeros(shape, x.dtype) if state is None else state


def chosen(mask, t, new, old):
    """New values for examples that are not masked at a step, old values for the rest."""
    return new if mask is None else np.where(mask[..., t, None], new, old)


def by_step(found, reverse):
    """The results of the steps, stacked along an axis."""
    return np.stack(found[::-1] if reverse else found, axis=-2)


def simple_rnn(x, kernel, recurrent_kernel, bias=None, h=None, mask=None, reverse=False):
    """A plain recurrent network: h = tanh(x @ kernel + bias + h @ recurrent_kernel)."""
    if x.shape[-2] == 0:
        return np.zeros((*x.shape[:-1], recurrent_kernel.shape[-2]), x.dtype)
    brought = times_kernel(x, kernel)
    if bias is not None:
        brought = brought + bias[..., None, None, :]
    h = start_of(x, recurrent_kernel, h)
    found = []
    for t in range(x.shape[-2])[:: -1 if reverse else 1]:
        h = chosen(mask, t, np.tanh(brought[..., t, :] + h @ recurrent_kernel), h)
        found.append(h)
    return by_step(found, reverse)


def lstm_training(x, kernel, recurrent_kernel, bias=None, h=None, c=None, mask=None, reverse=False):
    """An LSTM: its outputs, its cell states, and the values of its four gates."""
    units = recurrent_kernel.shape[-2]
    if x.shape[-2] == 0:
        return tuple(np.zeros((*x.shape[:-1], n), x.dtype) for n in (units, units, 4 * units))
    brought = times_kernel(x, kernel)
    if bias is not None:
        brought = brought + bias[..., None, None, :]
    h, c = start_of(x, recurrent_kernel, h), start_of(x, recurrent_kernel, c)
    outputs, cells, gates = [], [], []
    for t in range(x.shape[-2])[:: -1 if reverse else 1]:
        i, f, new, o = np.split(brought[..., t, :] + h @ recurrent_kernel, 4, axis=-1)
        i, f, new, o = sigmoid(i), sigmoid(f), np.tanh(new), sigmoid(o)
        next_c = f * c + i * new
        h = chosen(mask, t, o * np.tanh(next_c), h)
        c = chosen(mask, t, next_c, c)
        outputs.append(h)
        cells.append(c)
        gates.append(np.concatenate([i, f, new, o], axis=-1))
    return by_step(outputs, reverse), by_step(cells, reverse), by_step(gates, reverse)


def lstm(x, kernel, recurrent_kernel, bias=None, h=None, c=None, mask=None, reverse=False):
    """An LSTM: its outputs and its cell states at all steps."""
    return lstm_training(x, kernel, recurrent_kernel, bias, h, c, mask, reverse)[:2]


def gru_training(x, kernel, recurrent_kernel, bias=None, h=None, mask=None, reverse=False):
    """A GRU: its outputs, and the values of its gates."""
    units = recurrent_kernel.shape[-2]
    if x.shape[-2] == 0:
        return tuple(np.zeros((*x.shape[:-1], n), x.dtype) for n in (units, 4 * units))
    brought = times_kernel(x, kernel)
    if bias is not None:
        brought = brought + bias[..., 0, :][..., None, None, :]
    h = start_of(x, recurrent_kernel, h)
    outputs, gates = [], []
    for t in range(x.shape[-2])[:: -1 if reverse else 1]:
        u = h @ recurrent_kernel
        if bias is not None:
            u = u + bias[..., 1, :][..., None, :]
        a, b, c = np.split(brought[..., t, :], 3, axis=-1)
        of_a, of_b, of_c = np.split(u, 3, axis=-1)
        z, r = sigmoid(a + of_a), sigmoid(b + of_b)
        new = np.tanh(c + r * of_c)
        h = chosen(mask, t, z * (h - new) + new, h)
        outputs.append(h)
        gates.append(np.concatenate([z, r, new, of_c], axis=-1))
    return by_step(outputs, reverse), by_step(gates, reverse)


def gru(x, kernel, recurrent_kernel, bias=None, h=None, mask=None, reverse=False):
    """A GRU: its outputs at all steps."""
    return gru_training(x, kernel, recurrent_kernel, bias, h, mask, reverse)[0]


# Gradients: backwards through the steps ----------------------------------------------------------


def steps_back(states, start, reverse):
    """The steps from the last one to the first, each with the preceding state."""
    order = list(range(states.shape[-2]))[:: 1 if reverse else -1]
    for t, earlier in zip(order, [*order[1:], None]):
        if earlier is not None:
            yield t, states[..., earlier, :]
        else:
            yield t, np.zeros_like(states[..., 0, :]) if start is None else start


def in_order(found, order_reversed, shape, dtype):
    """Gradients of gate values along an axis of steps, and their sums over it."""
    if not found:
        return np.zeros(shape, dtype), np.zeros((*shape[:-2], shape[-1]), dtype)
    by_gates = by_step(found, not order_reversed)
    return by_gates, np.sum(by_gates, axis=-2)


def simple_rnn_gradient(recurrent_kernel, h, g, mask=None, reverse=False):
    """The gradient of the tanh's argument, its sum over time, and that of the first state."""
    carried = onward = np.zeros((*h.shape[:-2], h.shape[-1]), h.dtype)
    found = []
    for t, _ in steps_back(h, None, reverse):
        total = carried + g[..., t, :] + onward
        slope = chosen(mask, t, total * (1 - h[..., t, :] ** 2), np.zeros_like(total))
        carried = chosen(mask, t, np.zeros_like(total), total)
        onward = slope @ recurrent_kernel.mT
        found.append(slope)
    return *in_order(found, reverse, h.shape, h.dtype), carried


def lstm_gradient(
    recurrent_kernel,
    c,
    gates,
    g,
    g_c=None,
    g_gates=None,
    c_start=None,
    mask=None,
    reverse=False,
):
    """The gradient of an LSTM's gates, its sum over time, and those of the first states."""
    carried_h = carried_c = onward = np.zeros((*c.shape[:-2], c.shape[-1]), c.dtype)
    found = []
    for t, before in steps_back(c, c_start, reverse):
        i, f, new, o = np.split(gates[..., t, :], 4, axis=-1)
        total_h = carried_h + g[..., t, :] + onward
        total_c = carried_c if g_c is None else carried_c + g_c[..., t, :]
        top = np.tanh(c[..., t, :])
        of_c = total_h * o * (1 - top**2) + total_c
        slopes = np.concatenate([i * (1 - i), f * (1 - f), 1 - new**2, o * (1 - o)], axis=-1)
        by = np.concatenate([of_c * new, of_c * before, of_c * i, total_h * top], axis=-1) * slopes
        by = chosen(mask, t, by, np.zeros_like(by))
        if g_gates is not None:
            by = by + g_gates[..., t, :] * slopes
        carried_h = chosen(mask, t, np.zeros_like(total_h), total_h)
        carried_c = chosen(mask, t, of_c * f, total_c)
        onward = by @ recurrent_kernel.mT
        found.append(by)
    return *in_order(found, reverse, gates.shape, c.dtype), carried_h, carried_c


def gru_gradient(
    recurrent_kernel, h, gates, g, g_gates=None, h_start=None, mask=None, reverse=False
):
    """The gradient of a GRU's gates, its sum over time, and that of the first state."""
    carried = onward = np.zeros((*h.shape[:-2], h.shape[-1]), h.dtype)
    found = []
    for t, before in steps_back(h, h_start, reverse):
        z, r, new, u = np.split(gates[..., t, :], 4, axis=-1)
        total = carried + g[..., t, :] + onward
        of_new = (total - total * z) * (1 - new**2)
        of_z = total * (before - new) * z * (1 - z)
        by = np.concatenate([of_z, of_new * u * r * (1 - r), of_new, of_new * r], axis=-1)
        by = chosen(mask, t, by, np.zeros_like(by))
        if g_gates is not None:
            kept_z, kept_r, kept_new, kept_u = np.split(g_gates[..., t, :], 4, axis=-1)
            of_new = kept_new * (1 - new**2)
            of_r = (kept_r + of_new * u) * r * (1 - r)
            parts = [kept_z * z * (1 - z), of_r, of_new, kept_u + of_new * r]
            by = by + np.concatenate(parts, axis=-1)
        carried = chosen(mask, t, total * z, total)
        both, _, last = np.split(by, [2 * z.shape[-1], 3 * z.shape[-1]], axis=-1)
        onward = np.concatenate([both, last], axis=-1) @ recurrent_kernel.mT
        found.append(by)
    return *in_order(found, reverse, gates.shape, h.dtype), carried
