"""Regularization layers: dropout and noise in training, and activity penalties."""

from __future__ import annotations

import math
from typing import Annotated, Unpack

from eagerflow import ops
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import choice, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.core import Rate
from eagerflow.nn.regularizers import L1L2, Factor
from eagerflow.ops import random
from eagerflow.ops.attributes import Sizes
from eagerflow.ops.nn.regularization import dropout
from eagerflow.tensor import Tensor

__all__ = [
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
]

DataFormat = Annotated[str, choice("not a format", "channels_last", "channels_first")]
Spread = Annotated[float, number(lambda x: 0 <= x <= 1, "not a spread", "a number from 0 to 1")]


class _Noise(Layer):
    """Base of layers that draw numbers in training, and pass their inputs on otherwise."""

    seed: int | None

    @arguments
    def __init__(self, seed: int | None = None, **options: Unpack[LayerOptions]) -> None:
        self.generator = None if seed is None else random.Generator(seed)

    @property
    def source(self) -> random.Generator:
        """The generator of the layer, or the global one."""
        return random.default_generator if self.generator is None else self.generator

    def amount(self) -> float:
        """The strength of the noise; 0 means none."""
        raise ArgumentError("the class does not define amount", op=type(self).__name__)

    def disturb(self, inputs: Tensor) -> Tensor:
        """The inputs with noise."""
        raise ArgumentError("the class does not define disturb", op=type(self).__name__)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return self.disturb(inputs) if training and self.amount() else inputs


class _Rated(_Noise):
    """Base of the kinds of dropout: ``rate`` is the part of the values that is lost."""

    rate: float

    @arguments
    def __init__(
        self, rate: Rate, seed: int | None = None, **options: Unpack[LayerOptions]
    ) -> None: ...

    def amount(self) -> float:
        return self.rate


