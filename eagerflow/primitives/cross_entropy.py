"""Cross-entropies of logits in NumPy arrays, and their gradients.

Large arrays take generated kernels, which read each row from memory once; others are worked
through in tiles of rows that stay in the processor's cache. The steps of tiles are written out, not
made from the bodies of regions: these take two calls of NumPy more, which is what counts in small
arrays. ``at`` is the axis of the classes, counted from the front, everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.primitives.rows import add_up, along_rows, maximum_of
from eagerflow.runtime.threads import scratch


def _without(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*shape[:at], *shape[at + 1 :])


# Rows of regions ---------------------------------------------------------------------------------


def _row_sums(body: generated.Body, at: int, *arrays: Any) -> Any:
    """What a body gives for each example.

    Logarithms are left to arrays of these, which take a vector at a time.
    """
    axes, operands, views = generated.row_views(at, arrays)
    return generated.run(generated.region(body, axes, tuple(operands)), *views)


def softmax_body(s: Any, logits: Any) -> Any:
    """Softmax."""
    powers = s.exp(s.subtract(logits, s.max(logits, "n")))
    return s.multiply(powers, s.reciprocal(s.sum(powers, "n")))


# Rows of tiles -----------------------------------------------------------------------------------


def _log_powers(axis: int, logits: Any) -> tuple[Any, Any]:
    """Logits less the largest one, and the logarithm of the sum of their exponentials."""
    shifted = scratch("shifted", logits.shape, logits.dtype)
    np.subtract(logits, maximum_of(logits, axis, None, None, True), shifted)
    powers = np.exp(shifted, scratch("powers", logits.shape, logits.dtype))
    return shifted, np.log(add_up(powers, axis, None, None, True))


def _softmax_into(axis: int, logits: Any, out: Any) -> None:
    np.subtract(logits, maximum_of(logits, axis, None, None, True), out)
    np.exp(out, out)
    np.divide(out, add_up(out, axis, None, None, True), out)


# Probabilities as labels -------------------------------------------------------------------------


def _dense_step(axis: int, logits: Any, labels: Any, out: Any) -> None:
    shifted, total = _log_powers(axis, logits)
    np.subtract(total, shifted, shifted)  # minus the logarithm of softmax
    products = np.multiply(shifted, labels, scratch("powers", logits.shape, logits.dtype))
    add_up(products, axis, None, out, True)
    if np.isnan(out).any():  # 0 * inf, where a class is impossible and its logit -inf
        products[labels == 0] = 0
        add_up(products, axis, None, out, True)


def dense_body(s: Any, logits: Any, labels: Any) -> Any:
    """What the loss of each example is made of: sums of powers, of labels, and of products."""
    shifted = s.subtract(logits, s.max(logits, "n"))
    # A class of probability 0 adds nothing, also where its logit is -inf.
    products = s.select(s.equal(labels, 0), 0, s.multiply(labels, shifted))
    return s.sum(s.exp(shifted), "n"), s.sum(labels, "n"), s.sum(products, "n")


def dense(logits: Any, labels: Any, at: int) -> Any:
    """The loss of each example, where ``labels`` holds a probability for each logit."""
    if generated.takes(logits):
        loss, weight, given = _row_sums(dense_body, at, logits, labels)
        np.multiply(np.log(loss, loss), weight, loss)
        return np.subtract(loss, given, loss).reshape(_without(logits.shape, at))
    out = np.empty((*logits.shape[:at], 1, *logits.shape[at + 1 :]), logits.dtype)
    along_rows(_dense_step, at, (logits, labels), (out,))
    return out.reshape(_without(logits.shape, at))


def _dense_gradient_step(axis: int, logits: Any, labels: Any, g: Any, out: Any) -> None:
    _softmax_into(axis, logits, out)
    np.multiply(out, add_up(labels, axis, None, None, True), out)
    np.subtract(out, labels, out)
    np.multiply(out, g, out)


def dense_gradient_body(s: Any, logits: Any, labels: Any, g: Any) -> Any:
    """The gradient by each logit."""
    right = s.multiply(softmax_body(s, logits), s.sum(labels, "n"))
    return s.multiply(s.subtract(right, labels), g)


def dense_gradient(logits: Any, labels: Any, g: Any, at: int) -> Any:
    """The gradient of ``dense`` by its logits, where ``g`` is that of the losses."""
    if generated.takes(logits):
        return generated.rows(dense_gradient_body, at, logits, labels, g)
    out = np.empty(logits.shape, logits.dtype)
    along_rows(_dense_gradient_step, at, (logits, labels, np.expand_dims(g, at)), (out,))
    return out


# Numbers of classes as labels --------------------------------------------------------------------


def _sparse_step(axis: int, logits: Any, labels: Any, out: Any) -> None:
    shifted, total = _log_powers(axis, logits)
    np.subtract(total, np.take_along_axis(shifted, labels, axis), out)


def _indices(labels: Any, at: int) -> Any:
    """Labels as NumPy wants indices, with an axis for the classes."""
    return np.expand_dims(labels.astype(np.intp, copy=False), at)


def sparse_body(s: Any, logits: Any, labels: Any) -> Any:
    """What the loss of each example is made of: the sum of powers, and the logit of its class."""
    shifted = s.subtract(logits, s.max(logits, "n"))
    chosen = s.select(s.equal(s.position("n"), labels), shifted, 0)
    return s.sum(s.exp(shifted), "n"), s.sum(chosen, "n")


MIN_GATHERED_CLASSES = 32  # above which finding one element costs less than to compare numbers


def _powers_body(s: Any, logits: Any) -> Any:
    top = s.max(logits, "n")
    return s.sum(s.exp(s.subtract(logits, top)), "n"), top


def sparse(logits: Any, labels: Any, at: int) -> Any:
    """The loss of each example, where ``labels`` holds the number of its class, in range."""
    if generated.takes(logits) and logits.shape[at] > MIN_GATHERED_CLASSES:
        loss, top = _row_sums(_powers_body, at, logits)
        chosen = np.take_along_axis(logits, _indices(labels, at), at).reshape(top.shape)
        np.subtract(chosen, top, top)
        return np.subtract(np.log(loss, loss), top, loss).reshape(labels.shape)
    if generated.takes(logits):
        numbers = labels.astype(np.int64, copy=False)
        loss, chosen = _row_sums(sparse_body, at, logits, numbers)
        return np.subtract(np.log(loss, loss), chosen, loss).reshape(labels.shape)
    indices = _indices(labels, at)
    out = np.empty(indices.shape, logits.dtype)
    along_rows(_sparse_step, at, (logits, indices), (out,))
    return out.reshape(labels.shape)


def _sparse_gradient_step(axis: int, logits: Any, labels: Any, g: Any, out: Any) -> None:
    _softmax_into(axis, logits, out)
    chosen = np.take_along_axis(out, labels, axis)
    np.put_along_axis(out, labels, chosen - 1, axis)
    np.multiply(out, g, out)


def sparse_gradient_body(s: Any, logits: Any, labels: Any, g: Any) -> Any:
    """The gradient by each logit, where labels are int64."""
    share = softmax_body(s, logits)
    right = s.equal(s.position("n"), labels)
    return s.multiply(s.select(right, s.subtract(share, 1), share), g)


def _shares_of_gradient_body(s: Any, logits: Any, g: Any) -> Any:
    return s.multiply(softmax_body(s, logits), g)


def sparse_gradient(logits: Any, labels: Any, g: Any, at: int) -> Any:
    """The gradient of ``sparse`` by its logits, where ``g`` is that of the losses."""
    if generated.takes(logits) and logits.shape[at] > MIN_GATHERED_CLASSES:
        out = generated.rows(_shares_of_gradient_body, at, logits, g)
        indices = _indices(labels, at)
        right = np.take_along_axis(out, indices, at) - np.expand_dims(g, at)
        np.put_along_axis(out, indices, right, at)
        return out
    if generated.takes(logits):
        numbers = labels.astype(np.int64, copy=False)
        return generated.rows(sparse_gradient_body, at, logits, numbers, g)
    out = np.empty(logits.shape, logits.dtype)
    inputs = (logits, _indices(labels, at), np.expand_dims(g, at))
    along_rows(_sparse_gradient_step, at, inputs, (out,))
    return out
