"""Cases of eagerflow/capture/control/customs.py."""

import numpy as np

from eagerflow.dims import Dim
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.creation.filled import zeros_like
from tests.cases.control.samples import misfits, written
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    found = []
    for shape in ((), (3,), (0,), (2, 3), (1, 2), (2, 1)):
        for both in (True, False):
            x, k = make(rng, dtype, shape), make(rng, dtype, shape)
            named = tuple(Dim(f"axis_{i}") for i in range(len(shape))) if len(found) > 5 else shape
            spec = named, dtype

            def rule(x, k, y, around, g, both=both):
                # The gradient of the identity, so that it agrees with finite differences: y is x.
                return (g, zeros_like(k)) if both else (g,)

            graph = written(rule, *[spec] * 5)
            facts = {"backward": graph, "reached": (True, both), "arguments": 2, "results": 1}
            found.append(Sample((x, k, x, k), facts))
    return found


def _errors(rng):
    x = np.ones(3)
    graph = written(lambda x, y, g: (g * 2.0,), *[((3,), "float64")] * 3)
    good = {"backward": graph, "reached": (True,), "arguments": 1, "results": 1}
    return [
        *misfits((x, x), good),
        ErrorSample((x, x), good | {"reached": (False,)}, ShapeError, "not those of the arguments"),
        ErrorSample((x, x), good | {"results": 2}, ShapeError, "there are 2 operands"),
        ErrorSample((x, x), good | {"arguments": -1}, DTypeError, "not a number of operands"),
    ]


CASES = {
    "custom_gradient": Cases(
        samples=_samples,
        errors=_errors,
        reference=lambda *operands, arguments, results, **facts: tuple(
            operands[arguments : arguments + results]
        ),
    ),
}
