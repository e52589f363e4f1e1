"""Layers that bring values to mean 0 and variance 1, or to length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.dims import DimLike, Shape
from eagerflow.dtypes import as_dtype, promote
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, Float, is_count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.masks import spread
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.nn.replicas import is_replica, summed
from eagerflow.ops.attributes import Axes
from eagerflow.ops.nn.similarity import unit
from eagerflow.ops.operands import floating
from eagerflow.spec import normalize_axes, normalize_axis
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = [
    "BatchNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "LocalResponseNormalization",
    "RMSNormalization",
    "UnitNormalization",
]


class ScaleOptions(LayerOptions, total=False):
    """The common arguments of layers with scaled and shifted outputs."""

    beta_initializer: InitializerLike
    gamma_initializer: InitializerLike
    beta_regularizer: RegularizerLike
    gamma_regularizer: RegularizerLike
    beta_constraint: ConstraintLike
    gamma_constraint: ConstraintLike


class _Normalization(Layer):
    """Base of layers with outputs scaled by ``gamma`` and shifted by ``beta``."""

    axis: Axes
    epsilon: float
    center: bool
    scale: bool
    beta_initializer: Initializer
    gamma_initializer: Initializer
    beta_regularizer: Callable[..., Any] | None
    gamma_regularizer: Callable[..., Any] | None
    beta_constraint: Callable[..., Any] | None
    gamma_constraint: Callable[..., Any] | None
    gamma: Variable | None
    beta: Variable | None

    @arguments
    def __init__(
        self,
        axis: Axes = -1,
        epsilon: Float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike = None,
        gamma_regularizer: RegularizerLike = None,
        beta_constraint: ConstraintLike = None,
        gamma_constraint: ConstraintLike = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def _make_scale(self, *shape: DimLike) -> None:
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                shape,
                self.gamma_initializer,
                "gamma",
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )
        if self.center:
            self.beta = self.add_weight(
                shape,
                self.beta_initializer,
                "beta",
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
            )


class BatchNormalization(_Normalization):
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    In training the statistics are those of the batch, and running means of them, which change by
    ``1 - momentum`` in each step, are kept for inference. ``axis`` is the channel axis, ``epsilon``
    is added to the variance. A frozen layer (``trainable=False``) uses the running statistics. If
    the inputs have a mask, only its steps enter the statistics. If a batch is split over replicas,
    each has the statistics of its part, or with ``synchronized`` all have those of the whole.
    Source: Ioffe and Szegedy, "Batch normalization", 2015.

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
    axis: int
    synchronized: bool

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
        beta_regularizer: RegularizerLike = None,
        gamma_regularizer: RegularizerLike = None,
        beta_constraint: ConstraintLike = None,
        gamma_constraint: ConstraintLike = None,
        synchronized: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            received = f"shape {tuple(input_shape)}"
            expected = "shape (batch, ..., channels)"
            raise self._misfit("the input has no channel axis", received, expected)
        self.rank = len(input_shape)
        size = input_shape[normalize_axis(self.axis, self.rank)]
        self._make_scale(size)
        self.moving_mean = self.add_weight(
            (size,), self.moving_mean_initializer, "moving_mean", trainable=False
        )
        self.moving_variance = self.add_weight(
            (size,), self.moving_variance_initializer, "moving_variance", trainable=False
        )

    def call(self, inputs: Tensor, training: bool = False, mask: Tensor | None = None) -> Tensor:
        self.expect(inputs, rank=self.rank)
        inputs = floating(inputs)
        scale = None if self.gamma is None else self.gamma.value
        offset = None if self.beta is None else self.beta.value
        training = training and self.trainable
        if not training:
            statistics: Any = (self.moving_mean.value, self.moving_variance.value)
        else:
            together = self.synchronized and is_replica()
            statistics = self._moments(inputs, mask) if together or mask is not None else ()
        outputs, mean, variance = ops.batch_norm(
            inputs, scale, offset, *statistics, axis=self.axis, epsilon=self.epsilon
        )
        if training:
            self._follow(self.moving_mean, mean)
            self._follow(self.moving_variance, variance)
        return outputs if outputs.dtype == inputs.dtype else outputs.astype(inputs.dtype)

    def _moments(self, inputs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel over valid steps, of all replicas if synchronized."""
        channel = normalize_axis(self.axis, self.rank)
        others = tuple(i for i in range(self.rank) if i != channel)
        wide = promote(as_dtype(self.dtype), as_dtype("float32"))  # 16 bits hold no sums
        x = inputs.astype(wide)
        steps = ops.ones((), bool) if mask is None else spread(mask, self.rank)
        keep = ops.broadcast_to(steps, x.shape)

        def total(values: Any) -> Any:
            own = ops.sum(values, axis=others, keepdims=True)
            return summed(own) if self.synchronized else own

        number = ops.maximum(total(keep.astype(x.dtype)), 1.0)
        mean = total(ops.where(keep, x, 0.0)) / number
        apart = ops.where(keep, x - mean, 0.0)
        variance = total(apart * apart) / number
        return ops.squeeze(mean, axis=others), ops.squeeze(variance, axis=others)

    def _follow(self, running: Variable, value: Any) -> None:
        value = ops.stop_gradient(value)
        before = running.value
        after = before + (value - before) * (1.0 - self.momentum)
        running.assign(after if after.dtype == running.dtype else after.astype(running.dtype))


