"""Number: a Python number of which only the type is known while tracing.

It behaves like the number that will come: arithmetic with other numbers is done in double
precision or in 64-bit integers, and next to a tensor it takes on that tensor's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import DType, default_dtype
from eagerflow.op import ops
from eagerflow.recorder import recording
from eagerflow.tensor import Operators, Tensor


class Number(Operators):
    """A number argument of a captured function; ``tensor`` stands for it in full precision.

    ``own`` is the dtype of a number of NumPy's, which it has where nothing else says one.
    """

    __slots__ = ("own", "python", "tensor")
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to this one

    def __init__(self, tensor: Tensor, python: type, own: DType | None = None) -> None:
        self.tensor = tensor
        self.python = python
        self.own = own

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

    def __neg__(self) -> Number:
        return Number(ops["negative"].call(self.tensor), self.python, self.own)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return Number(ops["abs"].call(self.tensor), self.python, self.own)

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
WIDE = {int: "int64", float: "float64", complex: "complex128"}


def _arithmetic(op: str, swapped: bool, gives: type | None) -> Callable[[Any, Any], Any]:
    def method(self: Number, other: Any) -> Any:
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
        python = gives or max(self.python, kind, int, key=_RANK.index)
        if python is float and op == "divide":
            python = max(self.python, kind, float, key=_RANK.index)
        left = ops["astype"].call(self.tensor, WIDE[python if gives is not bool else float])
        pair = (right, left) if swapped else (left, right)
        found = ops[op].call(*pair)
        if python is bool or (self.own is None and stated is None):
            return Number(found, python)
        # NumPy rounds each step to the dtype in which it meets Python's numbers and its own.
        own = np.result_type(self.own or self.python(1), stated or kind(1))
        own = np.dtype("float64") if own.kind in "biu" and python is float else own
        return Number(ops["astype"].call(found, own), python, own)

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
        setattr(Number, _method, _arithmetic(_op, _swapped, float if _op == "divide" else None))
        setattr(Dim, _method, _of_size(_method))
for _name, _op in (
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("eq", "equal"),
    ("ne", "not_equal"),
):
    setattr(Number, f"__{_name}__", _arithmetic(_op, False, bool))
for _name in ("bool()", "int()", "float()", "hash()", "__index__"):
    setattr(Number, f"__{_name.strip('_()')}__", _refused(_name))
