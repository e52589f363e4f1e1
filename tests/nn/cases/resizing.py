"""Layers that give images other sizes or another range."""

import numpy as np

from tests.nn.cases import case
from tests.nn.cases.convolution import IMAGES, SIGNALS, VOLUMES

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3)).astype("uint8")


def repeated(*factors):
    def reference(weights, x):
        for axis, factor in enumerate(factors, 1):
            x = np.repeat(x, factor, axis)
        return x

    return reference


def bilinear(height, width):
    """Each pixel from the four whose middles are around its own; beyond the edge is the edge."""

    def reference(weights, x):
        rows, columns = x.shape[1:3]
        y = np.empty((len(x), height, width, x.shape[-1]))
        for i, j in np.ndindex(height, width):
            r = np.clip((i + 0.5) * rows / height - 0.5, 0, rows - 1)
            c = np.clip((j + 0.5) * columns / width - 0.5, 0, columns - 1)
            top, left = int(r), int(c)
            below, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            upper = x[:, top, left] * (1 - c + left) + x[:, top, right] * (c - left)
            lower = x[:, below, left] * (1 - c + left) + x[:, below, right] * (c - left)
            y[:, i, j] = upper * (1 - r + top) + lower * (r - top)
        return y

    return reference


def nearest(height, width):
    def reference(weights, x):
        rows = ((np.arange(height) + 0.5) * x.shape[1] / height).astype(int)
        columns = ((np.arange(width) + 0.5) * x.shape[2] / width).astype(int)
        return x[:, rows][:, :, columns]

    return reference


def cut(rows, columns, then=lambda weights, x: x):
    """The middle of so many rows and columns."""

    def reference(weights, x):
        top, left = (x.shape[1] - rows) // 2, (x.shape[2] - columns) // 2
        return then(weights, x[:, top : top + rows, left : left + columns])

    return reference


CASES = [
    case("UpSampling1D", inputs=SIGNALS, _reference=repeated(2)),
    case("UpSampling1D", 3, inputs=SIGNALS, _reference=repeated(3)),
    case("UpSampling2D", inputs=IMAGES, _reference=repeated(2, 2)),
    case("UpSampling2D", (3, 1), inputs=IMAGES, _reference=repeated(3, 1)),
    case("UpSampling2D", 2, interpolation="bilinear", inputs=IMAGES, _reference=bilinear(14, 12)),
    case("UpSampling2D", (2, 3), interpolation="bicubic", inputs=IMAGES),
    case("UpSampling2D", 2, interpolation="lanczos3", inputs=IMAGES),
    case("UpSampling2D", 2, interpolation="lanczos5", inputs=IMAGES),
    case("UpSampling3D", inputs=VOLUMES, _reference=repeated(2, 2, 2)),
    case("UpSampling3D", (1, 2, 3), inputs=VOLUMES, _reference=repeated(1, 2, 3)),
    case("Resizing", 4, 9, inputs=IMAGES, _reference=bilinear(4, 9)),
    case("Resizing", 5, 4, "nearest", inputs=IMAGES, _reference=nearest(5, 4)),
    case("Resizing", 10, 4, "bicubic", inputs=IMAGES),
    case("Resizing", 3, 4, "bicubic", antialias=True, inputs=IMAGES),
    case("Resizing", 3, 9, "lanczos3", antialias=True, inputs=IMAGES),
    case("Resizing", 3, 9, "lanczos5", inputs=IMAGES),
    case("Resizing", 3, 3, antialias=True, inputs=IMAGES),
    case(
        "Resizing",
        *(4, 8),
        crop_to_aspect_ratio=True,
        inputs=IMAGES,
        _reference=cut(3, 6, bilinear(4, 8)),
    ),
    case("Resizing", 9, 4, crop_to_aspect_ratio=True, inputs=IMAGES),
    case("Resizing", 4, 8, pad_to_aspect_ratio=True, inputs=IMAGES),
    case("Resizing", 9, 4, pad_to_aspect_ratio=True, fill_value=2.0, inputs=IMAGES),
    case("Resizing", 4, 4, inputs=[PIXELS], _gradients=False),
    case("Resizing", 4, 9, "bicubic", inputs=[PIXELS], _gradients=False),
    case("Resizing", 4, 4, "nearest", inputs=[PIXELS], _gradients=False, _reference=nearest(4, 4)),
    case("CenterCrop", 4, 3, inputs=IMAGES, _reference=cut(4, 3)),
    case("CenterCrop", 4, 3, inputs=[PIXELS], _gradients=False, _reference=cut(4, 3)),
    case("CenterCrop", 8, 4, inputs=IMAGES, _reference=cut(7, 3, bilinear(8, 4))),
    case("CenterCrop", 9, 9, inputs=IMAGES, _reference=cut(6, 6, bilinear(9, 9))),
    case("Rescaling", 2, _reference=lambda w, x: x * 2),
    case("Rescaling", 1 / 127.5, -1, _reference=lambda w, x: x / 127.5 - 1),
    case(
        "Rescaling",
        [1.0, 2.0, 0.5],
        offset=[0.0, 1.0, 2.0],
        inputs=[PIXELS],
        _gradients=False,
        _reference=lambda w, x: x * np.float32([1, 2, 0.5]) + np.float32([0, 1, 2]),
    ),
]
