"""Cases of eagerflow/ops/linear_algebra/integer_products.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.linear_algebra.integer_products import SUMS
from tests.cases.linear_algebra.contraction import matmul_errors, matmul_samples
from tests.cases.samples import Cases, Sample


def _product_samples(rng, dtype):
    """Those of ``matmul``, with the whole range of numbers, and with more terms."""
    found = []
    shapes = [tuple(x.shape for x in sample.args) for sample in matmul_samples(rng, dtype)]
    for i, pair in enumerate([*shapes, ((3, 700), (700, 5)), ((40, 65), (65, 33))]):
        kinds = dtype, np.dtype(("int8", "uint8")[i % 2])
        limits = map(np.iinfo, kinds)
        found.append(
            Sample(
                tuple(
                    np.asarray(rng.integers(n.min, n.max, shape, endpoint=True)).astype(kind)
                    for n, shape, kind in zip(limits, pair, kinds, strict=True)
                )
            )
        )
    x = rng.integers(-128, 128, (6, 4)).astype(np.int8)
    return [*found, Sample((x.T.astype(dtype), x[:, ::-2]))]


def of_bytes(errors):
    """An op's error samples for shapes of floats, with 8-bit integers instead."""

    def refused(rng):
        return [
            sample._replace(args=tuple(x.astype(np.int8) for x in sample.args))
            for sample in errors(rng)
            if sample.error is ShapeError and all(hasattr(x, "astype") for x in sample.args)
        ]

    return refused


CASES = {
    "integer_matmul": Cases(
        samples=_product_samples,
        errors=of_bytes(matmul_errors),
        reference=lambda x1, x2: np.matmul(x1.astype(np.int64), x2.astype(np.int64)).astype(SUMS),
    ),
}
