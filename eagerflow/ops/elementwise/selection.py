"""Choosing between values, element by element: where, clip, maximum, minimum."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.tiling import TILE_ELEMENTS, filled, scratch, tiled, tiled_together
from eagerflow.convert import SCALARS
from eagerflow.dtypes import REAL, default_dtype, join_scalar
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
)
from eagerflow.ops.family import BOOL, STANDARD, Onnx, elementwise, split_elementwise, ufunc
from eagerflow.runtime import buffers
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast
from eagerflow.tensor import Tensor

__all__ = ["clip", "maximum", "minimum", "where"]


# where -------------------------------------------------------------------------------------------


def _chosen_dtype(x1: Any, x2: Any) -> Any:
    """The dtype of the result; two Python numbers meet in the default of the higher kind."""
    for x in (x1, x2):
        if hasattr(x, "dtype"):
            return x.dtype
    return join_scalar(default_dtype(type(x1)), type(x2))


def _chosen_spec(condition: Any, x1: Any, x2: Any) -> TensorSpec:
    specs = [x for x in (condition, x1, x2) if isinstance(x, TensorSpec)]
    shape = broadcast(*(spec.shape for spec in specs))
    return specs[0].like(shape, _chosen_dtype(x1, x2))


def _as_mask(condition: Any) -> Any:
    # int8 joins every number's dtype without changing it, and can be conjugated.
    return astype(condition, "int8")


def _blend_into(condition: Any, x1: Any, x2: Any, out: Any) -> None:
    # np.where branches on each element; masks of bits take a quarter of the time where the
    # condition is not predictable: x2 ^ ((x1 ^ x2) & mask).
    whole = np.dtype(f"i{out.itemsize}")
    bits, bits1, bits2 = (x.view(whole) for x in (out, x1, x2))
    mask = scratch(bits, "mask")
    np.negative(condition.view(np.int8), mask)
    if bits2.ndim == 0 and bits2 == 0:
        np.bitwise_and(bits1, mask, bits)
        return
    np.bitwise_xor(bits1, bits2, bits)
    np.bitwise_and(bits, mask, bits)
    np.bitwise_xor(bits, bits2, bits)


def _chosen(s: Any, condition: Any, x1: Any, x2: Any) -> Any:
    return s.select(condition, x1, x2)


def _where_numpy(xp: Namespace, condition: Any, x1: Any, x2: Any) -> Any:
    dtype = _chosen_dtype(x1, x2)
    if x1.__class__ in SCALARS:
        x1 = np.array(x1, dtype)
    if x2.__class__ in SCALARS:
        x2 = np.array(x2, dtype)
    if condition.size < TILE_ELEMENTS or dtype.itemsize > 8:
        return np.where(condition, x1, x2)
    if dtype.char in "fd" and dtype == x1.dtype == x2.dtype and generated.pays(condition.size):
        return generated.elementwise(_chosen, condition, x1, x2)
    shape = np.broadcast_shapes(condition.shape, x1.shape, x2.shape)
    out = buffers.empty(shape, dtype)
    tiled_together(_blend_into, (condition, x1, x2), (out,))
    return out


@elementwise(
    overrides={"numpy": _where_numpy},
    partials=(
        None,
        lambda y, condition, a, b: _as_mask(condition),
        lambda y, condition, a, b: _as_mask(logical_not(condition)),
    ),
    saves="condition",
    singular=True,
    dtypes=(BOOL, STANDARD, STANDARD),
    together=(1, 2),
    infer=_chosen_spec,
    scalar="select",
    onnx=lambda w, condition, a, b: w.Where(w.cast(condition, "bool"), a, b, dtype=a.dtype),
)
def where(xp: Namespace, condition: Array, x1: Array, x2: Array, /) -> Array:
    """Elements of one tensor where a condition holds, and of another elsewhere.

    ``condition`` is a tensor of bools, ``x1`` and ``x2`` are tensors, arrays or numbers; the three
    shapes broadcast. The unselected side gets the gradient 0, even where its own derivative is
    infinite or NaN. Raises ShapeError where the shapes do not broadcast, DTypeError for a condition
    that is not bool.

    >>> x = ef.tensor([1.0, -2.0])
    >>> ef.where(x > 0, x, 0)
    Tensor([1., 0.], float32, cpu:0)
    """
    dtype = _chosen_dtype(x1, x2)
    x1, x2 = (x if hasattr(x, "dtype") else xp.asarray(x, dtype=dtype) for x in (x1, x2))
    return xp.where(condition, x1, x2)


# maximum and minimum -----------------------------------------------------------------------------


def _share(wins: Any, a: Any, b: Any) -> Any:
    """1 where an argument is selected, 1/2 where the two are equal, 0 elsewhere."""
    dtype = (a if isinstance(a, Tensor) else b).dtype
    return where(equal(a, b), 0.5, astype(wins, dtype))


def _choosing(wins: Any, loses: Any, **facts: Any) -> Any:
    """A choice between two elements; ``wins(a, b)`` is true where the first is taken."""
    return ufunc(
        partials=(
            lambda y, a, b: _share(wins(a, b), a, b),
            lambda y, a, b: _share(loses(a, b), a, b),
        ),
        saves="x1 x2",
        singular=True,
        dtypes=REAL,
        **facts,
    )


@_choosing(
    greater,
    less,
    onnx=Onnx("Max"),
)
def maximum(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The larger of two elements; NaN if one of them is NaN.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Where
    they are equal, each gets half of the gradient. Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools and complex.

    >>> ef.maximum(ef.tensor([1.0, -2.0]), 0)
    Tensor([1., 0.], float32, cpu:0)
    """
    return xp.maximum(x1, x2)


