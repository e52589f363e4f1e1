"""Cases of eagerflow/ops/special/incomplete_beta.py."""

import math

from tests.cases.elementwise.special import digamma_of_number
from tests.cases.samples import PAIRS, Cases, Sample, each, make


def _samples(low=0.5, numbers=True):
    """Parameters are ``numbers`` where second derivatives by them are not offered."""

    def samples(rng, dtype):
        found = []
        for shape, other in PAIRS:
            a, b = rng.uniform(low, 6, 2)
            given = (round(a, 2), round(b, 2))
            if not numbers:
                given = (make(rng, dtype, other, low, 6), make(rng, dtype, (), low, 6))
            found.append(Sample((*given, make(rng, dtype, shape, 0.05, 0.95))))
        base = make(rng, dtype, (4, 6), 0.05, 0.95)
        return [*found, Sample((2.5, 0.75, base[::2, ::-1])), Sample((30.0, 4, base.T))]

    return samples


def _log_density(a, b, x):
    start = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return start + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x)


def _of_numbers(a, b, x):
    """The power series of I_x(a, b) x^-a (1-x)^-b (DLMF 8.17.8), with positive terms."""
    term = total = 1.0
    for n in range(2000):
        term *= (a + b + n) / (a + 1 + n) * x
        total += term
    return math.exp(_log_density(a, b, x)) * x * (1 - x) / a * total


def _slope_of_numbers(a, b, x, second):
    """The power series of the function, each term's derivative."""
    psi = digamma_of_number
    by = math.log1p(-x) - psi(b) if second else math.log(x) - psi(a) - 1 / a
    term, by = 1.0, by + psi(a + b)
    total = by
    for n in range(2000):
        term *= (a + b + n) / (a + 1 + n) * x
        by += 1 / (a + b + n) - (0 if second else 1 / (a + 1 + n))
        total += term * by
    return math.exp(_log_density(a, b, x)) * x * (1 - x) / a * total


def _slope_samples(rng, dtype):
    return [
        sample._replace(attributes={"second": second})
        for second in (False, True)
        for sample in _samples()(rng, dtype)
    ]


CASES = {
    "betainc": Cases(samples=_samples(), reference=each(_of_numbers)),
    "beta_density": Cases(
        samples=_samples(1.2, numbers=False),
        reference=each(lambda a, b, x: math.exp(_log_density(a, b, x))),
    ),
    "betainc_slope": Cases(samples=_slope_samples, reference=each(_slope_of_numbers)),
}
