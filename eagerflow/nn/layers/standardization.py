"""Normalization by the statistics of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.examples import as_array, is_array
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Operators, Tensor

__all__ = ["Normalization"]

_EPSILON = 1e-7


def _kept(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _array(value: Any) -> np.ndarray[Any, Any]:
    return as_array(value).astype(np.float64, copy=False)


class Normalization(Layer):
    """Inputs less the mean of a data set, divided by its standard deviation.

    Along ``axis``, an integer or several, elements have separate means and variances; None uses one
    for all. They are given as ``mean`` and ``variance``, or computed by ``adapt``, which is called
    before training. ``invert`` reverses the normalization. Raises ArgumentError if one statistic is
    given without the other, ShapeError for mismatched shapes.

    >>> layer = ef.nn.Normalization()
    >>> layer.adapt(np.array([[1.0, 10.0], [3.0, 30.0]]))
    >>> layer(ef.tensor([[3.0, 20.0]]))
    Tensor([[1., 0.]], shape=(1, 2), float32, cpu:0)
    """

    _renewed = frozenset({"mean", "variance"})
    axis: tuple[int, ...]
    mean: Any  # an array if given, otherwise a Variable
    variance: Any
    invert: bool

    @arguments
    def __init__(
        self,
        axis: Annotated[int | Sequence[int], _kept] | None = -1,
        mean: Annotated[TensorLike, _array] | None = None,
        variance: Annotated[TensorLike, _array] | None = None,
        invert: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.axis = () if axis is None else self.axis
        if (mean is None) != (variance is None):
            raise ArgumentError(
                "one statistic is given without the other",
                op=self._label,
                argument="mean" if mean is None else "variance",
                expected="both mean and variance, or neither",
            )
        self.given = None if mean is None else (self.mean, self.variance)

    def build(self, input_shape: Shape) -> None:
        self.rank = len(input_shape)
        kept = sorted(normalize_axes(self.axis, self.rank))
        self.kept_sizes: tuple[Any, ...] = tuple(input_shape[i] for i in kept)
        if None in self.kept_sizes:
            raise self._misfit("sizes along axis are not known", f"shape {tuple(input_shape)}")
        self.reduced = tuple(i for i in range(self.rank) if i not in kept)
        self.placed = tuple(input_shape[i] if i in kept else 1 for i in range(self.rank))
        if self.given is None:
            self.mean = self.add_weight(self.kept_sizes, "zeros", "mean", trainable=False)
            self.variance = self.add_weight(self.kept_sizes, "ones", "variance", trainable=False)
            self.count = self.add_weight((), "zeros", "count", trainable=False, dtype="int64")
            return
        try:
            self.mean, self.variance = (np.broadcast_to(x, self.kept_sizes) for x in self.given)
        except raised_here(ValueError):
            received = " and ".join(f"shape {x.shape}" for x in self.given)
            expected = f"shape {self.kept_sizes}, from inputs of shape {tuple(input_shape)}"
            raise self._misfit("mean and variance do not fit", received, expected) from None

    def call(self, inputs: Tensor) -> Tensor:
        self.expect(inputs, rank=self.rank)
        mean, variance = (self._value(x) for x in (self.mean, self.variance))
        spread = ops.maximum(ops.sqrt(variance), _EPSILON)
        x = inputs.astype(self.compute_dtype)
        return x * spread + mean if self.invert else (x - mean) / spread

    def _value(self, statistic: Any) -> Tensor:
        """A statistic in a shape that broadcasts to the inputs."""
        known = statistic.value if isinstance(statistic, Operators) else as_tensor(statistic)  # type: ignore[attr-defined]
        return ops.reshape(ops.astype(known, self.compute_dtype), self.placed)

    def adapt(self, data: TensorLike | Iterable[Any]) -> None:
        """Compute mean and variance from ``data``.

        ``data`` is an array, a tensor, or an iterable of batches, with x used of pairs (x, y).
        Raises ArgumentError without data, or if the statistics were given.
        """
        if self.given is not None:
            raise ArgumentError("mean and variance were given", op=f"{self._label}.adapt")
        whole = is_array(data)
        number, mean, variance = 0, _array(0.0), _array(0.0)
        for item in [data] if whole else data:
            batch = _array(item[0] if isinstance(item, tuple) else item)
            if not self.built:
                self._build_for(as_tensor(batch), (), {})
            self._check(batch)
            # Chan and others, "Updating formulae and a pairwise algorithm", 1979.
            more = math.prod(batch.shape[i] for i in self.reduced)
            number += more
            part = more / max(number, 1)
            apart = batch.mean(self.reduced) - mean
            mean = mean + apart * part
            variance = variance + (batch.var(self.reduced) - variance) * part
            variance = variance + apart**2 * part * (1 - part)
        if not number:
            raise ArgumentError("there are no data", op=f"{self._label}.adapt", argument="data")
        for variable, value in ((self.mean, mean), (self.variance, variance)):
            variable.assign(value.astype(variable.dtype))
        self.count.assign(number)

    def _check(self, batch: np.ndarray[Any, Any]) -> None:
        fits = batch.ndim == self.rank
        sizes = tuple(n for i, n in enumerate(batch.shape) if i not in self.reduced)
        if not fits or sizes != self.kept_sizes:
            expected = f"{self.rank} axes, with sizes {self.kept_sizes} along axis={self.axis}"
            raise self._misfit("the data do not fit this layer", f"shape {batch.shape}", expected)
