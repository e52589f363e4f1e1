"""Attention."""

import numpy as np


def dot_product_attention(q, k, v, mask=None, is_causal=False, scale=None):
    """Values averaged by the softmax of products of queries and keys, and logs of its sums."""
    if k.shape[-3] < q.shape[-3]:  # heads share keys
        each = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, each, axis=-3), np.repeat(v, each, axis=-3)
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.mT
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0)
    weights = np.exp(scores - largest)
    total = np.sum(weights, axis=-1, keepdims=True)
    total = np.where(total == 0, 1, total)
    return weights / total @ v, (np.log(total) + largest)[..., 0]
