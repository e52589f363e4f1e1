"""Cases of eagerflow/capture/control/prints.py."""

import numpy as np

from eagerflow.capture.control.prints import COUNT
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    x, order = make(rng, dtype, (2, 3)), np.array(0, COUNT)
    return [
        Sample((order, x), {"texts": ("x ", "\n"), "forms": ("",)}),
        Sample((order, x[0, 0], x[:0]), {"texts": ("", " ", "\n"), "forms": ("", "")}),
        Sample((order,), {"texts": ("text\n",), "forms": ()}),
    ]


def _errors(rng):
    order, good = np.array(0, COUNT), {"texts": ("",), "forms": ()}
    return [
        ErrorSample((order,), good | {"texts": ()}, ShapeError, "there are 0 values"),
        ErrorSample((order,), good | {"forms": ("",)}, ShapeError, "there are 0 values"),
        ErrorSample((order,), good | {"texts": 1.5}, ArgumentError, "1.5 is not taken"),
        ErrorSample((order,), good | {"forms": True}, ArgumentError, "True is not taken"),
        ErrorSample((order[None],), good, DTypeError, "not a number"),
    ]


CASES = {
    "print": Cases(
        samples=_samples, errors=_errors, reference=lambda order, *values, **facts: (order,)
    ),
}
