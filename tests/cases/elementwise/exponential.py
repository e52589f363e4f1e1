"""Cases of eagerflow/ops/elementwise/exponential.py."""

import cmath
import math

from tests.cases.samples import Cases, each, pairs, reals


def _of_real_or_complex(real, of_complex):
    return each(lambda x: of_complex(x) if isinstance(x, complex) else real(x))


def _logaddexp_of(a, b):
    functions = cmath if isinstance(a, complex) else math
    return functions.log(functions.exp(a) + functions.exp(b))


CASES = {
    "exp": Cases(reals(-3, 3)),
    "exp2": Cases(reals(-3, 3), reference=each(lambda x: 2**x)),
    "expm1": Cases(
        reals(-2, 2), reference=_of_real_or_complex(math.expm1, lambda x: cmath.exp(x) - 1)
    ),
    "log": Cases(reals(0.2, 4)),
    "log1p": Cases(
        reals(-0.7, 3), reference=_of_real_or_complex(math.log1p, lambda x: cmath.log(1 + x))
    ),
    "log2": Cases(
        reals(0.2, 4),
        reference=_of_real_or_complex(math.log2, lambda x: cmath.log(x) / math.log(2)),
    ),
    "log10": Cases(reals(0.2, 4)),
    "logaddexp": Cases(samples=pairs(0, 3), reference=each(_logaddexp_of)),
}
