"""Positions; Keras has no such layers, so each has a definition of loops."""

import math
from functools import partial

import numpy as np

from tests.nn.cases import case


def turned(start=0, wavelength=10_000.0, factor=1.0, axis=1):
    """Each pair of numbers as a complex number, turned in the plane."""

    def reference(weights, x):
        half = x.shape[-1] // 2
        out = np.empty_like(x)
        for at in np.ndindex(*x.shape[:-1]):
            for i in range(half):
                angle = (at[axis] + start) / factor * wavelength ** (-i / half)
                number = complex(x[at][i], x[at][i + half])
                number *= complex(math.cos(angle), math.sin(angle))
                out[at][i], out[at][i + half] = number.real, number.imag
        return out

    return reference


def waves(start=0, wavelength=10_000.0):
    def reference(weights, x):
        out = np.empty_like(x)
        for at in np.ndindex(*x.shape):
            place, i = at[-2] + start, at[-1]
            angle = place / wavelength ** ((i - i % 2) / x.shape[-1])
            out[at] = math.cos(angle) if i % 2 else math.sin(angle)
        return out

    return reference


def learned(start, end):
    return lambda weights, x: np.broadcast_to(weights[0][start:end], x.shape)


case = partial(case, _keras=None)
LATER = {"call": {"start_index": 3}}

CASES = [
    case("RotaryEmbedding", inputs=[(2, 5, 3, 4)], _reference=turned()),
    case("RotaryEmbedding", inputs=[(2, 5, 6)], _reference=turned()),
    case(
        *("RotaryEmbedding", 100.0, 2.0),
        sequence_axis=2,
        inputs=[(2, 3, 5, 4)],
        **LATER,
        _reference=turned(3, 100.0, 2.0, 2),
    ),
    case("SinePositionEncoding", inputs=[(2, 5, 4)], _gradients=False, _reference=waves()),
    case(
        *("SinePositionEncoding", 50.0),
        inputs=[(2, 3, 5, 3)],
        call={"start_index": 7},
        _gradients=False,
        _reference=waves(7, 50.0),
    ),
    case("PositionEmbedding", 8, inputs=[(2, 5, 3)], _reference=learned(0, 5)),
    case("PositionEmbedding", 8, "ones", inputs=[(2, 3, 5, 4)], **LATER, _reference=learned(3, 8)),
]
