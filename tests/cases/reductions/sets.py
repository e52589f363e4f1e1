"""Cases of eagerflow/ops/reductions/sets.py."""

import numpy as np

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _sets(rng, dtype):
    shapes = (((5,), (3,)), ((2, 3), (4,)), ((), (2, 2)), ((3,), (1,)))
    found = []
    for a, b in (*shapes, ((0,), (2,)), ((4,), (0,))):
        x, y = make(rng, dtype, a), make(rng, dtype, b)
        if x.size and y.size:
            y.reshape(-1)[0] = x.reshape(-1)[-1]
        found += [Sample((x, y)), Sample((x, y), {"invert": True})]
    return found


CASES = {
    "isin": Cases(
        samples=_sets,
        errors=lambda rng: [
            ErrorSample((np.ones(2), "text"), {}, DTypeError, "str"),
            ErrorSample((np.ones(2) * 1j, np.ones(2)), {}, DTypeError, "complex128"),
        ],
        reference=lambda x, y, invert: np.isin(x, y, invert=invert),
    ),
}
