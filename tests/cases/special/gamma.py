"""Cases of eagerflow/ops/special/gamma.py."""

import math

from tests.cases.samples import Cases, each, pairs, reals


def _betaln_of_numbers(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


CASES = {
    "gamma": Cases(samples=reals(0.3, 8), reference=each(math.gamma)),
    "beta": Cases(
        samples=pairs(0.3, 5, 0.3, 14),
        reference=each(lambda a, b: math.exp(_betaln_of_numbers(a, b))),
    ),
    "betaln": Cases(samples=pairs(0.3, 5, 0.3, 14), reference=each(_betaln_of_numbers)),
}
