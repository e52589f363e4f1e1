"""Cases of eagerflow/ops/nn/margin_losses.py."""

import math

import numpy as np

from eagerflow.errors import IndexRangeError, ShapeError
from tests.cases.nn.loss_reduction import of_loss, reduced_reference
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _sided(cases):
    """Those of a loss with targets, the last argument, that are only -1 and 1."""

    def samples(rng, dtype):
        return [
            s._replace(args=(*s.args[:-1], np.where(s.args[-1] < 0, -1, 1).astype(np.int64)))
            for s in cases.samples(rng, dtype)
        ]

    return cases._replace(samples=samples)


def _embedding_of(x, t, margin):
    return x if t == 1 else max(0, margin - x)


def _ranking_of(a, b, t, margin):
    return max(0, margin - t * (a - b))


def _example_shapes(rng, dtype):
    """Scores of classes along the last axis, and reductions."""
    shapes = ((4,), (2, 3), (3, 4), (2, 2, 3), (1, 5), (3, 1), (2, 6))
    for i, shape in enumerate(shapes):
        yield make(rng, dtype, shape), {"reduction": ("mean", "none", "sum")[i % 3]}


def _classed(rng, dtype):
    found = []
    for i, (x, more) in enumerate(_example_shapes(rng, dtype)):
        labels = np.asarray(rng.integers(0, x.shape[-1], x.shape[:-1]))
        weight = make(rng, dtype, x.shape[-1:], 0.5, 2) if i % 2 else None
        found.append(Sample((x, labels, weight), more | ({"p": 2, "margin": 0.8} if i > 2 else {})))
    return found


def _multi_reference(x, target, weight, p, margin, reduction):
    out = np.empty(target.shape)
    for at in np.ndindex(target.shape):
        row, y = x[at].tolist(), int(target[at])
        gaps = [max(0, margin - row[y] + v) ** p for j, v in enumerate(row) if j != y]
        out[at] = math.fsum(gaps) / len(row) * (1 if weight is None else float(weight[y]))
    return reduced_reference(out, reduction)


def _listed(rng, dtype):
    found = []
    for x, more in _example_shapes(rng, dtype):
        labels = np.full(x.shape, -1)
        for at in np.ndindex(x.shape[:-1]):
            count = int(rng.integers(0, x.shape[-1] + 1))
            labels[at][:count] = rng.permutation(x.shape[-1])[:count]
        found.append(Sample((x, labels), more))
    return found


def _multilabel_reference(x, target, reduction):
    out = np.empty(x.shape[:-1])
    for at in np.ndindex(out.shape):
        row, given = x[at].tolist(), target[at].tolist()
        right = given[: given.index(-1)] if -1 in given else given
        gaps = [max(0, 1 - row[j] + v) for j in right for i, v in enumerate(row) if i not in right]
        out[at] = math.fsum(gaps) / len(row)
    return reduced_reference(out, reduction)


def _marked(rng, dtype):
    found = []
    for i, (x, more) in enumerate(_example_shapes(rng, dtype)):
        weight = make(rng, dtype, x.shape[-1:], 0.5, 2) if i % 2 else None
        found.append(Sample((x, (rng.random(x.shape) < 0.5).astype(dtype), weight), more))
    return found


def _soft_reference(x, target, weight, reduction):
    p = 1 / (1 + np.exp(-x.astype(float)))
    each = -(target * np.log(p) + (1 - target) * np.log(1 - p))
    out = (each if weight is None else each * weight).mean(-1)
    return reduced_reference(out, reduction)


CASES = {
    "hinge_loss": of_loss(
        lambda x, t, margin: max(margin - t * x, 0), (-2, 2), (-1, 1), margin=0.6
    ),
    "soft_margin_loss": of_loss(lambda x, t: math.log(1 + math.exp(-t * x)), (-2, 2), (-1, 1)),
    "hinge_embedding_loss": _sided(of_loss(_embedding_of, (0.1, 2), (-1, 1), margin=1.5)),
    "margin_ranking_loss": _sided(of_loss(_ranking_of, (-2, 2), (-2, 2), (-1, 1), margin=0.3)),
    "multi_margin_loss": Cases(
        samples=_classed,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.array([0, 3])), {}, IndexRangeError, "index 3"),
            ErrorSample((np.ones((2, 3)), np.array([0, 1, 2])), {}, ShapeError, "each number"),
        ],
        reference=_multi_reference,
    ),
    "multilabel_margin_loss": Cases(
        samples=_listed,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.array([0, 2])), {}, ShapeError, "each number"),
        ],
        reference=_multilabel_reference,
    ),
    "multilabel_soft_margin_loss": Cases(
        samples=_marked,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(3)), {}, ShapeError, "each number")
        ],
        reference=_soft_reference,
    ),
}
