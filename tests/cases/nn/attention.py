"""Cases of eagerflow/ops/nn/attention.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    def of(q, k, width, mask=None, **attributes):
        arrays = [make(rng, dtype, shape, -1, 1) for shape in (q, k, (*k[:3], width))]
        return Sample((*arrays, mask), attributes)

    hidden = np.array([[True, False, True], [False, False, False]])
    full = rng.random((2, 2, 2, 3)) < 0.7
    full[..., 0] = True
    bias = make(rng, dtype, (2, 3))
    found = [
        of((1, 1, 1, 1), (1, 1, 1, 1), 1),
        of((2, 2, 2, 3), (2, 2, 3, 3), 2),
        of((1, 2, 3, 2), (1, 2, 3, 2), 2, is_causal=True),
        of((1, 1, 3, 2), (1, 1, 2, 2), 1, scale=0.5),
        of((1, 1, 2, 2), (1, 1, 4, 2), 2, is_causal=True),
        of((1, 4, 2, 2), (1, 2, 3, 2), 2),
        of((2, 2, 2, 2), (2, 1, 3, 2), 2, is_causal=True),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, hidden),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, full),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, bias),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, make(rng, dtype, (2, 1, 1, 3)), is_causal=True),
        of((1, 4, 2, 2), (1, 2, 3, 2), 1, full[:1, :1, :, :].repeat(4, 1)),
        of((1, 1, 0, 2), (1, 1, 3, 2), 2),
        of((0, 1, 2, 2), (0, 1, 3, 2), 2),
        of((1, 1, 2, 2), (1, 1, 0, 2), 2),
    ]
    wide = make(rng, dtype, (2, 3, 2, 4), -1, 1)  # (batch, length, heads, width), seen otherwise
    moved = wide.transpose(0, 2, 1, 3)
    return [*found, Sample((moved, moved[:, :, ::-1], moved[..., ::2], None))]


def _errors(rng):
    x, wide = np.ones((2, 4, 3, 2)), np.ones((2, 4, 3, 5))
    ints = np.ones((3, 3), int)
    return [
        ErrorSample(("a string", x, x), {}, DTypeError, "str"),
        ErrorSample((x[0], x, x), {}, ShapeError, "3 axes given"),
        ErrorSample((x, wide, x), {}, ShapeError, "widths differ: 2 in q, 5 in k"),
        ErrorSample((x, x[:1], x), {}, ShapeError, "batch sizes differ"),
        ErrorSample((x, x, x[:, :, :2]), {}, ShapeError, "one value for each key"),
        ErrorSample((x, x[:, :3], x[:, :3]), {}, ShapeError, "cannot share 3 heads"),
        ErrorSample((x, x, x, np.ones((4, 3))), {}, ShapeError, "does not broadcast"),
        ErrorSample((x, x, x, ints), {}, DTypeError, "could mean two things"),
    ]


def _reference(q, k, v, mask, is_causal, scale):
    """The definition, one query at a time."""
    (batch, heads, length, width), (_, shared, keys, _) = q.shape, k.shape
    factor = 1 / math.sqrt(width) if scale is None else scale
    out, log_sums = np.zeros((batch, heads, length, v.shape[3])), np.zeros((batch, heads, length))
    seen = None if mask is None else np.broadcast_to(mask, (batch, heads, length, keys))
    for b, h, i in np.ndindex(batch, heads, length):
        own = h * shared // heads
        scores = []
        for j in range(keys):
            products = zip(q[b, h, i].tolist(), k[b, own, j].tolist(), strict=True)
            score = math.fsum(x * y for x, y in products) * factor
            if seen is not None and seen.dtype.kind == "b":
                score = score if seen[b, h, i, j] else -math.inf
            elif seen is not None:
                score += float(seen[b, h, i, j])
            scores.append(-math.inf if is_causal and j > i else score)
        top = max(scores, default=0.0)
        powers = [math.exp(s - top) if s > -math.inf else 0.0 for s in scores]
        whole = math.fsum(powers)
        log_sums[b, h, i] = top + math.log(whole) if whole else 0
        for c in range(v.shape[3]):
            terms = [p * float(v[b, own, j, c]) for j, p in enumerate(powers)]
            out[b, h, i, c] = math.fsum(terms) / whole if whole else 0.0
    return out, log_sums


CASES = {
    "dot_product_attention": Cases(samples=_samples, errors=_errors, reference=_reference),
}
