"""Cases of eagerflow/ops/communication/order.py."""

from tests.cases.samples import Cases, Sample, values

CASES = {
    "after": Cases(
        samples=lambda rng, dtype: [Sample((x, x[..., None])) for x in values(rng, dtype)],
        reference=lambda x, other: x,
    ),
}
