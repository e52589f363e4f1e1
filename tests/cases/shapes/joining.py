"""Cases of eagerflow/ops/shapes/joining.py."""

import numpy as np

from eagerflow.errors import AxisError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make, shaped


def _list_errors(rng):
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 4))
    return [
        ErrorSample(([],), {}, ShapeError, "nothing to join"),
        ErrorSample(([a, b],), {"axis": 0}, ShapeError, "differ"),
        ErrorSample(([a, a],), {"axis": 4}, AxisError, "axis 4 does not exist"),
        ErrorSample(([a, a],), {"axis": -(1 << 31)}, AxisError, "does not exist"),
        ErrorSample(([a, "b"],), {"axis": 0}, DTypeError, "str"),
    ]


def _joined(*arrays, axis):
    """Concatenation row by row, as lists."""
    if axis is None:
        return np.array([v for a in arrays for v in a.ravel()], arrays[0].dtype)
    rows = [row for a in arrays for row in np.moveaxis(a, axis, 0)]
    rest = np.moveaxis(arrays[0], axis, 0).shape[1:]
    whole = np.array(rows, arrays[0].dtype).reshape(len(rows), *rest)
    return np.moveaxis(whole, 0, axis)


def _concat_samples(rng, dtype):
    def of(axis, *shapes):
        return Sample(tuple(make(rng, dtype, shape) for shape in shapes), {"axis": axis})

    base = make(rng, dtype, (4, 6))
    return [
        of(0, (3,)),
        of(0, (3,), (2,)),
        of(-1, (3,), (0,), (2,)),
        of(0, (2, 3), (1, 3)),
        of(1, (2, 3), (2, 1)),
        of(-2, (2, 3), (1, 3), (2, 3)),
        of(None, (2, 3), (2,)),
        of(None, (), (2,)),
        of(1, (0, 2), (0, 3)),
        of(2, (2, 1, 3), (2, 1, 1)),
        Sample((base.T, base[::2, ::-1].T), {"axis": 1}),
        Sample((np.broadcast_to(base[0], (2, 6)), base), {"axis": 0}),
    ]


def _stack_samples(rng, dtype):
    found = [
        Sample(tuple(make(rng, dtype, shape) for _ in range(count)), {"axis": axis})
        for shape, count, axis in (
            ((), 1, 0),
            ((), 3, -1),
            ((3,), 1, 0),
            ((3,), 2, 0),
            ((3,), 2, 1),
            ((2, 3), 3, -1),
            ((2, 3), 2, 1),
            ((2, 3), 2, -3),
            ((0, 2), 2, 1),
            ((1, 2, 1), 2, 2),
        )
    ]
    base = make(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2], base[:, ::2].T), {"axis": 1}))
    found.append(Sample((np.broadcast_to(base[0], (4, 6)), base), {"axis": 0}))
    return found


_unstack_samples = shaped(
    "axis",
    ((3,), 0),
    ((1,), -1),
    ((2, 3), 0),
    ((2, 3), 1),
    ((2, 3), -2),
    ((2, 3, 4), 1),
    ((2, 0), 0),
    ((1, 4), 0),
    ((4, 1), 1),
    ((2, 3, 1), -1),
    turned={"axis": 1},
    repeated={"axis": 0},
)


_split_samples = shaped(
    "indices_or_sections axis",
    ((6,), 2, 0),
    ((6,), 1, 0),
    ((6,), (2, 3), 0),
    ((4, 6), 3, 1),
    ((4, 6), 2, -2),
    ((4, 6), (1, 1, 5), 1),
    ((4, 6), (), 0),
    ((2, 0), 2, 1),
    ((3, 2), (0, 3), 0),
    ((5,), (-2,), 0),
    turned={"indices_or_sections": (1,), "axis": 1},
    repeated={"indices_or_sections": 2, "axis": 1},
)


CASES = {
    "unstack": Cases(
        samples=_unstack_samples,
        errors=lambda rng: [
            ErrorSample((rng.random((2, 3)),), {"axis": 2}, AxisError, "axis 2 does not exist"),
            ErrorSample((rng.random(()),), {}, AxisError, "axis 0 does not exist"),
        ],
        reference=lambda x, axis: tuple(
            x[(slice(None),) * (axis % x.ndim) + (i,)] for i in range(x.shape[axis])
        ),
    ),
    "split": Cases(
        samples=_split_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(5), 2), {}, ShapeError, "does not split into 2 equal parts"),
            ErrorSample((np.ones(5), (3, 1)), {}, ShapeError, "cannot be cut at (3, 1)"),
            ErrorSample((np.ones(5), (7,)), {}, ShapeError, "cannot be cut at (7,)"),
            ErrorSample((np.ones(5), 0), {}, ShapeError, "0 equal parts"),
            ErrorSample((np.ones(0), 1 << 33), {}, ShapeError, "8589934592 parts"),
            ErrorSample((np.ones(5), 1, 1), {}, AxisError, "axis 1 does not exist"),
        ],
        reference=lambda x, indices_or_sections, axis: tuple(
            np.split(x, indices_or_sections, axis)
        ),
    ),
    "concat": Cases(samples=_concat_samples, errors=_list_errors, reference=_joined),
    "stack": Cases(
        samples=_stack_samples,
        errors=_list_errors,
        reference=lambda *arrays, axis: np.moveaxis(
            np.array([a.tolist() for a in arrays], arrays[0].dtype).reshape(
                len(arrays), *arrays[0].shape
            ),
            0,
            axis,
        ),
    ),
}
