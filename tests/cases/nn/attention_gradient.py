"""Cases of eagerflow/ops/nn/attention_gradient.py."""

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    def of(q, k, width, mask=None, **attributes):
        averages = (*q[:3], width)
        shapes = q, k, (*k[:3], width), averages, averages
        arrays = [make(rng, dtype, shape, -1, 1) for shape in shapes]
        log_sums = make(rng, dtype, q[:3], 0.5, 1.5)
        of_log_sums = make(rng, dtype, q[:3]) if attributes.pop("both", False) else None
        return Sample((*arrays, log_sums, mask, of_log_sums), attributes)

    hidden = np.array([[True, False, True], [False, False, False]])
    found = [
        of((1, 1, 1, 1), (1, 1, 1, 1), 1),
        of((2, 2, 2, 3), (2, 2, 3, 3), 2, both=True),
        of((1, 2, 3, 2), (1, 2, 3, 2), 2, is_causal=True),
        of((1, 1, 3, 2), (1, 1, 2, 2), 1, scale=0.5, both=True),
        of((1, 4, 2, 2), (1, 2, 3, 2), 2),
        of((2, 2, 2, 2), (2, 1, 3, 2), 1, is_causal=True, both=True),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, hidden),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, make(rng, dtype, (2, 3)), both=True),
        of((2, 2, 2, 2), (2, 2, 3, 2), 1, make(rng, dtype, (2, 1, 1, 3)), is_causal=True),
        of((1, 1, 0, 2), (1, 1, 3, 2), 2),
        of((0, 1, 2, 2), (0, 1, 3, 2), 2),
        of((1, 1, 2, 2), (1, 1, 0, 2), 2),
    ]
    wide = make(rng, dtype, (2, 3, 2, 4), -1, 1)  # (batch, length, heads, width), seen otherwise
    x = wide.transpose(0, 2, 1, 3)
    log_sums = make(rng, dtype, (2, 3, 2), 0.5, 1.5).transpose(0, 2, 1)
    return [*found, Sample((x, x[:, :, ::-1], x[..., ::2], x[..., :2], x[..., 1::2], log_sums))]


def _errors(rng):
    x, line = np.ones((2, 4, 3, 2)), np.ones((2, 4, 3))
    return [
        ErrorSample((x, x[..., :1], x, x, x, line), {}, ShapeError, "widths differ"),
        ErrorSample((x, x, x, x[:1], x, line), {}, ShapeError, "g has shape"),
        ErrorSample((x, x, x, x, x[..., :1], line), {}, ShapeError, "y has shape"),
        ErrorSample((x, x, x, x, x, x), {}, ShapeError, "log_sums has shape"),
        ErrorSample((x, x, x, x, x, line, None, x), {}, ShapeError, "of_log_sums has shape"),
    ]


def _reference(
    q,
    k,
    v,
    g,
    y,
    log_sums,
    mask,
    of_log_sums,
    is_causal,
    scale,
):
    """The definition, one query at a time."""
    (_, heads, _, width), (_, shared, keys, _) = q.shape, k.shape
    factor = width**-0.5 if scale is None else scale
    of_q, of_k, of_v = (np.zeros(x.shape) for x in (q, k, v))
    seen = None if mask is None else np.broadcast_to(mask, (*q.shape[:3], keys))
    for b, h, i in np.ndindex(q.shape[:3]):
        own, at = (b, h * shared // heads), (b, h, i)
        scores = k[own].astype(float) @ q[at] * factor
        shown = np.ones(keys, bool)
        if seen is not None and seen.dtype.kind == "b":
            shown = seen[at].copy()
        elif seen is not None:
            scores = scores + seen[at]
        if is_causal:
            shown[i + 1 :] = False
        weights = np.where(shown, np.exp(scores - float(log_sums[at])), 0)
        mean = float(g[at].astype(float) @ y[at])
        mean -= 0 if of_log_sums is None else float(of_log_sums[at])
        slopes = weights * (v[own].astype(float) @ g[at] - mean) * factor
        of_q[at] = slopes @ k[own]
        of_k[own] += np.outer(slopes, q[at])
        of_v[own] += np.outer(weights, g[at])
    return of_q, of_k, of_v


CASES = {
    "dot_product_attention_gradient": Cases(samples=_samples, errors=_errors, reference=_reference),
}
