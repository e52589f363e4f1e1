"""Cases of eagerflow/ops/nn/normalization.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from eagerflow.ops.nn.normalization import sizes_of
from eagerflow.spec import normalize_axes
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _norm_samples(parameters):
    def samples(rng, dtype):
        found = []
        for shape, axis in (
            ((4,), 0),
            ((2, 5), -1),
            ((3, 4), 0),
            ((2, 3, 2), (1, 2)),
            ((2, 3, 2), (-3, -1)),
            ((0, 3), 1),
            ((2, 2, 3), (2, 0)),
            ((3, 2, 4), None),
        ):
            x = make(rng, dtype, shape)
            own = sizes_of(x, axis)
            more = [make(rng, dtype, own, 0.5, 1.5) for _ in range(parameters)]
            found.append(Sample((x, *more), {"axis": axis}))
        x = make(rng, dtype, (4, 6))
        found.append(Sample((x[::2, ::-1],), {"epsilon": 0.1}))
        found.append(Sample((x.T,), {"axis": (0,)}))
        found.append(Sample((x, make(rng, dtype, (6,))), {}))
        found.append(Sample((x[:0],), {}))
        return found

    return samples


def _norm_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x, np.ones(2)), {}, ShapeError, "the sizes of the normalized axes"),
        ErrorSample((x,), {"epsilon": -1.0}, ShapeError, "is not a small number"),
    ]


def _norm_reference(center):
    def reference(x, scale=None, offset=None, *, axis, epsilon):
        axes = normalize_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if i not in axes]
        out = np.empty(x.shape)
        for at in np.ndindex(*(x.shape[i] for i in kept)):
            where = [slice(None)] * x.ndim
            for i, position in zip(kept, at, strict=True):
                where[i] = position
            values = x[tuple(where)].ravel().tolist()
            middle = math.fsum(values) / len(values) if center else 0.0
            square = math.fsum((v - middle) ** 2 for v in values) / len(values)
            scaled = np.array([(v - middle) / math.sqrt(square + epsilon) for v in values])
            out[tuple(where)] = scaled.reshape(x[tuple(where)].shape)
        for parameter, combine in ((scale, np.multiply), (offset, np.add)):
            if parameter is not None:
                order = sorted(range(len(axes)), key=axes.__getitem__)
                spread = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
                out = combine(out, parameter.transpose(order).reshape(spread))
        return out

    return reference


def _gradient_reference(x, g, scale=None, *, axis, epsilon, center):
    """The projection by matrices, example by example."""
    axes = normalize_axes(axis, x.ndim)
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    width = math.prod(x.shape[i] for i in axes)
    x_rows, g_rows = (
        a.astype(np.float64).transpose(order).reshape(x.size // (width or 1), width) for a in (x, g)
    )
    weights = np.ones(width) if scale is None else scale.ravel().astype(np.float64)
    out, of_scale = np.zeros(x_rows.shape), np.zeros(width)
    for i, row in enumerate(x_rows):
        h, jacobian = row_reference(row, epsilon, center)
        out[i] = jacobian.T @ (g_rows[i] * weights)
        of_scale += g_rows[i] * h
    shape = [x.shape[i] for i in axes]
    of_x = out.reshape([x.shape[i] for i in order]).transpose(np.argsort(order))
    return of_x, of_scale.reshape(shape), g_rows.sum(0).reshape(shape)


def row_reference(row, epsilon, center):
    """A row of mean 0 (where ``center``) and mean square 1, and the matrix of its derivatives."""
    ones = np.eye(row.size) - (1 / row.size if center else 0)
    middle = ones @ row
    spread = np.sqrt(middle @ middle / row.size + epsilon)
    return middle / spread, (ones - np.outer(middle, middle) / (row.size * spread**2)) / spread


def _gradient_samples(rng, dtype):
    found = []
    for i, (args, attributes) in enumerate(_norm_samples(1)(rng, dtype)):
        g = make(rng, dtype, args[0].shape)
        found.append(Sample((args[0], g, *args[1:]), {**attributes, "center": i % 2 == 0}))
    return found


CASES = {
    "layer_norm": Cases(_norm_samples(2), _norm_errors, _norm_reference(True)),
    "rms_norm": Cases(_norm_samples(1), _norm_errors, _norm_reference(False)),
    "norm_gradient": Cases(
        samples=_gradient_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(3)), {}, ShapeError, "differ"),
            ErrorSample((np.ones((2, 3)),) * 2, {"axis": 2}, AxisError, "axis 2 does not exist"),
            ErrorSample((np.ones((2, 3)),) * 3, {}, ShapeError, "normalized axes"),
        ],
        reference=_gradient_reference,
    ),
}
