"""Numbers as categories."""

from functools import partial

import numpy as np

from tests.nn.cases import case

TOKENS = np.array([[0, 2], [1, 1], [3, 0]])
VALUES = np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 2.0]], dtype="float32")


def rows(depth, mode):
    def reference(weights, tokens):
        found = np.zeros((len(tokens), depth), "float32")
        for row, example in zip(found, tokens, strict=True):
            for token in example:
                row[token] = row[token] + 1 if mode == "count" else 1
        return found

    return reference


def bins(weights, values):
    return np.digitize(values, [0.0, 1.0, 2.0])


def one_hot(weights, tokens):
    return np.eye(4, dtype="float32")[tokens]


case = partial(case, _gradients=False)
ENDS = [0.0, 1.0, 2.0]

CASES = [
    case("CategoryEncoding", 4, inputs=[TOKENS], _reference=rows(4, "multi")),
    case("CategoryEncoding", 4, output_mode="count", inputs=[TOKENS], _reference=rows(4, "count")),
    case("CategoryEncoding", 4, output_mode="one_hot", inputs=[TOKENS], _reference=one_hot),
    case(
        *("CategoryEncoding", 4),
        output_mode="one_hot",
        inputs=[TOKENS[:, :1]],
        _reference=lambda weights, tokens: one_hot(weights, tokens[:, 0]),
    ),
    case("CategoryEncoding", 5, inputs=[TOKENS[:, :, None].repeat(3, 2)]),
    case("Discretization", bin_boundaries=ENDS, inputs=[VALUES], _reference=bins),
    *(
        case("Discretization", bin_boundaries=ENDS, output_mode=mode, inputs=[VALUES])
        for mode in ("one_hot", "multi_hot", "count")
    ),
]
