"""Cases of eagerflow/ops/creation/bits.py."""

import cmath

import numpy as np

from eagerflow.dtypes import real_dtype
from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, pairs


def _view_samples(rng, dtype):
    kinds = {1: "int8", 2: "uint16", 4: "int32", 8: "int64", 16: "complex128"}
    parts = {"float32": "complex64", "float64": "complex128"}
    own = np.dtype(dtype)
    wide = parts.get(own.name, str(real_dtype(own)))
    found = []
    for shape in ((4,), (2, 4), (0, 2), (3, 0), (2, 1, 6)):
        x = make(rng, dtype, shape)
        found += [Sample((x,), {"dtype": to}) for to in (kinds[own.itemsize], wide, "uint8")]
    found.append(Sample((make(rng, dtype, ()),), {"dtype": kinds[own.itemsize]}))
    base = make(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2],), {"dtype": wide}))
    found.append(Sample((np.broadcast_to(base[0], (2, 6)),), {"dtype": "uint8"}))
    return found


def _refused(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x * 1j, x), {}, DTypeError, "complex128 is complex already"),
        ErrorSample((x, x[:, :2]), {}, ShapeError, "broadcast"),
    ]


CASES = {
    "view": Cases(
        samples=_view_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {"dtype": "complex128"}, ShapeError, "not whole numbers"),
            ErrorSample((np.ones(()),), {"dtype": "float32"}, ShapeError, "without an axis"),
            ErrorSample((np.ones(2),), {"dtype": "bool"}, DTypeError, "are no truth values"),
            ErrorSample((np.ones(2),), {"dtype": "words"}, DTypeError, "is not a dtype"),
        ],
        reference=lambda x, dtype: np.frombuffer(x.tobytes(), dtype).reshape(
            (*x.shape[:-1], x.shape[-1] * x.itemsize // np.dtype(dtype).itemsize) if x.ndim else ()
        ),
    ),
    "complex": Cases(samples=pairs(), errors=_refused, reference=each(lambda a, b: a + b * 1j)),
    "polar": Cases(
        samples=pairs(0.2, 3, -3, 3),
        errors=_refused,
        reference=each(lambda r, phi: cmath.rect(r, phi)),
    ),
}
