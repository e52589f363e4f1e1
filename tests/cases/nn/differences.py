"""Cases of eagerflow/ops/nn/differences.py."""

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, each, pairs


def _apart(rng, dtype):
    """Samples with differences away from 0 and from 1."""
    return [*pairs(0.2, 0.9, -0.05, 0.1)(rng, dtype), *pairs(-1.6, -1.2, 0.1, 0.3)(rng, dtype)]


def _huber_of(a, b, delta):
    size = max(a - b, b - a)
    return size * size / 2 if size < delta else delta * (size - delta / 2)


CASES = {
    "squared_difference": Cases(reference=each(lambda a, b: (a - b) ** 2)),
    "absolute_difference": Cases(samples=_apart, reference=each(lambda a, b: max(a - b, b - a))),
    "huber_difference": Cases(
        samples=lambda rng, dtype: [
            s._replace(attributes=more)
            for s in _apart(rng, dtype)
            for more in ({}, {"delta": 0.15})
        ],
        errors=lambda rng: [
            ErrorSample((rng.random(3), 1.0), {"delta": "far"}, DTypeError, "is not a number")
        ],
        reference=each(_huber_of),
    ),
}
