"""Recurrent layers over images: an LSTM with convolutions as products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.nn.activations import ActivationLike
from eagerflow.nn.arguments import Count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layers.recurrent import GatedOptions, GatedRecurrent
from eagerflow.nn.layers.recurrent_cells import CellOptions, GatedCell, Masks, lstm_step
from eagerflow.nn.layers.spatial import DataFormat, Padding, SpatialLayer, Window
from eagerflow.primitives.windows import output_size
from eagerflow.tensor import Tensor

__all__ = ["ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"]


class ConvLSTMCell(SpatialLayer, GatedCell):
    """A step of a convolutional LSTM over images of ``rank`` axes, with the states h and c.

    Inputs have shape (batch, *image, channels), states (batch, *positions, filters).
    """

    gates = 4
    filters: int
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    dilation_rate: tuple[int, ...]
    recurrent_activation: Callable[..., Tensor]

    @arguments
    def __init__(
        self,
        rank: Count,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: Padding = "valid",
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        self.per_axis("kernel_size", "strides", "dilation_rate")
        both = max(self.strides) > 1 and max(self.dilation_rate) > 1
        require(not both, strides, "not 1", self._label, "strides", "1 where there is dilation")

    @property
    def state_size(self) -> list[int]:
        """The channels of both states."""
        return [self.filters, self.filters]

    def build(self, input_shape: Shape) -> None:
        _, *image, channels = input_shape
        windows = zip(image, self.kernel_size, self.strides, self.dilation_rate, strict=True)
        self.input_sizes = (*image, channels)
        if None in self.input_sizes:
            received = f"shape {tuple(input_shape)}"
            raise self._misfit("the size of the images is not known", received, "integers")
        positions = [output_size(*window, self.padding) for window in windows]
        self.output_sizes = (*positions, self.filters)
        wide = 4 * self.filters
        self.make_weights(
            (*self.kernel_size, channels, wide), (*self.kernel_size, self.filters, wide), (wide,)
        )

    def get_initial_state(self, batch_size: DimLike) -> list[Tensor]:
        """The states before the first step: zeros."""
        shape = (batch_size, *self.output_sizes)
        return [ops.zeros(shape, dtype=self.compute_dtype) for _ in range(2)]

    def draw(self, batch: DimLike, training: bool) -> tuple[Masks, Masks]:
        return (
            self.drawn(self.dropout, 4, (batch, *self.input_sizes), training),
            self.drawn(self.recurrent_dropout, 4, (batch, *self.output_sizes), training),
        )

    def step(
        self, inputs: Tensor, states: list[Tensor], input_masks: Masks, output_masks: Masks
    ) -> list[Tensor]:
        h, c = states
        convolve = partial(
            ops.conv, strides=self.strides, padding=self.padding, dilation=self.dilation_rate
        )
        a = self.through(inputs, self.value(self.kernel), input_masks, convolve)
        u = self.through(h, self.value(self.recurrent_kernel), output_masks, ops.conv)
        return lstm_step(self, self.total(a, u), c)


class ConvLSTM(GatedRecurrent):
    """Base of convolutional LSTMs, with a subclass for each rank of images."""

    cell_class = ConvLSTMCell

    @arguments
    def __init__(
        self,
        filters: Count,
        kernel_size: Window,
        strides: Window = 1,
        padding: Padding = "valid",
        data_format: DataFormat = None,
        dilation_rate: Window = 1,
        activation: ActivationLike = "tanh",
        recurrent_activation: ActivationLike = "sigmoid",
        use_bias: bool = True,
        *,
        unit_forget_bias: bool = True,
        **options: Unpack[GatedOptions],
    ) -> None:
        for name in ("kernel_size", "strides", "dilation_rate"):
            setattr(self, name, getattr(self.cell, name))


class ConvLSTM1D(ConvLSTM):
    """A convolutional LSTM over signals, with ``filters`` windows.

    Inputs have shape (batch, steps, length, channels); the states and the output of a step have
    shape (batch, positions, filters). ``kernel_size``, ``strides``, ``padding`` and
    ``dilation_rate`` are those of the convolution of the inputs; that of the states has windows of
    the same size, and keeps theirs. The other arguments are those of ``LSTM``. Raises ShapeError
    for inputs of another rank or of unknown length, ArgumentError for invalid options. Source: Shi
    and others, arXiv:1506.04214.

    >>> ef.nn.ConvLSTM1D(2, 3, padding="same")(ef.ones((1, 4, 6, 1))).shape
    (1, 6, 2)
    """

    rank = 4
    cell_rank = 1


class ConvLSTM2D(ConvLSTM):
    """A convolutional LSTM over images, with ``filters`` windows.

    Inputs have shape (batch, steps, rows, columns, channels); the states and the output of a step
    have shape (batch, rows, columns, filters). Arguments and errors are those of ``ConvLSTM1D``,
    with an integer or a pair for sizes. Source: Shi and others, arXiv:1506.04214.

    >>> ef.nn.ConvLSTM2D(2, 3)(ef.ones((1, 4, 6, 5, 1))).shape
    (1, 4, 3, 2)
    """

    rank = 5
    cell_rank = 2


class ConvLSTM3D(ConvLSTM):
    """A convolutional LSTM over volumes, with ``filters`` windows.

    Inputs have shape (batch, steps, planes, rows, columns, channels); the states and the output of
    a step have shape (batch, planes, rows, columns, filters). Arguments and errors are those of
    ``ConvLSTM1D``, with an integer or three for sizes. Source: Shi and others, arXiv:1506.04214.

    >>> ef.nn.ConvLSTM3D(2, 2)(ef.ones((1, 2, 3, 3, 3, 1))).shape
    (1, 2, 2, 2, 2)
    """

    rank = 6
    cell_rank = 3
