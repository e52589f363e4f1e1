"""Arithmetic of the numbers among the arguments of a trace, and of sizes with them.

Graphs use int64 and float64; ``assumptions`` states when the results equal Python's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import DType, real_dtype
from eagerflow.number import WIDE, Number, size_as_number
from eagerflow.op import ops
from eagerflow.recorder import recording
from eagerflow.tensor import Tensor

_RANK = (bool, int, float, complex)
_OF_REAL_NUMBERS = ("floor_divide", "remainder", "less", "less_equal", "greater", "greater_equal")
_OF_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")


def _next(
    x: Number,
    f: Callable[..., Any],
    other: Any,
    tensor: Tensor,
    python: type,
    own: DType | None,
) -> Number:
    """The result of a function of a number and another operand."""
    found = x.assumptions
    if found is None or (type(other) is Number and other.assumptions is None):
        return Number(tensor, python, own)  # a size: not an argument of its own
    return Number(tensor, python, own, found, found.step(f, (x, other), python, own))


def _size(self: Number) -> Number:
    python = float if self.python is complex else self.python
    found = ops["abs"].call(self.tensor)
    own = self.own if self.own is None or self.own.kind != "c" else real_dtype(self.own)
    found = found if own is None else ops["astype"].call(found, own)
    return _next(self, lambda x, _: abs(x), 0, found, python, own)


def _invert(self: Any) -> Any:
    if self.python in (float, complex):
        raise TypeError(f"bad operand type for unary ~: {self.python.__name__!r}")
    return -1 - self


def _part(name: str) -> property:
    """The real or the imaginary part of a number."""

    def part(self: Any) -> Any:
        if self.python is complex:
            own = None if self.own is None else real_dtype(self.own)
            found = ops[name].call(self.tensor)
            found = found if own is None else ops["astype"].call(found, own)
            return _next(self, lambda x, _: getattr(x, name), 0, found, float, own)
        if name == "real":
            return self if self.python is not bool else self + 0
        zero = 0.0 if self.python is float else 0
        return zero if self.own is None else self.own.type(zero)

    return property(part)


def _conjugate(self: Any) -> Any:
    if self.python is not complex:
        return self.real
    found = ops["conj"].call(self.tensor)
    found = found if self.own is None else ops["astype"].call(found, self.own)
    return _next(self, lambda x, _: x.conjugate(), 0, found, complex, self.own)


def _divmod(self: Any, other: Any) -> Any:
    return self // other, self % other


def _divmod_swapped(self: Any, other: Any) -> Any:
    return other // self, other % self


def _negative(self: Any) -> Any:
    return self * -1.0 if self.python is float else 0 - self


def _arithmetic(op: str, name: str, swapped: bool, gives: type | None) -> Callable[..., Any]:
    of_python = getattr(operator, name)

    def method(self: Number, other: Any) -> Any:
        right: Any
        if type(other) is Number:
            kind, right, stated = other.python, other.tensor, other.own
        elif type(other) in _RANK:
            kind, right, stated = type(other), other, None
        elif type(other) is Dim:
            return method(self, size_as_number(other))
        elif isinstance(other, np.number | np.bool_):
            right = other.item()
            kind, stated = type(right), other.dtype
        else:
            return NotImplemented
        kinds = self.python, kind
        if complex in kinds and op in _OF_REAL_NUMBERS:
            return NotImplemented  # Python says so
        if (float in kinds or complex in kinds) and op in (*_OF_BITS, *_SHIFTS):
            return NotImplemented
        least = bool if op in _OF_BITS else int
        python = gives or max(*kinds, least, key=_RANK.index)
        wide = max(*kinds, int if gives is bool else python, key=_RANK.index)
        if python is float and op == "divide":
            python = wide
        if self.assumptions is not None:
            right = self.assumptions.computed(op, wide, self, other, right)
            if op in _SHIFTS and not self.assumptions.shift(self if swapped else other):
                right = 1  # the graph is valid for no call
        left = self.tensor if wide is bool else ops["astype"].call(self.tensor, WIDE[wide])
        pair = (right, left) if swapped else (left, right)
        found = ops[op].call(*pair)

        def again(a: Any, b: Any) -> Any:
            return of_python(b, a) if swapped else of_python(a, b)

        if python is bool or (self.own is None and stated is None):
            return _next(self, again, other, found, python, None)
        # NumPy rounds each step to the promoted dtype of Python's numbers and its own.
        own = np.result_type(self.own or self.python(1), stated or kind(1))
        own = np.dtype("float64") if own.kind in "biu" and python is float else own
        return _next(self, again, other, ops["astype"].call(found, own), python, own)

    return method


def _of_size(name: str) -> Callable[[Dim, Any], Any]:
    """An operation of a size with numbers that cannot be sizes, as in ``n / 2`` and ``0.5 * n``."""
    exact: Any = getattr(Dim, name, None)

    def method(self: Dim, other: Any) -> Any:
        found = NotImplemented if exact is None else exact(self, other)
        if found is not NotImplemented or type(other) not in (*_RANK, Number, Dim):
            return found
        if not recording():  # outside of a trace a size does not become a number
            return NotImplemented
        return getattr(size_as_number(self), name)(other)

    method.__name__ = name
    return method


for _name, _op in (
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("truediv", "divide"),
    ("floordiv", "floor_divide"),
    ("mod", "remainder"),
    ("pow", "power"),
):
    for _method, _swapped in ((f"__{_name}__", False), (f"__r{_name}__", True)):
        _gives = float if _op == "divide" else None
        setattr(Number, _method, _arithmetic(_op, _name, _swapped, _gives))
        setattr(Dim, _method, _of_size(_method))
for _name, _op in (
    ("and", "bitwise_and"),
    ("or", "bitwise_or"),
    ("xor", "bitwise_xor"),
    ("lshift", "bitwise_left_shift"),
    ("rshift", "bitwise_right_shift"),
):
    _function = f"__{_name}__"
    setattr(Number, _function, _arithmetic(_op, _function, False, None))
    setattr(Number, f"__r{_name}__", _arithmetic(_op, _function, True, None))
for _name, _op in (
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("eq", "equal"),
    ("ne", "not_equal"),
):
    setattr(Number, f"__{_name}__", _arithmetic(_op, _name, False, bool))
for _name, _method_of in (
    ("__neg__", _negative),
    ("__pos__", lambda self: self),
    ("__abs__", _size),
    ("__invert__", _invert),
    ("__divmod__", _divmod),
    ("__rdivmod__", _divmod_swapped),
    ("conjugate", _conjugate),
    ("real", _part("real")),
    ("imag", _part("imag")),
):
    setattr(Number, _name, _method_of)
