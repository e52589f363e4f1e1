"""Images from the columns of their windows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.onnx.reading.calls import Call, known_list, operator
from eagerflow.onnx.reading.operators.windows import windows_of


@operator("Col2Im")
def col2im(call: Call, x: Any, image_shape: Any, block_shape: Any, **attributes: Any) -> Any:
    """Windows (batch, channels * window, positions) added up where they lie in the image.

    That is the gradient of a convolution whose filters each take one element of the window.
    """
    sizes, block = tuple(known_list(image_shape)), tuple(known_list(block_shape))
    found = windows_of(call, sizes, block, **attributes)
    taps, out = prod(block), found.positions(sizes)
    if x.ndim != 3 or x.shape[1] % taps or any(n < 1 for n in out):
        call.refuse(f"columns of shape {x.shape} for windows {list(block)} of {list(sizes)}")
    channels = x.shape[1] // taps
    parts = ef.reshape(x, (-1, taps, *out))
    filters = np.eye(taps).reshape(*block, 1, taps)
    y = ef.conv_input_gradient(
        ef.permute_dims(parts, (0, *range(2, parts.ndim), 1)),
        ef.tensor(filters, dtype=x.dtype),
        size=sizes,
        strides=found.strides,
        padding=found.pads,
        dilation=found.dilations,
    )
    return ef.reshape(y, (-1, channels, *sizes))
