"""Cases of eagerflow/ops/special/harmonics.py."""

import cmath
import math
from fractions import Fraction

from eagerflow.errors import ArgumentError
from eagerflow.ops.special.harmonics import MOST
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, values


def _legendre_of_number(x, n, m, norm):
    """Rodrigues' formula: derivatives of the powers of (x² - 1)^n, with fractions."""
    size, exact = abs(m), Fraction(x)
    total = Fraction(0)
    for k in range(n + 1):
        left = 2 * k - n - size  # the power of x after n + size derivatives
        if left >= 0:
            term = math.comb(n, k) * (-1) ** (n - k) * math.perm(2 * k, n + size)
            total += term * exact**left
    value = float(total / (2**n * math.factorial(n))) * (1 - x * x) ** (size / 2)
    ratio = math.factorial(n - size) / math.factorial(n + size) if size <= n else 0
    value *= (-1) ** size if m > 0 else ratio
    if not norm:
        return value
    return value * math.sqrt((2 * n + 1) / 2 * (ratio if m > 0 else 1 / ratio if ratio else 0))


def _legendre_samples(rng, dtype):
    orders = ((0, 0), (3, 0), (2, 1), (4, -2), (3, 3), (1, 2), (5, -1))
    arrays = values(rng, dtype, -0.9, 0.9)[:7]
    return [
        Sample((x,), {"n": n, "m": m, "norm": i % 2 == 1})
        for i, ((n, m), x) in enumerate(zip(orders, arrays, strict=True))
    ]


def _refused(*data):
    return [
        ErrorSample(data, {"n": -1, "m": 0}, ArgumentError, "-1 is not taken"),
        ErrorSample(data, {"n": 1.5, "m": 0}, ArgumentError, "1.5 is not taken"),
        ErrorSample(data, {"n": 2, "m": "one"}, ArgumentError, "'one' is not taken"),
        ErrorSample(data, {"n": MOST + 1, "m": 0}, ArgumentError, "is not taken"),
    ]


def _harmonic_of_numbers(theta, phi, n, m):
    size = _legendre_of_number(math.cos(theta), n, m, True) / math.sqrt(2 * math.pi)
    return size * cmath.exp(1j * m * phi)


def _harmonic_samples(rng, dtype):
    cases = ((0, 0, (), ()), (2, 1, (3,), (3,)), (3, -2, (2, 1), (3,)), (4, 4, (3,), ()))
    cases += ((5, 0, (0, 2), (2,)), (2, -1, (2, 2), (2, 2)))
    return [
        Sample((make(rng, dtype, a, 0.2, 2.9), make(rng, dtype, b)), {"n": n, "m": m})
        for n, m, a, b in (*cases, (1, 2, (2,), (2,)))
    ]


CASES = {
    "assoc_legendre_p": Cases(
        samples=_legendre_samples,
        errors=lambda rng: [
            *_refused(rng.random(3)),
            ErrorSample((rng.random(3),), {"n": 500, "m": 500}, ArgumentError, "too large"),
        ],
        reference=each(_legendre_of_number),
    ),
    "sph_harm_y": Cases(
        samples=_harmonic_samples,
        errors=lambda rng: _refused(rng.random(3), rng.random(3)),
        reference=each(_harmonic_of_numbers),
    ),
}
