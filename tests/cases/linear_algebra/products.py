"""Cases of eagerflow/ops/linear_algebra/products.py."""

import numpy as np

from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _shapes(*cases):
    def samples(rng, dtype):
        return [Sample((make(rng, dtype, a), make(rng, dtype, b))) for a, b in cases]

    return samples


def _points(rng, dtype):
    cases = (((3, 2), (4, 2), 2.0), ((2, 3), (2, 3), 1.0), ((2, 3), (1, 3), 3.0))
    cases += (((2, 3, 2), (2, 2, 2), 2.0), ((3, 2), (2, 2), float("inf")), ((0, 2), (3, 2), 2.0))
    cases += (((3, 2), (2, 2), 0),)
    return [Sample((make(rng, dtype, a), make(rng, dtype, b)), {"p": p}) for a, b, p in cases]


def _distances(a, b, p):
    out = np.empty((*a.shape[:-1], b.shape[-2]), a.dtype)
    for at in np.ndindex(out.shape):
        x, y = a[at[:-1]].tolist(), b[(*at[:-2], at[-1])].tolist()
        far = [np.abs(u - v) for u, v in zip(x, y, strict=True)]
        if p == 0:
            out[at] = sum(d != 0 for d in far)
        else:
            out[at] = max(far) if p == float("inf") else sum(d**p for d in far) ** (1 / p)
    return out


CASES = {
    "dot": Cases(
        samples=_shapes(
            ((), ()),
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((2, 3), (3, 4)),
            ((2, 3), (2, 3, 2)),
            ((2,), ()),
            ((2, 0), (0, 3)),
        ),
        errors=lambda rng: [ErrorSample((np.ones((2, 3)), np.ones(2)), {}, ShapeError, "")],
        reference=lambda a, b: np.dot(a, b),
    ),
    "inner": Cases(
        samples=_shapes(
            ((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 3)), ((3,), (2, 2, 3)), ((2,), ())
        ),
        errors=lambda rng: [ErrorSample((np.ones((2, 3)), np.ones(2)), {}, ShapeError, "")],
        reference=lambda a, b: np.inner(a, b),
    ),
    "vdot": Cases(
        samples=_shapes(
            ((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 2), (4,)), ((0,), (0,)), ((1, 2), (2, 1))
        ),
        errors=lambda rng: [ErrorSample((np.ones((2, 3)), np.ones(2)), {}, ShapeError, "")],
        reference=lambda a, b: np.vdot(a, b),
    ),
    "kron": Cases(
        samples=_shapes(
            ((), ()),
            ((2,), (3,)),
            ((2, 3), (1, 2)),
            ((2, 1, 2), (2, 2)),
            ((2,), (2, 2)),
            ((0,), (2,)),
        ),
        errors=lambda rng: [ErrorSample(("text", np.ones(2)), {}, DTypeError, "str")],
        reference=lambda a, b: np.kron(a, b),
    ),
    "cdist": Cases(
        samples=_points,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones((2, 2))), {}, ShapeError, "coordinates"),
            ErrorSample((np.ones(3), np.ones((2, 3))), {}, ShapeError, "points"),
            ErrorSample((np.ones((1, 3)), np.ones((2, 3))), {"p": -1}, ArgumentError, "-1"),
        ],
        reference=_distances,
    ),
    "vander": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),), {"N": n, "increasing": increasing})
            for shape, n, increasing in (
                ((3,), None, False),
                ((3,), 4, True),
                ((2,), 1, False),
                ((2,), 0, True),
                ((4,), 2, True),
                ((0,), 3, False),
                ((2, 3), 2, True),
                ((2, 1, 2), None, False),
            )
        ],
        errors=lambda rng: [
            ErrorSample((np.ones(()),), {}, ShapeError, "no axis"),
            ErrorSample((np.ones(2),), {"N": -1}, ArgumentError, "-1 is not taken"),
        ],
        reference=lambda x, N, increasing: (
            x[..., None] ** np.arange(x.shape[-1] if N is None else N)[:: 1 if increasing else -1]
        ),
    ),
    "polyval": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, (n,)), make(rng, dtype, shape)))
            for n, shape in ((3, (2, 2)), (1, (3,)), (4, ()), (0, (2,)), (2, (0,)), (5, (2,)))
        ],
        errors=lambda rng: [ErrorSample((np.ones((2, 2)), 1.0), {}, ShapeError, "2 axes")],
        reference=lambda p, x: np.polyval(p, x),
    ),
}
