"""Rounding to integers; the dtype stays, and the gradient is 0."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import REAL
from eagerflow.ops.family import NUMERIC, elementwise
from eagerflow.spec import Array, Namespace

__all__ = ["ceil", "floor", "round", "trunc"]


def _rounding(dtypes: Any = REAL, **facts: Any) -> Any:
    return elementwise(partials=(0,), dtypes=dtypes, **facts)


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
)
def round(xp: Namespace, x: Array, /) -> Array:
    """The nearest integer to each element; halves go to the even one.

    ``x`` is a numeric tensor of any shape; both parts of complex numbers are rounded. The
    gradient is 0. Raises DTypeError for bools.

    >>> ef.round(ef.tensor([0.5, 1.5, -1.2]))
    Tensor([ 0.,  2., -1.], float32, cpu:0)
    """
    return x if _kept(x) else xp.round(x)
