"""Cases of eagerflow/ops/linear_algebra/matrix_functions.py."""

import numpy as np

from tests.cases.linear_algebra.systems import on_each, square_errors, square_samples
from tests.cases.samples import Cases, Sample, make


def _drawn(rng, dtype, shape):
    """Random matrices with eigenvalues around 2."""
    return (make(rng, dtype, shape, -0.7, 0.7) + 2 * np.eye(shape[-1])).astype(dtype)


def _samples(rng, dtype):
    found = square_samples(rng, dtype, _drawn)
    a = _drawn(rng, dtype, (3, 3))
    one_value = 2 * np.eye(3) + np.eye(3, k=1)
    almost = np.array([[2.0, 1.0], [1e-9, 2.0]])
    own = [(a + np.conj(a.T)) / 2, one_value, almost, np.eye(2), np.diag([1e3, 1.0])]
    return [*found, *(Sample((np.asarray(x).astype(dtype),)) for x in own)]


def _by_quadrature(integrand):
    """The trapezoidal rule in the logarithm of the variable, which converges exponentially."""

    def of_rows(rows):
        a = np.reshape(rows, (len(rows), len(rows)))
        eye, step = np.eye(len(rows)), 0.15
        return step * sum(integrand(a, eye, np.exp(u)) for u in np.arange(-45, 45, step))

    return on_each(of_rows)


CASES = {
    "sqrtm": Cases(
        _samples,
        square_errors,
        _by_quadrature(
            lambda a, eye, t: 2 / np.pi * t * a @ np.linalg.inv(t * t * eye + a),
        ),
    ),
    "logm": Cases(
        _samples,
        square_errors,
        _by_quadrature(
            lambda a, eye, t: t / (1 + t) * (a - eye) @ np.linalg.inv(t * eye + a),
        ),
    ),
}
