"""Rounding to integers; the dtype stays, and the gradient is 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import REAL, DType
from eagerflow.ops.family import NUMERIC, elementwise
from eagerflow.ops.samples import Sample, each, reals
from eagerflow.spec import Array, Namespace

__all__ = ["ceil", "floor", "round", "trunc"]


def _off_steps(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """Values that stay on one side of every step, with their neighbourhood."""
    whole = np.dtype(dtype).kind in "iu"
    return reals(-9, 9)(rng, dtype) if whole else reals(1.1, 1.4)(rng, dtype)


def _rounding(dtypes: Any = REAL, **facts: Any) -> Any:
    return elementwise(partials=(0,), dtypes=dtypes, samples=_off_steps, **facts)


def _kept(x: Any) -> bool:
    """Whether rounding is the identity; NumPy before 2.1 converts integers to floats."""
    return x.dtype.kind in "iu"


@_rounding(onnx=lambda w, x: x if _kept(x) else w.Floor(x))
def floor(xp: Namespace, x: Array, /) -> Array:
    """The largest integer that does not exceed each element.

    ``x`` is a real tensor of any shape. The gradient is 0. Raises DTypeError for bools and
    complex.

    >>> ef.floor(ef.tensor([1.5, -1.5]))
    Tensor([ 1., -2.], float32, cpu:0)
    """
    return x if _kept(x) else xp.floor(x)


@_rounding(onnx=lambda w, x: x if _kept(x) else w.Ceil(x))
def ceil(xp: Namespace, x: Array, /) -> Array:
    """The smallest integer that is not below each element.

    ``x`` is a real tensor of any shape. The gradient is 0. Raises DTypeError for bools and
    complex.

    >>> ef.ceil(ef.tensor([1.5, -1.5]))
    Tensor([ 2., -1.], float32, cpu:0)
    """
    return x if _kept(x) else xp.ceil(x)


@_rounding(onnx=lambda w, x: x if _kept(x) else w.Mul(w.Sign(x), w.Floor(w.Abs(x))))
def trunc(xp: Namespace, x: Array, /) -> Array:
    """Each element without its fraction: the next integer towards 0.

    ``x`` is a real tensor of any shape. The gradient is 0. Raises DTypeError for bools and
    complex.

    >>> ef.trunc(ef.tensor([1.5, -1.5]))
    Tensor([ 1., -1.], float32, cpu:0)
    """
    return x if _kept(x) else xp.trunc(x)


@_rounding(
    dtypes=NUMERIC,
    onnx=lambda w, x: x if _kept(x) else w.Round(x),
    reference=each(lambda x: complex(_even(x.real), _even(x.imag)) if x.imag else _even(x.real)),
)
def round(xp: Namespace, x: Array, /) -> Array:
    """The nearest integer to each element; halves go to the even one.

    ``x`` is a numeric tensor of any shape; both parts of complex numbers are rounded. The
    gradient is 0. Raises DTypeError for bools.

    >>> ef.round(ef.tensor([0.5, 1.5, -1.2]))
    Tensor([ 0.,  2., -1.], float32, cpu:0)
    """
    return x if _kept(x) else xp.round(x)


def _even(x: float) -> float:
    low = math.floor(x)
    up = x - low > 0.5 or (x - low == 0.5 and low % 2 == 1)
    return low + 1 if up else low
