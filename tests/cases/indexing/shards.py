"""Cases of eagerflow/ops/indexing/shards.py."""

import numpy as np

from eagerflow.errors import IndexRangeError
from tests.cases.samples import Cases, ErrorSample, Sample


def _expected(ids, begin, end, rows, low=None):
    found = ids.astype(np.int64) % rows
    return np.where((found >= begin) & (found < end), found - begin, end - begin)


CASES = {
    "shard_rows": Cases(
        samples=lambda rng, dtype: (
            [
                Sample((np.array(ids, kind),), {"begin": begin, "end": end, "rows": 7})
                for kind in ("int64", "int8", "uint8")
                for ids in ([0, 3, 6], [[1, 2]], [], 5)
                for begin, end in ((0, 4), (4, 7))
            ]
            + [Sample((np.array([-1, -7, 6]),), {"begin": 0, "end": 3, "rows": 7})]
        ),
        errors=lambda rng: [
            ErrorSample(
                (np.array(ids),),
                {"begin": 0, "end": 3, "rows": 7, "low": low},
                IndexRangeError,
                f"index {ids[1]} is out of range for axis 0 of length 7",
            )
            for ids, low in (([0, 7], None), ([0, -8], None), ([0, -1], 0))
        ],
        reference=_expected,
    ),
}
