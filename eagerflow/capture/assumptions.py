"""Assumptions: what a trace takes for granted of the numbers among the arguments of a call."""

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
EXACT = 2**53  # up to which float64 has all integers


_UNRELATED = (LookupError, ImportError, OSError, StopIteration)  # errors not caused by numbers
_EXACT = ("divide", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


class NumbersNeededError(Exception):
    """A trace has failed that is right for no numbers: the very numbers of a call may not fail."""


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
        self, f: Callable[..., Any], operands: tuple[Any, Any], python: type, own: DType | None
    ) -> int:
        """The place of a function of two operands: Numbers, or plain numbers."""
        pair: Any = [(x.at, None) if type(x) is Number else (None, x) for x in operands]
        self._steps.append((f, pair[0], pair[1]))
        self.count += 1
        self._kinds.append((self.count - 1, python, own))
        if python is int and own is None:
            self.limit(self.count - 1, INT64.min, INT64.max)
        return self.count - 1

    def may_cause(self, error: Exception) -> bool:
        """Whether the numbers of a call may lead elsewhere than to this error of a trace."""
        return self.is_never_true or (self.count > 0 and not isinstance(error, EagerflowError))

    def caught(self, error: BaseException | None) -> None:
        """The code goes on after an error, as of C code that does not take what is no number."""
        if self.count and not isinstance(error, _UNRELATED):
            self.is_never_true = True

    def limit(self, at: int, low: Any, high: Any) -> None:
        """Let the number at a place be in a range, besides those it has to be in already."""
        if at < 0:  # a size, which no call gives by itself
            return
        was = self._limits.get(at, (low, high))
        self._limits[at] = max(low, was[0]), min(high, was[1])

    def cast(self, x: Number, dtype: DType) -> None:
        """Let a number be one that a dtype of integers has."""
        if x.python is not bool:
            ends = np.iinfo(dtype)
            self.limit(x.at, ends.min, ends.max)  # type: ignore[arg-type]

    def shift(self, amount: Any) -> bool:
        """Limit the number of places that bits are moved by; whether there is such a move."""
        if type(amount) is Number:
            self.limit(amount.at, 0, 63)  # type: ignore[arg-type]
        elif not 0 <= amount <= 63:
            self.is_never_true = True
        return not self.is_never_true

    def computed(self, op: str, wide: type, left: Number, right: Any, plain: Any) -> Any:
        """Limit the operands of an op that computes in this type; what stands for the right one.

        In float64 not all integers are exact, and the quotient of infinities is another one
        than Python's.
        """
        for x in (left, right):
            if type(x) is Number and x.python is int:
                exact = wide is float and op in _EXACT
                self.limit(x.at, *((-EXACT, EXACT) if exact else (INT64.min, INT64.max)))  # type: ignore[arg-type]
            elif type(x) is Number and x.python is float and op in ("floor_divide", "remainder"):
                self.limit(x.at, -sys.float_info.max, sys.float_info.max)  # type: ignore[arg-type]
        if type(plain) is not int:
            return plain
        if wide is float and op in _EXACT and abs(plain) > EXACT:
            self.is_never_true = True
        if INT64.min <= plain <= INT64.max:
            return plain
        self.is_never_true = True
        return 1  # in a graph that is right for no call

    def hold(self, numbers: Sequence[Any]) -> bool:
        """Whether a graph is right for these arguments."""
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
                # what Python raises is raised where the user's code does it
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
