"""Cross-entropies of logits: one loss for each example, computed without overflow."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS, INTEGERS
from eagerflow.errors import IndexRangeError, ShapeError
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import sigmoid
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.exponential import exp, log, log1p
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import pointwise
from eagerflow.ops.formula import row_positions
from eagerflow.ops.indexing.indices import extremes
from eagerflow.ops.nn import cross_entropy_kernels
from eagerflow.ops.nn.cross_entropy_kernels import dense_parts, sparse_parts
from eagerflow.ops.reductions.softmax import exponentials, log_softmax, softmax, softmax_gradient
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.row_formulas import by_row
from eagerflow.spec import Namespace, TensorSpec, normalize_axis

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


@by_row(
    ("mn", "mn"),
    "m",
    infer=_dense_spec,
    cost=exponentials,
    on_numpy=cross_entropy_kernels.dense,
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
def softmax_cross_entropy(logits: Any, labels: Any, /, axis: int = -1) -> Any:
    """Cross-entropy between probabilities and the softmax of logits, for each example.

    ``logits`` is a real tensor with the classes along ``axis``, ``labels`` holds a probability for
    each logit. The result is -sum(labels * log_softmax(logits)) along the axis, in nats; a class of
    probability 0 adds nothing, even if its logit is -inf. Raises ShapeError where the shapes
    differ.

    >>> ef.softmax_cross_entropy(ef.tensor([[0.0, 0.0]]), ef.tensor([[0.5, 0.5]]))
    Tensor([0.6931], float32, cpu:0)
    """
    powers, weight, given = dense_parts.formula(logits, labels)
    return log(powers) * weight - given


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


@by_row(
    ("mn", "mn", "m"),
    infer=_gradient_spec(_dense_spec),
    cost=exponentials,
    vjp=in_float32(_dense_gradient_rules),
    saves="logits labels g",
)
def softmax_cross_entropy_gradient(logits: Any, labels: Any, g: Any, /, *, axis: int = -1) -> Any:
    """The gradient of softmax_cross_entropy with respect to its logits.

    ``g`` holds the gradient of each loss. The result is
    g (softmax(logits) sum(labels) - labels). Raises ShapeError where a shape does not fit.

    >>> loss = lambda x: ef.softmax_cross_entropy(x, ef.tensor([1.0, 0.0]))
    >>> ef.grad(loss)(ef.tensor([0.0, 0.0]))
    Tensor([-0.5,  0.5], float32, cpu:0)
    """
    return (softmax(logits, axis) * sum(labels, axis=axis, keepdims=True) - labels) * g


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


def _check_labels(xp: Namespace, logits: Any, labels: Any, *_: Any, axis: int) -> None:
    low, high = extremes(xp, labels) or (0, -1)
    if low < 0 or high >= logits.shape[axis]:
        raise IndexRangeError(
            f"class {low if low < 0 else high} is out of range",
            argument="labels",
            expected=f"integers from 0 to {logits.shape[axis] - 1}",
        )


def _of_classes(along: tuple[str, ...], gives: str, **facts: Any) -> Any:
    """An op of logits and class numbers, and perhaps of a number for each example."""
    return by_row(
        along,
        gives,
        check=_check_labels,
        dtypes=(FLOATS, INTEGERS, FLOATS)[: len(along)],
        together=(0, 2)[: len(along) - 1],
        cost=exponentials,
        fails=True,
        **facts,
    )


def _gathered(xp: Namespace, logits: Any, labels: Any, *, axis: int) -> Any:
    """The loss by a lookup, which on a device takes less memory than comparing all numbers."""
    at = normalize_axis(axis, logits.ndim)
    _check_labels(xp, logits, labels, axis=at)
    shifted = logits - xp.max(logits, axis=at, keepdims=True)
    chosen = xp.take_along_axis(shifted, xp.expand_dims(labels, axis=at), axis=at)
    total = xp.log(xp.sum(xp.exp(shifted), axis=at, keepdims=True))
    return xp.reshape(total - chosen, labels.shape)


@_of_classes(
    ("mn", "m"),
    "m",
    infer=_sparse_spec,
    overrides={"cupy": _gathered},
    on_numpy=cross_entropy_kernels.sparse,
    vjp=(
        lambda g, y, logits, labels, axis: sparse_softmax_cross_entropy_gradient(
            logits, labels, g, axis=axis
        ),
        None,
    ),
    saves="logits labels",
)
def sparse_softmax_cross_entropy(logits: Any, labels: Any, /, axis: int = -1) -> Any:
    """Cross-entropy between classes and the softmax of logits, for each example.

    ``logits`` is a real tensor with the classes along ``axis``, ``labels`` an integer tensor with
    the class of each example, in the shape of ``logits`` without that axis. The result is
    -log_softmax(logits) at the labels, in nats. Raises IndexRangeError for invalid classes,
    ShapeError unless there is one for each example.

    >>> ef.sparse_softmax_cross_entropy(ef.tensor([[0.0, 0.0], [1000.0, 0.0]]), [1, 0])
    Tensor([0.6931, 0.    ], float32, cpu:0)
    """
    powers, chosen = sparse_parts.formula(logits, labels)
    return log(powers) - chosen


def _sparse_gradient_rules(
    c: Any, _: Any, logits: Any, labels: Any, g: Any, axis: int
) -> tuple[Any, ...]:
    at = normalize_axis(axis, logits.ndim)
    unit = sparse_softmax_cross_entropy_gradient(logits, labels, ones_like(g), axis=at)
    of_logits = softmax_gradient(softmax(logits, at), c * _with_one(g, at), axis=at)
    return of_logits, None, sum(c * unit, axis=at)


@_of_classes(
    ("mn", "m", "m"),
    "mn",
    infer=_gradient_spec(_sparse_spec),
    on_numpy=cross_entropy_kernels.sparse_gradient,
    vjp=in_float32(_sparse_gradient_rules),
    saves="logits labels g",
)
def sparse_softmax_cross_entropy_gradient(
    logits: Any, labels: Any, g: Any, /, *, axis: int = -1
) -> Any:
    """The gradient of sparse_softmax_cross_entropy with respect to its logits.

    ``g`` holds the gradient of each loss. The result is g (softmax(logits) - one_hot(labels)).
    Raises as the op does.

    >>> ef.grad(lambda x: ef.sparse_softmax_cross_entropy(x, 0))(ef.tensor([0.0, 0.0]))
    Tensor([-0.5,  0.5], float32, cpu:0)
    """
    share = softmax(logits, axis)
    right = row_positions(logits) == labels.astype("int64")
    return where(right, share - 1, share) * g


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
