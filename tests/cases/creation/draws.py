"""Cases of eagerflow/ops/creation/draws.py."""

import math

import numpy as np

from eagerflow.codegen.numpy.philox import WORDS
from eagerflow.dtypes import as_dtype, default_dtype
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.spec import as_shape
from tests.cases.creation import philox
from tests.cases.samples import Cases, ErrorSample, Sample


def _samples(**attributes):
    def samples(rng, dtype):
        state = rng.integers(0, 2**64, WORDS, np.uint64)
        states = rng.integers(0, 2**64, (2, 6, WORDS), np.uint64)[:, ::3]
        found = [
            Sample((state,), {"shape": shape} | attributes)
            for shape in ((), 1, 5, (0,), (2, 3), (3, 0), (2, 1, 4), (33,))
        ]
        found += [
            Sample((s,), {"shape": (3,)} | attributes) for s in (states, states[0], states[:0])
        ]
        found.append(Sample((state[::-1],), {"shape": (7,)} | attributes))
        found.append(Sample((np.broadcast_to(state, (2, 3)),), {"shape": (4,)} | attributes))
        return found

    return samples


def _float_samples(rng, dtype):
    found = _samples()(rng, dtype)
    state = found[0].args[0]
    found += [
        Sample((state,), {"shape": (5,), "dtype": name})
        for name in ("float64", "float32", "float16", "bfloat16")
    ]
    return found


def _errors(rng, **attributes):
    state = np.array([1, 2, 3], np.uint64)
    given = {"shape": (2,)} | attributes
    return [
        ErrorSample((state,), given | {"shape": (2, -1)}, ShapeError, "negative"),
        ErrorSample((state[:2],), given, ShapeError, "3 words"),
        ErrorSample((state.astype(np.float32),), given, DTypeError, "is not taken"),
    ]


def _float_errors(rng):
    state = np.array([1, 2, 3], np.uint64)
    wrong = {"shape": (2,), "dtype": "int32"}
    return [*_errors(rng), ErrorSample((state,), wrong, DTypeError, "cannot be drawn")]


def _each_state(fill):
    """A reference: ``fill(state, count, ...)`` for each state, one number after the other."""

    def reference(state, shape, dtype=None, device=None, **more):
        shape = as_shape(shape)
        wanted = as_dtype(dtype) if dtype is not None else default_dtype(float)
        rows = [fill(own, math.prod(shape), wanted, **more) for own in state.reshape(-1, WORDS)]
        whole = np.array(rows, dtype=object if wanted.kind in "iu" else float)
        return whole.astype(wanted).reshape((*state.shape[:-1], *shape))

    return reference


def _slow_uniform(own, count, dtype):
    steps = {"float16": 2**11, "bfloat16": 2**8}.get(dtype.name, 2**53)
    return [math.floor(u * steps) / steps for u in philox.slow_uniform(own, count, dtype)]


def _integer_samples(rng, dtype):
    found = _samples(low=-3, high=9)(rng, dtype)
    ranges = (
        ("uint8", 0, 256),
        ("int8", -128, 128),
        ("int64", -(2**63), 2**63),
        ("uint64", 2**63, 2**64),
        ("int32", 5, 6),
    )
    for name, low, high in ranges:
        more = {"shape": (5,), "low": low, "high": high, "dtype": name}
        found.append(Sample(found[0].args, more))
    return found


def _integer_errors(rng):
    state = np.array([1, 2, 3], np.uint64)
    given = {"shape": (2,), "low": 0, "high": 5}
    return [
        *_errors(rng, low=0, high=5),
        ErrorSample((state,), given | {"high": 0}, ShapeError, "there is no int64 from 0"),
        ErrorSample((state,), given | {"high": 300, "dtype": "int8"}, ShapeError, "no int8"),
        ErrorSample((state,), given | {"high": 2.5}, DTypeError, "not an integer"),
        ErrorSample((state,), given | {"dtype": "float32"}, DTypeError, "not an integer dtype"),
    ]


def _keep_reference(own, count, dtype, rate):
    wide = np.dtype("float32") if dtype.itemsize < 4 else dtype
    drawn = philox.slow_uniform(own, count, np.dtype("float32"))
    return [float(wide.type(1 / (1 - rate))) if u >= np.float32(rate) else 0.0 for u in drawn]


def _slow_permutations(state, shape, device):
    shape = as_shape(shape)

    def fill(own, count, _):
        words = philox.slow_words(own, count)
        n = max(shape[-1], 1)
        rows = [words[i : i + n] for i in range(0, count, n)]
        return [i for row in rows for i in sorted(range(len(row)), key=row.__getitem__)]

    return _each_state(fill)(state, shape, "int64")


def _floats(reference):
    return Cases(_float_samples, _float_errors, reference)


CASES = {
    "random_bits": Cases(
        samples=_samples(),
        errors=_errors,
        reference=lambda state, shape, device: _each_state(
            lambda own, count, dtype: philox.slow_words(own, count)
        )(state, shape, "uint64"),
    ),
    "random_uniform": _floats(_each_state(_slow_uniform)),
    "random_normal": _floats(_each_state(philox.slow_normal)),
    "random_truncated_normal": _floats(_each_state(philox.slow_truncated)),
    "random_exponential": _floats(
        _each_state(
            lambda own, n, dtype: [-math.log1p(-u) for u in philox.slow_uniform(own, n, dtype)]
        )
    ),
    "random_integers": Cases(
        samples=_integer_samples,
        errors=_integer_errors,
        reference=lambda state, shape, low, high, dtype, device: _each_state(
            lambda own, n, _: philox.slow_integers(own, n, low, high)
        )(state, shape, dtype or "int64"),
    ),
    "random_keep": Cases(
        samples=lambda rng, dtype: [
            *_samples(rate=0.25)(rng, dtype),
            *_samples(rate=0.5, dtype="float64")(rng, dtype)[:5],
            *_samples(rate=0)(rng, dtype)[:2],
        ],
        errors=lambda rng: [
            *_errors(rng, rate=0.5),
            *(
                ErrorSample(
                    (np.ones(3, np.uint64),), {"shape": 2, "rate": r}, ArgumentError, "a rate"
                )
                for r in (1.0, -0.5, float("nan"))
            ),
        ],
        reference=_each_state(_keep_reference),
    ),
    "random_permutation": Cases(
        samples=lambda rng, dtype: [
            s for s in _samples()(rng, dtype) if s.attributes["shape"] != ()
        ],
        errors=lambda rng: [
            *_errors(rng),
            ErrorSample((np.ones(3, np.uint64),), {"shape": ()}, ShapeError, "has an axis"),
        ],
        reference=_slow_permutations,
    ),
}
