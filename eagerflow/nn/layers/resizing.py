"""Layers that resize images or rescale their values: no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import DimLike
from eagerflow.dtypes import is_floating
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, Float, TensorLike, choice
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.spatial import DataFormat, SpatialLayer, Window
from eagerflow.tensor import Tensor

__all__ = [
    "CenterCrop",
    "Rescaling",
    "Resizing",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
]

Interpolation = Annotated[
    str, choice("not a method", "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
]


class _UpSampling(SpatialLayer):
    """Base of layers that upsample spatial axes by integer factors."""

    size: tuple[int, ...]
    interpolation = "nearest"

    @arguments
    def __init__(
        self, size: Window = 2, data_format: DataFormat = None, **options: Unpack[LayerOptions]
    ) -> None:
        self.per_axis("size")

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        if self.interpolation == "nearest":
            for axis, factor in enumerate(self.size, 1):
                inputs = ops.repeat(inputs, factor, axis=axis)
            return inputs
        sizes = [n * factor for n, factor in zip(inputs.shape[1:-1], self.size, strict=True)]
        return ops.resize(inputs, tuple(sizes), self.interpolation)


class UpSampling1D(_UpSampling):
    """Signals with every step ``size`` times.

    Inputs have shape (batch, steps, channels). Raises ArgumentError for a ``size`` below 1.

    >>> ef.nn.UpSampling1D(2)(ef.ones((2, 3, 4))).shape
    (2, 6, 4)
    """

    rank = 1


class UpSampling2D(_UpSampling):
    """Images that are larger by ``size``, an integer or one for rows and one for columns.

    Inputs have shape (batch, rows, columns, channels). ``interpolation`` is ``"nearest"``, which
    repeats pixels, ``"bilinear"``, ``"bicubic"``, ``"lanczos3"`` or ``"lanczos5"``. Raises
    ArgumentError for others.

    >>> layer = ef.nn.UpSampling2D((1, 2), interpolation="bilinear")
    >>> layer(ef.tensor([0.0, 4.0]).reshape((1, 1, 2, 1))).reshape((-1,))
    Tensor([0., 1., 3., 4.], float32, cpu:0)
    """

    rank = 2

    @arguments
    def __init__(
        self,
        size: Window = 2,
        data_format: DataFormat = None,
        interpolation: Interpolation = "nearest",
        **options: Unpack[LayerOptions],
    ) -> None: ...


class UpSampling3D(_UpSampling):
    """Volumes with every plane, row and column several times.

    Inputs have shape (batch, planes, rows, columns, channels), ``size`` is an integer or one for
    each axis. Raises ArgumentError for a ``size`` below 1.

    >>> ef.nn.UpSampling3D((1, 2, 3))(ef.ones((1, 2, 2, 2, 4))).shape
    (1, 2, 4, 6, 4)
    """

    rank = 3


class _ImageLayer(Layer):
    """Base of layers that resize single images, or batches of them, to one height and width."""

    supports_masking = False
    height: int
    width: int
    data_format: str
    fit: Callable[[Tensor], Tensor]  # images (batch, rows, columns, channels) of the new sizes

    def call(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == 3:
            return ops.squeeze(self.fit(ops.expand_dims(inputs, 0)), 0)
        self.expect(inputs, rank=4)
        return self.fit(inputs)

    def middle(self, images: Tensor, rows: DimLike, columns: DimLike) -> Tensor:
        """The middle of the images, of these sizes."""
        pairs = []
        for size, left in zip(images.shape[1:-1], (rows, columns), strict=True):
            before = (size - left) // 2
            pairs.append((before, size - left - before))
        return ops.crop(images, ((0, 0), *pairs, (0, 0)))

    def of_same_form(self, images: Tensor) -> Tensor:
        """The middle of the images, as large as the new ratio of the sides allows."""
        rows, columns = images.shape[1:-1]
        return self.middle(
            images,
            max(min(rows, columns * self.height // self.width), 1),
            max(min(columns, rows * self.width // self.height), 1),
        )


class Resizing(_ImageLayer):
    """Images with ``height`` rows and ``width`` columns.

    Inputs have shape (batch, rows, columns, channels), or that of one image; integers stay
    integers, rounded. ``interpolation`` is ``"bilinear"``, ``"nearest"``, ``"bicubic"``,
    ``"lanczos3"`` or ``"lanczos5"``; with ``antialias``, downsampling averages over all pixels. To
    preserve the aspect ratio, ``crop_to_aspect_ratio`` uses a part of the image, and
    ``pad_to_aspect_ratio`` pads it with ``fill_value``. Raises ArgumentError for other options,
    ShapeError for other inputs.

    >>> ef.nn.Resizing(2, 4)(ef.ones((1, 5, 5, 3))).shape
    (1, 2, 4, 3)
    """

    interpolation: str
    crop_to_aspect_ratio: bool
    pad_to_aspect_ratio: bool
    fill_mode: str
    fill_value: float
    antialias: bool

    @arguments
    def __init__(
        self,
        height: Count,
        width: Count,
        interpolation: Interpolation = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: Annotated[str, choice("not a way to fill", "constant")] = "constant",
        fill_value: Float = 0.0,
        antialias: bool = False,
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio:
            raise ArgumentError(
                "the images are to be cropped and padded",
                op=self._label,
                argument="crop_to_aspect_ratio, pad_to_aspect_ratio",
                expected="one of the two",
            )

    def fit(self, images: Tensor) -> Tensor:
        dtype = images.dtype
        if not is_floating(dtype):
            images = ops.astype(images, "float32" if dtype.itemsize < 4 else "float64")
        if self.crop_to_aspect_ratio:
            images = self.of_same_form(images)
        elif self.pad_to_aspect_ratio:
            images = self._padded(images)
        found = ops.resize(images, (self.height, self.width), self.interpolation, self.antialias)
        if is_floating(dtype):
            return found
        found = ops.round(found)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            found = ops.clip(found, float(limits.min), float(limits.max))
        return ops.astype(found, dtype)

    def _padded(self, images: Tensor) -> Tensor:
        rows, columns = images.shape[1:-1]
        above = max(columns * self.height // self.width - rows, 0) // 2
        left = max(rows * self.width // self.height - columns, 0) // 2
        widths = ((0, 0), (above, above), (left, left), (0, 0))
        return ops.pad(images, widths, constant_values=self.fill_value)


class CenterCrop(_ImageLayer):
    """The middle of images, ``height`` by ``width``.

    Inputs have shape (batch, rows, columns, channels), or that of one image. Of images that are
    smaller, the largest part of this form is resized. Raises ShapeError for other inputs.

    >>> ef.nn.CenterCrop(2, 2)(ef.reshape(ef.arange(16.0), (4, 4, 1))).reshape((-1,))
    Tensor([ 5.,  6.,  9., 10.], float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        height: Count,
        width: Count,
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def fit(self, images: Tensor) -> Tensor:
        images = ops.astype(images, self.compute_dtype)
        wanted = self.height, self.width
        sizes = zip(images.shape[1:-1], wanted, strict=True)
        if any(isinstance(size, int) and size < least for size, least in sizes):
            return ops.resize(self.of_same_form(images), wanted)
        return self.middle(images, *wanted)


class Rescaling(Layer):
    """``inputs * scale + offset``, in floating point.

    ``scale`` and ``offset`` are numbers, or sequences of them along the last axes: ``1 / 255``
    takes pixels to [0, 1], ``1 / 127.5`` with an offset of -1 to [-1, 1].

    >>> ef.nn.Rescaling(1 / 127.5, offset=-1)(ef.tensor([0, 255]))
    Tensor([-1.,  1.], float32, cpu:0)
    """

    scale: TensorLike
    offset: TensorLike

    @arguments
    def __init__(
        self, scale: TensorLike, offset: TensorLike = 0.0, **options: Unpack[LayerOptions]
    ) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        dtype = self.compute_dtype
        scale, offset = (as_tensor(x, dtype) for x in (self.scale, self.offset))
        return ops.add(ops.multiply(ops.astype(inputs, dtype), scale), offset)
