"""Cases of eagerflow/ops/elementwise/divisors.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, each, pairs


def _off_steps(rng, dtype):
    """Quotients that stay between the same integers, with their neighbourhood."""
    if np.dtype(dtype).kind in "iu":
        return pairs(-9, 9, 1, 3)(rng, dtype)
    return pairs(-2.9, -2.1, 1.6, 1.9)(rng, dtype)


def _errors(rng):
    return [
        ErrorSample((np.ones(4, int), np.ones((2, 3), int)), {}, ShapeError, "broadcast"),
        ErrorSample((np.ones(4), np.ones(4, int)), {}, DTypeError, "float64 is not taken"),
    ]


CASES = {
    "fmod": Cases(samples=_off_steps, reference=each(lambda a, b: type(a)(math.fmod(a, b)))),
    "gcd": Cases(pairs(-12, 12), _errors, each(math.gcd)),
    "lcm": Cases(pairs(-12, 12), _errors, each(math.lcm)),
}
