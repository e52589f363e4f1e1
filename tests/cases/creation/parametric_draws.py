"""Cases of eagerflow/ops/creation/parametric_draws.py."""

import numpy as np

from eagerflow.codegen.numpy import philox
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import Missing
from tests.cases.samples import Cases, ErrorSample, Sample, make, pairs

_DISTRIBUTED = Missing("its distribution is compared with SciPy's in the tests")


def _samples(*ranges, **attributes):
    """States and parameters between two numbers each, or at some."""

    def samples(rng, dtype):
        def drawn(shape):
            return [
                make(rng, dtype, shape, *r)
                if isinstance(r, tuple)
                else rng.choice(r, shape).astype(dtype)
                for r in ranges
            ]

        state = rng.integers(0, 2**64, (2, philox.WORDS), np.uint64)
        found = [
            Sample((state[0], *drawn(own)), {"shape": shape} | attributes)
            for own, shape in (
                ((), ()),
                ((), (5,)),
                ((3,), (3,)),
                ((2, 1), (2, 3)),
                ((3,), (2, 3)),
                ((0,), (0,)),
                ((1,), (4, 0)),
                ((2, 1, 4), (2, 3, 4)),
                ((33,), (33,)),
            )
        ]
        found.append(Sample((state, *drawn(())), {"shape": (3,)} | attributes))
        found.append(Sample((state, *drawn((2, 3))), {"shape": (3,)} | attributes))
        found.append(Sample((state[:0], *drawn((3,))), {"shape": (3,)} | attributes))
        found.append(Sample((state[0], *(p[::2, ::-1] for p in drawn((4, 3)))), {"shape": (2, 3)}))
        return found

    return samples


def _errors(*good, bad, dtype):
    state = np.array([1, 2, 3], np.uint64)

    def errors(rng):
        given = {"shape": (2,)}
        wide = (np.full(3, good[0]), *good[1:])
        return [
            ErrorSample((state, *good), given | {"shape": (-1,)}, ShapeError, "negative"),
            ErrorSample((state[:2], *good), given, ShapeError, "3 words"),
            ErrorSample((state, *wide), given, ShapeError, "broadcast"),
            ErrorSample((state, *good), given | {"dtype": dtype}, DTypeError, "cannot be drawn"),
            *(ErrorSample((state, *x), given, ArgumentError, "no such parameter") for x in bad),
        ]

    return errors


_DISTRIBUTED = Missing("its distribution is compared with SciPy's in the tests")

CASES = {
    "random_gamma": Cases(
        samples=lambda rng, dtype: [
            *_samples((0.2, 9))(rng, dtype),
            *_samples((0.2, 2), log=True)(rng, dtype)[:4],
        ],
        errors=_errors(1.0, bad=[(-1.0,), (float("nan"),)], dtype="int32"),
        reference=_DISTRIBUTED,
    ),
    "random_poisson": Cases(
        samples=lambda rng, dtype: [
            *_samples((0, 30))(rng, dtype),
            *_samples((0, 9), dtype="float32")(rng, dtype)[:3],
        ],
        errors=_errors(1.0, bad=[(-1.0,), (float("nan"),), (float("inf"),)], dtype="bool"),
        reference=_DISTRIBUTED,
    ),
    "random_binomial": Cases(
        samples=_samples([0.0, 1.0, 5.0, 40.0, 200.0], (0, 1)),
        errors=_errors(
            3.0,
            0.5,
            bad=[(-1.0, 0.5), (2.5, 0.5), (float("inf"), 0.5), (3.0, 1.5), (3.0, float("nan"))],
            dtype="bool",
        ),
        reference=_DISTRIBUTED,
    ),
    "von_mises_sample_slope": Cases(
        samples=pairs(0, 5, -3, 3), reference=Missing("it is compared with mpmath in the tests")
    ),
    "random_von_mises": Cases(
        samples=_samples((0, 9)),
        errors=_errors(1.0, bad=[(-1.0,), (float("nan"),)], dtype="int32"),
        reference=_DISTRIBUTED,
    ),
}
