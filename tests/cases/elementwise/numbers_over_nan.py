"""Cases of eagerflow/ops/elementwise/numbers_over_nan.py."""

from tests.cases.samples import Cases, each


def _chosen(function):
    return each(lambda a, b: b if a != a else a if b != b else function(a, b))


CASES = {"fmax": Cases(reference=_chosen(max)), "fmin": Cases(reference=_chosen(min))}
