"""Cases of eagerflow/ops/special/integrals.py."""

import math

from tests.cases.samples import PAIRS, Cases, Sample, each, make, reals


def _ei_of_number(x):
    """By the power series."""
    term, terms = 1.0, [0.5772156649015329, math.log(abs(x))]
    for k in range(1, 120):
        term *= x / k
        terms.append(term / k)
    return math.fsum(terms)


def _zeta_of_numbers(s, q=1.0):
    """The sum of 2000 terms, and of the rest by Euler-Maclaurin summation."""
    end = q + 2000
    total = math.fsum((q + k) ** -s for k in range(2000))
    return total + end ** (1 - s) / (s - 1) + end**-s / 2 + s * end ** -(s + 1) / 12


def _zeta_samples(rng, dtype):
    found = []
    for s, (shape, _) in zip((2, 1.5, 3, 4.5, 7, 2, 2.5, 3.5, 5, 9), PAIRS, strict=True):
        found.append(Sample((s, make(rng, dtype, shape, 0.5, 6))))
    base = make(rng, dtype, (4, 6), 0.5, 6)
    return [*found, Sample((2.0, base[::2, ::-1])), Sample((3.0, base.T))]


CASES = {
    "exp1": Cases(samples=reals(0.2, 5), reference=each(lambda x: -_ei_of_number(-x))),
    "expi": Cases(samples=reals(0.5, 6), reference=each(_ei_of_number)),
    "hurwitz_zeta": Cases(samples=_zeta_samples, reference=each(_zeta_of_numbers)),
    "riemann_zeta": Cases(samples=reals(1.2, 9), reference=each(_zeta_of_numbers)),
    "zeta": Cases(samples=_zeta_samples, reference=each(_zeta_of_numbers)),
}
