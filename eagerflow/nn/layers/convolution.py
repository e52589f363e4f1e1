"""Convolutions over channels-last signals, images and volumes, and their transposes."""

from __future__ import annotations

from typing import Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layers.core import BiasLayer, KernelLayer, KernelOptions
from eagerflow.nn.layers.spatial import DataFormat, SpatialLayer, Window
from eagerflow.tensor import Tensor

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
]


class WindowLayer(SpatialLayer, BiasLayer):
    """Base of convolutions: where their windows go."""

    paddings: tuple[str, ...] = ("valid", "same")
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    dilation_rate: tuple[int, ...]
    channels: int

    def settle(self) -> None:
        """Validate the arguments of the windows; called at the end of each constructor."""
        self.per_axis("kernel_size", "strides", "dilation_rate")
        self.padding = str(self.padding).lower()
        expected = " or ".join(map(repr, self.paddings))
        fits = self.padding in self.paddings
        require(fits, self.padding, "not a padding", self._label, "padding", expected)

    def take_channels(self, input_shape: Shape, groups: int = 1) -> None:
        """Record the number of channels; ShapeError for inputs of a wrong form."""
        channels = input_shape[-1] if len(input_shape) == self.rank + 2 else None
        if not isinstance(channels, int) or channels % groups:
            multiple = f", channels a multiple of {groups}" if groups > 1 else ""
            raise self._misfit(
                "the input does not fit this layer",
                f"shape {tuple(input_shape)}",
                f"{self.layout}{multiple}",
                "x[..., None] for one channel, x[None] for one example"
                if len(input_shape) == self.rank + 1
                else None,
            )
        self.channels = channels

    def convolve(self, inputs: Tensor, kernel: Tensor, groups: int = 1) -> Tensor:
        """The inputs convolved with a kernel (*window, channels / groups, outputs)."""
        self.expect_layout(inputs, self.channels)
        padding: Any = self.padding
        if padding == "causal":
            pairs = zip(self.kernel_size, self.dilation_rate, strict=True)
            padding = tuple(((size - 1) * rate, 0) for size, rate in pairs)
        return ops.conv(
            inputs,
            kernel,
            strides=self.strides,
            padding=padding,
            dilation=self.dilation_rate,
            groups=groups,
        )


class _Conv(WindowLayer, KernelLayer):
    """Base of convolutions with learned windows over all channels."""

    filters: int
    groups: int

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: str = "valid",
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        groups: Count = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None:
        self.settle()
        if self.filters % self.groups:
            raise ArgumentError(
                f"{self.filters} filters cannot be cut into {self.groups} groups",
                op=self._label,
                argument="groups",
                expected="a divisor of filters",
            )

    def build(self, input_shape: Shape) -> None:
        self.take_channels(input_shape, self.groups)
        self.make_kernel(*self.kernel_size, self.channels // self.groups, self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        return self.finish(self.convolve(inputs, self.value(self.kernel), self.groups))


class Conv1D(_Conv):
    """Convolution of signals with ``filters`` learned windows.

    Inputs have shape (batch, steps, channels), outputs (batch, positions, filters). Arguments are
    those of ``Conv2D``; with ``padding="causal"`` no output depends on later inputs (van den Oord
    et al., 2016).

    >>> ef.nn.Conv1D(8, 3, padding="causal", dilation_rate=2)(ef.ones((2, 10, 4))).shape
    (2, 10, 8)
    """

    rank = 1
    paddings = ("valid", "same", "causal")


class Conv2D(_Conv):
    """Convolution of images with ``filters`` learned windows.

    Inputs have shape (batch, rows, columns, channels), outputs (batch, rows, columns, filters).
    ``kernel_size``, ``strides`` and ``dilation_rate`` are integers or one for each axis;
    ``padding`` is ``"valid"`` (none) or ``"same"``; ``groups`` splits the channels into independent
    groups. Raises ShapeError for inputs that are not images or have a different number of channels
    than before, ArgumentError for invalid options.

    >>> layer = ef.nn.Conv2D(8, 3, activation="relu")
    >>> layer(ef.ones((2, 5, 5, 3))).shape
    (2, 3, 3, 8)
    """

    rank = 2


class Conv3D(_Conv):
    """Convolution of volumes with ``filters`` learned windows.

    Inputs have shape (batch, planes, rows, columns, channels); arguments are those of ``Conv2D``.

    >>> ef.nn.Conv3D(8, (1, 2, 3))(ef.ones((2, 4, 4, 4, 1))).shape
    (2, 4, 3, 2, 8)
    """

    rank = 3


class _ConvTranspose(WindowLayer, KernelLayer):
    """Base of transposed convolutions: the kernel is that of the convolution back."""

    filters: int
    output_padding: tuple[int, ...] | None

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: str = "valid",
        output_padding: Window | None = None,
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None:
        self.settle()
        if self.output_padding is not None:
            self.per_axis("output_padding", least=0)
            less = all(n < s for n, s in zip(self.output_padding, self.strides, strict=True))
            expected = f"less than the strides, {self.strides}"
            given = self.output_padding
            require(less, given, "too much", self._label, "output_padding", expected)

    def build(self, input_shape: Shape) -> None:
        self.take_channels(input_shape)
        self.make_kernel(*self.kernel_size, self.filters, self.channels, outputs=self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        self.expect_layout(inputs, self.channels)
        outputs = ops.conv_transpose(
            inputs,
            self.value(self.kernel),
            strides=self.strides,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation_rate,
        )
        return self.finish(outputs)


class Conv1DTranspose(_ConvTranspose):
    """Transposed convolution of signals, which upsamples by ``strides``.

    Inputs have shape (batch, steps, channels); arguments are those of ``Conv2DTranspose``.

    >>> ef.nn.Conv1DTranspose(8, 3, strides=2, padding="same")(ef.ones((2, 5, 4))).shape
    (2, 10, 8)
    """

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution of images, which upsamples by ``strides``.

    It reverses a ``Conv2D`` with the same arguments: inputs have the shape (batch, rows, columns,
    channels) of its outputs, outputs are ``strides`` times as large with ``padding="same"`` and
    larger by the excess of a window with ``"valid"``. ``output_padding``, less than the strides,
    sets the size directly: (n - 1) * stride + window, minus two halves of the window with
    ``"same"``, plus the padding. Raises ArgumentError and ShapeError as ``Conv2D`` does.

    >>> ef.nn.Conv2DTranspose(8, 3, strides=2)(ef.ones((2, 5, 5, 3))).shape
    (2, 11, 11, 8)
    """

    rank = 2


class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution of volumes, which upsamples by ``strides``.

    Inputs have shape (batch, planes, rows, columns, channels); arguments are those of
    ``Conv2DTranspose``, two of which are swapped, as in Keras.

    >>> ef.nn.Conv3DTranspose(2, 2, strides=2)(ef.ones((1, 2, 3, 4, 1))).shape
    (1, 4, 6, 8, 2)
    """

    rank = 3

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: str = "valid",
        data_format: DataFormat = None,
        output_padding: Window | None = None,
        dilation_rate: Window = 1,
        activation: ActivationLike = None,
        use_bias: bool = True,
        **options: Unpack[KernelOptions],
    ) -> None: ...
