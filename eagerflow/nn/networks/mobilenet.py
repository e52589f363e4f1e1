"""MobileNet: small networks of depthwise separable convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.activation import Activation
from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.depthwise import DepthwiseConv2D
from eagerflow.nn.layers.merging import Add
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.normalization import BatchNormalization
from eagerflow.nn.layers.pooling import GlobalAveragePooling2D
from eagerflow.nn.model import Model
from eagerflow.nn.networks.convolution import convolution
from eagerflow.tensor import Tensor

__all__ = ["mobilenet", "mobilenet_v2"]

# Filters and strides of each block.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)),
    *((512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)),
)

# Expansion, filters, number and first strides of blocks.
_INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _depthwise(x: Tensor, strides: int) -> Tensor:
    x = DepthwiseConv2D(3, strides, "same", use_bias=False, depthwise_initializer="he_normal")(x)
    return Activation("relu6")(BatchNormalization()(x))


def mobilenet(
    classes: int = 1000,
    input_shape: Sequence[int | None] = (224, 224, 3),
    alpha: float = 1.0,
    dropout: float = 1e-3,
    name: str = "mobilenet",
) -> Model:
    """MobileNet: logits of ``classes`` for images, from 4,231,976 parameters that are trained.

    Inputs have shape (batch, rows, columns, channels); None in ``input_shape`` is any size.
    ``alpha`` multiplies the numbers of filters. With the running statistics there are 4,253,864
    numbers. Activations are cut off at 6, as in the implementation of the authors. Source: Howard
    and others, "MobileNets: efficient convolutional neural networks for mobile vision
    applications", 2017.

    >>> model = ef.nn.networks.mobilenet(10, (32, 32, 3), alpha=0.25)
    >>> model(ef.zeros((2, 32, 32, 3))).shape, model.count_params()
    ((2, 10), 221114)
    """
    images = Input(tuple(input_shape), name="images")
    x = convolution(images, int(32 * alpha), 3, 2, activation="relu6")
    for filters, strides in _BLOCKS:
        x = convolution(_depthwise(x, strides), int(filters * alpha), 1, activation="relu6")
    x = Dropout(dropout)(GlobalAveragePooling2D()(x))
    return Model(images, Dense(classes, name="logits")(x), name=name)


def _multiple_of_8(filters: float) -> int:
    """The nearest multiple of 8 that is at least 90 percent of ``filters``."""
    found = max(8, int(filters + 4) // 8 * 8)
    return found + 8 if found < 0.9 * filters else found


def _inverted(x: Tensor, expansion: int, filters: int, strides: int) -> Tensor:
    """Many channels between few: expanded, convolved each for itself, and projected."""
    channels = x.shape[-1]
    wide = x if expansion == 1 else convolution(x, expansion * channels, 1, activation="relu6")
    narrow = convolution(_depthwise(wide, strides), filters, 1, activation=None)
    return Add()([x, narrow]) if strides == 1 and channels == filters else narrow


def mobilenet_v2(
    classes: int = 1000,
    input_shape: Sequence[int | None] = (224, 224, 3),
    alpha: float = 1.0,
    dropout: float = 0.2,
    name: str = "mobilenet_v2",
) -> Model:
    """MobileNet v2: logits of ``classes`` for images, from 3,504,872 parameters that are trained.

    Arguments are those of ``mobilenet``; numbers of filters are multiples of 8, and ``alpha`` below
    1 does not affect the last convolution. With the running statistics there are 3,538,984 numbers.
    Source: Sandler and others, "MobileNetV2: inverted residuals and linear bottlenecks", 2018.

    >>> model = ef.nn.networks.mobilenet_v2(10, (32, 32, 3), alpha=0.35)
    >>> model(ef.zeros((2, 32, 32, 3))).shape, model.count_params()
    ((2, 10), 423018)
    """
    images = Input(tuple(input_shape), name="images")
    x = convolution(images, _multiple_of_8(32 * alpha), 3, 2, activation="relu6")
    for expansion, filters, count, first in _INVERTED:
        for i in range(count):
            x = _inverted(x, expansion, _multiple_of_8(filters * alpha), first if not i else 1)
    x = convolution(x, _multiple_of_8(1280 * max(alpha, 1.0)), 1, activation="relu6")
    x = Dropout(dropout)(GlobalAveragePooling2D()(x))
    return Model(images, Dense(classes, name="logits")(x), name=name)
