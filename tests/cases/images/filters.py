"""Cases of eagerflow/ops/images/filters.py."""

import math

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _blur_reference(x, sigma, kernel_size):
    found, rank = x.astype(float), x.ndim - 2
    sizes = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * rank
    for axis, (n, s) in enumerate(zip(sizes, np.broadcast_to(sigma, rank), strict=True), 1):
        heights = [math.exp(-(((i - (n - 1) / 2) / float(s)) ** 2) / 2) for i in range(n)]
        bell = np.array(heights) / sum(heights)
        whole = np.pad(
            found, [((n - 1) // 2, n // 2) if a == axis else (0, 0) for a in range(x.ndim)]
        )
        size = x.shape[axis]
        found = sum(w * whole.take(range(i, i + size), axis) for i, w in enumerate(bell))
    return found


def _blur_samples(rng, dtype):
    def of(shape, sigma, kernel_size):
        return Sample(
            (make(rng, dtype, shape), np.array(sigma, dtype)), {"kernel_size": kernel_size}
        )

    return [
        of((2, 4, 5, 2), 1.0, 3),
        of((1, 5, 4, 1), [0.5, 2.0], (3, 5)),
        of((1, 4, 3, 2), [1.5, 1.0], (2, 1)),
        of((1, 3, 4, 1), [1.2], 3),
        of((2, 6, 2), [0.8], 7),
        of((1, 3, 2, 3, 1), 1.2, 3),
        of((0, 3, 3, 1), 1.0, 3),
    ]


def _edges_reference(x):
    whole = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = np.zeros((*x.shape, 2))
    for i, j in np.ndindex(x.shape[1:3]):
        part = whole[:, i : i + 3, j : j + 3]
        smooth = np.array([1, 2, 1])[:, None]
        found[:, i, j, :, 0] = ((part[:, 2] - part[:, 0]) * smooth).sum(1)
        found[:, i, j, :, 1] = ((part[:, :, 2] - part[:, :, 0]) * smooth).sum(1)
    return found


def _norm_reference(x, size, alpha, beta, k):
    found, channels = np.zeros(x.shape), x.shape[-1]
    for c in range(channels):
        near = x[..., max(c - size // 2, 0) : c + (size + 1) // 2].astype(float)
        found[..., c] = x[..., c] / (k + alpha / size * (near**2).sum(-1)) ** beta
    return found


CASES = {
    "gaussian_blur": Cases(
        samples=_blur_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((1, 3, 3, 1)), 1.0), {"kernel_size": 0}, ShapeError, "too small"),
            ErrorSample((np.ones((1, 3, 3, 1)), np.ones(3)), {}, ShapeError, "sigma of shape"),
            ErrorSample((np.ones((3, 3)), 1.0), {}, ShapeError, "too few"),
        ],
        reference=_blur_reference,
    ),
    "sobel_edges": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),))
            for shape in (
                (2, 4, 5, 2),
                (1, 1, 3, 1),
                (1, 3, 2, 3),
                (0, 3, 3, 1),
                (2, 2, 2, 1),
                (1, 5, 1, 1),
            )
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((3, 3, 1)),), {}, ShapeError, "are not those of images")
        ],
        reference=_edges_reference,
    ),
    "local_response_norm": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),), more)
            for shape, more in (
                ((2, 3, 6), {}),
                ((1, 2, 2, 4), {"size": 3, "alpha": 0.5, "beta": 0.5, "k": 2.0}),
                ((2, 5), {"size": 4, "alpha": 1.0}),
                ((3, 3), {"size": 1, "alpha": 2.0}),
                ((2, 2, 3), {"size": 9, "alpha": 2.0}),
                ((0, 2, 3), {}),
            )
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)),), {"size": 0}, ShapeError, "too small"),
            ErrorSample((1.0,), {}, ShapeError, "no channels"),
        ],
        reference=_norm_reference,
    ),
}
