"""Cases of eagerflow/ops/elementwise/parts.py."""

from tests.cases.samples import Cases, each, triples

CASES = {
    "fma": Cases(samples=triples(0.5, 2), reference=each(lambda x1, x2, x3: x1 * x2 + x3)),
}
