"""Cases of eagerflow/ops/elementwise/formulas.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, pairs, reals


def _no_text(rng):
    return [ErrorSample(("text",), {}, DTypeError, "str")]


def _no_fit(rng):
    return [ErrorSample((np.ones(2), np.ones(3)), {}, ShapeError, "broadcast")]


def _strange(rng, dtype):
    found = reals()(rng, dtype)
    if dtype.kind in "fc":
        x = make(rng, dtype, (2, 4))
        x[0, 1] = np.nan
        found.append(Sample((x.copy(),)))
        x[0, :3] = np.nan, np.inf, -np.inf  # the largest number differs from dtype to dtype
        found.append(Sample((x,), {"nan": 1.5, "posinf": 2.0, "neginf": -3.0}))
    return found


CASES = {
    "deg2rad": Cases(samples=reals(-200, 200), errors=_no_text, reference=each(math.radians)),
    "rad2deg": Cases(samples=reals(-4, 4), errors=_no_text, reference=each(math.degrees)),
    "sinc": Cases(samples=reals(-3, 3), errors=_no_text, reference=lambda x: np.sinc(x)),
    "xlogy": Cases(
        samples=pairs(0.1, 2, 0.2, 3), errors=_no_fit, reference=each(lambda x, y: x * math.log(y))
    ),
    "xlog1py": Cases(
        samples=pairs(0.1, 2, -0.5, 3),
        errors=_no_fit,
        reference=each(lambda x, y: x * math.log1p(y)),
    ),
    "logit": Cases(
        samples=reals(0.1, 0.9), errors=_no_text, reference=each(lambda x: math.log(x / (1 - x)))
    ),
    "logaddexp2": Cases(
        samples=pairs(0, 3), errors=_no_fit, reference=each(lambda a, b: math.log2(2**a + 2**b))
    ),
    "heaviside": Cases(
        samples=lambda rng, dtype: [
            Sample((a * dtype.type(-1) if i % 2 and dtype.kind == "f" else a, b))
            for i, (a, b) in enumerate(sample.args for sample in pairs(0.2, 2)(rng, dtype))
        ],
        errors=_no_fit,
        reference=each(lambda x, h: h if x == 0 else float(x > 0)),
    ),
    "modf": Cases(
        samples=reals(1.1, 1.9), errors=_no_text, reference=lambda x: (np.modf(x)[0], np.modf(x)[1])
    ),
    "nan_to_num": Cases(
        samples=_strange, errors=_no_text, reference=lambda x, **more: np.nan_to_num(x, **more)
    ),
    "bitwise_count": Cases(
        samples=reals(-99, 99),
        errors=lambda rng: [ErrorSample((np.ones(2),), {}, DTypeError, "float64 is not taken")],
        reference=each(lambda x: bin(int(x)).count("1")),
    ),
}
