"""Operators that draw random numbers, anew on each run of the graph."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import dtype_of
from eagerflow.ops import random


def _refuse_seed(call: Call, seed: float | None) -> None:
    if seed is not None:
        call.refuse("a seed of another library's generator")


def _type(x: Any, dtype: int | None) -> Any:
    return x.dtype if dtype is None else dtype_of(dtype)


@operator("RandomNormal", pure=False)
def random_normal(
    call: Call, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Any:
    """Normally distributed numbers."""
    _refuse_seed(call, seed)
    return ops.astype(random.normal(tuple(shape), mean, scale), dtype_of(dtype))


@operator("RandomUniform", pure=False)
def random_uniform(
    call: Call, shape: Any, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: Any = None
) -> Any:
    """Uniformly distributed numbers between two bounds."""
    _refuse_seed(call, seed)
    return ops.astype(random.uniform(tuple(shape), low, high), dtype_of(dtype))


@operator("RandomNormalLike", pure=False)
def random_normal_like(
    call: Call, x: Any, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Any:
    """Normally distributed numbers in the shape of a tensor."""
    _refuse_seed(call, seed)
    return ops.astype(random.normal(x.shape, mean, scale), _type(x, dtype))


@operator("RandomUniformLike", pure=False)
def random_uniform_like(
    call: Call, x: Any, dtype: Any = None, high: float = 1.0, low: float = 0.0, seed: Any = None
) -> Any:
    """Uniformly distributed numbers in the shape of a tensor."""
    _refuse_seed(call, seed)
    return ops.astype(random.uniform(x.shape, low, high), _type(x, dtype))


@operator("Bernoulli", pure=False)
def bernoulli(call: Call, x: Any, dtype: Any = None, seed: Any = None) -> Any:
    """1 with the probability given by a tensor, otherwise 0."""
    _refuse_seed(call, seed)
    return ops.astype(random.bernoulli(ops.astype(x, "float32")), _type(x, dtype))


@operator("Multinomial", pure=False)
def multinomial(call: Call, x: Any, dtype: int = 6, sample_size: int = 1, seed: Any = None) -> Any:
    """Class numbers drawn with log-probabilities given by the rows of a matrix."""
    _refuse_seed(call, seed)
    drawn = random.categorical(ops.astype(x, "float32"), sample_size)
    return ops.astype(drawn, dtype_of(dtype))
