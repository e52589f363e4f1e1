"""Layers that move, repeat, cut off or add values."""

import numpy as np

from tests.nn.cases import case
from tests.nn.cases.convolution import IMAGES, SIGNALS, VOLUMES


def cropped(*pairs):
    ends = [(before, -after or None) for before, after in pairs]
    return lambda weights, x: x[(slice(None), *(slice(a, b) for a, b in ends))]


def padded(*pairs):
    return lambda weights, x: np.pad(x, [(0, 0), *pairs, (0, 0)])


PAIRS = ((0, 2), (1, 0), (1, 1))

CASES = [
    case("Permute", (2, 1), inputs=SIGNALS, _reference=lambda w, x: x.transpose(0, 2, 1)),
    case("Permute", (3, 1, 2), inputs=IMAGES, _reference=lambda w, x: np.moveaxis(x, -1, 1)),
    case("RepeatVector", 3, _reference=lambda w, x: np.stack([x, x, x], axis=1)),
    case("Cropping1D", inputs=SIGNALS, _reference=cropped((1, 1))),
    case("Cropping1D", (0, 3), inputs=SIGNALS, _reference=cropped((0, 3))),
    case("Cropping2D", inputs=IMAGES, _reference=lambda w, x: x),
    case("Cropping2D", 1, inputs=IMAGES, _reference=cropped((1, 1), (1, 1))),
    case("Cropping2D", (1, 2), inputs=IMAGES, _reference=cropped((1, 1), (2, 2))),
    case("Cropping2D", ((0, 2), (1, 0)), inputs=IMAGES, _reference=cropped((0, 2), (1, 0))),
    case("Cropping3D", inputs=VOLUMES, _reference=cropped((1, 1), (1, 1), (1, 1))),
    case("Cropping3D", (1, 0, 2), inputs=VOLUMES, _reference=cropped((1, 1), (0, 0), (2, 2))),
    case("Cropping3D", PAIRS, inputs=VOLUMES, _reference=cropped(*PAIRS)),
    case("ZeroPadding1D", inputs=SIGNALS, _reference=padded((1, 1))),
    case("ZeroPadding1D", (0, 3), inputs=SIGNALS, _reference=padded((0, 3))),
    case("ZeroPadding2D", inputs=IMAGES, _reference=padded((1, 1), (1, 1))),
    case("ZeroPadding2D", (1, 2), inputs=IMAGES, _reference=padded((1, 1), (2, 2))),
    case("ZeroPadding2D", ((0, 2), (1, 0)), inputs=IMAGES, _reference=padded((0, 2), (1, 0))),
    case("ZeroPadding3D", inputs=VOLUMES, _reference=padded((1, 1), (1, 1), (1, 1))),
    case("ZeroPadding3D", 2, inputs=VOLUMES, _reference=padded((2, 2), (2, 2), (2, 2))),
    case("ZeroPadding3D", PAIRS, inputs=VOLUMES, _reference=padded(*PAIRS)),
    case("Flatten", inputs=IMAGES, _reference=lambda w, x: x.reshape(2, -1)),
    case("Flatten", inputs=[(3,)], _reference=lambda w, x: x.reshape(3, 1)),
    case("Flatten", data_format="channels_last", _reference=lambda w, x: x),
    case("Reshape", (8, 3, -1), inputs=IMAGES, _reference=lambda w, x: x.reshape(2, 8, 3, 7)),
    case("Reshape", (), inputs=[(3, 1)], _reference=lambda w, x: x[:, 0]),
    case("Reshape", (-1,), inputs=SIGNALS, _reference=lambda w, x: x.reshape(2, -1)),
]
