"""Cases of eagerflow/ops/elementwise/trigonometric.py."""

from tests.cases.samples import Cases, each, pairs, reals

CASES = {
    "sin": Cases(reals(-3, 3)),
    "cos": Cases(reals(-3, 3)),
    "tan": Cases(reals(-1.2, 1.2)),
    "asin": Cases(reals(-0.9, 0.9)),
    "acos": Cases(reals(-0.9, 0.9)),
    "atan": Cases(reals(-0.9, 0.9)),
    "sinh": Cases(reals(-2, 2)),
    "cosh": Cases(reals(-2, 2)),
    "one_minus_square": Cases(samples=reals(-0.9, 0.9), reference=each(lambda x: 1 - x * x)),
    "tanh": Cases(reals(-1.4, 1.4)),
    "asinh": Cases(reals(-0.9, 0.9)),
    "acosh": Cases(reals(1.2, 4)),
    "atanh": Cases(reals(-0.8, 0.8)),
    "atan2": Cases(samples=pairs(0.3, 3, 0.3, 3)),
}
