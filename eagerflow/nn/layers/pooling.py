"""Pooling over signals, images and volumes with channels last: windows, all positions, or cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.spatial import DataFormat, Padding, SpatialLayer, Window
from eagerflow.ops.operands import wide
from eagerflow.tensor import Tensor

__all__ = [
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
]


class _Pooling(SpatialLayer):
    """Base of poolings: a window that moves over the spatial axes."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    _pool: Callable[..., Tensor]

    @arguments
    def __init__(
        self,
        pool_size: Window = 2,
        strides: Window | None = None,
        padding: Padding = "valid",
        data_format: DataFormat = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.per_axis("pool_size")
        if strides is None:
            self.strides = self.pool_size
        self.per_axis("strides")

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        return self._pool(inputs, self.pool_size, strides=self.strides, padding=self.padding)


class _MaxPooling(_Pooling):
    _pool = staticmethod(ops.max_pool)


class _AveragePooling(_Pooling):
    _pool = staticmethod(ops.avg_pool)


class MaxPooling1D(_MaxPooling):
    """The largest value in each window of ``pool_size`` of signals, which moves by ``strides``.

    Inputs have shape (batch, steps, channels); arguments are those of ``MaxPooling2D``.

    >>> ef.nn.MaxPooling1D(2)(ef.ones((1, 4, 3))).shape
    (1, 2, 3)
    """

    rank = 1


class MaxPooling2D(_MaxPooling):
    """The largest value in each window of ``pool_size`` of images, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels). ``pool_size`` and ``strides`` are integers
    or one for each axis, ``strides`` defaults to ``pool_size``; ``padding`` is ``"valid"`` (windows
    lie inside) or ``"same"`` (one for each stride). Raises ArgumentError and ShapeError for other
    options and inputs.

    >>> ef.nn.MaxPooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    rank = 2


class MaxPooling3D(_MaxPooling):
    """The largest value in each window of ``pool_size`` of volumes, which moves by ``strides``.

    Inputs have shape (batch, planes, rows, columns, channels); arguments are those of
    ``MaxPooling2D``.

    >>> ef.nn.MaxPooling3D(2)(ef.ones((1, 4, 4, 4, 3))).shape
    (1, 2, 2, 2, 3)
    """

    rank = 3


class AveragePooling1D(_AveragePooling):
    """The mean of each window of ``pool_size`` of signals, which moves by ``strides``.

    Inputs have shape (batch, steps, channels); arguments are those of ``AveragePooling2D``.

    >>> ef.nn.AveragePooling1D(2)(ef.ones((1, 4, 3))).shape
    (1, 2, 3)
    """

    rank = 1


class AveragePooling2D(_AveragePooling):
    """The mean of each window of ``pool_size`` of images, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels). ``pool_size`` and ``strides`` are integers
    or one for each axis, ``strides`` defaults to ``pool_size``; ``padding`` is ``"valid"`` (windows
    lie inside) or ``"same"`` (one for each stride). Padding does not count. Raises ArgumentError
    and ShapeError for other options and inputs.

    >>> ef.nn.AveragePooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    rank = 2


class AveragePooling3D(_AveragePooling):
    """The mean of each window of ``pool_size`` of volumes, which moves by ``strides``.

    Inputs have shape (batch, planes, rows, columns, channels); arguments are those of
    ``AveragePooling2D``.

    >>> ef.nn.AveragePooling3D(2)(ef.ones((1, 4, 4, 4, 3))).shape
    (1, 2, 2, 2, 3)
    """

    rank = 3


