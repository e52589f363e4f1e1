"""Cases of eagerflow/ops/elementwise/arithmetic.py."""

import math

import numpy as np

from tests.cases.samples import Cases, each, pairs, reals


def _off_steps(rng, dtype):
    """Quotients that stay between the same integers, with their neighbourhood."""
    if np.dtype(dtype).kind in "iu":
        return pairs(-9, 9, 1, 3)(rng, dtype)
    return pairs(2.1, 2.9, 1.6, 1.9)(rng, dtype)


def _neighbour(a, b):
    # Neighbours of a float are neighbours as integers, once the negatives are mirrored.
    whole = np.dtype(f"i{a.dtype.itemsize}")
    least = np.iinfo(whole).min

    def mirrored(bits):
        return np.where(bits < 0, least - bits, bits)

    start, end = (mirrored(np.ascontiguousarray(v).view(whole)) for v in (a, b))
    moved = mirrored(start + np.sign(end - start).astype(whole) * (a != b))
    return np.where(a == b, b, moved.view(a.dtype)).reshape(a.shape)


CASES = {
    "add": Cases(reference=each(lambda a, b: a or b if isinstance(a, bool) else a + b)),
    "subtract": Cases(),
    "multiply": Cases(),
    "multiply_no_nan": Cases(reference=each(lambda a, b: 0 if a == 0 or b == 0 else a * b)),
    "negative": Cases(),
    "positive": Cases(),
    "divide": Cases(samples=pairs(-2, 2, 0.5, 3)),
    "floor_divide": Cases(samples=_off_steps),
    "remainder": Cases(samples=_off_steps),
    "reciprocal": Cases(samples=reals(0.5, 3), reference=each(lambda x: 1 / x)),
    "abs": Cases(samples=reals(0.2, 3)),
    "sign": Cases(
        samples=reals(0.2, 3),
        reference=each(lambda x: x / (x * x.conjugate()).real ** 0.5 if x else x),
    ),
    "copysign": Cases(samples=pairs(0.2, 3, -3, -0.2)),
    "nextafter": Cases(reference=lambda x1, x2: _neighbour(*np.broadcast_arrays(x1, x2))),
    "signbit": Cases(reference=each(lambda x: math.copysign(1, x) < 0)),
}
