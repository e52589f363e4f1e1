"""Layers that bring values to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.nn import initializers
from eagerflow.nn.layer import Layer
from eagerflow.ops.attributes import Axes
from eagerflow.spec import normalize_axes, normalize_axis
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["BatchNormalization", "LayerNormalization"]


class BatchNormalization(Layer):
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

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.axis, self.momentum, self.epsilon = axis, float(momentum), float(epsilon)
        self.center, self.scale = center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            received = f"shape {tuple(input_shape)}"
            expected = "shape (batch, ..., channels)"
            raise self._misfit("the input has no channel axis", received, expected)
        self.rank = len(input_shape)
        at = normalize_axis(self.axis, self.rank)
        size = input_shape[at]
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight((size,), self.gamma_initializer, "gamma")
        if self.center:
            self.beta = self.add_weight((size,), self.beta_initializer, "beta")
        self.moving_mean = self.add_weight(
            (size,), self.moving_mean_initializer, "moving_mean", trainable=False
        )
        self.moving_variance = self.add_weight(
            (size,), self.moving_variance_initializer, "moving_variance", trainable=False
        )

    def call(self, inputs: Tensor, training: bool = False) -> Any:
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


class LayerNormalization(Layer):
    """Each example brought to mean 0 and variance 1 over ``axis``, then scaled and shifted.

    ``epsilon`` is added to the variance; ``center`` and ``scale`` say whether there is a
    learned offset and factor. Source: Ba and others, "Layer normalization", 2016.

    >>> ef.nn.LayerNormalization(epsilon=0.0)(ef.tensor([[1.0, 3.0]]))
    Tensor([[-1.,  1.]], shape=(1, 2), float32, cpu:0)
    """

    def __init__(
        self,
        axis: Axes = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.axis, self.epsilon = axis, float(epsilon)
        self.center, self.scale = center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.axes = tuple(sorted(normalize_axes(self.axis, self.rank)))
        shape = tuple(input_shape[i] for i in self.axes)
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(shape, self.gamma_initializer, "gamma")
        if self.center:
            self.beta = self.add_weight(shape, self.beta_initializer, "beta")

    def call(self, inputs: Tensor) -> Any:
        self.expect(inputs, rank=self.rank)
        scale = None if self.gamma is None else self.gamma.value
        offset = None if self.beta is None else self.beta.value
        return ops.layer_norm(inputs, scale, offset, axis=self.axes, epsilon=self.epsilon)
