"""Assumptions: conditions under which a trace is valid for the numbers among the arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here
from eagerflow.number import Number

INT64 = np.iinfo(np.int64)
EXACT = 2**53  # largest magnitude up to which float64 holds every integer


UNRELATED = (LookupError, ImportError, OSError, StopIteration)  # errors not caused by numbers
_EXACT = ("divide", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


class NumbersNeededError(Exception):
    """A trace with symbolic numbers failed; the concrete numbers of the call may succeed."""


class Assumptions:
    """The assumptions of a trace about the numbers among its arguments: kinds and ranges.

    A graph computes with int64 and float64, and casts to the dtype of a number's tensor
    operand. In Python, integers have no limit, ``3 // 0`` raises, ``2 ** -1`` is a float; and eager
    ops compare a uint8 with 300 correctly, and refuse to add it. ``hold`` repeats the arithmetic of
    a trace in Python with the numbers of a call, and returns whether the graph is valid for
    them. If not, the function is traced again with these numbers as constants.
    """

    def __init__(self) -> None:
        self.count = 0  # number of arguments and values computed from them
        self._steps: list[tuple[Callable[..., Any], tuple[int | None, Any], tuple[int | None, Any]]]
        self._steps = []
        self._kinds: list[tuple[int, type, DType | None]] = []
        self._limits: dict[int, tuple[Any, Any]] = {}
        self.is_never_true = False

    def argument(self, python: type, own: DType | None) -> int:
        """The index of the next argument."""
        self.count += 1
        if python is int:
            top = INT64.max if own is None or own.kind != "u" else np.iinfo(own).max
            self.limit(self.count - 1, INT64.min, top)
        return self.count - 1

    def step(
        self, f: Callable[..., Any], operands: tuple[Any, Any], python: type, own: DType | None
    ) -> int:
        """The index of the result of a function of two operands: Numbers, or plain numbers."""
        pair = [(x.index, None) if type(x) is Number else (None, x) for x in operands]
        self._steps.append((f, pair[0], pair[1]))
        self.count += 1
        self._kinds.append((self.count - 1, python, own))
        if python is int and own is None:
            self.limit(self.count - 1, INT64.min, INT64.max)
        return self.count - 1

    def may_cause(self, error: Exception) -> bool:
        """Whether this error of a trace may not occur with the actual numbers of a call."""
        return self.is_never_true or (self.count > 0 and not isinstance(error, EagerflowError))

    def caught(self, error: BaseException | None) -> None:
        """Note a caught error, as from C code that does not accept symbolic numbers."""
        if self.count and not isinstance(error, UNRELATED):
            self.is_never_true = True

    def limit(self, at: int, low: Any, high: Any) -> None:
        """Restrict the number at an index to a range, on top of earlier restrictions."""
        if at < 0:  # a size: not an argument of its own
            return
        was = self._limits.get(at, (low, high))
        self._limits[at] = max(low, was[0]), min(high, was[1])

    def cast(self, x: Number, dtype: DType) -> None:
        """Restrict a number to the range of an integer dtype."""
        if x.python is not bool:
            ends = np.iinfo(dtype)
            self.limit(x.index, ends.min, ends.max)

    def shift(self, amount: Any) -> bool:
        """Limit the shift count of a bitwise shift; False if no call is valid any more."""
        if type(amount) is Number:
            self.limit(amount.index, 0, 63)
        elif not 0 <= amount <= 63:
            self.is_never_true = True
        return not self.is_never_true

    def computed(self, op: str, wide: type, left: Number, right: Any, plain: Any) -> Any:
        """Limit the operands of an op computed in ``wide``; returns the right operand to use.

        In float64 not all integers are exact, and floor division and remainder of infinities
        differ from Python's.
        """
        for x in (left, right):
            if type(x) is Number and x.python is int:
                exact = wide is float and op in _EXACT
                self.limit(x.index, *((-EXACT, EXACT) if exact else (INT64.min, INT64.max)))
            elif type(x) is Number and x.python is float and op in ("floor_divide", "remainder"):
                self.limit(x.index, -sys.float_info.max, sys.float_info.max)
        if type(plain) is not int:
            return plain
        if wide is float and op in _EXACT and abs(plain) > EXACT:
            self.is_never_true = True
        if INT64.min <= plain <= INT64.max:
            return plain
        self.is_never_true = True
        return 1  # the graph is valid for no call

    def hold(self, numbers: Sequence[Any]) -> bool:
        """Whether a graph is valid for these arguments."""
        if self.is_never_true:
            return False
        values = numbers
        if self._steps:
            values = list(numbers)
            try:
                with np.errstate(all="ignore"):
                    for f, (i, x), (k, y) in self._steps:
                        values.append(
                            f(x if i is None else values[i], y if k is None else values[k])
                        )
            except raised_here(Exception):
                # errors of Python are raised where the user's code runs
                return False
        for at, python, own in self._kinds:
            value = values[at]
            if (own is None and number_kind(value) is not python) or (
                own is not None and getattr(value, "dtype", None) != own
            ):
                return False
        for at, (low, high) in self._limits.items():
            value = values[at]
            if not low <= (value.item() if isinstance(value, np.generic) else value) <= high:
                return False
        return True


def number_kind(value: Any) -> type:
    """bool, int, float or complex: that of NumPy's bools and numbers too."""
    return type(value.item()) if isinstance(value, np.generic) else type(value)
