"""Cases of eagerflow/ops/fft/several_axes.py."""

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, ShapeError
from eagerflow.ops.family import op_of
from eagerflow.ops.fft.several_axes import lengths_of
from eagerflow.ops.fft.transforms import DUAL, fft, ifft, irfft, rfft
from tests.cases import cases_of
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(names, *rows):
    def samples(rng, dtype):
        norms = ("backward", "ortho", "forward")
        found = []
        for i, (shape, *given) in enumerate(rows):
            attributes = dict(zip(names.split(), given, strict=False)) | {"norm": norms[i % 3]}
            found.append(Sample((make(rng, dtype, shape),), attributes))
        return found

    return samples


_many = _samples(
    "s axes",
    ((4,), None, None),
    ((2, 3), None, None),
    ((2, 3, 4), None, (0, 2)),
    ((2, 3, 4), (3, 5), (-1, 0)),
    ((3, 4), (2, -1), (1, 0)),
    ((3, 4), (4, 6), None),
    ((2, 0, 3), None, (0, 2)),
)


_two = _samples(
    "s axes",
    ((2, 3), None, (-2, -1)),
    ((2, 3, 4), None, (-2, -1)),
    ((2, 3, 4), (3, 3), (0, 1)),
    ((3, 4), (2, 6), (1, 0)),
    ((4, 3), (-1, 5), (-2, -1)),
    ((0, 2, 3), None, (-2, -1)),
)


_one = _samples(
    "n axis",
    ((4,), None, -1),
    ((2, 3), None, 0),
    ((2, 3), 5, 1),
    ((3, 4), 3, -1),
    ((2, 3, 2), 4, 1),
    ((0, 3), None, 1),
)


def _errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axes": (0, 2)}, AxisError, "axis 2 does not exist"),
        ErrorSample((x,), {"axes": (0, 0)}, ShapeError, "repeat"),
        ErrorSample((x,), {"axes": 1}, ShapeError, "is not a sequence of axes"),
        ErrorSample((x,), {"s": 4}, ShapeError, "is not a sequence of lengths"),
        ErrorSample((x,), {"s": (4,), "axes": (0, 1)}, ShapeError, "1 lengths for 2 axes"),
        ErrorSample((x,), {"s": (0, 3), "axes": (0, 1)}, ShapeError, "a transform of 0 elements"),
        ErrorSample((x,), {"norm": "unitary"}, ArgumentError, "is not a norm"),
    ]


def _one_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x,), {"n": 0}, ShapeError, "a transform of 0 elements"),
        ErrorSample((x,), {"norm": "unitary"}, ArgumentError, "is not a norm"),
    ]


def defined(transform):
    """The reference of a transform: sums, by definition."""
    return cases_of(op_of(transform)).reference


def _reference(last, others, back=False):
    """By definition along one axis after the other: ``last`` is for the last axis.

    That is the first one, or the last one if ``back``.
    """

    def reference(x, s, axes, norm):
        pairs = lengths_of(x, s, axes)
        turn = [(others, pair) for pair in pairs[:-1]]
        turn.insert(len(turn) if back else 0, (last, pairs[-1]))
        for transform, (at, n) in turn:
            x = defined(transform)(x, n, at, norm)
        return x

    return reference


CASES = {
    "fftn": Cases(_many, _errors, _reference(fft, fft)),
    "ifftn": Cases(_many, _errors, _reference(ifft, ifft)),
    "rfftn": Cases(_many, _errors, _reference(rfft, fft)),
    "irfftn": Cases(_many, _errors, _reference(irfft, ifft, back=True)),
    "fft2": Cases(_two, _errors, _reference(fft, fft)),
    "ifft2": Cases(_two, _errors, _reference(ifft, ifft)),
    "rfft2": Cases(_two, _errors, _reference(rfft, fft)),
    "irfft2": Cases(_two, _errors, _reference(irfft, ifft, back=True)),
    "hfft": Cases(
        samples=_one,
        errors=_one_errors,
        reference=lambda x, n, axis, norm: defined(irfft)(np.conj(x), n, axis, DUAL[norm]),
    ),
    "ihfft": Cases(
        samples=_one,
        errors=_one_errors,
        reference=lambda x, n, axis, norm: np.conj(defined(rfft)(x, n, axis, DUAL[norm])),
    ),
}
