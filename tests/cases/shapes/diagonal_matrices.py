"""Cases of eagerflow/ops/shapes/diagonal_matrices.py."""

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _embedded(rng, dtype):
    cases = (((3,), 0), ((3,), 1), ((2, 3), -2), ((2, 1, 2), 0), ((0,), 0))
    found = [Sample((make(rng, dtype, shape),), {"offset": k}) for shape, k in cases]
    x = make(rng, dtype, (4, 3))
    found.append(Sample((x[::2, ::-1],), {"dim1": 0, "dim2": 2}))
    return [*found, Sample((x,), {"offset": 1, "dim1": 1, "dim2": 0})]


def _embedded_reference(x, offset, dim1, dim2):
    size = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], size, size), x.dtype)
    for at in np.ndindex(x.shape):
        out[(*at[:-1], at[-1] + max(-offset, 0), at[-1] + max(offset, 0))] = x[at]
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


CASES = {
    "diag_embed": Cases(
        samples=_embedded,
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {"dim1": 1, "dim2": -1}, ShapeError, "two different axes"),
            ErrorSample((np.float64(3),), {}, ShapeError, "at least one axis"),
        ],
        reference=_embedded_reference,
    ),
    "diagflat": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),), {"k": k})
            for shape, k in (((3,), 0), ((2, 2), 1), ((2,), -1), ((), 0), ((0,), 0), ((1, 3), 2))
        ],
        errors=lambda rng: [ErrorSample((np.ones(3),), {"k": "up"}, ArgumentError, "taken")],
        reference=lambda x, k: np.diagflat(x, k),
    ),
}
