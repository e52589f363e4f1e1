"""Cross-entropies of logits in NumPy arrays, and their gradients.

The computation of each row is a single body (``codegen/numpy/rows.py``). Separate are the last
steps on one number for each example, so that logarithms are vectorized, and the lookup of a class's
logit, for which a region would compare all class numbers. ``at`` is always the axis of the classes,
counted from the front.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.rows import RowKernel, add_up
from eagerflow.primitives.softmax import softmax_body

# Probabilities as labels -------------------------------------------------------------------------


def dense_body(s: Any, logits: Any, labels: Any) -> Any:
    """The parts of each example's loss: sums of powers, of labels, and of products."""
    shifted = s.subtract(logits, s.max(logits, "n"))
    # A class of probability 0 adds nothing, even if its logit is -inf.
    products = s.select(s.equal(labels, 0), 0, s.multiply(labels, shifted))
    return s.sum(s.exp(shifted), "n"), s.sum(labels, "n"), s.sum(products, "n")


def _loss_body(s: Any, logits: Any, labels: Any, *, certain: bool) -> Any:
    """The loss of each example, ``certain`` that a class of probability 0 adds nothing."""
    shifted = s.subtract(logits, s.max(logits, "n"))
    lost = s.subtract(s.log(s.sum(s.exp(shifted), "n")), shifted)
    products = s.multiply(lost, labels)
    return s.sum(s.select(s.equal(labels, 0), 0, products) if certain else products, "n")


_LOSS = RowKernel(_loss_body)


def dense(logits: Any, labels: Any, at: int) -> Any:
    """The loss of each example, where ``labels`` holds a probability for each logit."""
    if generated.takes(logits):
        loss, weight, given = generated.rows(dense_body, at, logits, labels)
        np.multiply(np.log(loss, loss), weight, loss)
        return np.subtract(loss, given, loss)
    # NumPy's selection takes as long as all the rest, and is rarely needed.
    loss = _LOSS(at, logits, labels, certain=False)
    return _LOSS(at, logits, labels, certain=True) if math.isnan(add_up(loss, None)) else loss


def dense_gradient_body(s: Any, logits: Any, labels: Any, g: Any) -> Any:
    """The gradient of ``dense`` for each logit, where ``g`` is that of the losses."""
    right = s.multiply(softmax_body(s, logits), s.sum(labels, "n"))
    return s.multiply(s.subtract(right, labels), g)


_DENSE_GRADIENT = RowKernel(dense_gradient_body)


def dense_gradient(logits: Any, labels: Any, g: Any, at: int) -> Any:
    """The gradient of ``dense`` for its logits, where ``g`` is that of the losses."""
    return _DENSE_GRADIENT(at, logits, labels, g)


# Numbers of classes as labels --------------------------------------------------------------------

MIN_GATHERED_CLASSES = 32  # above which a lookup is cheaper than comparing all class numbers


def sparse_body(s: Any, logits: Any, labels: Any) -> Any:
    """The parts of each example's loss: the sum of powers, and the logit of its class."""
    shifted = s.subtract(logits, s.max(logits, "n"))
    chosen = s.select(s.equal(s.position("n"), labels), shifted, 0)
    return s.sum(s.exp(shifted), "n"), s.sum(chosen, "n")


def sparse_gradient_body(s: Any, logits: Any, labels: Any, g: Any) -> Any:
    """The gradient of ``sparse`` for each logit, with int64 labels."""
    share = softmax_body(s, logits)
    right = s.equal(s.position("n"), labels)
    return s.multiply(s.select(right, s.subtract(share, 1), share), g)


def _powers_body(s: Any, logits: Any) -> Any:
    top = s.max(logits, "n")
    return s.sum(s.exp(s.subtract(logits, top)), "n"), top


def _shares_of_gradient_body(s: Any, logits: Any, g: Any) -> Any:
    return s.multiply(softmax_body(s, logits), g)


_POWERS = RowKernel(_powers_body)
_SOFTMAX = RowKernel(softmax_body)


def _compares(logits: Any, at: int) -> bool:
    """Whether a region that compares class numbers is fastest."""
    return generated.takes(logits) and logits.shape[at] <= MIN_GATHERED_CLASSES


def _wide(numbers: Any, at: int) -> Any:
    """A number for each example with an axis for the classes."""
    return numbers.reshape(*numbers.shape[:at], 1, *numbers.shape[at:])


def sparse(logits: Any, labels: Any, at: int) -> Any:
    """The loss of each example, where ``labels`` are class numbers in range."""
    if _compares(logits, at):
        numbers = labels.astype(np.int64, copy=False)
        loss, chosen = generated.rows(sparse_body, at, logits, numbers)
    else:
        loss, top = _POWERS(at, logits)
        indices = _wide(labels.astype(np.intp, copy=False), at)
        chosen = np.take_along_axis(logits, indices, at).reshape(top.shape)
        np.subtract(chosen, top, chosen)
    return np.subtract(np.log(loss, loss), chosen, loss)


def sparse_gradient(logits: Any, labels: Any, g: Any, at: int) -> Any:
    """The gradient of ``sparse`` for its logits, where ``g`` is that of the losses."""
    if _compares(logits, at):
        numbers = labels.astype(np.int64, copy=False)
        return generated.rows(sparse_gradient_body, at, logits, numbers, g)
    indices, wide = _wide(labels.astype(np.intp, copy=False), at), _wide(g, at)
    if generated.takes(logits):
        out = generated.rows(_shares_of_gradient_body, at, logits, g)
        np.put_along_axis(out, indices, np.take_along_axis(out, indices, at) - wide, at)
        return out
    out = _SOFTMAX(at, logits)
    np.put_along_axis(out, indices, np.take_along_axis(out, indices, at) - 1, at)
    return np.multiply(out, wide, out)
