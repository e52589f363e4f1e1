"""Cases of eagerflow/ops/special/bessel.py."""

import math

from tests.cases.samples import Cases, Sample, each, reals, values
from tests.cases.special.family import order_errors

_STEPS = 96


def _j_of_number(n, x):
    angles = [2 * math.pi * k / _STEPS for k in range(_STEPS)]
    return math.fsum(math.cos(n * t - x * math.sin(t)) for t in angles) / _STEPS


def _y_of_number(n, x):
    log = math.log(x / 2) + 0.5772156649015329
    if n:  # its derivative, with the other sign
        parts = [
            (-1) ** k / k * (_j_of_number(2 * k - 1, x) - _j_of_number(2 * k + 1, x))
            for k in range(1, 24)
        ]
        near = log * _j_of_number(1, x) - _j_of_number(0, x) / x
        return 2 / math.pi * (near + math.fsum(parts))
    parts = [(-1) ** k / k * _j_of_number(2 * k, x) for k in range(1, 24)]
    return (2 * log * _j_of_number(0, x) - 4 * math.fsum(parts)) / math.pi


def _i_of_number(n, x):
    angles = [2 * math.pi * k / _STEPS for k in range(_STEPS)]
    return math.fsum(math.exp(x * math.cos(t)) * math.cos(n * t) for t in angles) / _STEPS


def _k_of_number(n, x):
    h = 1 / 32
    places = [h * k for k in range(1, 256)]
    waves = [math.exp(-x * math.cosh(t)) * math.cosh(n * t) for t in places]
    return h * (math.exp(-x) / 2 + math.fsum(waves))


def _spherical_of_number(x, n):
    """By the power series."""
    term = math.prod(x / (2 * k + 1) for k in range(1, n + 1))
    terms = [term]
    for k in range(1, 60):
        term *= -x * x / 2 / (k * (2 * n + 2 * k + 1))
        terms.append(term)
    return math.fsum(terms)


def _spherical_samples(rng, dtype):
    return [Sample((x,), {"n": n}) for n in (0, 1, 4) for x in values(rng, dtype, -6, 6)[:6]]


CASES = {
    "j0": Cases(samples=reals(-12, 12), reference=each(lambda x: _j_of_number(0, x))),
    "j1": Cases(samples=reals(-12, 12), reference=each(lambda x: _j_of_number(1, x))),
    "y0": Cases(samples=reals(0.5, 14), reference=each(lambda x: _y_of_number(0, x))),
    "y1": Cases(samples=reals(0.5, 14), reference=each(lambda x: _y_of_number(1, x))),
    "i0": Cases(samples=reals(-4, 4), reference=each(lambda x: _i_of_number(0, x))),
    "i1": Cases(samples=reals(-4, 4), reference=each(lambda x: _i_of_number(1, x))),
    "i0e": Cases(
        samples=reals(-4, 4), reference=each(lambda x: math.exp(-abs(x)) * _i_of_number(0, x))
    ),
    "i1e": Cases(
        samples=reals(-4, 4), reference=each(lambda x: math.exp(-abs(x)) * _i_of_number(1, x))
    ),
    "k0": Cases(samples=reals(0.3, 6), reference=each(lambda x: _k_of_number(0, x))),
    "k1": Cases(samples=reals(0.3, 6), reference=each(lambda x: _k_of_number(1, x))),
    "k0e": Cases(samples=reals(0.3, 6), reference=each(lambda x: math.exp(x) * _k_of_number(0, x))),
    "k1e": Cases(samples=reals(0.3, 6), reference=each(lambda x: math.exp(x) * _k_of_number(1, x))),
    "spherical_jn": Cases(
        samples=_spherical_samples, errors=order_errors, reference=each(_spherical_of_number)
    ),
}
