"""Depthwise convolution: windows for each channel, optionally mixed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count
from eagerflow.nn.configured import arguments
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.convolution import WindowLayer
from eagerflow.nn.layers.spatial import DataFormat, Window
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"]


class _DepthwiseConv(WindowLayer):
    """Base of convolutions with separate windows for each channel."""

    depth_multiplier: int
    depthwise_initializer: Initializer
    depthwise_regularizer: Callable[..., Any] | None
    depthwise_constraint: Callable[..., Any] | None
    kernel: Variable

    @arguments
    def __init__(
        self,
        kernel_size: Window,
        strides: Window = 1,
        padding: str = "valid",
        depth_multiplier: Count = 1,
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        depthwise_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.settle()

    def make_depthwise(self, input_shape: Shape, name: str) -> Variable:
        """New windows of each channel: (*window, channels, depth_multiplier)."""
        self.take_channels(input_shape)
        return self.add_weight(
            (*self.kernel_size, self.channels, self.depth_multiplier),
            self.depthwise_initializer,
            name,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )

    def build(self, input_shape: Shape) -> None:
        self.kernel = self.make_depthwise(input_shape, "kernel")
        self.make_bias(self.channels * self.depth_multiplier)

    def convolve_each(self, inputs: Tensor, kernel: Variable) -> Tensor:
        """Each channel convolved with its own windows."""
        shape = (*self.kernel_size, 1, self.channels * self.depth_multiplier)
        return self.convolve(inputs, ops.reshape(self.value(kernel), shape), self.channels)

    def call(self, inputs: Tensor) -> Tensor:
        return self.finish(self.convolve_each(inputs, self.kernel))


class DepthwiseConv1D(_DepthwiseConv):
    """Depthwise convolution of signals, with ``depth_multiplier`` windows for each channel.

    Inputs have shape (batch, steps, channels); arguments are those of ``DepthwiseConv2D``.

    >>> ef.nn.DepthwiseConv1D(3, depth_multiplier=2)(ef.ones((2, 5, 4))).shape
    (2, 3, 8)
    """

    rank = 1


class DepthwiseConv2D(_DepthwiseConv):
    """Depthwise convolution of images, with ``depth_multiplier`` windows for each channel.

    Inputs have shape (batch, rows, columns, channels), outputs ``depth_multiplier`` times as many
    channels, those of the first channel first. The rest is as in ``Conv2D``.

    >>> ef.nn.DepthwiseConv2D(3, padding="same")(ef.ones((2, 5, 5, 3))).shape
    (2, 5, 5, 3)
    """

    rank = 2


class _SeparableConv(_DepthwiseConv):
    """Base of depthwise convolutions followed by a mixing of channels at each position."""

    filters: int
    pointwise_initializer: Initializer
    pointwise_regularizer: Callable[..., Any] | None
    pointwise_constraint: Callable[..., Any] | None
    depthwise_kernel: Variable
    pointwise_kernel: Variable

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: str = "valid",
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        depth_multiplier: Count = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike = "glorot_uniform",
        pointwise_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        depthwise_regularizer: RegularizerLike = None,
        pointwise_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        depthwise_constraint: ConstraintLike = None,
        pointwise_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        self.depthwise_kernel = self.make_depthwise(input_shape, "depthwise_kernel")
        self.pointwise_kernel = self.add_weight(
            (*(1,) * self.rank, self.channels * self.depth_multiplier, self.filters),
            self.pointwise_initializer,
            "pointwise_kernel",
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self.make_bias(self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        between = self.convolve_each(inputs, self.depthwise_kernel)
        return self.finish(ops.conv(between, self.value(self.pointwise_kernel)))


class SeparableConv1D(_SeparableConv):
    """Depthwise convolution of signals, and then a Dense layer at each position.

    Inputs have shape (batch, steps, channels); arguments are those of ``SeparableConv2D``.

    >>> ef.nn.SeparableConv1D(8, 3)(ef.ones((2, 5, 4))).shape
    (2, 3, 8)
    """

    rank = 1


class SeparableConv2D(_SeparableConv):
    """Depthwise convolution of images, and then a Dense layer at each position (Chollet, 2017).

    Inputs have shape (batch, rows, columns, channels), outputs ``filters`` channels. Between the
    two steps there are ``depth_multiplier`` times as many channels as in the inputs. The rest is as
    in ``Conv2D``.

    >>> layer = ef.nn.SeparableConv2D(8, 3)
    >>> layer(ef.ones((2, 5, 5, 3))).shape, layer.count_params()
    ((2, 3, 3, 8), 59)
    """

    rank = 2
