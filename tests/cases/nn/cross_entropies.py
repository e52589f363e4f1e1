"""Cases of eagerflow/ops/nn/cross_entropies.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, IndexRangeError, ShapeError
from tests.cases.nn.loss_reduction import of_loss, reduced_reference
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _binary_of(p, t):
    return -(t * math.log(p) + (1 - t) * math.log(1 - p))


def _logits_of(x, t, w, pos):
    p = 1 / (1 + math.exp(-x))
    return -w * (pos * t * math.log(p) + (1 - t) * math.log(1 - p))


def _focal_of(x, t, alpha, gamma):
    p = 1 / (1 + math.exp(-x))
    right = t * p + (1 - t) * (1 - p)
    return (1 - right) ** gamma * _binary_of(p, t) * (t * alpha + (1 - t) * (1 - alpha))


def _labelled(rng, dtype, logits=True):
    found = []
    shapes = (((4,), -1), ((3, 4), 1), ((4, 3), 0), ((2, 3, 2), 1), ((5, 3), -1), ((3, 2), -1))
    for i, (shape, axis) in enumerate(shapes):
        x = make(rng, dtype, shape)
        x = x if logits else np.log(np.exp(x) / np.exp(x).sum(axis, keepdims=True)).astype(dtype)
        labels = np.asarray(rng.integers(0, shape[axis], np.delete(shape, axis)))
        weight = make(rng, dtype, (shape[axis],), 0.5, 2) if i % 2 else None
        more = {"axis": axis, "reduction": ("mean", "none", "sum")[i % 3]}
        if logits and i > 1:
            more |= {"label_smoothing": 0.2}
        found.append(Sample((x, labels, weight), more | ({"ignore_index": 1} if i > 2 else {})))
        if logits:
            p = make(rng, dtype, shape, 0.1, 1)
            p = (p / p.sum(axis, keepdims=True)).astype(dtype)
            found.append(Sample((x, p, weight), more))
    base = make(rng, dtype, (4, 6))
    return [
        *found,
        Sample((base[::2, ::-1] if logits else base, np.arange(2 if logits else 4)), {}),
    ]


def _negative_logs(x, axis):
    x = np.moveaxis(x.astype(float), axis, -1)
    return np.log(np.exp(x).sum(-1, keepdims=True)) - x


def _entropy_reference(
    logits,
    target,
    weight,
    ignore_index,
    label_smoothing,
    reduction,
    axis,
    costs=None,
):
    costs = _negative_logs(logits, axis) if costs is None else costs
    classes = costs.shape[-1]
    factors = np.ones(classes) if weight is None else weight.astype(float)
    if target.dtype.kind == "f":
        shares = np.moveaxis(target.astype(float), axis, -1)
        shares = shares * (1 - label_smoothing) + label_smoothing / classes
        out = (costs * shares * factors).sum(-1)
        return reduced_reference(out, reduction)
    out, weights = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(target.shape):
        y = int(target[at])
        if y != ignore_index:
            weights[at] = factors[y]
            out[at] = (1 - label_smoothing) * costs[at][y] * factors[y]
            out[at] += label_smoothing / classes * (costs[at] * factors).sum()
    mean = out.sum() / weights.sum() if weights.any() else 0.0
    return mean if reduction == "mean" else reduced_reference(out, reduction)


def _class_errors(rng):
    x = rng.random((2, 3))
    return [
        ErrorSample((x, np.array([0, 3])), {}, IndexRangeError, "3 is out of range"),
        ErrorSample((x, np.array([0, 1, 2])), {}, ShapeError, "each example"),
        ErrorSample((x, np.array([0, 1]), np.ones(2)), {}, ShapeError, "differ in number"),
    ]


CASES = {
    "binary_cross_entropy": of_loss(
        lambda p, t, w: w * _binary_of(p, t), (0.1, 0.9), (0, 1), (0, 2)
    ),
    "binary_cross_entropy_with_logits": of_loss(_logits_of, (-3, 3), (0, 1), (0, 2), (0.5, 2)),
    "sigmoid_focal_loss": of_loss(_focal_of, (-3, 3), (0, 1), alpha=0.4, gamma=1.5),
    "cross_entropy": Cases(samples=_labelled, errors=_class_errors, reference=_entropy_reference),
    "nll_loss": Cases(
        samples=lambda rng, dtype: _labelled(rng, dtype, logits=False),
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.array([0, 3])), {}, IndexRangeError, "index 3"),
            ErrorSample((np.ones((2, 3)), np.array([0.5, 1])), {}, DTypeError, "are integers"),
        ],
        reference=lambda x, target, weight, ignore_index, reduction, axis: _entropy_reference(
            x,
            target,
            weight,
            ignore_index,
            0.0,
            reduction,
            axis,
            -np.moveaxis(x.astype(float), axis, -1),
        ),
    ),
}
