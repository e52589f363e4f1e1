"""Cases of eagerflow/ops/elementwise/powers.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, pairs, reals


def _bases_and_exponents(rng, dtype):
    kind = np.dtype(dtype).kind
    found = pairs(0, 3)(rng, dtype) if kind in "iu" else pairs(0.3, 2, -2, 2)(rng, dtype)
    x = make(rng, dtype, (2, 3), 0.5, 2)
    found += [Sample((x, 2)), Sample((x, 3)), Sample((2, x)), Sample((x, 0)), Sample((x, 1))]
    return found if kind in "iu" else [*found, Sample((x, -1.5)), Sample((x, 0.5))]


CASES = {
    "square": Cases(reference=each(lambda x: x * x)),
    "sqrt": Cases(reals(0.2, 4)),
    "rsqrt": Cases(samples=reals(0.2, 4), reference=each(lambda x: 1 / x**0.5)),
    "power": Cases(
        samples=_bases_and_exponents,
        errors=lambda rng: [
            ErrorSample((rng.integers(1, 5, 3), -1), {}, DTypeError, "negative power"),
            ErrorSample((2, np.array([1, -1])), {}, DTypeError, "negative power"),
            ErrorSample(("a string", rng.random(3)), {}, DTypeError, "str"),
            ErrorSample((rng.random(3), rng.random(2)), {}, ShapeError, "broadcast"),
        ],
    ),
    "hypot": Cases(samples=pairs(0.2, 3)),
}
