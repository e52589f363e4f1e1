"""ResNet: deep networks of residual blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eagerflow import ops
from eagerflow.nn.arguments import require
from eagerflow.nn.layers.activation import ReLU
from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.merging import Add
from eagerflow.nn.layers.pooling import GlobalAveragePooling2D, MaxPooling2D
from eagerflow.nn.layers.reshaping import ZeroPadding2D
from eagerflow.nn.model import Model
from eagerflow.nn.networks.convolution import convolution
from eagerflow.tensor import Tensor

__all__ = ["resnet", "resnet_cifar"]

_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}

_convolution = partial(convolution, momentum=0.9, epsilon=1e-5)


def _strided(x: Tensor, filters: int, size: int, strides: int, **options: Any) -> Tensor:
    """A convolution that is padded by the same number of rows and columns on all sides."""
    if strides == 1:
        return _convolution(x, filters, size, **options)
    x = ZeroPadding2D(size // 2)(x) if size > 1 else x
    return _convolution(x, filters, size, strides, "valid", **options)


def _basic(x: Tensor, filters: int, strides: int) -> Tensor:
    """Two convolutions."""
    return _convolution(_strided(x, filters, 3, strides), filters, 3, activation=None)


def _bottleneck(x: Tensor, filters: int, strides: int) -> Tensor:
    """A bottleneck: a convolution between two that reduce and restore the number of channels."""
    x = _strided(_convolution(x, filters, 1), filters, 3, strides)
    return _convolution(x, 4 * filters, 1, activation=None)


def _projected(x: Tensor, channels: int, strides: int) -> Tensor:
    """The shortcut of a block that changes the shape: a convolution of the block's inputs."""
    return _strided(x, channels, 1, strides, activation=None)


def _filled(x: Tensor, channels: int, strides: int) -> Tensor:
    """The same without weights: each second row and column, with zeros as further channels."""
    x = x[:, ::strides, ::strides]
    return ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, channels - x.shape[-1])))


def _stages(
    x: Tensor,
    block: Callable[[Tensor, int, int], Tensor],
    shortcut: Callable[[Tensor, int, int], Tensor],
    counts: Sequence[int],
    width: int,
) -> Tensor:
    """Blocks of twice the filters at half the size from stage to stage, then their mean."""
    for stage, count in enumerate(counts):
        for i in range(count):
            strides = 2 if stage and not i else 1
            inner = block(x, width * 2**stage, strides)
            alike = strides == 1 and x.shape[-1] == inner.shape[-1]
            x = ReLU()(Add()([inner, x if alike else shortcut(x, inner.shape[-1], strides)]))
    return GlobalAveragePooling2D()(x)


def resnet(
    depth: int = 50,
    classes: int = 1000,
    input_shape: Sequence[int | None] = (224, 224, 3),
    width: int = 64,
    name: str | None = None,
) -> Model:
    """ResNet: logits of ``classes`` for images, with ``depth`` layers on the longest path.

    Inputs have shape (batch, rows, columns, channels); None in ``input_shape`` is any size.
    ``depth`` is 18, 34, 50, 101 or 152, with 11,689,512, 21,797,672, 25,557,032, 44,549,160 and
    60,192,808 parameters that are trained; ``width`` is the number of filters of the first stage.
    From 50 on, blocks have a narrow convolution between two of size 1. If a block downsamples, its
    convolution of size 3 has the stride, as in most implementations; in the paper it is the one
    before. Raises ArgumentError for other depths. Source: He and others, "Deep residual learning
    for image recognition", 2015.

    >>> model = ef.nn.networks.resnet(18, 10, (32, 32, 3), width=4)
    >>> model(ef.zeros((2, 32, 32, 3))).shape, sum(w.size for w in model.trainable_weights)
    ((2, 10), 45102)
    """
    depths = ", ".join(map(str, _BLOCKS))
    require(depth in _BLOCKS, depth, "not a depth", "resnet", "depth", f"one of {depths}")
    images = Input(tuple(input_shape), name="images")
    x = _strided(images, width, 7, 2)
    x = MaxPooling2D(3, strides=2)(ZeroPadding2D(1)(x))  # after a ReLU: no number is below 0
    x = _stages(x, _basic if depth < 50 else _bottleneck, _projected, _BLOCKS[depth], width)
    return Model(images, Dense(classes, name="logits")(x), name=name or f"resnet{depth}")


def resnet_cifar(
    depth: int = 20,
    classes: int = 10,
    input_shape: Sequence[int | None] = (32, 32, 3),
    width: int = 16,
    name: str | None = None,
) -> Model:
    """The ResNet for small images, such as those of CIFAR-10: logits of ``classes``.

    Inputs have shape (batch, rows, columns, channels); None in ``input_shape`` is any size.
    ``depth`` is 6n + 2: 20, 32, 44, 56 and 110 in the paper, with 269,722, 464,154, 658,586,
    853,018 and 1,727,962 parameters that are trained; ``width`` is the number of filters of the
    first of three stages. Between stages, new channels of the shortcut are zeros. Raises
    ArgumentError for other depths. Source: He and others, "Deep residual learning for image
    recognition", 2015.

    >>> model = ef.nn.networks.resnet_cifar(20)
    >>> model(ef.zeros((2, 32, 32, 3))).shape, sum(w.size for w in model.trainable_weights)
    ((2, 10), 269722)
    """
    count, rest = divmod(depth - 2, 6)
    fits = count > 0 and not rest
    require(fits, depth, "not a depth", "resnet_cifar", "depth", "6n + 2, such as 20, 32 or 56")
    images = Input(tuple(input_shape), name="images")
    x = _stages(_convolution(images, width, 3), _basic, _filled, [count] * 3, width)
    return Model(images, Dense(classes, name="logits")(x), name=name or f"resnet{depth}")
