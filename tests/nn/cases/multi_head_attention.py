"""Attention with heads and projections."""

import math
from functools import partial

import numpy as np

from tests.nn.cases import case

QUERY, VALUE, KEY = (2, 3, 4), (2, 5, 6), (2, 5, 7)
SELF = (2, 5, 4)


def heads(causal=False, groups=1, bias=True, window=None):
    """The definition: each head, each query on its own; weights in Keras's order."""

    def reference(weights, query, value, key=None):
        step = 2 if bias else 1
        kernels = weights[::step]
        biases = weights[1::step] if bias else [0.0] * 4
        key = value if key is None else key
        q, k, v = (
            np.einsum("blw,whd->bhld", x, kernel) + (b[None, :, None] if bias else 0.0)
            for x, kernel, b in zip((query, key, value), kernels, biases, strict=False)
        )
        out = np.zeros((*q.shape[:3], v.shape[-1]))
        for b, h, i in np.ndindex(*q.shape[:3]):
            seen = [
                j
                for j in range(k.shape[2])
                if (j <= i or not causal) and (window is None or abs(i - j) < window)
            ]
            own = k[b, h // groups]
            powers = [math.exp(q[b, h, i] @ own[j] / math.sqrt(q.shape[-1])) for j in seen]
            for j, power in zip(seen, powers, strict=True):
                out[b, h, i] += power / sum(powers) * v[b, h // groups, j]
        return np.einsum("bhld,hd...->bl...", out, kernels[3]) + biases[3]

    return reference


def row(cls, *args, inputs=(QUERY, VALUE), **kwargs):
    return case(cls, *args, inputs=inputs, **kwargs)


def mask(*shape):
    """Bools of which each row has a True."""
    found = np.random.default_rng(7).random(shape) < 0.6
    found[..., 0] = True
    return found


def masks(*last):
    """Masks of queries (which Keras takes from the query alone), values, keys, and pairs."""
    return np.ones((2, 3), bool), mask(2, 5), mask(2, 5), mask(*last)


HIDDEN = mask(1, 3, 5)
HIDDEN[0, 1] = False  # a query that sees nothing
SCORES = {"return_attention_scores": True}
CAUSAL = {"use_causal_mask": True}

MORE = (2, 3, 4, 5), (2, 3, 6, 5)  # with an axis more
ONES = {"kernel_initializer": "he_normal", "bias_initializer": "ones"}
two_heads = partial(row, "MultiHeadAttention", 2, 3)

CASES = [
    two_heads(_reference=heads()),
    two_heads(inputs=[QUERY, VALUE, KEY], _reference=heads()),
    two_heads(inputs=[SELF, SELF], call=CAUSAL, _reference=heads(True)),
    # Keras 3.15 with JAX takes values of another width only where scores are wanted.
    two_heads(5, _keras=None, _reference=heads()),
    two_heads(5, call=SCORES | CAUSAL, inputs=[SELF, SELF]),
    two_heads(use_bias=False, _reference=heads(bias=False)),
    two_heads(output_shape=5, _reference=heads()),
    two_heads(output_shape=(5, 2), _reference=heads()),
    two_heads(sliding_window=2, _reference=heads(window=2)),
    two_heads(sliding_window=2, inputs=[SELF, SELF], call=CAUSAL | SCORES),
    two_heads(call=SCORES),
    two_heads(use_gate=True, value_dim=4, call=SCORES),
    two_heads(use_gate=True),
    two_heads(inputs=[QUERY, VALUE, KEY, *masks(2, 3, 5)]),
    two_heads(inputs=[QUERY, VALUE, KEY, *masks(2, 3, 5)], call=SCORES),
    two_heads(call=CAUSAL | {"attention_mask": mask(1, 2, 3, 5)}),
    two_heads(call=CAUSAL | {"attention_mask": mask(3, 5)}),
    two_heads(call=SCORES | {"attention_mask": HIDDEN}),
    two_heads(inputs=MORE, attention_axes=2),
    two_heads(inputs=MORE, attention_axes=-2),
    two_heads(inputs=[(2, 3, 4, 5), (2, 2, 6, 5)]),
    two_heads(attention_axes=(1, 3), inputs=[(2, 3, 4, 3, 5), (2, 2, 4, 5, 5)], call=SCORES),
    two_heads(dropout=0.5, _random=True),
    two_heads(**ONES, kernel_regularizer="l2", bias_regularizer="l1"),
    row("GroupQueryAttention", 3, 4, 2, _reference=heads(groups=2)),
    row("GroupQueryAttention", 3, 4, 1, inputs=[QUERY, VALUE, KEY], _reference=heads(groups=4)),
    row(
        *("GroupQueryAttention", 3, 4, 2),
        inputs=[SELF, SELF],
        call=CAUSAL,
        _reference=heads(True, groups=2),
    ),
    row("GroupQueryAttention", 3, 4, 2, use_bias=False, call=SCORES),
    row("GroupQueryAttention", 3, 4, 2, use_gate=True, sliding_window=2),
    row("GroupQueryAttention", 3, 4, 2, inputs=[QUERY, VALUE, KEY, *masks(2, 3, 5)]),
    row("GroupQueryAttention", 3, 4, 2, call=SCORES | {"attention_mask": HIDDEN}),
    row("GroupQueryAttention", 3, 4, 4, dropout=0.5, _random=True),
]
