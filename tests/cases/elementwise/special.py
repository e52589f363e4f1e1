"""Cases of eagerflow/ops/elementwise/special.py."""

import math

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, reals, values


def _bisected(x):
    """The inverse of erf by halving an interval."""
    low, high = -6.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return low


def digamma_of_number(x):
    """The recurrence up to 200, then three terms of the asymptotic series."""
    total = math.fsum(-1 / (x + k) for k in range(200))
    x += 200
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)


def _polygamma_of_number(x, n):
    if n == 0:
        return digamma_of_number(x)
    s, end = n + 1, x + 2000
    total = math.fsum((x + k) ** -s for k in range(2000))
    total += end**-n / n + end**-s / 2 + s * end ** -(s + 1) / 12
    return (-1) ** s * math.factorial(n) * total


CASES = {
    "erf": Cases(samples=reals(-3, 3)),
    "erfc": Cases(samples=reals(-3, 3)),
    "erfinv": Cases(samples=reals(-0.9, 0.9), reference=each(_bisected)),
    "lgamma": Cases(samples=reals(0.2, 12)),
    "digamma": Cases(samples=reals(1.8, 12), reference=each(digamma_of_number)),
    "polygamma": Cases(
        samples=lambda rng, dtype: [
            Sample((x,), {"n": n}) for n in (0, 1, 3) for x in values(rng, dtype, 1.8, 9)[:6]
        ],
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {"n": -1}, DTypeError, "order of derivatives"),
            ErrorSample((rng.random(3),), {"n": 1.5}, DTypeError, "order of derivatives"),
        ],
        reference=each(_polygamma_of_number),
    ),
}
