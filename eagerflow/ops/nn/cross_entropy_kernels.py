"""Cross-entropies of logits in NumPy arrays, and their gradients.

Separate from the formulas are the last steps on one number for each example, so that logarithms are
vectorized, and the lookup of a class's logit, for which a region would compare all class numbers.
``at`` is the axis of the classes, counted from the front, and ``rows`` the kernel of the formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.rows import RowKernel, add_up
from eagerflow.ops.elementwise.exponential import exp, log
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import op_of
from eagerflow.ops.formula import Formula, row_positions
from eagerflow.ops.reductions.softmax import softmax
from eagerflow.ops.reductions.sums import max, sum

# Probabilities as labels -------------------------------------------------------------------------


@Formula
def dense_parts(logits: Any, labels: Any) -> Any:
    """The parts of each example's loss: sums of powers, of labels, and of products."""
    shifted = logits - max(logits, axis=-1, keepdims=True)
    # A class of probability 0 adds nothing, even if its logit is -inf.
    products = where(labels == 0, 0, labels * shifted)
    return tuple(sum(x, axis=-1, keepdims=True) for x in (exp(shifted), labels, products))


@Formula
def _dense_loss(logits: Any, labels: Any, *, certain: bool) -> Any:
    """The loss of each example, ``certain`` that a class of probability 0 adds nothing."""
    shifted = logits - max(logits, axis=-1, keepdims=True)
    products = (log(sum(exp(shifted), axis=-1, keepdims=True)) - shifted) * labels
    products = where(labels == 0, 0, products) if certain else products
    return sum(products, axis=-1, keepdims=True)


_LOSS = RowKernel(_dense_loss)


def dense(rows: Any, at: int, logits: Any, labels: Any) -> Any:
    """The loss of each example, where ``labels`` holds a probability for each logit."""
    if generated.takes(logits):
        loss, weight, given = generated.rows(dense_parts, at, logits, labels)
        np.multiply(np.log(loss, loss), weight, loss)
        return np.subtract(loss, given, loss)
    # NumPy's selection takes as long as all the rest, and is rarely needed.
    loss = _LOSS(at, logits, labels, certain=False)
    return _LOSS(at, logits, labels, certain=True) if math.isnan(add_up(loss, None)) else loss


# Numbers of classes as labels --------------------------------------------------------------------

MIN_GATHERED_CLASSES = 32  # above which a lookup is cheaper than comparing all class numbers


@Formula
def sparse_parts(logits: Any, labels: Any) -> Any:
    """The parts of each example's loss: the sum of powers, and the logit of its class."""
    shifted = logits - max(logits, axis=-1, keepdims=True)
    chosen = where(row_positions(logits) == labels.astype("int64"), shifted, 0)
    return sum(exp(shifted), axis=-1, keepdims=True), sum(chosen, axis=-1, keepdims=True)


@Formula
def _powers(logits: Any) -> Any:
    top = max(logits, axis=-1, keepdims=True)
    return sum(exp(logits - top), axis=-1, keepdims=True), top


@Formula
def _shares_of_gradient(logits: Any, g: Any) -> Any:
    return softmax(logits) * g


_softmax: Any = op_of(softmax).scalar
_POWERS, _SOFTMAX = RowKernel(_powers), RowKernel(_softmax)


def _compares(logits: Any, at: int) -> bool:
    """Whether a region that compares class numbers is fastest."""
    return generated.takes(logits) and logits.shape[at] <= MIN_GATHERED_CLASSES


def _wide(numbers: Any, at: int) -> Any:
    """A number for each example with an axis for the classes."""
    return numbers.reshape(*numbers.shape[:at], 1, *numbers.shape[at:])


def sparse(rows: Any, at: int, logits: Any, labels: Any) -> Any:
    """The loss of each example, where ``labels`` are class numbers in range."""
    if _compares(logits, at):
        numbers = labels.astype(np.int64, copy=False)
        loss, chosen = generated.rows(sparse_parts, at, logits, numbers)
    else:
        loss, top = _POWERS(at, logits)
        indices = _wide(labels.astype(np.intp, copy=False), at)
        chosen = np.take_along_axis(logits, indices, at).reshape(top.shape)
        np.subtract(chosen, top, chosen)
    return np.subtract(np.log(loss, loss), chosen, loss)


def sparse_gradient(rows: Any, at: int, logits: Any, labels: Any, g: Any) -> Any:
    """The gradient of ``sparse`` for its logits, where ``g`` is that of the losses."""
    if _compares(logits, at):
        return rows(at, logits, labels.astype(np.int64, copy=False), g)
    indices, wide = _wide(labels.astype(np.intp, copy=False), at), _wide(g, at)
    if generated.takes(logits):
        out = generated.rows(_shares_of_gradient, at, logits, g)
        np.put_along_axis(out, indices, np.take_along_axis(out, indices, at) - wide, at)
        return out
    out = _SOFTMAX(at, logits)
    np.put_along_axis(out, indices, np.take_along_axis(out, indices, at) - 1, at)
    return np.multiply(out, wide, out)
