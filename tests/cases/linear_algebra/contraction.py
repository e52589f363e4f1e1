"""Cases of eagerflow/ops/linear_algebra/contraction.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make

_PRODUCTS = (
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 4, 3), (3, 5)),
    ((2, 4, 3), (3,)),
    ((3,), (2, 3, 4)),
    ((4, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (4, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0, 2, 3), (3, 2)),
    ((2, 3, 0), (0, 4)),
    ((1, 1), (1, 1)),
    ((1, 2, 3), (4, 3, 1)),
)


def matmul_samples(rng, dtype):
    """Pairs of matrices and vectors alone and in stacks."""
    found = [Sample((make(rng, dtype, a), make(rng, dtype, b))) for a, b in _PRODUCTS]
    x, stack = make(rng, dtype, (4, 6)), make(rng, dtype, (2, 20, 18))
    found.append(Sample((x.T, x)))
    found.append(Sample((x[::2, ::-1], x.T[:, ::3])))
    found.append(Sample((stack.transpose(0, 2, 1), stack)))
    found.append(Sample((stack[:, :, ::2], np.broadcast_to(stack[:1, ::2, :9].mT, (2, 9, 10)))))
    found.append(Sample((np.broadcast_to(x[0], (3, 6)), x.T)))
    return found


def matmul_errors(rng):
    """Pairs whose shapes do not fit."""
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x, x), {}, ShapeError, "inner dimensions differ"),
        ErrorSample((x, x[0, :2]), {}, ShapeError, "the only axis of x2 has size 2"),
        ErrorSample((x, 2.0), {}, ShapeError, "without axes"),
        ErrorSample((x[0, 0], x), {}, ShapeError, "without axes"),
        ErrorSample((np.ones((2, 3, 4)), np.ones((5, 4, 3))), {}, ShapeError, "(2,) and (5,)"),
    ]


def _matmul_reference(x1, x2):
    """The definition, one row and column at a time."""
    columns = x2.mT if x2.ndim > 1 else x2
    if x1.ndim > 1 and x2.ndim > 1:
        x1, columns = x1[..., None, :], columns[..., None, :, :]
    return _products_summed(x1, columns)


def _products_summed(a, b):
    """Sums of products along the last axis of arrays that broadcast, each rounded once."""
    a, b = np.broadcast_arrays(a, b)
    out = np.zeros(a.shape[:-1], np.result_type(a, b))
    for at in np.ndindex(*out.shape):
        terms = [p * q for p, q in zip(a[at].tolist(), b[at].tolist(), strict=True)]
        out[at] = complex_sum(terms) if out.dtype.kind == "c" else math.fsum(terms)
    return out


def complex_sum(terms):
    """The sum of complex numbers, each part rounded once."""
    return complex(math.fsum(z.real for z in terms), math.fsum(z.imag for z in terms))


def _vecdot_samples(rng, dtype):
    shapes = (
        ((3,), (3,), -1),
        ((2, 3), (3,), -1),
        ((3,), (2, 3), -1),
        ((2, 3), (2, 3), 0),
        ((2, 3), (2, 3), 1),
        ((2, 1, 3), (4, 3), -1),
        ((2, 3, 1), (3, 4), -2),
        ((0,), (0,), -1),
        ((0, 3), (3,), -1),
        ((3, 0), (3, 0), 0),
        ((1,), (1,), 0),
        ((1, 3), (2, 3), -1),
    )
    found = [
        Sample((make(rng, dtype, a), make(rng, dtype, b)), {"axis": axis}) for a, b, axis in shapes
    ]
    x = make(rng, dtype, (4, 6))
    return [
        *found,
        Sample((x.T, x[::-1].T)),
        Sample((x[:, ::2], np.broadcast_to(x[0, :3], (4, 3)))),
    ]


def _vecdot_reference(x1, x2, axis):
    a, b = np.broadcast_arrays(x1, x2)
    at = axis if axis < 0 else axis - x1.ndim
    return _products_summed(np.moveaxis(a, at, -1).conj(), np.moveaxis(b, at, -1))


CASES = {
    "matmul": Cases(samples=matmul_samples, errors=matmul_errors, reference=_matmul_reference),
    "vecdot": Cases(
        samples=_vecdot_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3), np.ones(2)), {}, ShapeError, "3 and 2 elements"),
            ErrorSample((np.ones(3), np.ones(1)), {}, ShapeError, "3 and 1 elements"),
            ErrorSample((np.ones(3), np.ones(3)), {"axis": 1}, AxisError, "does not exist"),
            ErrorSample((np.ones((2, 3)), np.ones(3)), {"axis": 0}, ShapeError, "negative"),
            ErrorSample((np.ones(3), 2.0), {}, AxisError, "does not exist in x2"),
        ],
        reference=_vecdot_reference,
    ),
}
