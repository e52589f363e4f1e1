"""Number: a Python number of which only the type is known while tracing.

It behaves like the number that will come: arithmetic with other numbers is done in double
precision or in 64-bit integers, and next to a tensor it takes on that tensor's dtype.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import INTEGERS, DType, default_dtype, real_dtype
from eagerflow.op import ops
from eagerflow.recorder import recording
from eagerflow.tensor import Operators, Tensor

INT64 = np.iinfo(np.int64)
EXACT = 2**53  # up to which float64 has all integers


class Assumptions:
    """What a trace takes for granted of the numbers among its arguments: kinds, and ranges.

    A graph computes with int64 and float64, and casts to the dtype of the tensor that a number
    meets. In Python, integers have no limit, ``3 // 0`` raises, ``2 ** -1`` is a float; and eager
    ops compare a uint8 with 300 rightly, and refuse to add it. ``hold`` does the arithmetic of a
    trace again, in Python, with the numbers of a call, and tells whether the graph is right for
    them. Where it is not, the function is traced with these very numbers.
    """

    def __init__(self) -> None:
        self.count = 0  # of the arguments, and of what is computed from them
        self._steps: list[tuple[Callable[..., Any], tuple[int | None, Any], tuple[int | None, Any]]]
        self._steps = []
        self._kinds: list[tuple[int, type, DType | None]] = []
        self._limits: dict[int, tuple[Any, Any]] = {}
        self.is_never_true = False

    def argument(self, python: type, own: DType | None) -> int:
        """The place of the next argument."""
        self.count += 1
        if python is int:
            top = INT64.max if own is None or own.kind != "u" else np.iinfo(own).max
            self.limit(self.count - 1, INT64.min, top)
        return self.count - 1

    def step(
        self, f: Callable[..., Any], left: Any, right: Any, python: type, own: DType | None
    ) -> int:
        """The place of a function of two operands: Numbers, or plain numbers."""
        pair = [(x.at, None) if type(x) is Number else (None, x) for x in (left, right)]
        self._steps.append((f, pair[0], pair[1]))
        self.count += 1
        self._kinds.append((self.count - 1, python, own))
        if python is int and own is None:
            self.limit(self.count - 1, INT64.min, INT64.max)
        return self.count - 1

    def limit(self, at: int, low: Any, high: Any) -> None:
        """Let the number at a place be in a range, besides those it has to be in already."""
        was = self._limits.get(at, (low, high))
        self._limits[at] = max(low, was[0]), min(high, was[1])

    def hold(self, numbers: Sequence[Any]) -> bool:
        """Whether a graph is right for these arguments."""
        if self.is_never_true:
            return False
        values = list(numbers)
        if self._steps:
            try:
                with np.errstate(all="ignore"):
                    for f, (i, x), (k, y) in self._steps:
                        values.append(
                            f(x if i is None else values[i], y if k is None else values[k])
                        )
            except Exception:  # what Python raises is raised where the user's code does it
                return False
        for at, python, own in self._kinds:
            value = values[at]
            if (own is None and number_kind(value) is not python) or (
                own is not None and getattr(value, "dtype", None) != own
            ):
                return False
        return all(low <= values[at] <= high for at, (low, high) in self._limits.items())


def number_kind(value: Any) -> type:
    """bool, int, float or complex: that of NumPy's bools and numbers too."""
    return type(value.item()) if isinstance(value, np.generic) else type(value)