class Dropout(_Rated):
    """In training, sets a random part of the values to zero and scales the others up.

    ``rate`` is the probability of a zero. Along axes of size 1 in ``noise_shape``, values are
    dropped together. With a ``seed`` the layer has its own generator. Source: Srivastava and
    others, "Dropout", 2014.

    >>> ef.nn.Dropout(0.5, seed=0)(ef.ones((1, 4)), training=True)
    Tensor([[2., 0., 0., 2.]], shape=(1, 4), float32, cpu:0)
    >>> ef.nn.Dropout(0.5)(ef.ones((1, 4)))
    Tensor([[1., 1., 1., 1.]], shape=(1, 4), float32, cpu:0)
    """

    noise_shape: Sizes

    @arguments
    def __init__(
        self,
        rate: Rate,
        noise_shape: Sizes = None,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def disturb(self, inputs: Tensor) -> Tensor:
        return dropout(inputs, self.rate, noise_shape=self.noise_shape, generator=self.source)


class _SpatialDropout(_Rated):
    """Base of layers that drop whole channels of inputs with ``rank`` axes."""

    data_format: str | None = None
    rank = 0

    def disturb(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        space = (1,) * (self.rank - 2)
        first = self.data_format == "channels_first"
        shape = (None, None, *space) if first else (None, *space, None)
        return dropout(inputs, self.rate, noise_shape=shape, generator=self.source)


class SpatialDropout1D(_SpatialDropout):
    """In training, sets whole channels of sequences to zero and scales the others up.

    Inputs have shape (batch, steps, channels); ``rate`` is the probability of a zero. Source:
    Tompson and others, arXiv:1411.4280.

    >>> ef.nn.SpatialDropout1D(0.5, seed=0)(ef.ones((1, 2, 4)), training=True)
    Tensor([[[2., 0., 0., 2.],
             [2., 0., 0., 2.]]], shape=(1, 2, 4), float32, cpu:0)
    """

    rank = 3


class SpatialDropout2D(_SpatialDropout):
    """In training, sets whole channels of images to zero and scales the others up.

    Inputs have shape (batch, rows, columns, channels), or (batch, channels, rows, columns) where
    ``data_format`` is ``"channels_first"``; ``rate`` is the probability of a zero. Source: Tompson
    and others, arXiv:1411.4280.

    >>> ef.nn.SpatialDropout2D(0.5, seed=0)(ef.ones((1, 1, 2, 2)), training=True)
    Tensor([[[[2., 0.],
              [2., 0.]]]], shape=(1, 1, 2, 2), float32, cpu:0)
    """

    rank = 4

    @arguments
    def __init__(
        self,
        rate: Rate,
        data_format: DataFormat | None = None,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...


class SpatialDropout3D(_SpatialDropout):
    """In training, sets whole channels of volumes to zero and scales the others up.

    Inputs have shape (batch, depth, rows, columns, channels), or (batch, channels, depth, rows,
    columns) where ``data_format`` is ``"channels_first"``; ``rate`` is the probability of a zero.
    Source: Tompson and others, arXiv:1411.4280.

    >>> ef.nn.SpatialDropout3D(0.5)(ef.ones((1, 2, 2, 2, 3)), training=True).shape
    (1, 2, 2, 2, 3)
    """

    rank = 5

    @arguments
    def __init__(
        self,
        rate: Rate,
        data_format: DataFormat | None = None,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...


_LOWEST = -1.7580993408473766  # the limit of selu for large negative numbers


class AlphaDropout(Dropout):
    """In training, sets values to selu's lowest, and keeps mean 0 and variance 1.

    ``rate`` is the probability of that. Along axes of size 1 in ``noise_shape``, values are dropped
    together. Source: Klambauer and others, arXiv:1706.02515.

    >>> ef.nn.AlphaDropout(0.5, seed=0)(ef.zeros((1, 4)), training=True)
    Tensor([[ 0.7792, -0.7792, -0.7792,  0.7792]], shape=(1, 4), float32, cpu:0)
    """

    def disturb(self, inputs: Tensor) -> Tensor:
        kept = dropout(
            ops.ones_like(inputs), self.rate, noise_shape=self.noise_shape, generator=self.source
        )
        mixed = ops.where(ops.greater(kept, 0.0), inputs, _LOWEST)
        factor = ((1 - self.rate) * (1 + self.rate * _LOWEST**2)) ** -0.5
        return ops.subtract(ops.multiply(mixed, factor), factor * _LOWEST * self.rate)


class GaussianDropout(_Rated):
    """In training, multiplies by normal numbers of mean 1 and variance rate / (1 - rate).

    ``rate`` is that of a ``Dropout`` with the same mean and variance. Source: Srivastava and
    others, "Dropout", 2014.

    >>> ef.nn.GaussianDropout(0.5, seed=0)(ef.ones((1, 2)), training=True)
    Tensor([[2.5076, 1.9205]], shape=(1, 2), float32, cpu:0)
    """

    def disturb(self, inputs: Tensor) -> Tensor:
        spread = math.sqrt(self.rate / (1.0 - self.rate))
        noise = self.source.normal(inputs.shape, 1.0, spread, inputs.dtype)
        return ops.multiply(inputs, noise)


class GaussianNoise(_Noise):
    """In training, adds normal numbers of mean 0.

    ``stddev`` is their standard deviation, from 0 to 1.

    >>> ef.nn.GaussianNoise(0.5, seed=0)(ef.zeros((1, 2)), training=True)
    Tensor([[0.7538, 0.4602]], shape=(1, 2), float32, cpu:0)
    """

    stddev: float

    @arguments
    def __init__(
        self, stddev: Spread, seed: int | None = None, **options: Unpack[LayerOptions]
    ) -> None: ...

    def amount(self) -> float:
        return self.stddev

    def disturb(self, inputs: Tensor) -> Tensor:
        noise = self.source.normal(inputs.shape, 0.0, self.stddev, inputs.dtype)
        return ops.add(inputs, noise)


class ActivityRegularization(Layer):
    """The unchanged inputs, with a penalty on their size added to the loss.

    ``l1`` multiplies the sum of absolute values, ``l2`` that of squares, both for each example.

    >>> with ef.nn.added_losses() as losses:
    ...     outputs = ef.nn.ActivityRegularization(l1=0.5)(ef.tensor([[1.0, -2.0]]))
    >>> losses
    [Tensor(1.5, float32, cpu:0)]
    """

    l1: float
    l2: float

    @arguments
    def __init__(self, l1: Factor = 0.0, l2: Factor = 0.0, **options: Unpack[LayerOptions]) -> None:
        self.activity_regularizer = L1L2(self.l1, self.l2)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs
