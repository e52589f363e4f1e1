"""Cases of eagerflow/ops/elementwise/complexes.py."""

import math

from tests.cases.samples import Cases, each, reals

CASES = {
    "conj": Cases(reference=each(lambda x: x.conjugate())),
    "real": Cases(reference=each(lambda x: x.real)),
    "imag": Cases(reference=each(lambda x: x.imag)),
    "angle": Cases(samples=reals(0.2, 2), reference=each(lambda x: math.atan2(x.imag, x.real))),
}
