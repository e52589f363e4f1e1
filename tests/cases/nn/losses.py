"""Cases of eagerflow/ops/nn/losses.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, DTypeError, IndexRangeError, ShapeError
from eagerflow.ops.nn.losses import shape_without
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, pairs, rows


def _probabilities(rng, dtype, shape, axis):
    values = rng.uniform(0.1, 1, shape)
    return (values / values.sum(axis, keepdims=True)).astype(dtype)


def _dense_samples(rng, dtype):
    found = []
    for shape, axis in rows(dtype, empty=False):
        args = make(rng, dtype, shape), _probabilities(rng, dtype, shape, axis)
        found.append(Sample(args, {"axis": axis}))
    logits, labels = make(rng, dtype, (4, 6)), _probabilities(rng, dtype, (4, 6), 1)
    found.append(Sample((logits[::2, ::-1], labels[::2]), {}))
    found.append(Sample((logits.T, labels.T), {"axis": 0}))
    found.append(Sample((logits, 2 * labels), {}))
    found.append(Sample((logits[0], np.eye(6, dtype=dtype)[2]), {}))
    return found


def _dense_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample(("a string", x), {}, DTypeError, "str"),
        ErrorSample((x, x[:1]), {}, ShapeError, "differ"),
        ErrorSample((x, x), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x[:, :0], x[:, :0]), {}, ShapeError, "there are no classes"),
    ]


def _dense_reference(logits, labels, axis):
    x, p = np.moveaxis(logits, axis, -1), np.moveaxis(labels, axis, -1)
    out = np.empty(x.shape[:-1])
    for at in np.ndindex(out.shape):
        row = x[at].tolist()
        total = max(row) + math.log(math.fsum(math.exp(v - max(row)) for v in row))
        out[at] = math.fsum(q * (total - v) for q, v in zip(p[at].tolist(), row, strict=True))
    return out


def _dense_gradient_reference(logits, labels, g, axis):
    at = axis % logits.ndim
    powers = np.exp(logits.astype(float))
    p = powers / powers.sum(at, keepdims=True)
    return np.expand_dims(g, at) * (p * labels.sum(at, keepdims=True) - labels)


def _sparse_samples(rng, dtype):
    found = []
    for shape, axis in rows(dtype, empty=False):
        labels = np.asarray(rng.integers(0, shape[axis], shape_without(shape, axis % len(shape))))
        found.append(Sample((make(rng, dtype, shape), labels), {"axis": axis}))
    logits = make(rng, dtype, (4, 6))
    found.append(Sample((logits[::2, ::-1], np.array([3, 3])), {}))
    found.append(Sample((logits, np.array([5, 0, 1, 5], np.int32)), {}))
    found.append(Sample((logits.T, np.array([0, 3, 1, 2, 0, 3], np.uint8)[::-1]), {}))
    return found


def _sparse_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample(("a string", np.array([0, 1])), {}, DTypeError, "str"),
        ErrorSample((x, np.array([0, 3])), {}, IndexRangeError, "class 3 is out of range"),
        ErrorSample((x, np.array([-1, 0])), {}, IndexRangeError, "class -1 is out of range"),
        ErrorSample((x, np.array([0, 1, 2])), {}, ShapeError, "a class for each example"),
        ErrorSample((x, np.array([0.0, 1.0])), {}, DTypeError, "is not taken"),
    ]


def _one_hot(logits, labels, axis):
    return np.moveaxis(np.eye(logits.shape[axis])[labels], -1, axis)


def _loss_of(x, z):
    return abs(x) * (1 - z if x > 0 else z) + math.log1p(math.exp(-abs(x)))


CASES = {
    "softmax_cross_entropy": Cases(
        samples=_dense_samples, errors=_dense_errors, reference=_dense_reference
    ),
    "softmax_cross_entropy_gradient": Cases(
        samples=lambda rng, dtype: [
            Sample((x, p, make(rng, dtype, p.sum(attributes.get("axis", -1)).shape)), attributes)
            for (x, p), attributes in _dense_samples(rng, dtype)
        ],
        errors=lambda rng: [
            *(e._replace(args=(*e.args, np.ones(2))) for e in _dense_errors(rng)),
            ErrorSample((np.ones((2, 3)),) * 3, {}, ShapeError, "each example"),
        ],
        reference=_dense_gradient_reference,
    ),
    "sparse_softmax_cross_entropy": Cases(
        samples=_sparse_samples,
        errors=_sparse_errors,
        reference=lambda logits, labels, axis: _dense_reference(
            logits, _one_hot(logits, labels, axis), axis
        ),
    ),
    "sparse_softmax_cross_entropy_gradient": Cases(
        samples=lambda rng, dtype: [
            Sample((x, labels, make(rng, dtype, labels.shape)), attributes)
            for (x, labels), attributes in _sparse_samples(rng, dtype)
        ],
        errors=lambda rng: [
            *(e._replace(args=(*e.args, np.ones(2))) for e in _sparse_errors(rng)),
            ErrorSample(
                (np.ones((2, 3)), np.array([0, 1]), np.ones(3)), {}, ShapeError, "each example"
            ),
        ],
        reference=lambda logits, labels, g, axis: _dense_gradient_reference(
            logits, _one_hot(logits, labels, axis), g, axis
        ),
    ),
    "sigmoid_cross_entropy": Cases(samples=pairs(-3, 3, 0, 1), reference=each(_loss_of)),
}
