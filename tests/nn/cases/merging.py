"""Layers of a list of tensors."""

from functools import partial, reduce

import numpy as np

from tests.nn.cases import case

case = partial(case, _together=True)
THREE = [(2, 3, 4)] * 3
UNLIKE = [(2, 3, 4), (2, 1, 4), (2, 4)]


def of(f, mean=False):
    def reference(weights, *arrays):
        rank = max(a.ndim for a in arrays)
        spread = [a.reshape(a.shape[0], *(1,) * (rank - a.ndim), *a.shape[1:]) for a in arrays]
        return reduce(f, spread) / (len(arrays) if mean else 1)

    return reference


def dot(subscripts, normalize=()):
    def reference(weights, a, b):
        if normalize:
            a, b = (
                x / np.linalg.norm(x, axis=i, keepdims=True)
                for x, i in zip((a, b), normalize, strict=True)
            )
        return np.einsum(subscripts, a, b)

    return reference


CASES = [
    case("Add", inputs=THREE, _reference=of(np.add)),
    case("Add", inputs=UNLIKE, _reference=of(np.add)),
    case("Average", inputs=THREE, _reference=of(np.add, True)),
    case("Average", inputs=UNLIKE, _reference=of(np.add, True)),
    case("Subtract", inputs=THREE[:2], _reference=of(np.subtract)),
    case("Subtract", inputs=UNLIKE[1:], _reference=of(np.subtract)),
    case("Multiply", inputs=THREE, _reference=of(np.multiply)),
    case("Multiply", inputs=UNLIKE, _reference=of(np.multiply)),
    case("Maximum", inputs=THREE, _reference=of(np.maximum)),
    case("Maximum", inputs=UNLIKE, _reference=of(np.maximum)),
    case("Minimum", inputs=THREE, _reference=of(np.minimum)),
    case("Minimum", inputs=UNLIKE, _reference=of(np.minimum)),
    case("Concatenate", inputs=THREE, _reference=lambda w, *x: np.concatenate(x, -1)),
    case("Concatenate", axis=1, inputs=UNLIKE[:2], _reference=lambda w, *x: np.concatenate(x, 1)),
    case("Dot", 1, inputs=[(3, 4)] * 2, _reference=lambda w, a, b: (a * b).sum(1, keepdims=True)),
    case("Dot", (2, 1), inputs=[(3, 2, 4), (3, 4, 5)], _reference=dot("abi,aic->abc")),
    case("Dot", 1, inputs=[(3, 4, 2), (3, 4, 5)], _reference=dot("aib,aic->abc")),
    case("Dot", -1, inputs=[(3, 2, 4), (3, 5, 4)], _reference=dot("abi,aci->abc")),
    case("Dot", (1, 2), inputs=[(3, 4), (3, 5, 4)], _reference=dot("ai,aci->ac")),
    case("Dot", (3, 1), inputs=[(2, 3, 2, 4), (2, 4, 5, 3)], _reference=dot("abci,aide->abcde")),
    case(
        "Dot", (2, 1), True, inputs=[(3, 2, 4), (3, 4, 5)], _reference=dot("abi,aic->abc", (2, 1))
    ),
]
