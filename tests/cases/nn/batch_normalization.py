"""Cases of eagerflow/ops/nn/batch_normalization.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from tests.cases.nn.normalization import row_reference
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(parameters):
    def samples(rng, dtype):
        found = []
        for shape, axis in (
            ((4, 3), -1),
            ((2, 2, 3), -1),
            ((2, 3, 2), 1),
            ((3, 4), 0),
            ((5,), 0),
            ((2, 2, 2, 3), 3),
            ((6, 1), 1),
            ((8, 2), -1),
        ):
            x = make(rng, dtype, shape)
            more = [make(rng, dtype, (shape[axis],), 0.5, 1.5) for _ in range(parameters)]
            found.append(Sample((x, *more), {"axis": axis, "epsilon": 0.25}))
        x = make(rng, dtype, (4, 6))
        found.append(Sample((x[::2, ::-1],), {"epsilon": 0.1}))
        found.append(Sample((x.T,), {"axis": 0}))
        found.append(Sample((x, make(rng, dtype, (6,))), {}))
        found.append(Sample((x[:, :0],), {}))
        return found

    return samples


def _errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x, np.ones(2)), {}, ShapeError, "an element for each channel"),
        ErrorSample((x,), {"epsilon": "small"}, ShapeError, "is not a small number"),
    ]


def _training_reference(x, scale=None, offset=None, *, axis, epsilon):
    out = np.empty(x.shape)
    source, target = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    centers, variances = [], []
    for channel, values in enumerate(source):
        row = values.ravel().tolist()
        center = math.fsum(row) / len(row)
        variance = math.fsum((v - center) ** 2 for v in row) / len(row)
        factor = (1 if scale is None else scale[channel]) / math.sqrt(variance + epsilon)
        target[channel] = (values.astype(float) - center) * factor
        target[channel] += 0 if offset is None else offset[channel]
        centers.append(center)
        variances.append(variance)
    return out, np.array(centers), np.array(variances)


def _gradient_samples(rng, dtype):
    found = []
    for args, attributes in _samples(1)(rng, dtype):
        x, *scale = args
        channels = x.shape[attributes.get("axis", -1)]
        g = make(rng, dtype, x.shape)
        of_moments = [make(rng, dtype, (channels,)) for _ in range(2)]
        found.append(Sample((x, g, *of_moments, *scale), attributes))
    return found


def _gradient_reference(x, g, g_mean, g_variance, scale=None, *, axis, epsilon):
    """The projection by matrices, channel by channel."""
    out = np.empty(x.shape)
    source, above, target = (np.moveaxis(a, axis, 0) for a in (x, g, out))
    of_scale, of_offset = np.zeros((2, len(source)))
    for channel, values in enumerate(source):
        row = values.ravel().astype(float)
        v = above[channel].ravel().astype(float)
        h, jacobian = row_reference(row, epsilon, True)
        moved = row - row.mean()
        weighted = v * (1 if scale is None else float(scale[channel]))
        slope = float(g_mean[channel]) + 2 * float(g_variance[channel]) * moved
        target[channel] = (jacobian @ weighted + slope / row.size).reshape(values.shape)
        of_scale[channel], of_offset[channel] = v @ h, v.sum()
    return out, of_scale, of_offset


CASES = {
    "batch_norm_training": Cases(
        samples=_samples(2), errors=_errors, reference=_training_reference
    ),
    "batch_norm_gradient": Cases(
        samples=_gradient_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), *[np.ones(3)] * 3), {}, ShapeError, "differ"),
            ErrorSample(
                (*[np.ones((2, 3))] * 2, *[np.ones(2)] * 2), {}, ShapeError, "each channel"
            ),
            ErrorSample(
                (*[np.ones((2, 3))] * 2, *[np.ones(3)] * 2), {"axis": 2}, AxisError, "axis 2 does"
            ),
        ],
        reference=_gradient_reference,
    ),
}
