"""Colors of images, channels last: red, green and blue; hue, saturation and value; gray."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import remainder
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.selection import clip, maximum, minimum, where
from eagerflow.ops.shapes.joining import stack
from eagerflow.tensor import Tensor

__all__ = ["hsv_to_rgb", "rgb_to_grayscale", "rgb_to_hsv"]

GRAY = 0.2989, 0.5870, 0.1140
"""The shares of ITU-R BT.601 in luma, rounded as TensorFlow and Matlab have them."""


def _channels(x: Any) -> list[Any]:
    """The three channels, in float32 at least."""
    if not x.ndim or (isinstance(x.shape[-1], int) and x.shape[-1] != 3):
        raise ShapeError(
            f"the last axis of shape {x.shape} does not hold three colors",
            argument="x",
            expected="(..., 3)",
        )
    wide = astype(x, promote(x.dtype, np.dtype("float32")))
    return [wide[..., i] for i in range(3)]


@composed(
    dtypes=FLOATS,
)
def rgb_to_grayscale(x: Any, /) -> Tensor:
    """Colors as shades of gray: 0.2989 red + 0.5870 green + 0.1140 blue (ITU-R BT.601).

    ``x`` is (..., 3), the result (..., 1); (..., 1) is gray. Raises ShapeError for other shapes.

    >>> ef.rgb_to_grayscale(ef.tensor([[1.0, 1.0, 0.0]]))
    Tensor([[0.8859]], shape=(1, 1), float32, cpu:0)
    """
    if x.ndim and isinstance(x.shape[-1], int) and x.shape[-1] == 1:
        return x
    red, green, blue = _channels(x)
    gray = red * GRAY[0] + green * GRAY[1] + blue * GRAY[2]
    return astype(gray[..., None], x.dtype)


@composed(dtypes=FLOATS)
def rgb_to_hsv(x: Any, /) -> Tensor:
    """Red, green and blue as hue, saturation and value, all from 0 to 1.

    ``x`` is (..., 3). The hue of gray is 0. Raises ShapeError for other shapes.

    >>> ef.rgb_to_hsv(ef.tensor([0.0, 0.5, 0.0]))
    Tensor([0.3333, 1.    , 0.5   ], float32, cpu:0)
    """
    red, green, blue = _channels(x)
    value = maximum(maximum(red, green), blue)
    span = value - minimum(minimum(red, green), blue)
    colored, step = span > 0, 1 / (6 * where(span > 0, span, 1))
    saturation = where(value > 0, span / where(value > 0, value, 1), 0)
    hue = where(
        equal(value, red),
        (green - blue) * step,
        where(equal(value, green), (blue - red) * step + 1 / 3, (red - green) * step + 2 / 3),
    )
    hue = where(colored, where(hue < 0, hue + 1, hue), 0)
    return astype(stack([hue, saturation, value], axis=-1), x.dtype)


@composed(
    dtypes=FLOATS,
    singular=True,
)
def hsv_to_rgb(x: Any, /) -> Tensor:
    """Hue, saturation and value, all from 0 to 1, as red, green and blue.

    ``x`` is (..., 3). Raises ShapeError for other shapes.

    >>> ef.hsv_to_rgb(ef.tensor([0.5, 1.0, 1.0]))
    Tensor([0., 1., 1.], float32, cpu:0)
    """
    hue, saturation, value = _channels(x)
    turn = remainder(hue, 1) * 6
    parts = (
        clip(magnitude(turn - 3) - 1, 0, 1),
        clip(2 - magnitude(turn - 2), 0, 1),
        clip(2 - magnitude(turn - 4), 0, 1),
    )
    colors = [value * (1 - saturation + saturation * part) for part in parts]
    return astype(stack(colors, axis=-1), x.dtype)
