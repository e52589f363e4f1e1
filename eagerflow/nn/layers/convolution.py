"""Convolution and pooling over images with channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count, choice, count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.core import KernelLayer, KernelOptions
from eagerflow.tensor import Tensor

__all__ = [
    "AveragePooling2D",
    "Conv2D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling2D",
    "MaxPooling2D",
]


def _pair(value: Any) -> tuple[int, int]:
    items = tuple(value) if isinstance(value, tuple | list) else (value, value)
    expected = "an integer, or one for rows and one for columns"
    require(len(items) == 2, value, "not a pair", expected=expected)
    return count(items[0]), count(items[1])


Pair = Annotated[int | Sequence[int], _pair]
"""An integer, or one for rows and one for columns."""
Padding = Annotated[str, choice("not a padding", "valid", "same", expected="'valid' or 'same'")]


class Conv2D(KernelLayer):
    """Convolution of images with ``filters`` learned windows.

    Inputs have shape (batch, rows, columns, channels), outputs (batch, rows, columns,
    filters). ``kernel_size``, ``strides`` and ``dilation_rate`` are integers or pairs;
    ``padding`` is ``"valid"`` (none) or ``"same"``; ``groups`` cuts the channels into groups
    that do not see each other. Raises ShapeError for inputs that are no images or have
    another number of channels than before, ArgumentError for options that do not exist.

    >>> layer = ef.nn.Conv2D(8, 3, activation="relu")
    >>> layer(ef.ones((2, 5, 5, 3))).shape
    (2, 3, 3, 8)
    """

    filters: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int]
    padding: str
    dilation_rate: tuple[int, int]
    groups: int

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Pair,
        strides: Pair = 1,
        padding: Padding = "valid",
        dilation_rate: Pair = 1,
        groups: Count = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None:
        if self.filters % self.groups:
            raise ArgumentError(
                f"{self.filters} filters cannot be cut into {self.groups} groups",
                op=self._label,
                argument="groups",
                expected="a divisor of filters",
            )

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 4 or input_shape[-1] % self.groups:
            multiple = f", channels a multiple of {self.groups}" if self.groups > 1 else ""
            raise self._misfit(
                "the input does not fit this layer",
                f"shape {tuple(input_shape)}",
                f"(batch, rows, columns, channels){multiple}",
                "x[..., None] for grey images" if len(input_shape) == 3 else None,
            )
        self.channels = input_shape[-1]
        self.make_kernel(*self.kernel_size, self.channels // self.groups, self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=4, last=self.channels)
        outputs = ops.conv(
            inputs,
            self.kernel.value,
            strides=self.strides,
            padding=self.padding,
            dilation=self.dilation_rate,
            groups=self.groups,
        )
        if self.bias is not None:
            outputs = ops.add(outputs, self.bias.value)
        return self.activation(outputs)


class _Pooling2D(Layer):
    """Base of poolings: a window that moves over rows and columns."""

    pool_size: tuple[int, int]
    strides: tuple[int, int]
    padding: str
    _pool: Callable[..., Tensor]

    @arguments
    def __init__(
        self,
        pool_size: Pair = (2, 2),
        strides: Pair | None = None,
        padding: Padding = "valid",
        **options: Unpack[LayerOptions],
    ) -> None:
        self.strides = self.strides or self.pool_size

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=4)
        return self._pool(inputs, self.pool_size, strides=self.strides, padding=self.padding)


class MaxPooling2D(_Pooling2D):
    """The largest value in each window of ``pool_size``, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels); ``strides`` defaults to ``pool_size``.

    >>> ef.nn.MaxPooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    _pool = staticmethod(ops.max_pool)


class AveragePooling2D(_Pooling2D):
    """The mean of each window of ``pool_size``, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels); ``strides`` defaults to ``pool_size``.
    Padding does not count.

    >>> ef.nn.AveragePooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    _pool = staticmethod(ops.avg_pool)


class _GlobalPooling2D(Layer):
    """Base of poolings over all rows and columns."""

    keepdims: bool
    _reduce: Callable[..., Tensor]

    @arguments
    def __init__(self, keepdims: bool = False, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=4)
        return self._reduce(inputs, axis=(1, 2), keepdims=self.keepdims)


class GlobalAveragePooling2D(_GlobalPooling2D):
    """The mean over rows and columns.

    >>> ef.nn.GlobalAveragePooling2D()(ef.ones((1, 4, 4, 3)))
    Tensor([[1., 1., 1.]], shape=(1, 3), float32, cpu:0)
    """

    _reduce = staticmethod(ops.mean)


class GlobalMaxPooling2D(_GlobalPooling2D):
    """The largest value over rows and columns.

    >>> ef.nn.GlobalMaxPooling2D()(ef.ones((1, 4, 4, 3)))
    Tensor([[1., 1., 1.]], shape=(1, 3), float32, cpu:0)
    """

    _reduce = staticmethod(ops.max)
