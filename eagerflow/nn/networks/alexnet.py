"""AlexNet: the network that won ImageNet's contest of 2012."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.convolution import Conv2D
from eagerflow.nn.layers.core import Dense, Flatten, Input
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.normalization import LocalResponseNormalization
from eagerflow.nn.layers.pooling import MaxPooling2D
from eagerflow.nn.layers.reshaping import ZeroPadding2D
from eagerflow.nn.sequential import Sequential

__all__ = ["alexnet"]


def alexnet(
    classes: int = 1000,
    input_shape: Sequence[int] = (224, 224, 3),
    filters: Sequence[int] = (96, 256, 384, 384, 256),
    groups: int = 2,
    units: int = 4096,
    dropout: float = 0.5,
    normalized: bool = True,
    name: str = "alexnet",
) -> Sequential:
    """AlexNet: logits of ``classes`` for images, from 60,965,224 parameters.

    Inputs have shape (batch, rows, columns, channels), at least 63 rows and columns. ``filters``
    are those of the five convolutions, of which the second, fourth and fifth have ``groups``;
    ``units`` is the width of both hidden dense layers, with the rate ``dropout`` on their inputs;
    ``normalized`` adds local response normalization after the first two convolutions. Rows and
    columns are padded by 2, so that the paper's images of 224 x 224 give its 55 x 55 positions.
    With ``filters=(64, 192, 384, 256, 256)``, ``groups=1`` and ``normalized=False`` it is the
    network of "One weird trick", 2014, which torchvision has, of 61,100,840 parameters. Source:
    Krizhevsky and others, "ImageNet classification with deep convolutional neural networks", 2012.

    >>> model = ef.nn.networks.alexnet(10, (63, 63, 3), (8, 16, 24, 24, 16), units=32)
    >>> model(ef.zeros((2, 63, 63, 3))).shape, model.count_params()
    ((2, 10), 14298)
    """

    def convolution(place: int, size: int, strides: int = 1, groups: int = 1) -> Conv2D:
        return Conv2D(
            filters[place],
            size,
            strides,
            "valid" if strides > 1 else "same",
            groups=groups,
            activation="relu",
            kernel_initializer="he_normal",
        )

    def pooled(normalized: bool) -> list[LocalResponseNormalization | MaxPooling2D]:
        scaled = LocalResponseNormalization(2, bias=2.0, alpha=1e-4, beta=0.75)
        return [*([scaled] if normalized else []), MaxPooling2D(3, strides=2)]

    layers = [
        Input(tuple(input_shape), name="images"),
        ZeroPadding2D(2),
        convolution(0, 11, strides=4),
        *pooled(normalized),
        convolution(1, 5, groups=groups),
        *pooled(normalized),
        convolution(2, 3),
        convolution(3, 3, groups=groups),
        convolution(4, 3, groups=groups),
        *pooled(False),
        Flatten(),
        Dropout(dropout),
        Dense(units, "relu"),
        Dropout(dropout),
        Dense(units, "relu"),
        Dense(classes, name="logits"),
    ]
    return Sequential(layers, name=name)