class LayerNormalization(_Normalization):
    """Each example brought to mean 0 and variance 1 over ``axis``, then scaled and shifted.

    ``epsilon`` is added to the variance; ``center`` and ``scale`` enable a learned offset and
    factor. ``rms_scaling`` is Keras's older form, in which values are divided by their standard
    deviation without centering, and scaled. Source: Ba and others, "Layer normalization", 2016.

    >>> ef.nn.LayerNormalization(epsilon=0.0)(ef.tensor([[1.0, 3.0]]))
    Tensor([[-1.,  1.]], shape=(1, 2), float32, cpu:0)
    """

    rms_scaling: bool

    @arguments
    def __init__(
        self,
        axis: Axes = -1,
        epsilon: Float = 1e-3,
        center: bool = True,
        scale: bool = True,
        *,
        rms_scaling: bool = False,
        **options: Unpack[ScaleOptions],
    ) -> None:
        if self.rms_scaling:
            self.scale, self.center = True, False

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.axes = tuple(sorted(normalize_axes(self.axis, self.rank)))
        self._make_scale(*(input_shape[i] for i in self.axes))

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        if self.rms_scaling:
            variance = ops.var(inputs, axis=self.axes, keepdims=True)
            sizes = [n if i in self.axes else 1 for i, n in enumerate(inputs.shape)]
            factor = ops.reshape(self.value(self.gamma), tuple(sizes))
            return inputs * ops.rsqrt(variance + self.epsilon) * factor
        scale, offset = self.value(self.gamma), self.value(self.beta)
        return ops.layer_norm(inputs, scale, offset, axis=self.axes, epsilon=self.epsilon)


def _groups(value: Any) -> int:
    ok = is_count(value) or value == -1
    require(ok, value, "out of range", expected="an integer of at least 1, or -1 for each channel")
    return int(value)


class GroupNormalization(_Normalization):
    """Each example brought to mean 0 and variance 1 over space and groups of channels.

    ``groups`` divides the number of channels, the size of ``axis``; -1 makes each channel a group,
    which is instance normalization. ``epsilon`` is added to the variance. Raises ShapeError where
    the channels cannot be divided. Source: Wu and He, "Group normalization", 2018.

    >>> ef.nn.GroupNormalization(2, epsilon=0.0)(ef.tensor([[1.0, 3.0, 10.0, 30.0]]))
    Tensor([[-1.,  1., -1.,  1.]], shape=(1, 4), float32, cpu:0)
    """

    groups: int
    axis: int
    channels: Any

    @arguments
    def __init__(
        self,
        groups: Annotated[int, _groups] = 32,
        axis: int = -1,
        epsilon: Float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **options: Unpack[ScaleOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.channels = input_shape[normalize_axis(self.axis, self.rank)]
        if self.channels is None or (self.groups != -1 and self.channels % self.groups):
            received = f"{self.channels or 'an unknown number of'} channels"
            expected = f"a known multiple of groups={self.groups}"
            raise self._misfit("the channels cannot be divided", received, expected)
        self._make_scale(self.channels)

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        return ops.group_norm(
            inputs,
            self.channels if self.groups == -1 else self.groups,
            self.value(self.gamma),
            self.value(self.beta),
            axis=self.axis,
            epsilon=self.epsilon,
        )


class RMSNormalization(Layer):
    """Each example divided by the root of its mean square over ``axis``, then scaled.

    ``epsilon`` is added to the mean square. Source: Zhang and Sennrich, "Root mean square layer
    normalization", 2019.

    >>> ef.nn.RMSNormalization(epsilon=0.0)(ef.tensor([[3.0, -3.0]]))
    Tensor([[ 1., -1.]], shape=(1, 2), float32, cpu:0)
    """

    axis: Axes
    epsilon: float

    @arguments
    def __init__(
        self, axis: Axes = -1, epsilon: Float = 1e-6, **options: Unpack[LayerOptions]
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        self.axes = tuple(sorted(normalize_axes(self.axis, self.rank)))
        self.scale = self.add_weight([input_shape[i] for i in self.axes], "ones", "scale")

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        scale = self.value(self.scale)
        return ops.rms_norm(inputs, scale, axis=self.axes, epsilon=self.epsilon)


class UnitNormalization(Layer):
    """Each vector along ``axis`` divided by its length; those of length 0 stay as they are.

    >>> ef.nn.UnitNormalization()(ef.tensor([[3.0, 4.0]]))
    Tensor([[0.6, 0.8]], shape=(1, 2), float32, cpu:0)
    """

    axis: Axes

    @arguments
    def __init__(self, axis: Axes = -1, **options: Unpack[LayerOptions]) -> None: ...

    def call(self, inputs: Tensor) -> Tensor:
        return unit(inputs, self.axis, 1e-12)


class LocalResponseNormalization(Layer):
    """Local response normalization: each value divided by (bias + alpha·sum(x²))^beta.

    The sum is over the value itself and ``depth_radius`` channels on either side, along the last
    axis. Keras 3 has no such layer; names and defaults are those of TensorFlow's function. Source:
    Krizhevsky and others, "ImageNet classification with deep convolutional neural networks", 2012.

    >>> ef.nn.LocalResponseNormalization(1, bias=0.0)(ef.tensor([[3.0, 4.0, 0.0]]))
    Tensor([[0.6, 0.8, 0. ]], shape=(1, 3), float32, cpu:0)
    """

    depth_radius: int
    channels: Any
    bias: float
    alpha: float
    beta: float

    @arguments
    def __init__(
        self,
        depth_radius: Count = 5,
        bias: Float = 1.0,
        alpha: Float = 1.0,
        beta: Float = 0.5,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        self.channels = input_shape[-1]
        if self.channels is None:
            raise ArgumentError("the number of channels is not known", op=self._label)

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, min_rank=2, last=self.channels)
        inputs = floating(inputs)
        place = np.arange(self.channels)
        beside = abs(place[:, None] - place) <= self.depth_radius
        sums = ops.matmul(ops.square(inputs), beside.astype(inputs.dtype))
        return ops.divide(inputs, (sums * self.alpha + self.bias) ** self.beta)
