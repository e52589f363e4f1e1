"""Embeddings."""

import numpy as np

from tests.nn.cases import case

WORDS = np.array([[1, 2, 0], [3, 0, 0]])


def embedding(weights, indices):
    return np.stack([[weights[0][i] for i in row] for row in indices])


def capped(weights, x):
    return 0.5 * np.tanh(x @ weights[1] / 0.5)


ONES = {"embeddings_initializer": "ones", "embeddings_regularizer": "l2"}
REVERSED = {"inputs": [(2, 4, 3)], "call": {"reverse": True}}

CASES = [
    case("Embedding", 5, 3, inputs=[WORDS], _reference=embedding),
    case("Embedding", 5, 3, mask_zero=True, inputs=[WORDS.astype("int32")], _reference=embedding),
    case("Embedding", 5, 3, **ONES, inputs=[WORDS[:, 0]]),
    case("ReversibleEmbedding", 5, 3, inputs=[WORDS], _reference=embedding),
    case("ReversibleEmbedding", 5, 3, tie_weights=False, mask_zero=True, inputs=[WORDS]),
    case("ReversibleEmbedding", 5, 3, **REVERSED, _reference=lambda weights, x: x @ weights[0].T),
    case(
        *("ReversibleEmbedding", 5, 3),
        tie_weights=False,
        logit_soft_cap=0.5,
        **REVERSED,
        _reference=capped,
    ),
]
