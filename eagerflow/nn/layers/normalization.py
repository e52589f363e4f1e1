"""Layers that bring values to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.nn import initializers
from eagerflow.nn.configured import argument, inherited
from eagerflow.nn.layer import Layer
from eagerflow.ops.attributes import Axes
from eagerflow.spec import normalize_axes, normalize_axis
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["BatchNormalization", "LayerNormalization"]


class _Normalization(Layer):
    """Base of layers whose outputs are scaled by ``gamma`` and shifted by ``beta``."""

    epsilon: float = argument(1e-3, float)
    center: bool = argument(True)
    scale: bool = argument(True)
    beta_initializer: Any = argument("zeros", initializers.get)
    gamma_initializer: Any = argument("ones", initializers.get)

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

    axis: int = argument(-1)
    momentum: float = argument(0.99, float)
    epsilon = center = scale = beta_initializer = gamma_initializer = inherited
    moving_mean_initializer: Any = argument("zeros", initializers.get)
    moving_variance_initializer: Any = argument("ones", initializers.get)

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

    axis: Axes = argument(-1)

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.axes = tuple(sorted(normalize_axes(self.axis, self.rank)))
        self._make_scale(*(input_shape[i] for i in self.axes))

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        scale = None if self.gamma is None else self.gamma.value
        offset = None if self.beta is None else self.beta.value
        return ops.layer_norm(inputs, scale, offset, axis=self.axes, epsilon=self.epsilon)
