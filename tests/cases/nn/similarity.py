"""Cases of eagerflow/ops/nn/similarity.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from tests.cases.nn.loss_reduction import reduced_reference
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _vectors(count, **attributes):
    """Samples of functions of ``count`` arrays of vectors along the last axis."""

    def samples(rng, dtype):
        shapes = ((4,), (2, 3), (3, 2), (2, 2, 3), (1, 5), (3, 1))
        found = [
            Sample(tuple(make(rng, dtype, shape) for _ in range(count)), attributes if i else {})
            for i, shape in enumerate(shapes)
        ]
        wide = [make(rng, dtype, (4, 6)) for _ in range(count)]
        return [*found, Sample(tuple(x[::2, ::-1] for x in wide), {})]

    return samples


def _length(row):
    return math.sqrt(math.fsum(v * v for v in row.tolist()))


def _by_rows(function):
    """A reference that computes one number from the vectors of several arrays at one position."""

    def reference(*args, axis=-1, **more):
        lines = [np.moveaxis(x.astype(float), axis, -1) for x in args]
        out = np.empty(lines[0].shape[:-1])
        for at in np.ndindex(out.shape):
            out[at] = function(*(x[at] for x in lines), **more)
        return out

    return reference


def _cosine_of(a, b, eps=1e-8):
    return float(a @ b) / max(_length(a), eps) / max(_length(b), eps)


def _distance_of(a, b, p=2.0, eps=1e-6, keepdims=False):
    gaps = [abs(v + eps) for v in (a - b).tolist()]
    return max(gaps) if p == math.inf else math.fsum(g**p for g in gaps) ** (1 / p)


def _embedding_of(a, b, t, margin):
    cosine = _cosine_of(a, b)
    return 1 - cosine if t == 1 else max(0.0, cosine - margin)


def _cosine_pairs(rng, dtype):
    found = []
    for i, (x1, x2) in enumerate(s.args for s in _vectors(2)(rng, dtype)):
        sides = np.where(rng.random(x1.shape[:-1]) < 0.5, 1, -1)
        more = {"margin": 0.3} if i else {}
        found.append(Sample((x1, x2, sides), {"reduction": ("none", "mean", "sum")[i % 3], **more}))
    return found


def _cosine_reference(x1, x2, target, margin, reduction):
    out = np.empty(target.shape)
    for at in np.ndindex(target.shape):
        out[at] = _embedding_of(x1[at].astype(float), x2[at].astype(float), target[at], margin)
    return reduced_reference(out, reduction)


def _triplets(rng, dtype):
    return [
        s._replace(
            attributes={"reduction": ("none", "mean", "sum")[i % 3], "swap": i % 2 == 1}
            | ({"margin": 0.5, "p": 3.0} if i > 3 else {})
        )
        for i, s in enumerate(_vectors(3)(rng, dtype))
    ]


def _triplet_reference(a, b, c, margin, p, eps, swap, reduction):
    out = np.empty(a.shape[:-1])
    for at in np.ndindex(out.shape):
        rows = [x[at].astype(float) for x in (a, b, c)]
        near, far, other = (
            _distance_of(rows[i], rows[j], p, eps) for i, j in ((0, 1), (0, 2), (1, 2))
        )
        out[at] = max(near - (min(far, other) if swap else far) + margin, 0)
    return reduced_reference(out, reduction)


CASES = {
    "cosine_similarity": Cases(
        samples=_vectors(2),
        errors=lambda rng: [
            ErrorSample((np.ones(2), np.ones(3)), {}, ShapeError, "broadcast"),
            ErrorSample((np.ones(2), np.ones(2), 1), {}, AxisError, "axis 1 does not exist"),
        ],
        reference=_by_rows(_cosine_of),
    ),
    "pairwise_distance": Cases(samples=_vectors(2, p=3.0), reference=_by_rows(_distance_of)),
    "cosine_embedding_loss": Cases(
        samples=_cosine_pairs,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)),) * 3, {}, ShapeError, "not one for each number")
        ],
        reference=_cosine_reference,
    ),
    "triplet_margin_loss": Cases(
        samples=_triplets,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones((2, 3)), np.ones(2)), {}, ShapeError, "broadcast")
        ],
        reference=_triplet_reference,
    ),
}
