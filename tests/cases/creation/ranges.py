"""Cases of eagerflow/ops/creation/ranges.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample


def _range_values(start, stop, step):
    found = []
    while (start + len(found) * step - stop) * (1 if step > 0 else -1) < 0:
        found.append(start + len(found) * step)
    return found


CASES = {
    "arange": Cases(
        samples=lambda rng, dtype: [
            Sample((), {"start": start, "stop": stop, "step": step, "dtype": dtype})
            for start, stop, step in (
                (0, 5, 1),
                (2, 9, 3),
                (5, 0, -2),
                (3, 3, 1),
                (0, -4, 1),
                (0, 1, 0.25),
                (1, 0, -0.3),
            )
            if dtype.kind != "b"
        ],
        errors=lambda rng: [
            ErrorSample((0, 5, 0), {}, ShapeError, "the step is 0"),
            ErrorSample((float("inf"),), {}, ShapeError, "finite"),
            ErrorSample((10**19,), {}, ShapeError, "too large"),
            ErrorSample((0, 300, 1), {"dtype": "int8"}, DTypeError, "do not fit into int8"),
            ErrorSample(("ten",), {}, DTypeError, "is not a number"),
        ],
        reference=lambda start, stop, step, dtype, device: np.array(
            _range_values(start, stop, step), dtype
        ),
    ),
    "linspace": Cases(
        samples=lambda rng, dtype: [
            Sample(
                (), {"start": start, "stop": stop, "num": num, "dtype": dtype, "endpoint": endpoint}
            )
            for start, stop, num in ((0, 1, 5), (2.0, -1.0, 4), (3, 3, 3), (0, 9, 1), (1, 2, 0))
            for endpoint in (True, False)
        ],
        errors=lambda rng: [
            ErrorSample((0, 1), {"num": -1}, ShapeError, "negative"),
            ErrorSample((0, 1), {"num": 2.5}, ShapeError, "is not a size"),
            ErrorSample((0, 1), {"num": 10**19}, ShapeError, "too large"),
            ErrorSample(("zero", 1), {"num": 3}, DTypeError, "is not a number"),
            ErrorSample((0, 1j), {"num": 3, "dtype": "float32"}, DTypeError, "are no float32s"),
        ],
        reference=lambda start, stop, num, dtype, device, endpoint: np.array(
            [start + (stop - start) * i / max(1, num - endpoint) for i in range(num)], dtype
        ),
    ),
}
