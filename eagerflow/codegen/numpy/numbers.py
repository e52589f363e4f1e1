"""Formulas of arrays and numbers: the scalar parts are computed once per call.

The step of an optimizer reads a learning rate and the step number besides its arrays. Values that
depend only on these, such as a bias correction, are the same for all elements: they are computed as
Python numbers, and the rest of the formula takes the results as additional numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import NUMPY
from eagerflow.handlers import raised_here

Numbers = Callable[..., tuple[float, ...]]
_PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "divide": operator.truediv,
    "expm1": math.expm1,
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "negative": operator.neg,
    "power": math.pow,
    "sqrt": math.sqrt,
    "subtract": operator.sub,
}
"""The instructions of formulas on numbers only."""
_NUMPY = {name: getattr(NUMPY, name) for name in _PYTHON}
MAX_REMEMBERED = 16  # results for recent numbers


class _Number(NamedTuple):
    """A number of a call, by its index among given and computed numbers."""

    place: int


Step = tuple[str, tuple[Any, ...]]
"""An instruction and its operands, numbers of a call and constants."""


class _Anything:
    """Placeholder of all values, and of the instructions on them, while numbers are collected."""

    dtype = np.dtype("float64")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *operands: self


class _Apart:
    """The instructions ``s``, except those on numbers only, which become ``steps``.

    If such a number is combined with other values, it is replaced by the next of ``values``.
    """

    def __init__(self, s: Any, given: int, values: Iterator[Any]) -> None:
        self.given = [_Number(i) for i in range(given)]
        self.steps: dict[Step, _Number] = {}
        self.found: dict[_Number, Any] = {}
        self._s = s
        self._values = values

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._instruction, name)

    def _instruction(self, name: str, *operands: Any) -> Any:
        if all(isinstance(o, _Number | int | float) for o in operands):
            new = _Number(len(self.given) + len(self.steps))
            return self.steps.setdefault((name, operands), new)
        return getattr(self._s, name)(*[self._value(x) for x in operands])

    def _value(self, operand: Any) -> Any:
        if not isinstance(operand, _Number):
            return operand
        if operand not in self.found:
            self.found[operand] = next(self._values)
        return self.found[operand]


def body_of(formula: generated.Body, arrays: int, numbers: int) -> generated.Body:
    """A formula of arrays and numbers, as one of arrays and of the results of ``numbers_of``.

    >>> from eagerflow.codegen.numpy.numbers import NUMPY, body_of
    >>> def decay(s, x, rate, /):
    ...     return s.multiply(x, s.subtract(1, rate))
    >>> float(body_of(decay, 1, 1)(NUMPY, np.float32(8), 0.75))
    6.0
    """

    def body(s: Any, *values: Any, **attributes: Any) -> Any:
        apart = _Apart(s, numbers, iter(values[arrays:]))
        return formula(apart, *values[:arrays], *apart.given, **attributes)

    body.__name__ = formula.__name__
    return body


def numbers_of(
    formula: generated.Body, arrays: int, numbers: int, attributes: Mapping[str, Any]
) -> Numbers:
    """A function of the formula's numbers, which computes its scalar parts.

    >>> from eagerflow.codegen.numpy.numbers import numbers_of
    >>> def decay(s, x, rate, /):
    ...     return s.multiply(x, s.subtract(1, rate))
    >>> numbers_of(decay, 1, 1, {})(0.25)
    (0.75,)
    """
    anything = _Anything()
    apart = _Apart(anything, numbers, repeat(anything))
    formula(apart, *[anything] * arrays, *apart.given, **attributes)
    wanted = [number.place for number in apart.found]

    @lru_cache(MAX_REMEMBERED)  # in one step of an optimizer they are requested by each variable
    def found(*given: float) -> tuple[float, ...]:
        try:
            values = _run(apart.steps, given, _PYTHON)
        except raised_here(ArithmeticError, ValueError):  # NumPy gives inf or nan
            with np.errstate(all="ignore"):
                values = _run(apart.steps, map(np.float64, given), _NUMPY)
        return tuple([float(values[place]) for place in wanted])

    return found


def _run(
    steps: Iterable[Step], given: Iterable[Any], functions: Mapping[str, Callable[..., Any]]
) -> list[Any]:
    values = list(given)
    for name, operands in steps:
        own = [values[o.place] if type(o) is _Number else o for o in operands]
        values.append(functions[name](*own))
    return values
