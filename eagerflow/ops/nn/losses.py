"""Cross-entropies of logits: one loss for each example, computed without overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen.numpy.rows import whole_rows
from eagerflow.dtypes import FLOATS, INTEGERS
from eagerflow.errors import IndexRangeError, ShapeError
from eagerflow.op import Split
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import sigmoid
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.exponential import exp, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Rows, batch_along_axis, define, pointwise
from eagerflow.ops.indexing.indices import extremes
from eagerflow.ops.reductions.softmax import exponentials, log_softmax, softmax, softmax_gradient
from eagerflow.ops.reductions.sums import sum
from eagerflow.primitives import cross_entropy
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis

__all__ = ["sigmoid_cross_entropy", "softmax_cross_entropy", "sparse_softmax_cross_entropy"]


def shape_without(shape: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*shape[:at], *shape[at + 1 :])


def _with_one(g: Any, at: int) -> Any:
    """A value per example with an axis of size 1 for the classes."""
    return g.reshape((*g.shape[:at], 1, *g.shape[at:]))


def _check_classes(classes: Any) -> None:
    if classes == 0:
        raise ShapeError("there are no classes", argument="logits", expected="a class or more")


# Probabilities as labels -------------------------------------------------------------------------


def _dense_spec(
    logits: TensorSpec, labels: TensorSpec, *rest: TensorSpec, axis: int = -1
) -> TensorSpec:
    at = normalize_axis(axis, logits.ndim)
    if labels.shape != logits.shape:
        raise ShapeError(
            "the shapes of logits and labels differ",
            expected="a probability for each logit",
            hint="logits come first, targets second"
            if labels.ndim > logits.ndim
            else "ef.sparse_softmax_cross_entropy takes the numbers of classes",
        )
    _check_classes(logits.shape[at])
    return logits.like(shape_without(logits.shape, at))


def _on_numpy(kernel: Any, check: Any = None) -> Any:
    """The NumPy kernel of a loss, or of the gradient of one."""

    def on_numpy(xp: Namespace, logits: Any, labels: Any, *g: Any, axis: int) -> Any:
        at = normalize_axis(axis, logits.ndim)
        if check is not None:
            check(np, labels, logits.shape[at])
        return kernel(logits, labels, *g, at)

    return on_numpy


def _split(logits: TensorSpec, *more: TensorSpec, axis: int = -1) -> list[Split]:
    """Along all axes but that of classes, which labels of numbers, losses and ``g`` do not have."""
    at = normalize_axis(axis, logits.ndim)
    found = []
    for i in range(logits.ndim):
        if i != at:
            own = i - (i > at)
            cuts = (i, *(i if x.ndim == logits.ndim else own for x in more))
            found.append(Split(cuts, own if len(more) == 1 else i))
    return found


def _loss(**facts: Any) -> Any:
    """A loss for each example, or the gradient of one."""
    return define("rows", cost=exponentials, batch=batch_along_axis, split=_split, **facts)


def _dense_body(s: Any, logits: Any, labels: Any) -> Any:
    powers, weight, given = cross_entropy.dense_body(s, logits, labels)
    return s.subtract(s.multiply(s.log(powers), weight), given)


@_loss(
    scalar=Rows(_dense_body, ("mn", "mn")),
    dtypes=FLOATS,
    infer=_dense_spec,
    overrides={"numpy": _on_numpy(cross_entropy.dense)},
    vjp=(
        lambda g, y, logits, labels, axis: softmax_cross_entropy_gradient(
            logits, labels, g, axis=axis
        ),
        lambda g, y, logits, labels, axis: (
            -(_with_one(g, normalize_axis(axis, logits.ndim)) * log_softmax(logits, axis))
        ),
    ),
    saves="logits labels",
)
def softmax_cross_entropy(xp: Namespace, logits: Array, labels: Array, /, axis: int = -1) -> Array:
    """Cross-entropy between probabilities and the softmax of logits, for each example.

    ``logits`` is a real tensor with the classes along ``axis``, ``labels`` holds a probability for
    each logit. The result is -sum(labels * log_softmax(logits)) along the axis, in nats; a class of
    probability 0 adds nothing, even if its logit is -inf. Raises ShapeError where the shapes
    differ.

    >>> ef.softmax_cross_entropy(ef.tensor([[0.0, 0.0]]), ef.tensor([[0.5, 0.5]]))
    Tensor([0.6931], float32, cpu:0)
    """
    at = normalize_axis(axis, logits.ndim)
    return xp.squeeze(whole_rows(_dense_body, xp, at, logits, labels), axis=at)


def _gradient_spec(loss: Any) -> Any:
    """The fact ``infer`` of the gradient of a loss, from that of the loss."""

    def infer(logits: TensorSpec, labels: TensorSpec, g: TensorSpec, axis: int = -1) -> TensorSpec:
        if g.shape != loss(logits, labels, axis=axis).shape:
            raise ShapeError("g does not have a value for each example", argument="g")
        return logits

    return infer


def _dense_gradient_rules(
    c: Any, _: Any, logits: Any, labels: Any, g: Any, axis: int
) -> tuple[Any, ...]:
    at = normalize_axis(axis, logits.ndim)
    p = softmax(logits, at)
    total = sum(labels, axis=at, keepdims=True)
    weighted = c * _with_one(g, at)
    return (
        softmax_gradient(p, weighted * total, axis=at),
        sum(weighted * p, axis=at, keepdims=True) - weighted,
        sum(c * (p * total - labels), axis=at),
    )


@_loss(
    scalar=Rows(cross_entropy.dense_gradient_body, ("mn", "mn", "m"), ("mn",)),
    dtypes=FLOATS,
    infer=_gradient_spec(_dense_spec),
    overrides={"numpy": _on_numpy(cross_entropy.dense_gradient)},
    vjp=in_float32(_dense_gradient_rules),
    saves="logits labels g",
)
def softmax_cross_entropy_gradient(
    xp: Namespace, logits: Array, labels: Array, g: Array, /, *, axis: int = -1
) -> Array:
    """The gradient of softmax_cross_entropy with respect to its logits.

    ``g`` holds the gradient of each loss. The result is
    g (softmax(logits) sum(labels) - labels). Raises ShapeError where a shape does not fit.

    >>> loss = lambda x: ef.softmax_cross_entropy(x, ef.tensor([1.0, 0.0]))
    >>> ef.grad(loss)(ef.tensor([0.0, 0.0]))
    Tensor([-0.5,  0.5], float32, cpu:0)
    """
    at = normalize_axis(axis, logits.ndim)
    return whole_rows(cross_entropy.dense_gradient_body, xp, at, logits, labels, g)


# Numbers of classes as labels --------------------------------------------------------------------


def _sparse_spec(logits: TensorSpec, labels: TensorSpec, axis: int = -1) -> TensorSpec:
    at = normalize_axis(axis, logits.ndim)
    shape = shape_without(logits.shape, at)
    if labels.shape != shape:
        raise ShapeError(
            "labels do not have a class for each example",
            argument="labels",
            expected=f"shape {shape}",
            hint="ef.softmax_cross_entropy takes probabilities",
        )
    _check_classes(logits.shape[at])
    return labels.like(dtype=logits.dtype)


def _check_labels(xp: Namespace, labels: Any, classes: int) -> None:
    low, high = extremes(xp, labels) or (0, -1)
    if low < 0 or high >= classes:
        raise IndexRangeError(
            f"class {low if low < 0 else high} is out of range",
            argument="labels",
            expected=f"integers from 0 to {classes - 1}",
        )


def _sparse_body(s: Any, logits: Any, labels: Any) -> Any:
    powers, chosen = cross_entropy.sparse_body(s, logits, s.convert(labels, "int64"))
    return s.subtract(s.log(powers), chosen)


def _sparse_gradient_body(s: Any, logits: Any, labels: Any, g: Any) -> Any:
    return cross_entropy.sparse_gradient_body(s, logits, s.convert(labels, "int64"), g)


@_loss(
    dtypes=(FLOATS, INTEGERS),
    together=(0,),
    scalar=Rows(_sparse_body, ("mn", "m")),
    infer=_sparse_spec,
    overrides={"numpy": _on_numpy(cross_entropy.sparse, _check_labels)},
    vjp=(
        lambda g, y, logits, labels, axis: sparse_softmax_cross_entropy_gradient(
            logits, labels, g, axis=axis
        ),
        None,
    ),
    saves="logits labels",
    fails=True,
)
def sparse_softmax_cross_entropy(
    xp: Namespace, logits: Array, labels: Array, /, axis: int = -1
) -> Array:
    """Cross-entropy between classes and the softmax of logits, for each example.

    ``logits`` is a real tensor with the classes along ``axis``, ``labels`` an integer tensor with
    the class of each example, in the shape of ``logits`` without that axis. The result is
    -log_softmax(logits) at the labels, in nats. Raises IndexRangeError for invalid classes,
    ShapeError unless there is one for each example.

    >>> ef.sparse_softmax_cross_entropy(ef.tensor([[0.0, 0.0], [1000.0, 0.0]]), [1, 0])
    Tensor([0.6931, 0.    ], float32, cpu:0)
    """
    at = normalize_axis(axis, logits.ndim)
    _check_labels(xp, labels, logits.shape[at])
    shifted = logits - xp.max(logits, axis=at, keepdims=True)
    chosen = xp.take_along_axis(shifted, xp.expand_dims(labels, axis=at), axis=at)
    total = xp.log(xp.sum(xp.exp(shifted), axis=at, keepdims=True))
    return xp.reshape(total - chosen, labels.shape)


def _sparse_gradient_rules(
    c: Any, _: Any, logits: Any, labels: Any, g: Any, axis: int
) -> tuple[Any, ...]:
    at = normalize_axis(axis, logits.ndim)
    unit = sparse_softmax_cross_entropy_gradient(logits, labels, ones_like(g), axis=at)
    of_logits = softmax_gradient(softmax(logits, at), c * _with_one(g, at), axis=at)
    return of_logits, None, sum(c * unit, axis=at)


@_loss(
    dtypes=(FLOATS, INTEGERS, FLOATS),
    together=(0, 2),
    scalar=Rows(_sparse_gradient_body, ("mn", "m", "m"), ("mn",)),
    infer=_gradient_spec(_sparse_spec),
    overrides={"numpy": _on_numpy(cross_entropy.sparse_gradient, _check_labels)},
    vjp=in_float32(_sparse_gradient_rules),
    saves="logits labels g",
    fails=True,
)
def sparse_softmax_cross_entropy_gradient(
    xp: Namespace, logits: Array, labels: Array, g: Array, /, *, axis: int = -1
) -> Array:
    """The gradient of sparse_softmax_cross_entropy with respect to its logits.

    ``g`` holds the gradient of each loss. The result is g (softmax(logits) - one_hot(labels)).
    Raises as the op does.

    >>> ef.grad(lambda x: ef.sparse_softmax_cross_entropy(x, 0))(ef.tensor([0.0, 0.0]))
    Tensor([-0.5,  0.5], float32, cpu:0)
    """
    at = normalize_axis(axis, logits.ndim)
    _check_labels(xp, labels, logits.shape[at])
    return whole_rows(_sparse_gradient_body, xp, at, logits, labels, g)


# Independent classes -----------------------------------------------------------------------------


@pointwise(
    partials=(
        in_float32(lambda y, logits, labels: sigmoid(logits) - labels),
        lambda y, logits, labels: negative(logits),
    ),
    saves="logits labels",
    cost=exponentials,
)
def sigmoid_cross_entropy(logits: Any, labels: Any, /) -> Any:
    """Cross-entropy between probabilities and the sigmoid of logits, element by element.

    ``logits`` and ``labels`` are real tensors of shapes that broadcast; each label is the
    probability of an independent class. The result is -z log(sigmoid(x)) - (1 - z) log(1 -
    sigmoid(x)), in nats, computed as |x| (1 - z or, where x <= 0, z) + log(1 + exp(-|x|)), which
    neither overflows nor cancels. Raises ShapeError where shapes do not broadcast.

    >>> ef.sigmoid_cross_entropy(ef.tensor([0.0, 1000.0]), ef.tensor([0.0, 1.0]))
    Tensor([0.6931, 0.    ], float32, cpu:0)
    """
    size = abs(logits)
    wrong = where(logits > 0, 1 - labels, labels)
    return size * wrong + log1p(exp(-size))
