"""Cases of eagerflow/ops/linear_algebra/eigenvalues.py."""

import numpy as np

from eagerflow.errors import EagerflowError
from eagerflow.op import Missing
from tests.cases.linear_algebra.systems import square_errors, square_samples
from tests.cases.samples import Cases, ErrorSample, make


def _drawn(rng, dtype, shape):
    """Random matrices with eigenvalues about one apart; two of them form a pair."""
    kind = "complex128" if np.dtype(dtype).kind == "c" else "float64"
    a = make(rng, kind, shape, -0.2, 0.2) + np.diag(np.arange(shape[-1]) + 0.5)
    if shape[-1] > 2:
        a[..., 1, 0] -= 2.0
        a[..., 0, 1] += 2.0
    return a.astype(dtype)


def _samples(rng, dtype):
    return square_samples(rng, dtype, _drawn)


def _errors(rng):
    unknown = ErrorSample((np.full((2, 2), np.nan),), {}, EagerflowError, "did not converge")
    return [*square_errors(rng), unknown]


CASES = {
    "eig": Cases(
        samples=_samples,
        errors=_errors,
        reference=Missing("the vectors are checked by their product with the matrix"),
    ),
    "eigvals": Cases(
        samples=_samples,
        errors=_errors,
        reference=Missing("they are compared with those of the polynomial in the tests"),
    ),
}
