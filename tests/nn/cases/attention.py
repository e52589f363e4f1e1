"""Attention without projections."""

import math

import numpy as np

from tests.nn.cases import case

QUERY, VALUE, KEY = (2, 3, 4), (2, 5, 6), (2, 5, 4)
SELF = (2, 5, 4)
MASKS = [np.array([[True, False, True]]), np.array([[True, True, False, True, False]])]
NONE = [None, np.zeros((1, 5), bool)]  # a query that sees no value gives the mean of all


def attention(score, causal=False):
    """The definition, one query at a time; ``score(weights, query, key)`` is of two vectors."""

    def reference(weights, query, value, key=None):
        key = value if key is None else key
        out = np.zeros((*query.shape[:2], value.shape[-1]))
        for b, i in np.ndindex(*query.shape[:2]):
            seen = [j for j in range(value.shape[1]) if j <= i or not causal]
            powers = [math.exp(score(weights, query[b, i], key[b, j])) for j in seen]
            for j, power in zip(seen, powers, strict=True):
                out[b, i] += power / sum(powers) * value[b, j]
        return out

    return reference


def product(weights, query, key):
    return float(query @ key) * (weights[0] if weights else 1)


def waves(weights, query, key):
    return float(weights[0] * np.tanh(query + key).sum())


def scaled_waves(weights, query, key):
    return float(weights[1] * np.tanh(weights[0] * (query + key)).sum())


def additive(weights, query, key):
    return float((np.tanh(query + key) * (weights[0] if weights else 1)).sum())


def row(cls, *inputs, **kwargs):
    return case(cls, inputs=inputs, _together=True, **kwargs)


CAUSAL, SCORES = {"use_causal_mask": True}, {"return_attention_scores": True}

CASES = [
    row("Attention", QUERY, VALUE, KEY, _reference=attention(product)),
    row("Attention", SELF, SELF, use_scale=True, _reference=attention(product)),
    row("Attention", SELF, SELF, call=CAUSAL, _reference=attention(product, causal=True)),
    row("Attention", QUERY, VALUE, KEY, score_mode="concat", _reference=attention(waves)),
    row(
        *("Attention", QUERY, VALUE, KEY),
        use_scale=True,
        score_mode="concat",
        call=CAUSAL,
        _reference=attention(scaled_waves, causal=True),
    ),
    row("Attention", QUERY, VALUE, KEY, use_scale=True, call=SCORES),
    row("Attention", (2, 2, 3, 4), (2, 2, 5, 4), call=CAUSAL),
    row("Attention", QUERY, VALUE, KEY, call={"mask": MASKS}),
    row("Attention", QUERY, VALUE, KEY, call={"mask": MASKS} | SCORES),
    row("Attention", SELF, SELF, call={"mask": [None, MASKS[1]]} | CAUSAL),
    row("Attention", QUERY, VALUE, KEY, call={"mask": NONE}),
    row("AdditiveAttention", QUERY, VALUE, KEY, call={"mask": MASKS}),
    row("AdditiveAttention", QUERY, VALUE, KEY, call={"mask": NONE}),
    row("Attention", QUERY, VALUE, KEY, dropout=0.5, _random=True),
    row("AdditiveAttention", QUERY, KEY, _reference=attention(additive)),
    row("AdditiveAttention", QUERY, VALUE, KEY, use_scale=False, _reference=attention(additive)),
    row("AdditiveAttention", SELF, SELF, call=CAUSAL | SCORES),
    row("AdditiveAttention", QUERY, KEY, dropout=0.5, _random=True),
]
