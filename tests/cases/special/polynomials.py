"""Cases of eagerflow/ops/special/polynomials.py."""

import math
from fractions import Fraction

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, values
from tests.cases.special.family import order_errors


def _samples(low, high, **more):
    def samples(rng, dtype):
        arrays = values(rng, dtype, low, high)[:7]
        return [Sample((x,), {"n": n} | more) for n in (0, 1, 2, 5) for x in arrays]

    return samples


def _errors(rng):
    refused = [
        ErrorSample((rng.random(3),), {"n": 2, "alpha": alpha}, DTypeError, "is not a parameter")
        for alpha in (-1.5, "one")
    ]
    return [*order_errors(rng), *refused]


def _by_coefficients(row):
    """A reference: powers of x as fractions, with the coefficients ``row(n, **attributes)``."""

    def of_number(x, n, **attributes):
        given = {name: Fraction(value) for name, value in attributes.items()}
        return float(sum(c * Fraction(x) ** k for k, c in row(n, **given)))

    return each(of_number)


def _chebyshev_row(n):
    if n == 0:
        return [(0, 1)]
    return [
        (
            n - 2 * k,
            Fraction(n * (-1) ** k * math.factorial(n - k - 1) * 2 ** (n - 2 * k))
            / (2 * math.factorial(k) * math.factorial(n - 2 * k)),
        )
        for k in range(n // 2 + 1)
    ]


def _rising(a, count):
    return math.prod((a + i for i in range(count)), start=Fraction(1))


def _gegenbauer_row(n, alpha):
    return [
        (
            n - 2 * k,
            (-1) ** k
            * _rising(alpha, n - k)
            * 2 ** (n - 2 * k)
            / (math.factorial(k) * math.factorial(n - 2 * k)),
        )
        for k in range(n // 2 + 1)
    ]


def _hermite_row(n, base=2):
    return [
        (
            n - 2 * k,
            Fraction((-1) ** k * math.factorial(n) * base ** (n - 2 * k))
            / (math.factorial(k) * math.factorial(n - 2 * k) * (1 if base == 2 else 2**k)),
        )
        for k in range(n // 2 + 1)
    ]


def _laguerre_row(n, alpha):
    return [
        (
            k,
            (-1) ** k * _rising(alpha + k + 1, n - k) / (math.factorial(n - k) * math.factorial(k)),
        )
        for k in range(n + 1)
    ]


def _jacobi_of_number(x, n, alpha, beta):
    """Powers of x - 1 times powers of x + 1, as fractions (DLMF 18.5.8)."""
    a, b, half = Fraction(alpha), Fraction(beta), Fraction(x) / 2
    terms = (
        _rising(a + k + 1, n - k)
        * _rising(b + n - k + 1, k)
        * (half - Fraction(1, 2)) ** k
        * (half + Fraction(1, 2)) ** (n - k)
        / (math.factorial(k) * math.factorial(n - k))
        for k in range(n + 1)
    )
    return float(sum(terms))


def _of_rows(low, high, row, **parameters):
    """The cases of a polynomial with the coefficients of ``row``, between two numbers."""
    errors = _errors if parameters else order_errors
    return Cases(_samples(low, high, **parameters), errors, _by_coefficients(row))


CASES = {
    "eval_chebyt": _of_rows(-1.2, 1.2, _chebyshev_row),
    "eval_gegenbauer": _of_rows(-1.2, 1.2, _gegenbauer_row, alpha=0.75),
    "eval_hermite": _of_rows(-2, 2, _hermite_row),
    "eval_hermitenorm": _of_rows(-2, 2, lambda n: _hermite_row(n, 1)),
    "eval_jacobi": Cases(
        samples=_samples(-1.2, 1.2, alpha=0.75, beta=-0.25),
        errors=lambda rng: [
            *order_errors(rng, alpha=0.5, beta=0.5),
            ErrorSample(
                (rng.random(3),),
                {"n": 2, "alpha": -1.5, "beta": 0.5},
                DTypeError,
                "not a parameter",
            ),
            ErrorSample(
                (rng.random(3),),
                {"n": 2, "alpha": 0.5, "beta": "one"},
                DTypeError,
                "not a parameter",
            ),
        ],
        reference=each(_jacobi_of_number),
    ),
    "eval_genlaguerre": _of_rows(-1, 4, _laguerre_row, alpha=0.75),
    "eval_legendre": _of_rows(-1.2, 1.2, lambda n: _gegenbauer_row(n, Fraction(1, 2))),
    "eval_chebyu": _of_rows(-1.2, 1.2, lambda n: _gegenbauer_row(n, Fraction(1))),
    "eval_laguerre": _of_rows(-1, 4, lambda n: _laguerre_row(n, Fraction(0))),
}
