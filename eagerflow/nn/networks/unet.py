"""U-Net: a network that classifies each pixel."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.convolution import Conv2D, Conv2DTranspose
from eagerflow.nn.layers.core import Input
from eagerflow.nn.layers.merging import Concatenate
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.pooling import MaxPooling2D
from eagerflow.nn.layers.reshaping import Cropping2D
from eagerflow.nn.model import Model
from eagerflow.tensor import Tensor

__all__ = ["unet"]


def _two(x: Tensor, filters: int, padding: str) -> Tensor:
    for _ in range(2):
        x = Conv2D(filters, 3, 1, padding, activation="relu", kernel_initializer="he_normal")(x)
    return x


def _cut(x: Tensor, like: Tensor) -> Tensor:
    """The center of ``x``, with as many rows and columns as ``like``."""
    excess = [a - b for a, b in zip(x.shape[1:3], like.shape[1:3], strict=True)]
    return Cropping2D([(n // 2, n - n // 2) for n in excess])(x) if any(excess) else x


def unet(
    classes: int = 2,
    input_shape: Sequence[int] = (572, 572, 1),
    width: int = 64,
    depth: int = 4,
    padding: str = "valid",
    dropout: float = 0.5,
    name: str = "unet",
) -> Model:
    """U-Net: logits of ``classes`` for each pixel, from 31,030,658 parameters.

    Inputs have shape (batch, rows, columns, channels). The image is halved ``depth`` times, while
    the number of filters, initially ``width``, doubles, and then upsampled again, concatenated each
    time with the earlier features of that size. Without padding the outputs lack a border, of 92
    pixels on each side in the paper; with ``padding="same"`` they have the size of the inputs,
    which 2**depth has to divide. ``dropout`` is the rate at the lowest level. Source: Ronneberger
    and others, "U-Net: convolutional networks for biomedical image segmentation", 2015.

    >>> model = ef.nn.networks.unet(2, (32, 32, 1), width=4, depth=2, padding="same")
    >>> model(ef.zeros((1, 32, 32, 1))).shape, model.count_params()
    ((1, 32, 32, 2), 7402)
    """
    images = x = Input(tuple(input_shape), name="images")
    kept = []
    for level in range(depth):
        kept.append(_two(x, width * 2**level, padding))
        x = MaxPooling2D(2)(kept[-1])
    x = Dropout(dropout)(_two(x, width * 2**depth, padding))
    for level in reversed(range(depth)):
        filters = width * 2**level
        x = Conv2DTranspose(filters, 2, strides=2, kernel_initializer="he_normal")(x)
        x = _two(Concatenate()([_cut(kept[level], x), x]), filters, padding)
    return Model(images, Conv2D(classes, 1, name="logits")(x), name=name)
