"""Cases of eagerflow/ops/elementwise/comparison.py."""

import math

import numpy as np

from tests.cases.samples import Cases, Sample, each, make, pairs, values


def _with_ties(rng, dtype):
    found = pairs()(rng, dtype)
    x = make(rng, dtype, (3, 4))
    return [*found, Sample((x, np.where(x > 0, x, make(rng, dtype, (4,)))))]


def _with_special(rng, dtype):
    found = [Sample((x,)) for x in values(rng, dtype)]
    if np.dtype(dtype).kind in "fc":
        special = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0])
        found.append(Sample((special.astype(dtype),)))
    return found


CASES = {
    "equal": Cases(samples=_with_ties),
    "not_equal": Cases(samples=_with_ties),
    "less": Cases(samples=_with_ties),
    "less_equal": Cases(samples=_with_ties),
    "greater": Cases(samples=_with_ties),
    "greater_equal": Cases(samples=_with_ties),
    "logical_and": Cases(reference=each(lambda a, b: bool(a) and bool(b))),
    "logical_or": Cases(reference=each(lambda a, b: bool(a) or bool(b))),
    "logical_xor": Cases(reference=each(lambda a, b: bool(a) is not bool(b))),
    "logical_not": Cases(samples=_with_special, reference=each(lambda x: not x)),
    "isfinite": Cases(samples=_with_special),
    "isinf": Cases(samples=_with_special),
    "isnan": Cases(samples=_with_special),
}
