"""Dropout: a random mask times the values."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.ops import random
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.plain import plain
from eagerflow.tensor import Tensor

__all__ = ["dropout"]


@plain
def dropout(
    x: Any,
    rate: float,
    *,
    noise_shape: Any = None,
    training: bool = True,
    generator: random.Generator | None = None,
) -> Tensor:
    """Random zeros, with the other values scaled up so that the mean is preserved.

    ``x`` is a float tensor, ``rate`` the probability of a zero, from 0 to below 1. Along axes of
    size 1 in ``noise_shape``, elements are dropped together. ``training=False``, or a rate of 0,
    returns ``x`` unchanged. ``generator`` defaults to the global one. Raises ArgumentError for
    another rate, ShapeError for another noise shape. Source: Srivastava and others, "Dropout",
    2014.

    >>> ef.dropout(ef.ones((4,)), 0.5, generator=ef.random.Generator(0))
    Tensor([2., 0., 0., 2.], float32, cpu:0)
    """
    x = as_tensor(x)
    if x.dtype not in FLOATS:
        raise DTypeError(
            f"dtype {x.dtype.name} is not taken",
            op="dropout",
            argument="x",
            received=summary(x),
            expected="a float dtype",
            hint="x.astype('float32')",
        )
    if not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ArgumentError(
            f"{rate!r} is not a rate",
            op="dropout",
            argument="rate",
            expected="a number from 0 up to, not including, 1",
        )
    if not training or rate == 0:
        return x
    source = random.default_generator if generator is None else generator
    if not isinstance(source, random.Generator):
        raise ArgumentError(
            f"a {type(source).__name__} draws no numbers",
            op="dropout",
            argument="generator",
            expected="an ef.random.Generator",
        )
    shape = x.shape if noise_shape is None else _noise_shape(x, tuple(noise_shape))
    mask = random_keep(source.advance(), shape, float(rate), x.dtype, str(x.device))
    kept: Tensor = multiply(x, mask)
    return kept


def _noise_shape(x: Tensor, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    whole = tuple(own if size is None else size for own, size in zip(x.shape, shape, strict=False))
    if len(shape) != x.ndim or any(
        size not in (1, own) for own, size in zip(x.shape, whole, strict=True)
    ):
        raise ShapeError(
            f"{shape} does not fit",
            op="dropout",
            argument="noise_shape",
            received=summary(x),
            expected=f"for each axis its size, 1 or None: {x.ndim} sizes",
        )
    return whole
