"""Inception v3: blocks of branches of different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.merging import Concatenate
from eagerflow.nn.layers.pooling import AveragePooling2D, GlobalAveragePooling2D, MaxPooling2D
from eagerflow.nn.model import Model
from eagerflow.nn.networks.convolution import convolution
from eagerflow.tensor import Tensor

__all__ = ["inception_v3"]

_convolution = partial(convolution, scale=False)


class _Step(NamedTuple):
    """A convolution of a branch; the sizes of several are computed side by side and joined."""

    filters: int
    sizes: tuple[int | tuple[int, int], ...]
    halves: bool = False


_Branch = Sequence[_Step]


def _c(filters: int, *sizes: int | tuple[int, int]) -> _Step:
    return _Step(filters, sizes)


def _halved(filters: int) -> _Step:
    return _Step(filters, (3,), halves=True)


def _along(x: Tensor, branch: _Branch, width: float) -> list[Tensor]:
    """The result of a branch on ``x``: one tensor, or those of its last step concatenated."""
    found = [x]
    for filters, sizes, halves in branch:
        how = (2, "valid") if halves else (1, "same")
        found = [_convolution(found[0], int(filters * width), size, *how) for size in sizes]
    return found


def _mixed(x: Tensor, width: float, pooled: int, *branches: _Branch) -> Tensor:
    """Branches, and one that pools the mean of neighbours into ``pooled`` channels."""
    mean = AveragePooling2D(3, strides=1, padding="same")(x)
    found = [part for branch in branches for part in _along(x, branch, width)]
    return Concatenate()([*found, *_along(mean, [_c(pooled, 1)], width)])


def _reduced(x: Tensor, width: float, *branches: _Branch) -> Tensor:
    """Branches that halve the size, and one that pools the largest of neighbours."""
    found = [part for branch in branches for part in _along(x, branch, width)]
    return Concatenate()([*found, MaxPooling2D(3, strides=2)(x)])


def _stem(x: Tensor, width: float) -> Tensor:
    x = _convolution(x, int(32 * width), 3, 2, "valid")
    x = _convolution(x, int(32 * width), 3, padding="valid")
    x = MaxPooling2D(3, strides=2)(_convolution(x, int(64 * width), 3))
    x = _convolution(x, int(80 * width), 1, padding="valid")
    return MaxPooling2D(3, strides=2)(_convolution(x, int(192 * width), 3, padding="valid"))


def inception_v3(
    classes: int = 1000,
    input_shape: Sequence[int | None] = (299, 299, 3),
    width: float = 1.0,
    name: str = "inception_v3",
) -> Model:
    """Inception v3: logits of ``classes`` for images, from 23,817,352 parameters that are trained.

    Inputs have shape (batch, rows, columns, channels), rows and columns at least 75; None in
    ``input_shape`` is any size. ``width`` multiplies the numbers of filters. With the running
    statistics there are 23,851,784 numbers. As in the implementation of the authors, normalization
    shifts and does not scale; the auxiliary classifier is omitted. Source: Szegedy and others,
    "Rethinking the Inception architecture for computer vision", 2015.

    >>> model = ef.nn.networks.inception_v3(10, (75, 75, 3), width=0.125)
    >>> model(ef.zeros((2, 75, 75, 3))).shape, model.count_params()
    ((2, 10), 348982)
    """
    row, column = (1, 7), (7, 1)
    sides = (1, 3), (3, 1)
    images = Input(tuple(input_shape), name="images")
    x = _stem(images, width)
    double = _c(64, 1), _c(96, 3)
    for pooled in (32, 64, 64):
        x = _mixed(x, width, pooled, [_c(64, 1)], [_c(48, 1), _c(64, 5)], [*double, _c(96, 3)])
    x = _reduced(x, width, [_halved(384)], [*double, _halved(96)])
    for n in (128, 160, 160, 192):
        once = [_c(n, 1), _c(n, row), _c(192, column)]
        twice = [_c(n, 1), _c(n, column), _c(n, row), _c(n, column), _c(192, row)]
        x = _mixed(x, width, 192, [_c(192, 1)], once, twice)
    long = [_c(192, 1), _c(192, row), _c(192, column), _halved(192)]
    x = _reduced(x, width, [_c(192, 1), _halved(320)], long)
    for _ in range(2):
        wide = [_c(384, 1), _c(384, *sides)]
        wider = [_c(448, 1), _c(384, 3), _c(384, *sides)]
        x = _mixed(x, width, 192, [_c(320, 1)], wide, wider)
    logits = Dense(classes, name="logits")(GlobalAveragePooling2D()(x))
    return Model(images, logits, name=name)
