"""Special functions against mpmath with 40 digits, all over their domains.

A bound is relative, in units of 1e-15. Of functions that vary fast it is a share of how much a
relative change of an argument by 1e-15 changes the value, where that is more; of those that have
zeros, of the size of what they are differences of.
"""

import math

import mpmath
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.op import ops
from eagerflow.ops.special.incomplete_gamma import gamma_density, gamma_sample_gradient

POINTS = 60
UNIT = 1e-15


def uniform(low, high):
    return lambda rng, n: rng.uniform(low, high, n)


def powers(low, high, sign=1):
    return lambda rng, n: sign * 10.0 ** rng.uniform(low, high, n)


def both(*parts):
    return lambda rng, n: np.concatenate([part(rng, n // len(parts)) for part in parts])


def erfcinv(z):
    y = mpmath.mpf(math.sqrt(-math.log(z)) if z < 0.1 else 1 - z)
    for _ in range(12):  # Newton's steps on the logarithm
        newton = mpmath.log(mpmath.erfc(y) / z) * mpmath.erfc(y) * mpmath.exp(y * y)
        y += newton * mpmath.sqrt(mpmath.pi) / 2
    return y


def amplitude(order):
    """Of the wave that J and Y are; where there is none yet, the function itself counts."""

    def size(x):
        j, y = mpmath.besselj(order, x), mpmath.bessely(order, x)
        return mpmath.sqrt(j * j + y * y)

    return size


def wave(order):
    return lambda x: amplitude(order)(x) if x > 1 else 0


mp = mpmath
# name: domain, reference, bound in units, and the size that the error is relative to, if not 1.
CASES = {
    "gamma": (both(uniform(0, 30), uniform(30, 171.6), powers(-300, 0)), mp.gamma, 4, None),
    "gamma of negatives": (both(uniform(-30, 0), powers(-300, 0, -1)), mp.gamma, 60, None),
    "erfcx": (both(uniform(-26, 5), powers(-3, 3)), lambda x: mp.exp(x * x) * mp.erfc(x), 1, None),
    "erfcinv": (both(powers(-300, -1), uniform(0.01, 1.9)), erfcinv, 1, None),
    "ndtr": (both(uniform(-37, 9), uniform(-2, 2)), mp.ncdf, 1, None),
    "ndtri": (both(powers(-300, -1), uniform(0.01, 0.45)), lambda p: -mp.sqrt(2) * erfcinv(2 * p),
              1, None),
    "log_ndtr": (both(uniform(-100, 9), uniform(-2, 2)),
                 lambda x: mp.log(mp.ncdf(x)) if x < 0 else mp.log1p(-mp.ncdf(-x)), 1, None),
    "i0": (both(uniform(-20, 20), uniform(20, 700)), lambda x: mp.besseli(0, x), 2, None),
    "i1": (both(uniform(-20, 20), uniform(20, 700)), lambda x: mp.besseli(1, x), 2, None),
    "i0e": (powers(-8, 6), lambda x: mp.exp(-x) * mp.besseli(0, x), 1, None),
    "i1e": (powers(-8, 6), lambda x: mp.exp(-x) * mp.besseli(1, x), 1, None),
    "k0": (powers(-300, 2.8), lambda x: mp.besselk(0, x), 1, None),
    "k1": (powers(-300, 2.8), lambda x: mp.besselk(1, x), 1, None),
    "k0e": (powers(-8, 6), lambda x: mp.exp(x) * mp.besselk(0, x), 1, None),
    "k1e": (powers(-8, 6), lambda x: mp.exp(x) * mp.besselk(1, x), 1, None),
    "j0": (both(uniform(0, 30), powers(-9, 5)), lambda x: mp.besselj(0, x), 1.4, wave(0)),
    "j1": (both(uniform(0, 30), powers(-9, 5)), lambda x: mp.besselj(1, x), 1.4, wave(1)),
    "y0": (both(uniform(0, 30), powers(-9, 5)), lambda x: mp.bessely(0, x), 1.4, amplitude(0)),
    "y1": (both(uniform(0, 30), powers(-9, 5)), lambda x: mp.bessely(1, x), 1.4, amplitude(1)),
    "exp1": (both(uniform(0, 5), powers(-9, 2.8)), mp.e1, 7, None),
    "expi": (both(uniform(0.5, 60), powers(-9, -1), uniform(-30, 0)), mp.ei, 5, None),
    "zeta": (both(uniform(1.001, 20), uniform(-20, 0.99)), mp.zeta, 12, None),
}  # fmt: skip


def points(name, domain, soak):
    rng = np.random.default_rng([len(name), ord(name[-1]), 7])
    return domain(rng, POINTS * (20 if soak else 1))


def check(name, call, columns, reference, units, size=None):
    found = call(*map(ef.tensor, columns)).numpy()
    with mpmath.workdps(40):
        for y, *xs in zip(found.tolist(), *(c.tolist() for c in columns), strict=True):
            given = [mpmath.mpf(x) for x in xs]
            wanted = reference(*given)
            if not 1e-300 < abs(wanted) < 1.7e308:
                continue
            scale = max(abs(wanted), size(*given)) if size else abs(wanted)
            error = float(abs(y - wanted) / scale) / UNIT
            assert error <= units, f"{name}{tuple(xs)}: {y} is off by {error:.1f} units"


def variants(cases):
    marks = {False: [], True: [pytest.mark.soak]}
    return [pytest.param(name, soak, marks=m) for name in cases for soak, m in marks.items()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "soak"), variants(CASES))
def test_one_argument(name, soak):
    domain, reference, units, size = CASES[name]
    call = getattr(ef, name.split()[0])
    check(name, call, [points(name, domain, soak)], reference, units, size)


def near_shape(rng, n):
    a = 10.0 ** rng.uniform(0, 2.3, n)
    return a, np.abs(a + np.sqrt(a) * rng.uniform(-5, 5, n))


def far_from_shape(rng, n):
    a = 10.0 ** rng.uniform(-6, 2.3, n)
    return a, a * 10.0 ** rng.uniform(-2, 1.5, n)


def small_shape(rng, n):
    return 10.0 ** rng.uniform(-12, 0, n), 10.0 ** rng.uniform(-8, 1, n)


def tail(a, x):
    """How much a relative change of the arguments changes the tails of large shapes."""
    return 1 + abs(x - a) / 2 if a > 20 else 1


def lower(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a, x):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def density(a, x):
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


def sample_gradient(a, x):
    h, part = mpmath.mpf(10) ** -12, lower if x < a + 1 else upper
    slope = (part(a + h, x) - part(a - h, x)) / (2 * h)
    return (slope if part is upper else -slope) / density(a, x)


GAMMA = {
    "gammainc": (ef.gammainc, lower, 16),
    "gammaincc": (ef.gammaincc, upper, 18),
    "density": (gamma_density, density, 16),
    "sample_gradient": (gamma_sample_gradient, sample_gradient, 10),
}


@pytest.mark.parametrize("domain", [near_shape, far_from_shape, small_shape])
@pytest.mark.parametrize(("name", "soak"), variants(GAMMA))
def test_incomplete_gamma(name, soak, domain):
    call, reference, units = GAMMA[name]
    columns = points(domain.__name__, domain, soak)
    if name == "sample_gradient":
        columns = [c[: 400 if soak else 16] for c in columns]
        units *= 3

    def size(a, x):
        return abs(reference(a, x)) * tail(a, x)

    check(name, call, columns, reference, units, size)


@pytest.mark.parametrize("a", [1e4, 1e7, 1e11])
def test_gammainc_of_large_shapes_follows_the_normal_distribution(a):
    t = np.linspace(-4, 4, 41)
    x = a + t * math.sqrt(a)
    t = (x - a) / math.sqrt(a)
    # Two terms of Edgeworth's expansion.
    first = (1 - t * t) / (3 * math.sqrt(a))
    second = -(t**5 / 18 - 11 * t**3 / 36 + t / 12) / a
    phi = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    expected = ef.ndtr(ef.tensor(t)).numpy() + phi * (first + second)
    found = ef.gammainc(a, ef.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=max(60 * a**-1.5, 1e-15))


def parameters(rng, n):
    a, b = 10.0 ** rng.uniform(-3, 2, (2, n))
    return a, b, rng.uniform(0, 1, n)


def large_parameters(rng, n):
    a, b = 10.0 ** rng.uniform(1, 3, (2, n))
    spread = np.sqrt(a * b / (a + b) ** 3)
    return a, b, np.clip(a / (a + b) + rng.uniform(-4, 4, n) * spread, 1e-3, 1 - 1e-3)


def apart(a, b, x):
    """How much a relative change of the arguments changes the values far from the mean."""
    return abs(a - (a + b) * x) / (1 - x)


@pytest.mark.parametrize("domain", [parameters, large_parameters])
@pytest.mark.parametrize(("name", "soak"), variants(["betainc"]))
def test_betainc(name, soak, domain):
    def reference(a, b, x):
        return mpmath.betainc(a, b, 0, x, regularized=True)

    def size(a, b, x):
        return reference(a, b, x) * (1 + apart(a, b, x))

    columns = points(domain.__name__, domain, soak)
    columns = [c[: 600 if soak else 30] for c in columns]
    check(name, ef.betainc, columns, reference, 20, size)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("name", "soak"), variants(["betainc"]))
def test_slopes_of_betainc(name, soak, second):
    def reference(*given):
        with mpmath.workdps(140):  # next to 1 mpmath loses as many digits as the function is close
            step = mpmath.mpf(10) ** -20 * given[second]
            sides = []
            for moved in (given[second] + step, given[second] - step):
                a, b = (given[0], moved) if second else (moved, given[1])
                sides.append(mpmath.betainc(a, b, 0, given[2], regularized=True))
            return (sides[0] - sides[1]) / (2 * step)

    def size(a, b, x):
        return abs(reference(a, b, x)) * (1 + apart(a, b, x))

    for domain, units in ((parameters, 60), (large_parameters, 400)):
        columns = points(f"{domain.__name__} by {second}", domain, soak)
        columns = [c[: 300 if soak else 12] for c in columns]
        call = lambda a, b, x: ops["betainc_slope"].call(a, b, x, second=second)
        check(name, call, columns, reference, units, size)


@pytest.mark.parametrize(("name", "soak"), variants(["beta", "betaln"]))
def test_beta(name, soak):
    rng = np.random.default_rng(3)
    columns = 10.0 ** rng.uniform(-8, 2.3, (2, POINTS * (20 if soak else 1)))

    def logarithm(a, b):
        return mpmath.log(mpmath.beta(a, b))

    def error(a, b):
        return 1 + abs(logarithm(a, b))

    if name == "beta":
        check(name, ef.beta, columns, mpmath.beta, 4, lambda a, b: mpmath.beta(a, b) * error(a, b))
    else:
        check(name, ef.betaln, columns, logarithm, 4, error)


@pytest.mark.parametrize(("name", "soak"), variants(["zeta"]))
def test_hurwitz_zeta(name, soak):
    rng = np.random.default_rng(4)
    count = POINTS * (20 if soak else 1)
    s, q = 1 + 10.0 ** rng.uniform(-6, 1, count), 10.0 ** rng.uniform(-3, 2, count)
    check(name, ef.zeta, (s, q), mpmath.zeta, 8)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
def test_spherical_bessel(n):
    rng = np.random.default_rng(n)
    x = np.concatenate([rng.uniform(0.1, 2 * n + 5, 40), 10.0 ** rng.uniform(-2, 4, 20)])

    def reference(x):
        return mpmath.sqrt(mpmath.pi / (2 * x)) * mpmath.besselj(n + mpmath.mpf(1) / 2, x)

    call = lambda x: ef.spherical_jn(x, n)
    check(f"spherical_jn {n} ", call, [x], reference, 4, lambda x: 1 / x if x > n + 1 else 0)


POLYNOMIALS = [
    ("eval_legendre", (), mpmath.legendre),
    ("eval_chebyt", (), mpmath.chebyt),
    ("eval_chebyu", (), mpmath.chebyu),
    ("eval_hermite", (), mpmath.hermite),
    ("eval_laguerre", (), lambda n, x: mpmath.laguerre(n, 0, x)),
    *(
        ("eval_jacobi", given, lambda n, x, given=given: mpmath.jacobi(n, *given, x))
        for given in [(0.0, 0.0), (2.5, -0.75), (-0.5, -0.5), (0.5, 30.0)]
    ),
]


@pytest.mark.parametrize(("name", "more", "polynomial"), POLYNOMIALS)
@pytest.mark.parametrize("n", [3, 30])
def test_polynomials(name, more, polynomial, n):
    x = np.linspace(-0.99, 0.99, 24)
    reference = lambda x: polynomial(n, x)
    with mpmath.workdps(40):
        top = max(abs(reference(mpmath.mpf(v))) for v in x.tolist())
    call = lambda x: getattr(ef, name)(x, n, *more)
    check(name, call, [x], reference, 4 * n, lambda x: top)


def legendre_by_recurrence(n, m, x):
    """The associated function of order m >= 0, from that of degree m upward (DLMF 14.10.3)."""
    before, last = mpmath.mpf(0), (-1) ** m * mpmath.fac2(2 * m - 1) * mpmath.sqrt(1 - x * x) ** m
    for k in range(m + 1, n + 1):
        before, last = last, (x * (2 * k - 1) * last - (k + m - 1) * before) / (k - m)
    return last


@pytest.mark.parametrize(("n", "m"), [(1, 0), (5, 2), (40, 39), (60, 7), (700, 250), (700, 0)])
def test_associated_legendre_functions(n, m):
    x = np.concatenate([np.random.default_rng(n + m).uniform(-1, 1, 10), [0.0, 1.0, -1 + 1e-12]])

    def reference(x):
        scale = (2 * n + 1) * mpmath.factorial(n - m) / (2 * mpmath.factorial(n + m))
        return mpmath.sqrt(scale) * legendre_by_recurrence(n, m, x)

    call = lambda x: ef.assoc_legendre_p(x, n, m, norm=True)
    check("assoc_legendre_p", call, [x], reference, 2 * (n + 1), lambda x: 1)


def test_gradients_by_the_shape_are_those_of_mpmath():
    a, x = np.array([0.4, 2.5, 30.0, 6.0]), np.array([0.3, 4.0, 31.0, 30.0])
    for call, sign in ((ef.gammainc, -1), (ef.gammaincc, 1)):
        found = ef.grad(lambda s, call=call: call(s, ef.tensor(x)).sum())(ef.tensor(a))
        with mpmath.workdps(40):
            given = [
                tuple(map(mpmath.mpf, pair)) for pair in zip(a.tolist(), x.tolist(), strict=True)
            ]
            expected = [float(sign * sample_gradient(*p) * density(*p)) for p in given]
        np.testing.assert_allclose(found, expected, rtol=1e-13)
