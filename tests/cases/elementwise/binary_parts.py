"""Cases of eagerflow/ops/elementwise/binary_parts.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, reals, values


def _scaled_samples(rng, dtype):
    def powers(*shape):
        return rng.integers(-3, 4, shape).astype("int32")

    x = make(rng, dtype, (2, 3))
    found = [
        Sample((make(rng, dtype, a), powers(*b)))
        for a, b in (
            *(((), ()), ((3,), ()), ((), (2,)), ((2, 1), (3,))),
            ((0, 3), (3,)),
            ((4,), (4,)),
            ((1, 2), (3, 1)),
            ((5,), (1,)),
            ((2, 2), (2, 2)),
        )
    ]
    return [*found, Sample((x.T, powers(3, 2))), Sample((x, 2)), Sample((x[:, ::-1], powers(3)))]


def _parts_samples(rng, dtype):
    found = [Sample((x,)) for x in values(rng, dtype, 1.1, 1.9)]
    return [*found, Sample((np.array([-0.75, 1.5e-3, 3e4, -0.3]).astype(dtype),))]


def _parts_reference(x):
    found = [math.frexp(value) for value in x.ravel().tolist()]
    parts = [np.array([pair[i] for pair in found]).reshape(x.shape) for i in (0, 1)]
    return parts[0], parts[1].astype("int32")


CASES = {
    "cbrt": Cases(
        samples=reals(0.3, 3), reference=each(lambda x: math.copysign(abs(x) ** (1 / 3), x))
    ),
    "ldexp": Cases(
        samples=_scaled_samples,
        errors=lambda rng: [
            ErrorSample((rng.random(3), rng.random(3)), {}, DTypeError, "float64 is not taken"),
            ErrorSample((rng.random(3) * 1j, np.ones(3, int)), {}, DTypeError, "complex128"),
        ],
        reference=each(math.ldexp),
    ),
    "frexp": Cases(samples=_parts_samples, reference=_parts_reference),
}
