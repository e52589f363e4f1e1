"""Cases of eagerflow/ops/nn/weight_products.py."""

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    found = []
    cases = (((2,), 3, 4, 5), ((3, 2), 1, 6, 2), ((1,), 2, 2, 1), ((0,), 1, 2, 3))
    for rows, groups, height, columns in (*cases, ((5,), 4, 32, 70)):
        for kind in ("int8", "uint8"):
            limits = np.iinfo(kind)
            shape = groups, height // (2 if kind == "uint8" else 1), columns
            w = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)
            scale = make(rng, "float32", (groups, 1, columns), 0.01, 0.02)
            found.append(Sample((make(rng, dtype, (*rows, groups * height)), w, scale)))
    return found


def _reference(x, w, scale):
    """Row by row of the weights, in float64."""
    out = np.zeros((*x.shape[:-1], w.shape[-1]))
    halves = 2 if w.dtype == np.uint8 else 1
    for row in range(x.shape[-1]):
        group, inside = divmod(row, halves * w.shape[1])
        numbers = w[group, inside // halves].astype(np.int64)
        if halves == 2:
            numbers = numbers // 16 if inside % 2 else numbers % 16
            numbers = np.where(numbers > 7, numbers - 16, numbers)
        weights = numbers * scale[group, 0].astype(np.float64)
        out += x[..., row : row + 1].astype(np.float64) * weights
    return out.astype(x.dtype)


def _errors(rng):
    x, w = rng.random((2, 6)).astype("float32"), rng.integers(-9, 9, (2, 3, 4), np.int8)
    scale = np.ones((2, 1, 4), "float32")
    return [
        ErrorSample((x[:, :5], w, scale), {}, ShapeError, "the 6 rows"),
        ErrorSample((x[0], w, scale), {}, ShapeError, "the 6 rows"),
        ErrorSample((x, w[0], scale), {}, ShapeError, "with scales"),
        ErrorSample((x, w, scale[:1]), {}, ShapeError, "with scales"),
    ]


CASES = {
    "weight_matmul": Cases(samples=_samples, errors=_errors, reference=_reference),
}
