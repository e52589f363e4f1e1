"""Arithmetic of the numbers among the arguments of a trace, and of sizes with them.

In a graph it is done in int64 and float64; ``assumptions`` has what makes that Python's.
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


def _next(
    x: Number,
    f: Callable[..., Any],
    other: Any,
    tensor: Tensor,
    python: type,
    own: DType | None,
) -> Number:
    """What a function of a number and another one gives."""
    found = x.assumptions
    if found is None or (type(other) is Number and other.assumptions is None):
        return Number(tensor, python, own)  # a size, which no call gives by itself
    return Number(tensor, python, own, found, found.step(f, (x, other), python, own))


def _size(self: Number) -> Number:
    python = float if self.python is complex else self.python
    found = ops["abs"].call(self.tensor)
    own = self.own if self.own is None or self.own.kind != "c" else real_dtype(self.own)
    found = found if own is None else ops["astype"].call(found, own)
    return _next(self, lambda x, _: abs(x), 0, found, python, own)


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
        if complex in (self.python, kind) and op in _OF_REAL_NUMBERS:
            return NotImplemented  # Python says so
        python = gives or max(self.python, kind, int, key=_RANK.index)
        wide = max(self.python, kind, int if gives is bool else python, key=_RANK.index)
        if python is float and op == "divide":
            python = wide
        if self.assumptions is not None:
            right = self.assumptions.computed(op, wide, self, other, right)
        left = ops["astype"].call(self.tensor, WIDE[wide])
        pair = (right, left) if swapped else (left, right)
        found = ops[op].call(*pair)

        def again(a: Any, b: Any) -> Any:
            return of_python(b, a) if swapped else of_python(a, b)

        if python is bool or (self.own is None and stated is None):
            return _next(self, again, other, found, python, None)
        # NumPy rounds each step to the dtype in which it meets Python's numbers and its own.
        own = np.result_type(self.own or self.python(1), stated or kind(1))
        own = np.dtype("float64") if own.kind in "biu" and python is float else own
        return _next(self, again, other, ops["astype"].call(found, own), python, own)

    return method


def _of_size(name: str) -> Callable[[Dim, Any], Any]:
    """What a size does with numbers that no size can be, as in ``n / 2`` and ``0.5 * n``."""
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
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("eq", "equal"),
    ("ne", "not_equal"),
):
    setattr(Number, f"__{_name}__", _arithmetic(_op, _name, False, bool))
for _name, _method_of in (("neg", _negative), ("pos", lambda self: self), ("abs", _size)):
    setattr(Number, f"__{_name}__", _method_of)
