"""Cases of eagerflow/ops/linear_algebra/least_squares.py."""

import math

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, ShapeError
from tests.cases.linear_algebra.decompositions import full_rank
from tests.cases.linear_algebra.systems import regular, square_samples
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _systems(rng, dtype):
    shapes = (
        ((4, 2), (4,)),
        ((3, 3), (3, 2)),
        ((2, 3), (2,)),
        ((2, 4, 3), (2, 4, 1)),
        ((2, 2, 3), (2, 2)),
        ((1, 1), (1,)),
    )
    return [
        Sample((full_rank(rng, dtype, a), make(rng, dtype, b)), {"rcond": rcond})
        for (a, b), rcond in zip(shapes, (None, None, None, 1e-3, 0.0, None), strict=True)
    ]


def _normal_systems(a, b, rcond):
    """By eigenvectors of the matrix times its adjoint with nonzero eigenvalues."""
    star = np.conj(a.mT)
    values, vectors = np.linalg.eigh(star @ a)
    lengths = np.sqrt(np.maximum(values, 0))[..., ::-1][..., : min(a.shape[-2:])]
    kept = values > 1e-4 * values.max(-1, keepdims=True)
    over = np.where(kept, 1 / np.where(kept, values, 1), 0)[..., None]
    right = b[:, None] if b.ndim == 1 else b
    found = vectors @ (over * (np.conj(vectors.mT) @ (star @ right)))
    left = (np.abs(a @ found - right) ** 2).sum(-2)
    if b.ndim == 1:
        found, left = found[..., 0], left[..., 0]
    return found, left, kept.sum(-1), lengths


def _maps(*cases, right=False):
    """Samples of invertible maps: leading and trailing shapes, and attributes."""

    def samples(rng, dtype):
        found = []
        for front, behind, named in cases:
            size = math.prod(front)
            x = np.asarray(regular(rng, dtype, (size, size))).reshape(*front, *behind)
            if axes := named.get("axes"):
                x = np.moveaxis(x, range(-len(axes), 0), axes)
            found.append(Sample((x, make(rng, dtype, front)) if right else (x,), named))
        return found

    return samples


CASES = {
    "lstsq": Cases(
        samples=_systems,
        errors=lambda rng: [
            ErrorSample((np.ones((3, 2)), np.ones(2)), {}, ShapeError, "do not fit"),
            ErrorSample((np.ones(3), np.ones(3)), {}, ShapeError, "do not fit"),
            ErrorSample((np.eye(2), 1.0), {}, ShapeError, "do not fit"),
        ],
        reference=_normal_systems,
    ),
    "cond": Cases(
        samples=lambda rng, dtype: [
            sample._replace(attributes={"p": p})
            for p in (None, -2, 1, -1, "fro", math.inf, -math.inf)
            for sample in square_samples(rng, dtype)[1:5]
        ],
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix"),
            ErrorSample((np.eye(2),), {"p": 3}, ArgumentError, "not a norm"),
            ErrorSample((np.ones((2, 3)),), {"p": 1}, ShapeError, "2 rows and 3 columns"),
        ],
        reference=lambda x, p: np.linalg.cond(x, p),
    ),
    "tensorinv": Cases(
        samples=_maps(
            ((2, 2), (4,), {}),
            ((4,), (2, 2), {"ind": 1}),
            ((1, 1), (1,), {}),
            ((2, 1, 3), (3, 2), {"ind": 3}),
            ((3,), (3,), {"ind": 1}),
            ((2, 2), (2, 2), {}),
        ),
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)),), {"ind": 1}, ShapeError, "not square"),
            ErrorSample((np.ones((2, 2)),), {"ind": 0}, ArgumentError, "not a number of axes"),
        ],
        reference=lambda a, ind: np.linalg.tensorinv(a, ind),
    ),
    "tensorsolve": Cases(
        samples=_maps(
            ((2, 2), (4,), {}),
            ((4,), (2, 2), {}),
            ((2, 3), (3, 2), {"axes": (0, 2)}),
            ((1,), (1,), {}),
            ((3,), (3,), {"axes": (0,)}),
            ((2, 1, 2), (2, 2), {}),
            right=True,
        ),
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(2)), {}, ShapeError, "does not fit"),
            ErrorSample((np.eye(2), np.ones(2)), {"axes": (2,)}, AxisError, "does not exist"),
        ],
        reference=lambda a, b, axes: np.linalg.tensorsolve(a, b, axes),
    ),
}
