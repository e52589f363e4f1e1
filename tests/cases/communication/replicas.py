"""Cases of eagerflow/ops/communication/replicas.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, values

CASES = {
    "replica_mean": Cases(
        samples=lambda rng, dtype: [Sample((x,), {"share": 0.25}) for x in values(rng, dtype)],
        errors=lambda rng: [ErrorSample(("text",), {"share": 1.0}, DTypeError, "str")],
        reference=lambda x, share: x * x.dtype.type(share),
    ),
    "replica_concat": Cases(
        samples=lambda rng, dtype: [
            Sample((x,), {"rows": x.shape[0] + more})
            for x in values(rng, dtype)
            if x.ndim
            for more in (0, 3)
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((3, 2)),), {"rows": 2}, ShapeError, "a part of 2 rows"),
            ErrorSample((np.ones(()),), {"rows": 2}, ShapeError, "a part of 2 rows"),
        ],
        reference=lambda x, rows: np.concatenate(
            [x, np.zeros((rows - len(x), *x.shape[1:]), x.dtype)]
        ),
    ),
}
