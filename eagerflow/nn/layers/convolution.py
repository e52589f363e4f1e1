"""Convolution and pooling over images with channels last."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn import activations, initializers
from eagerflow.nn.layer import Layer
from eagerflow.nn.layers.core import positive
from eagerflow.nn.lookup import require
from eagerflow.ops.attributes import Sizes
from eagerflow.tensor import Tensor

__all__ = [
    "AveragePooling2D",
    "Conv2D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling2D",
    "MaxPooling2D",
]


def _pair(layer: Layer, argument: str, value: Any) -> tuple[int, int]:
    items = tuple(value) if isinstance(value, tuple | list) else (value, value)
    expected = "an integer, or one for rows and one for columns"
    require(len(items) == 2, value, "not a pair", layer._label, argument, expected)
    return positive(layer, argument, items[0]), positive(layer, argument, items[1])


def _padding(layer: Layer, value: Any) -> str:
    known = value in ("valid", "same")
    require(known, value, "not a padding", layer._label, "padding", "'valid' or 'same'")
    return str(value)


class Conv2D(Layer):
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

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        dilation_rate: Sizes = 1,
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.filters = positive(self, "filters", filters)
        self.kernel_size = _pair(self, "kernel_size", kernel_size)
        self.strides = _pair(self, "strides", strides)
        self.padding = _padding(self, padding)
        self.dilation_rate = _pair(self, "dilation_rate", dilation_rate)
        self.groups = positive(self, "groups", groups)
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        if self.filters % self.groups:
            raise ArgumentError(
                f"{filters} filters cannot be cut into {groups} groups",
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
        shape = (*self.kernel_size, self.channels // self.groups, self.filters)
        self.kernel = self.add_weight(shape, self.kernel_initializer, "kernel")
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.filters,), self.bias_initializer, "bias")

    def call(self, inputs: Tensor) -> Any:
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
    """What the two poolings share: a window that moves over rows and columns."""

    def __init__(
        self,
        pool_size: Sizes = (2, 2),
        strides: Sizes = None,
        padding: str = "valid",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.pool_size = _pair(self, "pool_size", pool_size)
        self.strides = self.pool_size if strides is None else _pair(self, "strides", strides)
        self.padding = _padding(self, padding)


class MaxPooling2D(_Pooling2D):
    """The largest value in each window of ``pool_size``, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels); ``strides`` defaults to ``pool_size``.

    >>> ef.nn.MaxPooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, rank=4)
        return ops.max_pool(inputs, self.pool_size, strides=self.strides, padding=self.padding)


class AveragePooling2D(_Pooling2D):
    """The mean of each window of ``pool_size``, which moves by ``strides``.

    Inputs have shape (batch, rows, columns, channels); ``strides`` defaults to ``pool_size``.
    Padding does not count.

    >>> ef.nn.AveragePooling2D(2)(ef.ones((1, 4, 4, 3))).shape
    (1, 2, 2, 3)
    """

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, rank=4)
        return ops.avg_pool(inputs, self.pool_size, strides=self.strides, padding=self.padding)


class GlobalAveragePooling2D(Layer):
    """The mean over rows and columns.

    >>> ef.nn.GlobalAveragePooling2D()(ef.ones((1, 4, 4, 3)))
    Tensor([[1., 1., 1.]], shape=(1, 3), float32, cpu:0)
    """

    def __init__(self, keepdims: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.keepdims = keepdims

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, rank=4)
        return ops.mean(inputs, axis=(1, 2), keepdims=self.keepdims)


class GlobalMaxPooling2D(Layer):
    """The largest value over rows and columns.

    >>> ef.nn.GlobalMaxPooling2D()(ef.ones((1, 4, 4, 3)))
    Tensor([[1., 1., 1.]], shape=(1, 3), float32, cpu:0)
    """

    def __init__(self, keepdims: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.keepdims = keepdims

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, rank=4)
        return ops.max(inputs, axis=(1, 2), keepdims=self.keepdims)
