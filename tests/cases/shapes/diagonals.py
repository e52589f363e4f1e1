"""Cases of eagerflow/ops/shapes/diagonals.py."""

import operator

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, shaped

_triangle_samples = shaped(
    "k",
    ((3, 3), 0),
    ((3, 3), 1),
    ((3, 3), -1),
    ((2, 4), 1),
    ((4, 2), -2),
    ((1, 3), 0),
    ((2, 2, 3), 0),
    ((0, 3), 0),
    ((3, 3), 9),
    ((3, 3), -9),
    turned={"k": 0},
    repeated={"k": 1},
)


def _triangle_errors(rng):
    return [
        ErrorSample((np.ones(3),), {}, ShapeError, "is not a matrix"),
        ErrorSample((np.ones((3, 3)), 0.5), {}, ShapeError, "not the number of a diagonal"),
    ]


def _kept(side):
    """A reference that keeps the elements whose ``column - row - k`` is on a side of 0."""

    def reference(x, k):
        out = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            if side(at[-1] - at[-2] - k, 0):
                out[at] = x[at]
        return out

    return reference


CASES = {
    "tril": Cases(_triangle_samples, _triangle_errors, _kept(operator.le)),
    "triu": Cases(_triangle_samples, _triangle_errors, _kept(operator.ge)),
}
