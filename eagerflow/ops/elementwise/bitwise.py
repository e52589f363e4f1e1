"""Bits of integers and bools."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import INTEGERS
from eagerflow.ops.family import BOOL, Missing, Onnx, ufunc
from eagerflow.spec import Array, Namespace

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
]


def _operator(of_bits: str, of_truth: str) -> Any:
    """The rule of ONNX, which has separate operators for bools."""

    def rule(w: Any, *x: Any) -> Any:
        if w.results[0].dtype == "bool":
            return w.node(of_truth, *(w.cast(part, "bool") for part in x))
        return w.node(of_bits, *x)

    return rule


def _moved(w: Any, direction: str, x: Any, places: Any) -> Any:
    """ONNX's shift, of unsigned integers by less than their width; larger counts give 0."""
    wide, places = w.cast(x, "uint64"), w.cast(places, "uint64")
    known = w.value_of(places)
    if known is None or known.max() > 63:
        first = w.Min(places, w.constant(63, "uint64"))
        wide = w.BitShift(wide, first, direction=direction)
        places = w.Min(w.Sub(places, first), w.constant(1, "uint64"))
    return w.cast(w.BitShift(wide, places, direction=direction), x.dtype)


def _shifted_down(w: Any, x: Any, places: Any) -> Any:
    """Negative integers are shifted with all of their bits flipped, so that ones follow."""
    if x.dtype.kind == "u":
        return _moved(w, "RIGHT", x, places)
    sign = w.Neg(w.cast(w.Less(x, w.constant(0, x.dtype), dtype=bool), x.dtype))
    return w.BitwiseXor(_moved(w, "RIGHT", w.BitwiseXor(x, sign), places), sign)


def _on_bits(**facts: Any) -> Any:
    bits = Missing("the result is made of bits, which do not change smoothly")
    return ufunc(**{"partials": bits, "dtypes": BOOL | INTEGERS} | facts)


@_on_bits(operator="and", onnx=_operator("BitwiseAnd", "And"))
def bitwise_and(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The bits that are set in both of two tensors.

    ``x1`` and ``x2`` are tensors, arrays or numbers of integers or bools, of shapes that
    broadcast. Raises ShapeError where they do not, DTypeError for other dtypes.

    >>> ef.tensor([6, 7]) & 3
    Tensor([2, 3], int64, cpu:0)
    """
    return xp.bitwise_and(x1, x2)


@_on_bits(operator="or", onnx=_operator("BitwiseOr", "Or"))
def bitwise_or(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The bits that are set in at least one of two tensors.

    ``x1`` and ``x2`` are tensors, arrays or numbers of integers or bools, of shapes that
    broadcast. Raises ShapeError where they do not, DTypeError for other dtypes.

    >>> ef.tensor([4, 5]) | 1
    Tensor([5, 5], int64, cpu:0)
    """
    return xp.bitwise_or(x1, x2)


@_on_bits(operator="xor", onnx=_operator("BitwiseXor", "Xor"))
def bitwise_xor(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The bits that are set in exactly one of two tensors.

    ``x1`` and ``x2`` are tensors, arrays or numbers of integers or bools, of shapes that
    broadcast. Raises ShapeError where they do not, DTypeError for other dtypes.

    >>> ef.tensor([4, 5]) ^ 1
    Tensor([5, 4], int64, cpu:0)
    """
    return xp.bitwise_xor(x1, x2)


@_on_bits(
    operator="invert",
    onnx=_operator("BitwiseNot", "Not"),
)
def bitwise_invert(xp: Namespace, x: Array, /) -> Array:
    """Each integer with all of its bits flipped; not, for bools.

    ``x`` is a tensor of integers or bools of any shape. Raises DTypeError for other dtypes.

    >>> ~ef.tensor([0, 5])
    Tensor([-1, -6], int64, cpu:0)
    """
    return xp.bitwise_invert(x)


@_on_bits(
    dtypes=INTEGERS,
    operator="lshift",
    onnx=Onnx("BitShift", rule=lambda w, x, places: _moved(w, "LEFT", x, places)),
)
def bitwise_left_shift(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Each integer shifted left by a number of bits, filled with zeros.

    ``x1`` has integers, ``x2`` nonnegative counts; the shapes broadcast. Bits that are shifted out
    are lost. Raises ShapeError, or DTypeError for other dtypes.

    >>> ef.tensor([1, 3]) << 2
    Tensor([ 4, 12], int64, cpu:0)
    """
    return xp.bitwise_left_shift(x1, x2)


@_on_bits(
    dtypes=INTEGERS,
    operator="rshift",
    onnx=Onnx("BitShift", rule=_shifted_down),
)
def bitwise_right_shift(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Each integer shifted right by a number of bits; the sign is preserved.

    ``x1`` has integers, ``x2`` nonnegative counts; the shapes broadcast. Raises ShapeError, or
    DTypeError for other dtypes.

    >>> ef.tensor([12, -3]) >> 1
    Tensor([ 6, -2], int64, cpu:0)
    """
    return xp.bitwise_right_shift(x1, x2)
