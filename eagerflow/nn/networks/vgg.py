"""VGG: deep networks of small convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.arguments import require
from eagerflow.nn.layer import Layer
from eagerflow.nn.layers.convolution import Conv2D
from eagerflow.nn.layers.core import Dense, Flatten, Input
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.pooling import MaxPooling2D
from eagerflow.nn.sequential import Sequential

__all__ = ["vgg"]

_CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def vgg(
    depth: int = 16,
    classes: int = 1000,
    input_shape: Sequence[int] = (224, 224, 3),
    width: int = 64,
    units: int = 4096,
    dropout: float = 0.5,
    name: str | None = None,
) -> Sequential:
    """VGG: logits of ``classes`` for images, from ``depth`` layers that have weights.

    Inputs have shape (batch, rows, columns, channels), rows and columns at least 32. ``depth`` is
    11, 13, 16 or 19, of 132,863,336, 133,047,848, 138,357,544 and 143,667,240 parameters. ``width``
    is the number of filters of the first convolutions, ``units`` the width of both hidden dense
    layers, with the rate ``dropout`` on their outputs. Weights are initialized as by He and others,
    2015; the paper trains the shallow networks first, and initializes the deep ones with their
    weights. Raises ArgumentError for other depths. Source: Simonyan and Zisserman, "Very deep
    convolutional networks for large-scale image recognition", 2014.

    >>> model = ef.nn.networks.vgg(11, 10, (32, 32, 3), width=4, units=16)
    >>> model(ef.zeros((2, 32, 32, 3))).shape, model.count_params()
    ((2, 10), 37250)
    """
    require(depth in _CONVOLUTIONS, depth, "not a depth", "vgg", "depth", "11, 13, 16 or 19")
    layers: list[Layer] = []
    for stage, count in enumerate(_CONVOLUTIONS[depth]):
        filters = width * min(2**stage, 8)
        layers += [
            Conv2D(filters, 3, 1, "same", activation="relu", kernel_initializer="he_normal")
            for _ in range(count)
        ]
        layers.append(MaxPooling2D(2))
    layers.append(Flatten())
    for _ in range(2):
        layers += [Dense(units, "relu", kernel_initializer="he_normal"), Dropout(dropout)]
    layers.append(Dense(classes, name="logits"))
    return Sequential(
        [Input(tuple(input_shape), name="images"), *layers], name=name or f"vgg{depth}"
    )