class _GlobalPooling(SpatialLayer):
    """Base of poolings over all positions."""

    keepdims: bool
    _reduce: Callable[..., Tensor]

    @arguments
    def __init__(
        self,
        data_format: DataFormat = None,
        keepdims: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        axes = tuple(range(1, self.rank + 1))
        return self._reduce(inputs, axis=axes, keepdims=self.keepdims)


class _GlobalMaxPooling(_GlobalPooling):
    _reduce = staticmethod(ops.max)


class _GlobalAveragePooling(_GlobalPooling):
    _reduce = staticmethod(ops.mean)


class GlobalMaxPooling1D(_GlobalMaxPooling):
    """The largest value over all steps.

    Inputs have shape (batch, steps, channels), outputs (batch, channels). With ``keepdims`` the
    axes stay, with size 1.

    >>> ef.nn.GlobalMaxPooling1D()(ef.ones((1, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 1


class GlobalMaxPooling2D(_GlobalMaxPooling):
    """The largest value over rows and columns.

    Inputs have shape (batch, rows, columns, channels), outputs (batch, channels). With ``keepdims``
    the axes stay, with size 1.

    >>> ef.nn.GlobalMaxPooling2D()(ef.ones((1, 4, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 2


class GlobalMaxPooling3D(_GlobalMaxPooling):
    """The largest value over planes, rows and columns.

    Inputs have shape (batch, planes, rows, columns, channels), outputs (batch, channels). With
    ``keepdims`` the axes stay, with size 1.

    >>> ef.nn.GlobalMaxPooling3D()(ef.ones((1, 4, 4, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 3


def _chosen_mean(inputs: Any, counts: Any, keepdims: bool) -> Any:
    """The mean of the steps that count; the sums would be infinite in float16."""
    total = ops.sum(ops.where(counts, inputs, 0), axis=1, keepdims=keepdims)
    number = ops.sum(ops.astype(counts, inputs.dtype), axis=1, keepdims=keepdims)
    return ops.divide(total, number)


class GlobalAveragePooling1D(_GlobalAveragePooling):
    """The mean over all steps.

    Inputs have shape (batch, steps, channels), outputs (batch, channels). With ``keepdims`` the
    axes stay, with size 1. Where the steps have a mask, those that do not count are left out.

    >>> ef.nn.GlobalAveragePooling1D()(ef.ones((1, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 1

    def call(self, inputs: Tensor, mask: Any = None) -> Tensor:
        if mask is None:
            return super().call(inputs)
        self.expect_layout(inputs)
        counts = ops.expand_dims(ops.astype(mask, "bool"), -1)
        return wide(_chosen_mean, inputs, counts, keepdims=self.keepdims)


class GlobalAveragePooling2D(_GlobalAveragePooling):
    """The mean over rows and columns.

    Inputs have shape (batch, rows, columns, channels), outputs (batch, channels). With ``keepdims``
    the axes stay, with size 1.

    >>> ef.nn.GlobalAveragePooling2D()(ef.ones((1, 4, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 2


class GlobalAveragePooling3D(_GlobalAveragePooling):
    """The mean over planes, rows and columns.

    Inputs have shape (batch, planes, rows, columns, channels), outputs (batch, channels). With
    ``keepdims`` the axes stay, with size 1.

    >>> ef.nn.GlobalAveragePooling3D()(ef.ones((1, 4, 4, 4, 2)))
    Tensor([[1., 1.]], shape=(1, 2), float32, cpu:0)
    """

    rank = 3


class _AdaptivePooling(SpatialLayer):
    """Base of adaptive poolings: the cells have no gaps, and may overlap.

    Along an axis of n elements, cell i of m goes from i * n / m, rounded down, to (i + 1) * n / m,
    rounded up.
    """

    output_size: tuple[int, ...]

    @arguments
    def __init__(
        self, output_size: Window, data_format: DataFormat = None, **options: Unpack[LayerOptions]
    ) -> None:
        self.per_axis("output_size")


class _AdaptiveAveragePooling(_AdaptivePooling):
    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        return ops.adaptive_avg_pool(inputs, self.output_size)


class _AdaptiveMaxPooling(_AdaptivePooling):
    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs)
        return ops.adaptive_max_pool(inputs, self.output_size)


class AdaptiveMaxPooling1D(_AdaptiveMaxPooling):
    """The largest value in each cell of a grid of ``output_size`` cells over the steps.

    Inputs have shape (batch, steps, channels) and any sizes; ``output_size`` is an integer. Cells
    differ in size by one element at most, and share elements where ``output_size`` does not divide.

    >>> ef.nn.AdaptiveMaxPooling1D(2)(ef.ones((1, 5, 3))).shape
    (1, 2, 3)
    """

    rank = 1


class AdaptiveMaxPooling2D(_AdaptiveMaxPooling):
    """The largest value in each cell of a grid of ``output_size`` cells over rows and columns.

    Inputs have shape (batch, rows, columns, channels) and any sizes; ``output_size`` is an integer
    or one for each axis. Cells differ in size by one element at most, and share elements where
    ``output_size`` does not divide.

    >>> ef.nn.AdaptiveMaxPooling2D((2, 3))(ef.ones((1, 5, 5, 3))).shape
    (1, 2, 3, 3)
    """

    rank = 2


class AdaptiveMaxPooling3D(_AdaptiveMaxPooling):
    """The largest value in each cell of a grid of ``output_size`` cells over volumes.

    Inputs have shape (batch, planes, rows, columns, channels) and any sizes; ``output_size`` is an
    integer or one for each axis. Cells differ in size by one element at most, and share elements
    where ``output_size`` does not divide.

    >>> ef.nn.AdaptiveMaxPooling3D((2, 3, 1))(ef.ones((1, 5, 5, 5, 3))).shape
    (1, 2, 3, 1, 3)
    """

    rank = 3


class AdaptiveAveragePooling1D(_AdaptiveAveragePooling):
    """The mean in each cell of a grid of ``output_size`` cells over the steps.

    Inputs have shape (batch, steps, channels) and any sizes; ``output_size`` is an integer. Cells
    differ in size by one element at most, and share elements where ``output_size`` does not divide.

    >>> ef.nn.AdaptiveAveragePooling1D(2)(ef.ones((1, 5, 3))).shape
    (1, 2, 3)
    """

    rank = 1


class AdaptiveAveragePooling2D(_AdaptiveAveragePooling):
    """The mean in each cell of a grid of ``output_size`` cells over rows and columns.

    Inputs have shape (batch, rows, columns, channels) and any sizes; ``output_size`` is an integer
    or one for each axis. Cells differ in size by one element at most, and share elements where
    ``output_size`` does not divide.

    >>> ef.nn.AdaptiveAveragePooling2D((2, 3))(ef.ones((1, 5, 5, 3))).shape
    (1, 2, 3, 3)
    """

    rank = 2


class AdaptiveAveragePooling3D(_AdaptiveAveragePooling):
    """The mean in each cell of a grid of ``output_size`` cells over volumes.

    Inputs have shape (batch, planes, rows, columns, channels) and any sizes; ``output_size`` is an
    integer or one for each axis. Cells differ in size by one element at most, and share elements
    where ``output_size`` does not divide.

    >>> ef.nn.AdaptiveAveragePooling3D((2, 3, 1))(ef.ones((1, 5, 5, 5, 3))).shape
    (1, 2, 3, 1, 3)
    """

    rank = 3
