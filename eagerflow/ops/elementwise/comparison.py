"""Comparisons, logic, and questions about single numbers; the results are bools."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import REAL
from eagerflow.ops.family import BOOL, STANDARD, Missing, Onnx, ufunc
from eagerflow.spec import Array, Namespace

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]

_ORDERED = BOOL | REAL


def _compared(operator: str) -> Any:
    """ONNX's operator, with a bool result."""
    return Onnx(operator, rule=lambda w, a, b: w.node(operator, a, b, dtype=bool))


def _asked(w: Any, operator: str, x: Any) -> Any:
    """The rule of ONNX of a question that all integers answer with no."""
    return w.node(operator, x, dtype=bool) if x.dtype.kind == "f" else w.filled(False)


def _logic(operator: str) -> Any:
    """The rule of ONNX, whose operators only take bools."""
    return lambda w, *x: w.node(operator, *(w.cast(part, "bool") for part in x))


def _question(dtypes: Any = STANDARD, **facts: Any) -> Any:
    """An elementwise op with a bool result."""
    no_gradient = Missing("the result is a truth value")
    return ufunc(partials=no_gradient, dtypes=dtypes, result="bool", **facts)


@_question(
    operator="eq",
    onnx=_compared("Equal"),
)
def equal(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether the elements of two tensors are equal; NaN equals nothing.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. ``x == None``
    and ``x == "text"`` are plain False. Raises ShapeError where the shapes do not broadcast.

    >>> ef.tensor([1, 2]) == 2
    Tensor([False,  True], bool, cpu:0)
    """
    return xp.equal(x1, x2)


@_question(
    operator="ne",
    onnx=lambda w, a, b: w.Not(w.Equal(a, b, dtype=bool)),
)
def not_equal(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether the elements of two tensors differ; NaN differs from everything.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast.

    >>> ef.tensor([1, 2]) != 2
    Tensor([ True, False], bool, cpu:0)
    """
    return xp.not_equal(x1, x2)


@_question(
    dtypes=_ORDERED,
    operator="lt",
    onnx=_compared("Less"),
)
def less(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether each element of one tensor is smaller than that of another.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; Python
    integers outside of the dtype are compared by their value. Raises ShapeError where the
    shapes do not broadcast, DTypeError for complex numbers, which have no order.

    >>> ef.tensor([1, 2], dtype="uint8") < 300
    Tensor([ True,  True], bool, cpu:0)
    """
    return xp.less(x1, x2)


@_question(
    dtypes=_ORDERED,
    operator="le",
    onnx=_compared("LessOrEqual"),
)
def less_equal(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether each element of one tensor is at most that of another.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast, DTypeError for complex numbers.

    >>> ef.tensor([1.0, 2.0, 3.0]) <= 2
    Tensor([ True,  True, False], bool, cpu:0)
    """
    return xp.less_equal(x1, x2)


@_question(
    dtypes=_ORDERED,
    operator="gt",
    onnx=_compared("Greater"),
)
def greater(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether each element of one tensor is larger than that of another.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast, DTypeError for complex numbers.

    >>> ef.tensor([1.0, 2.0, 3.0]) > 2
    Tensor([False, False,  True], bool, cpu:0)
    """
    return xp.greater(x1, x2)


@_question(
    dtypes=_ORDERED,
    operator="ge",
    onnx=_compared("GreaterOrEqual"),
)
def greater_equal(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether each element of one tensor is at least that of another.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast, DTypeError for complex numbers.

    >>> ef.tensor([1.0, 2.0, 3.0]) >= 2
    Tensor([False,  True,  True], bool, cpu:0)
    """
    return xp.greater_equal(x1, x2)


@_question(
    onnx=_logic("And"),
)
def logical_and(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether the elements of both tensors are true; numbers other than 0 are.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast.

    >>> ef.logical_and(ef.tensor([True, True]), ef.tensor([True, False]))
    Tensor([ True, False], bool, cpu:0)
    """
    return xp.logical_and(x1, x2)


@_question(
    onnx=_logic("Or"),
)
def logical_or(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether an element of at least one of two tensors is true; numbers other than 0 are.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast.

    >>> ef.logical_or(ef.tensor([True, False]), False)
    Tensor([ True, False], bool, cpu:0)
    """
    return xp.logical_or(x1, x2)


@_question(
    onnx=_logic("Xor"),
)
def logical_xor(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Whether an element of exactly one of two tensors is true; numbers other than 0 are.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Raises
    ShapeError where the shapes do not broadcast.

    >>> ef.logical_xor(ef.tensor([True, False]), True)
    Tensor([False,  True], bool, cpu:0)
    """
    return xp.logical_xor(x1, x2)


@_question(
    onnx=_logic("Not"),
)
def logical_not(xp: Namespace, x: Array, /) -> Array:
    """Whether each element is false; the number 0 is.

    ``x`` is a tensor of any shape and dtype. Raises DTypeError for non-numeric dtypes.

    >>> ef.logical_not(ef.tensor([True, False]))
    Tensor([False,  True], bool, cpu:0)
    """
    return xp.logical_not(x)


@_question(
    onnx=lambda w, x: w.Not(w.Or(_asked(w, "IsInf", x), _asked(w, "IsNaN", x))),
)
def isfinite(xp: Namespace, x: Array, /) -> Array:
    """Whether each element is neither infinite nor NaN.

    ``x`` is a tensor of any shape and dtype. Raises DTypeError for non-numeric dtypes.

    >>> ef.isfinite(ef.tensor([1.0, ef.inf, ef.nan]))
    Tensor([ True, False, False], bool, cpu:0)
    """
    return xp.isfinite(x)


@_question(
    onnx=lambda w, x: _asked(w, "IsInf", x),
)
def isinf(xp: Namespace, x: Array, /) -> Array:
    """Whether each element is infinite.

    ``x`` is a tensor of any shape and dtype. Raises DTypeError for non-numeric dtypes.

    >>> ef.isinf(ef.tensor([1.0, ef.inf, ef.nan]))
    Tensor([False,  True, False], bool, cpu:0)
    """
    return xp.isinf(x)


@_question(
    onnx=lambda w, x: _asked(w, "IsNaN", x),
)
def isnan(xp: Namespace, x: Array, /) -> Array:
    """Whether each element is NaN (not a number).

    ``x`` is a tensor of any shape and dtype. Raises DTypeError for non-numeric dtypes.

    >>> ef.isnan(ef.tensor([1.0, ef.inf, ef.nan]))
    Tensor([False, False,  True], bool, cpu:0)
    """
    return xp.isnan(x)