@_choosing(
    less,
    greater,
    onnx=Onnx("Min"),
)
def minimum(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The smaller of two elements; NaN if one of them is NaN.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Where
    they are equal, each gets half of the gradient. Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools and complex.

    >>> ef.minimum(ef.tensor([1.0, -2.0]), 0)
    Tensor([ 0., -2.], float32, cpu:0)
    """
    return xp.minimum(x1, x2)


# clip --------------------------------------------------------------------------------------------


def _inside(y: Any, x: Any, low: Any, high: Any) -> Any:
    """Where ``x`` is in the interval, the bounds included."""
    inside = None if low is None else greater_equal(x, low)
    if high is not None:
        below = less_equal(x, high)
        inside = below if inside is None else logical_and(inside, below)
    return 1 if inside is None else _as_mask(inside)


def _below(y: Any, x: Any, low: Any, high: Any) -> Any:
    below = less(x, low)
    # Where the bounds are crossed, the upper one wins.
    return _as_mask(below if high is None else logical_and(below, less(low, high)))


def _above(y: Any, x: Any, low: Any, high: Any) -> Any:
    # Also where the lower bound, above the upper one, was taken first.
    above = greater(x if low is None else maximum(x, low), high)
    return _as_mask(above)


def _limited(xp: Namespace, x: Any, low: Any = None, high: Any = None) -> Any:
    """The formula of ``clip``, for arrays of a namespace and in scalar instructions alike."""
    y = x if low is None else xp.maximum(x, low)
    return y if high is None else xp.minimum(y, high)


def _clip_into(x: Any, out: Any, low: Any, high: Any) -> None:
    np.minimum(np.maximum(x, low[: x.size], out=out), high[: x.size], out=out)


def _limited_by(s: Any, x: Any, *bounds: Any, lowest: bool, highest: bool) -> Any:
    """The same with the given bounds only."""
    return _limited(s, x, bounds[0] if lowest else None, bounds[-1] if highest else None)


def _clip_numpy(xp: Namespace, x: Any, min: Any = None, max: Any = None) -> Any:
    if {type(min), type(max)} <= _PLAIN and x.dtype.kind == "f":
        if generated.takes(x):
            given = [np.array(b, x.dtype) for b in (min, max) if b is not None]
            have = {"lowest": min is not None, "highest": max is not None}
            return generated.elementwise(_limited_by, x, *given, **have)
        if x.size >= TILE_ELEMENTS and min is not None and max is not None:
            return tiled(_clip_into, x, low=filled(x, min), high=filled(x, max))
    return _limited(xp, x, min, max)


def _clip_fast(xp: Namespace) -> Any:
    clip_of = _clip_numpy if xp is np else _limited

    def clip(x: Any, min: Any = None, max: Any = None) -> Any:
        if x.dtype.kind != "f" or not {type(min), type(max)} <= _PLAIN:
            raise TypeError("bounds that need conversion")
        return clip_of(xp, x, min, max)

    return clip


_PLAIN = {int, float, type(None)}


def _clip_operator(w: Any, x: Any, low: Any, high: Any) -> Any:
    """The rule of ONNX, whose Clip takes bounds without axes."""
    if all(bound is None or bound.shape == () for bound in (low, high)):
        return w.Clip(x, low, high)
    x = x if low is None else w.Max(x, low)
    return x if high is None else w.Min(x, high)


@elementwise(
    overrides={"numpy": _clip_numpy},
    partials=(_inside, _below, _above),
    saves="x min max",
    singular=True,
    dtypes=REAL,
    direct=_clip_fast,
    split=lambda *bounds: split_elementwise(*(0 if b is None else b for b in bounds)),
    scalar=_limited,
    onnx=Onnx("Clip", rule=_clip_operator),
)
def clip(xp: Namespace, x: Array, min: Array = None, max: Array = None, /) -> Array:
    """The values limited to an interval.

    ``x`` is a real tensor; ``min`` and ``max`` are numbers or tensors that broadcast with
    it, or None for no limit. Where ``min`` is above ``max``, the result is ``max``. The
    gradient passes inside the interval and at its ends. Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools and complex.

    >>> ef.clip(ef.tensor([-1.0, 0.5, 3.0]), 0, max=1)
    Tensor([0. , 0.5, 1. ], float32, cpu:0)
    """
    return _limited(xp, x, min, max)
