"""Cases of eagerflow/ops/special/incomplete_gamma.py."""

import math

from tests.cases.elementwise.special import digamma_of_number
from tests.cases.samples import PAIRS, Cases, Sample, each, make


def _samples(rng, dtype):
    # Shapes are numbers: second derivatives by them are not offered.
    found = [
        Sample((a, make(rng, dtype, shape, 0.2, 6)))
        for a, (shape, _) in zip((0.5, 1.5, 2.5, 4, 7.25, 0.75, 25.0, 3, 1, 2), PAIRS, strict=True)
    ]
    base = make(rng, dtype, (4, 6), 0.2, 6)
    return [*found, Sample((2.5, base[::2, ::-1])), Sample((30.0, base.T * 5))]


def _lower_of_numbers(a, x):
    """The power series, without its factor."""
    if x == 0:
        return 0.0
    term = total = 1.0
    for n in range(1, 200):
        term *= x / (a + n)
        total += term
    return total * math.exp(a * math.log(x) - x - math.lgamma(a + 1))


def _density_of_numbers(a, x):
    return math.exp((a - 1) * math.log(x) - x - math.lgamma(a))


def _sample_gradient_of_numbers(a, x):
    """The power series of gammainc(a, x), each term's derivative."""
    psi, terms = digamma_of_number(a + 1), []
    for n in range(200):
        power = math.exp((a + n) * math.log(x) - x - math.lgamma(a + n + 1))
        terms.append(power * (psi - math.log(x)))
        psi += 1 / (a + n + 1)
    return math.fsum(terms) / _density_of_numbers(a, x)


CASES = {
    "gammainc": Cases(samples=_samples, reference=each(_lower_of_numbers)),
    "gammaincc": Cases(samples=_samples, reference=each(lambda a, x: 1 - _lower_of_numbers(a, x))),
    "gamma_density": Cases(samples=_samples, reference=each(_density_of_numbers)),
    "gamma_sample_gradient": Cases(samples=_samples, reference=each(_sample_gradient_of_numbers)),
}
