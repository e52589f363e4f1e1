"""A wrapper that keeps the largest singular value of a layer's kernel at 1."""

from __future__ import annotations

from typing import Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count
from eagerflow.nn.configured import arguments
from eagerflow.nn.initializers import TruncatedNormal
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.cells import build_part
from eagerflow.nn.layers.wrappers import LayerLike, Wrapper
from eagerflow.ops.nn.similarity import unit
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["SpectralNormalization"]


class SpectralNormalization(Wrapper):
    """Wraps a layer and divides its kernel by the largest singular value on each training call.

    ``layer`` has a ``kernel`` or ``embeddings``, whose last axis is that of outputs; the value is
    estimated by ``power_iterations`` steps, which continue from the previous call. Raises
    ArgumentError for other layers. Source: Miyato and others, arXiv:1802.05957.

    >>> layer = ef.nn.SpectralNormalization(ef.nn.Dense(2), power_iterations=20)
    >>> _ = layer(ef.ones((1, 3)), training=True)
    >>> abs(ef.linalg.svdvals(layer.layer.kernel.value)[0] - 1.0) < 1e-3
    Tensor(True, bool, cpu:0)
    """

    power_iterations: int

    @arguments
    def __init__(
        self,
        layer: LayerLike,
        power_iterations: Count = 1,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        build_part(self.layer, input_shape, self.name)
        kernel = getattr(self.layer, "kernel", getattr(self.layer, "embeddings", None))
        if not isinstance(kernel, Variable):
            raise ArgumentError(
                f"{type(self.layer).__name__} has neither kernel nor embeddings",
                op=self._label,
                argument="layer",
                expected="a layer that multiplies by a kernel",
            )
        self.kernel = kernel
        self._weights.append(kernel)  # before vector_u, as Keras orders them
        self.vector_u = self.add_weight(
            (1, kernel.shape[-1]), TruncatedNormal(stddev=0.02), "vector_u", trainable=False
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if training:
            self._normalize()
        return self.layer(inputs)

    def _normalize(self) -> None:
        kernel = ops.stop_gradient(self.kernel.value)
        rows = ops.reshape(kernel, (-1, kernel.shape[-1]))
        u = self.vector_u.value
        for _ in range(self.power_iterations):
            v = unit(ops.matmul(u, rows.mT), axis=None)
            u = unit(ops.matmul(v, rows), axis=None)
        largest = ops.sum(ops.matmul(v, rows) * u)
        some = ops.any(kernel != 0.0)  # a kernel of zeros stays, and so does u
        self.vector_u.assign(ops.where(some, u, self.vector_u.value))
        self.kernel.assign(kernel / ops.where(some, largest, 1.0))
