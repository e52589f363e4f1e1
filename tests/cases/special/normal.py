"""Cases of eagerflow/ops/special/normal.py."""

import math

from eagerflow.ops.special.normal import ROOT_HALF
from tests.cases.samples import Cases, each, pairs, reals


def _bisected(z):
    """The inverse of erfc by halving an interval."""
    low, high = -6.0, 27.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > z else (low, middle)
    return low


CASES = {
    "erfcx": Cases(samples=reals(-2, 4), reference=each(lambda x: math.exp(x * x) * math.erfc(x))),
    "erfcinv": Cases(samples=reals(0.1, 1.9), reference=each(_bisected)),
    "ndtr": Cases(samples=reals(-3, 3), reference=each(lambda x: math.erfc(-x * ROOT_HALF) / 2)),
    "ndtri": Cases(
        samples=reals(0.05, 0.95), reference=each(lambda x: -_bisected(2 * x) / ROOT_HALF)
    ),
    "log_ndtr": Cases(
        samples=reals(-4, 3), reference=each(lambda x: math.log(math.erfc(-x * ROOT_HALF) / 2))
    ),
    "entr": Cases(samples=reals(0.2, 4), reference=each(lambda x: -x * math.log(x))),
    "rel_entr": Cases(
        samples=pairs(0.2, 4), reference=each(lambda x, y: x * math.log1p((x - y) / y))
    ),
}