class Number(Operators):
    """A number argument of a captured function; ``tensor`` stands for it in full precision.

    ``own`` is the dtype of a number of NumPy's, which it has where nothing else says one. It is
    ``at`` this place among the numbers of ``assumptions``; sizes have none.
    """

    __slots__ = ("assumptions", "at", "own", "python", "tensor")
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to this one

    def __init__(
        self,
        tensor: Tensor,
        python: type,
        own: DType | None = None,
        assumptions: Assumptions | None = None,
        at: int = -1,
    ) -> None:
        self.tensor = tensor
        self.python = python
        self.own = own
        self.assumptions = assumptions
        self.at = at

    def meeting(self, dtype: DType) -> Tensor:
        """The number in full precision, on its way to this dtype, which has to hold it."""
        if self.assumptions is not None and dtype in INTEGERS and self.python is not bool:
            ends = np.iinfo(dtype)
            self.assumptions.limit(self.at, ends.min, ends.max)
        return self.tensor

    @property
    def value(self) -> Tensor:
        """The number as a tensor of the dtype that it gets where nothing else says one."""
        wanted = self.dtype
        if wanted == self.tensor.dtype:
            return self.tensor
        tensor: Tensor = ops["astype"].call(self.tensor, wanted)
        return tensor

    @property
    def shape(self) -> tuple[()]:
        """No axes."""
        return ()

    @property
    def dtype(self) -> DType:
        """The dtype that it has on its own."""
        return default_dtype(self.python) if self.own is None else self.own

    def refuse(self, how: str) -> NoReturn:
        """Raise the error of code that wants the number itself."""
        self.tensor._array.refuse(f"{how} of a number")
        raise AssertionError("refuse raises")

    def __neg__(self) -> Any:
        own: Any = self
        return own * -1.0 if self.python is float else 0 - own

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        python = float if self.python is complex else self.python
        found = ops["abs"].call(self.tensor)
        own = self.own if self.own is None or self.own.kind != "c" else real_dtype(self.own)
        found = found if own is None else ops["astype"].call(found, own)
        return self._next(lambda x, _: abs(x), 0, found, python, own)

    def _next(
        self, f: Callable[..., Any], other: Any, tensor: Tensor, python: type, own: DType | None
    ) -> Number:
        """What a function of this number and another one gives."""
        found = self.assumptions
        if found is None or (type(other) is Number and other.assumptions is None):
            return Number(tensor, python, own)  # a size, which no call gives by itself
        return Number(tensor, python, own, found, found.step(f, self, other, python, own))

    def _finite(self, other: Any) -> None:
        """Let floats be finite: of infinities, Python's quotient is NaN, and that of ops is not."""
        for x in (self, other):
            if type(x) is Number and x.python is float and x.assumptions is not None:
                x.assumptions.limit(x.at, -sys.float_info.max, sys.float_info.max)

    def _within_int64(self, other: Any) -> None:
        """Let numbers of uint64 be those that int64 has, too, in which they are computed."""
        for x in (self, other):
            if type(x) is Number and x.python is int and x.assumptions is not None:
                x.assumptions.limit(x.at, INT64.min, INT64.max)

    def _within_exact(self, other: Any) -> None:
        """Let integers that are computed in float64 be those that it has."""
        for x in (self, other):
            if type(x) is Number and x.python is int and x.assumptions is not None:
                x.assumptions.limit(x.at, -EXACT, EXACT)
            elif type(x) is int and not -EXACT <= x <= EXACT:
                self._unknown()

    def _unknown(self) -> int:
        """What stands for an integer that no dtype holds, in a graph that is right for no call."""
        if self.assumptions is not None:
            self.assumptions.is_never_true = True
        return 1

    def __repr__(self) -> str:
        return f"<{self.python.__name__} argument {self.tensor._array.name!r}>"


def size_as_number(size: Dim) -> Number:
    """A size that is known by name alone, as the whole number that it will be."""
    return Number(ops["sum"].call(ops["arange"].call(size, size + 1)), int)


def _refused(how: str) -> Callable[[Number], NoReturn]:
    def method(self: Number) -> NoReturn:
        self.refuse(how)

    return method


_RANK = (bool, int, float, complex)
_OF_REAL_NUMBERS = ("floor_divide", "remainder", "less", "less_equal", "greater", "greater_equal")
WIDE = {int: "int64", float: "float64", complex: "complex128"}


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
        self._within_int64(other)
        if op in ("floor_divide", "remainder"):
            self._finite(other)
        python = gives or max(self.python, kind, int, key=_RANK.index)
        wide = max(self.python, kind, int if gives is bool else python, key=_RANK.index)
        if python is float and op == "divide":
            python = wide
        if wide is float and (gives is bool or op == "divide"):
            self._within_exact(other)
        if type(right) is int and not INT64.min <= right <= INT64.max:
            right = self._unknown()
        left = ops["astype"].call(self.tensor, WIDE[wide])
        pair = (right, left) if swapped else (left, right)
        found = ops[op].call(*pair)

        def again(a: Any, b: Any) -> Any:
            return of_python(b, a) if swapped else of_python(a, b)

        if python is bool or (self.own is None and stated is None):
            return self._next(again, other, found, python, None)
        # NumPy rounds each step to the dtype in which it meets Python's numbers and its own.
        own = np.result_type(self.own or self.python(1), stated or kind(1))
        own = np.dtype("float64") if own.kind in "biu" and python is float else own
        return self._next(again, other, ops["astype"].call(found, own), python, own)

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
for _name in ("bool()", "int()", "float()", "hash()", "__index__"):
    setattr(Number, f"__{_name.strip('_()')}__", _refused(_name))
