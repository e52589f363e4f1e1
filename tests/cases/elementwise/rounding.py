"""Cases of eagerflow/ops/elementwise/rounding.py."""

import math

import numpy as np

from tests.cases.samples import Cases, each, reals


def _off_steps(rng, dtype):
    """Values that stay on one side of every step, with their neighbourhood."""
    whole = np.dtype(dtype).kind in "iu"
    return reals(-9, 9)(rng, dtype) if whole else reals(1.1, 1.4)(rng, dtype)


def _even(x):
    low = math.floor(x)
    up = x - low > 0.5 or (x - low == 0.5 and low % 2 == 1)
    return low + 1 if up else low


CASES = {
    "floor": Cases(_off_steps),
    "ceil": Cases(_off_steps),
    "trunc": Cases(_off_steps),
    "round": Cases(
        _off_steps,
        reference=each(
            lambda x: complex(_even(x.real), _even(x.imag)) if x.imag else _even(x.real)
        ),
    ),
}
