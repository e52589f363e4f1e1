"""Cases of eagerflow/ops/linear_algebra/exponentials.py."""

import numpy as np

from tests.cases.linear_algebra.systems import on_each, square_errors, square_samples
from tests.cases.samples import Cases


def _series(rows):
    """Taylor's series of a small part of the matrix, squared."""
    a = np.reshape(rows, (len(rows), len(rows))) / 1024
    term = total = np.eye(len(rows))
    for k in range(1, 20):
        term = term @ a / k
        total = total + term
    for _ in range(10):
        total = total @ total
    return total


CASES = {
    "expm": Cases(square_samples, square_errors, on_each(_series)),
}
