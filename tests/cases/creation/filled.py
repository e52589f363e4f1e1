"""Cases of eagerflow/ops/creation/filled.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, values


def _shape_errors(rng):
    return [
        ErrorSample((), {"shape": (2, -1)}, ShapeError, "negative"),
        ErrorSample((), {"shape": "ab"}, ShapeError, "is not a shape"),
        ErrorSample((), {"shape": (2**40, 2**40)}, ShapeError, "too large"),
        ErrorSample((), {"shape": (2,), "dtype": "object"}, DTypeError, "is not a dtype"),
    ]


def _constant(value):
    """The cases of an op that fills a shape with a number."""
    return Cases(
        lambda rng, dtype: [
            Sample((), {"shape": s, "dtype": dtype}) for s in ((), 3, (2, 3), (0, 2), (1, 1, 2))
        ],
        _shape_errors,
        lambda shape, dtype, device: np.full(shape, value, dtype),
    )


def _like(value):
    """The cases of an op that fills the shape of an array with a number."""
    return Cases(
        lambda rng, dtype: [Sample((x,)) for x in values(rng, dtype)],
        lambda rng: [ErrorSample((np.ones(2),), {"dtype": "words"}, DTypeError, "is not a dtype")],
        lambda x, dtype: np.array([value] * x.size, dtype or x.dtype).reshape(x.shape),
    )


CASES = {
    "zeros": _constant(0),
    "ones": _constant(1),
    "full": Cases(
        samples=lambda rng, dtype: [
            Sample((), {"shape": s, "fill_value": 1, "dtype": dtype}) for s in ((), 2, (2, 3), (0,))
        ],
        errors=lambda rng: [
            e._replace(attributes={**e.attributes, "fill_value": 1}) for e in _shape_errors(rng)
        ],
        reference=lambda shape, fill_value, dtype, device: np.zeros(shape, dtype) + dtype.type(1),
    ),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "eye": Cases(
        samples=lambda rng, dtype: [
            Sample((), {"n_rows": n, "n_cols": m, "k": k, "dtype": dtype})
            for n, m, k in ((3, None, 0), (2, 4, 1), (4, 2, -1), (0, 3, 0), (3, 3, 7))
        ],
        errors=lambda rng: [
            ErrorSample((), {"n_rows": -1}, ShapeError, "negative"),
            ErrorSample((), {"n_rows": 1.5}, ShapeError, "is not a size"),
            ErrorSample((), {"n_rows": 2, "dtype": "words"}, DTypeError, "is not a dtype"),
        ],
        reference=lambda n_rows, n_cols, k, dtype, device: (
            np.array(
                [
                    [c - r == k for c in range(n_rows if n_cols is None else n_cols)]
                    for r in range(n_rows)
                ]
            )
            .reshape(n_rows, n_rows if n_cols is None else n_cols)
            .astype(dtype)
        ),
    ),
}
