"""Cases that losses share, as eagerflow/ops/nn/loss_reduction.py does for the losses themselves."""

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make

_REDUCTIONS = ("mean", "sum", "none")
_SHAPES = ((5,), (2, 3), (), (3, 1, 4), (1,))


def reduced_reference(values, reduction):
    """The mean or the sum of a NumPy array, or all of its values."""
    return values if reduction == "none" else getattr(values, reduction)()


def of_loss(function, *ranges, **attributes):
    """Cases of a loss that is a ``function`` of the elements of arrays with values in ``ranges``.

    In some samples it has the ``attributes``.
    """
    count = len(ranges)

    def samples(rng, dtype):
        found = []
        for shape in _SHAPES:
            for reduction in _REDUCTIONS[: 3 if len(shape) == 2 else 1]:
                args = tuple(make(rng, dtype, shape, *ends) for ends in ranges)
                more = attributes if len(shape) < 3 else {}
                found.append(Sample(args, {"reduction": reduction, **more}))
        wide = [make(rng, dtype, (4, 6), *ends) for ends in ranges]
        found.append(Sample(tuple(x[::2, ::-1] for x in wide), {"reduction": "none"}))
        found.append(Sample(tuple(x[:0] for x in wide), {"reduction": "sum"}))
        return found

    def errors(rng):
        ones = np.ones(2)
        found = [
            ErrorSample((ones,) * count, {"reduction": "all"}, ArgumentError, "not a reduction")
        ]
        odd = (np.ones((2, 1)), *(ones,) * (count - 1))
        return [*found, ErrorSample(odd, {}, ShapeError, "not one for each number")]

    def reference(*args, reduction, **more):
        wide = (x.astype(complex if x.dtype.kind == "c" else float) for x in args)
        values = each(function)(*wide, **more)
        return reduced_reference(values, reduction)

    return Cases(samples, errors, reference)
