"""Layers that bring values to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any, Unpack

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.nn.arguments import Float
from eagerflow.nn.configured import arguments
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.ops.attributes import Axes
from eagerflow.spec import normalize_axes, normalize_axis
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["BatchNormalization", "LayerNormalization"]


class _Normalization(Layer):
    """Base of layers whose outputs are scaled by ``gamma`` and shifted by ``beta``."""

    axis: Axes
    epsilon: float
    center: bool
    scale: bool
    beta_initializer: Initializer
    gamma_initializer: Initializer

    @arguments
    def __init__(
        self,
        axis: Axes = -1,
        epsilon: Float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def _make_scale(self, *shape: DimLike) -> None:
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(shape, self.gamma_initializer, "gamma")
        if self.center:
            self.beta = self.add_weight(shape, self.beta_initializer, "beta")


class BatchNormalization(_Normalization):
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    In training the statistics are those of the batch, and running means of them, which change
    by ``1 - momentum`` in each step, are kept for inference. ``axis`` is the channel axis,
    ``epsilon`` is added to the variance. A frozen layer (``trainable=False``) uses the running
    statistics. Source: Ioffe and Szegedy, "Batch normalization", 2015.

    >>> layer = ef.nn.BatchNormalization(epsilon=0.0)
    >>> layer(ef.tensor([[1.0], [3.0]]), training=True)
    Tensor([[-1.],
            [ 1.]], shape=(2, 1), float32, cpu:0)
    >>> layer.moving_mean.value
    Tensor([0.02], float32, cpu:0)
    """

    momentum: float
    moving_mean_initializer: Initializer
    moving_variance_initializer: Initializer

    @arguments
    def __init__(
        self,
        axis: int = -1,
        momentum: Float = 0.99,
        epsilon: Float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        moving_mean_initializer: InitializerLike = "zeros",
        moving_variance_initializer: InitializerLike = "ones",
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            received = f"shape {tuple(input_shape)}"
            expected = "shape (batch, ..., channels)"
            raise self._misfit("the input has no channel axis", received, expected)
        self.rank = len(input_shape)
        at = normalize_axis(self.axis, self.rank)
        size = input_shape[at]
        self._make_scale(size)
        self.moving_mean = self.add_weight(
            (size,), self.moving_mean_initializer, "moving_mean", trainable=False
        )
        self.moving_variance = self.add_weight(
            (size,), self.moving_variance_initializer, "moving_variance", trainable=False
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        self.expect(inputs, rank=self.rank)
        scale = None if self.gamma is None else self.gamma.value
        offset = None if self.beta is None else self.beta.value
        training = training and self.trainable
        statistics = () if training else (self.moving_mean.value, self.moving_variance.value)
        outputs, mean, variance = ops.batch_norm(
            inputs, scale, offset, *statistics, axis=self.axis, epsilon=self.epsilon
        )
        if training:
            self._follow(self.moving_mean, mean)
            self._follow(self.moving_variance, variance)
        return outputs

    def _follow(self, running: Variable, value: Any) -> None:
        value = ops.stop_gradient(value)
        before = running.value
        running.assign(before + (value - before) * (1.0 - self.momentum))


class LayerNormalization(_Normalization):
    """Each example brought to mean 0 and variance 1 over ``axis``, then scaled and shifted.

    ``epsilon`` is added to the variance; ``center`` and ``scale`` say whether there is a
    learned offset and factor. Source: Ba and others, "Layer normalization", 2016.

    >>> ef.nn.LayerNormalization(epsilon=0.0)(ef.tensor([[1.0, 3.0]]))
    Tensor([[-1.,  1.]], shape=(1, 2), float32, cpu:0)
    """

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.axes = tuple(sorted(normalize_axes(self.axis, self.rank)))
        self._make_scale(*(input_shape[i] for i in self.axes))

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        scale = None if self.gamma is None else self.gamma.value
        offset = None if self.beta is None else self.beta.value
        return ops.layer_norm(inputs, scale, offset, axis=self.axes, epsilon=self.epsilon)
