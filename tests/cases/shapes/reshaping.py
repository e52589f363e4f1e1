"""Cases of eagerflow/ops/shapes/reshaping.py."""

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from eagerflow.ops.shapes.reshaping import memory_order
from tests.cases.samples import Cases, ErrorSample, Sample, make, shaped


def _reshape_samples(rng, dtype):
    x = make(rng, dtype, (2, 3, 4))
    shapes = ((24,), (4, 6), (-1,), (2, -1), (1, 2, 3, 4), (2, 3, 4), 24)
    found = [Sample((x,), {"shape": shape}) for shape in shapes]
    found.append(Sample((make(rng, dtype, (0, 3)),), {"shape": (3, 0)}))
    found.append(Sample((make(rng, dtype, ()),), {"shape": (1, 1)}))
    found.append(Sample((make(rng, dtype, (1,)),), {"shape": ()}))
    found.append(Sample((np.broadcast_to(x[0, 0], (3, 4)),), {"shape": (2, 6)}))
    found.append(Sample((x.T[:, ::-1],), {"shape": (6, 4)}))
    return found


def _reshape_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"shape": (4, 2)}, ShapeError, "6 elements do not fit"),
        ErrorSample((x,), {"shape": (-1, -1)}, ShapeError, "at most one"),
        ErrorSample((x,), {"shape": (-1, -3)}, ShapeError, "at most one"),
        ErrorSample((x,), {"shape": "six"}, ShapeError, "is not a size"),
    ]


def _permuted_samples(rng, dtype):
    orders = ((), (0,), (1, 0), (-1, -2), (2, 0, 1), (0, 1, 2), (1, -3, 2), (-2, -1, 0))
    found = [Sample((make(rng, dtype, (2, 3, 4)[: len(a)]),), {"axes": a}) for a in orders]
    found.append(Sample((make(rng, dtype, (2, 3, 4)),)))
    base = make(rng, dtype, (4, 6))
    for x in (base.T[::2], base[::-1, 1:-1], np.broadcast_to(base[0], (2, 6)), base[:0]):
        found.append(Sample((x,), {"axes": (1, 0)}))
    return found


_broadcast_samples = shaped(
    "shape",
    ((), ()),
    ((), 3),
    ((3,), (2, 3)),
    ((2, 1), (2, 4)),
    ((1, 1), (0, 3)),
    ((0,), (2, 0)),
    ((2, 3), (2, 3)),
    ((1, 3, 1), (2, 2, 3, 4)),
    ((1,), (5,)),
    ((2, 1, 3), (2, 4, 3)),
    turned={"shape": (2, 3, 4)},
    repeated={"shape": (4, 2, 6)},
)


CASES = {
    "reshape": Cases(
        samples=_reshape_samples,
        errors=_reshape_errors,
        reference=lambda x, shape: x.ravel().reshape(shape),
    ),
    "permute_dims": Cases(
        samples=_permuted_samples,
        errors=lambda rng: [
            ErrorSample((rng.random((2, 3)),), {"axes": (0, 0)}, ShapeError, "repeat"),
            ErrorSample((rng.random((2, 3)),), {"axes": (0,)}, ShapeError, "each axis once"),
            ErrorSample(
                (rng.random((2, 3)),), {"axes": (0, 2)}, AxisError, "axis 2 does not exist"
            ),
        ],
        reference=lambda x, axes: np.einsum(
            x, list(range(x.ndim)), list(memory_order(axes, x.ndim))
        ),
    ),
    "broadcast_to": Cases(
        samples=_broadcast_samples,
        errors=lambda rng: [
            ErrorSample((rng.random((2, 3)),), {"shape": (2, 4)}, ShapeError, "broadcast"),
            ErrorSample((rng.random((2, 3)),), {"shape": (3,)}, ShapeError, "broadcast"),
            ErrorSample((rng.random((2, 3)),), {"shape": (-1, 3)}, ShapeError, "negative"),
        ],
        reference=lambda x, shape: x + np.zeros(shape, x.dtype),
    ),
    "expand_dims": Cases(
        samples=shaped(
            "axis",
            ((), 0),
            ((), -1),
            ((3,), 0),
            ((3,), 1),
            ((3,), -2),
            ((2, 3), 1),
            ((2, 3), (0, -1)),
            ((0, 2), 2),
            ((2, 3), (1, 2)),
            ((2,), ()),
            ((1, 2), 0),
            turned={"axis": -1},
            repeated={"axis": 1},
        ),
        errors=lambda rng: [
            ErrorSample((rng.random((2, 3)),), {"axis": 3}, AxisError, "axis 3 does not exist"),
            ErrorSample((rng.random((2, 3)),), {"axis": -4}, AxisError, "axis -4 does not exist"),
            ErrorSample((rng.random((2, 3)),), {"axis": (0, 0)}, ShapeError, "repeat"),
        ],
        reference=lambda x, axis: np.expand_dims(x, axis),
    ),
    "squeeze": Cases(
        samples=lambda rng, dtype: (
            [
                Sample((make(rng, dtype, shape),), {"axis": axis})
                for shape, axis in (
                    ((1,), 0),
                    ((1, 3), 0),
                    ((3, 1), -1),
                    ((1, 3, 1), (0, 2)),
                    ((1, 3, 1), None),
                    ((), None),
                    ((2, 3), None),
                    ((2, 3), ()),
                    ((1, 0, 1), 0),
                    ((1, 1, 1), (-1, 1)),
                    ((2, 1, 3), -2),
                )
            ]
            + [Sample((make(rng, dtype, (4, 1, 6)).T[::2],), {"axis": 1})]
        ),
        errors=lambda rng: [
            ErrorSample((rng.random((2, 1)),), {"axis": 0}, ShapeError, "axis 0 has size 2"),
            ErrorSample((rng.random((2, 1)),), {"axis": (1, -1)}, ShapeError, "repeat"),
        ],
        reference=lambda x, axis: x.reshape(
            [
                n
                for i, n in enumerate(x.shape)
                if n != 1 or (axis is not None and i not in {a % x.ndim for a in np.ravel(axis)})
            ]
        ),
    ),
}
