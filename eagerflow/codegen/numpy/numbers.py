"""Formulas of arrays and numbers, taken apart: what numbers alone give is computed once in a call.

The step of an optimizer reads a learning rate and the number of the step beside its arrays. What
its formula makes of these, as a correction of a bias, is the same for all elements: it is computed
in Python's numbers, and the rest of the formula takes the results as further numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import NUMPY
from eagerflow.runtime.python_code import compiled

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
"""The instructions that formulas use on numbers alone."""


class _Expression(str):
    """A number of a call as a text: a name, or an instruction of such numbers."""

    __slots__ = ()


class _Anything:
    """Stands for all values, and for the instructions on them, while expressions are found."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *operands: self


class _Apart:
    """The instructions ``s``, but for those on numbers alone, of which expressions are made.

    Where an expression meets other values, the next of the ``numbers`` stands for it.
    """

    def __init__(self, s: Any, numbers: Iterator[Any]) -> None:
        self._s = s
        self._numbers = numbers
        self.found: dict[_Expression, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._instruction, name)

    def _instruction(self, name: str, *operands: Any) -> Any:
        if all(isinstance(o, str | int | float) for o in operands):
            return _Expression(f"{name}({', '.join(map(str, operands))})")
        return getattr(self._s, name)(*map(self._value, operands))

    def _value(self, operand: Any) -> Any:
        if not isinstance(operand, _Expression):
            return operand
        if operand not in self.found:
            self.found[operand] = next(self._numbers)
        return self.found[operand]


def body_of(formula: generated.Body, arrays: int, names: Sequence[str]) -> generated.Body:
    """A formula of arrays and named numbers, as one of arrays and of what ``numbers_of`` gives.

    >>> from eagerflow.codegen.numpy.numbers import NUMPY, body_of
    >>> def decay(s, x, rate, /):
    ...     return s.multiply(x, s.subtract(1, rate))
    >>> float(body_of(decay, 1, ["rate"])(NUMPY, np.float32(8), 0.75))
    6.0
    """
    expressions = list(map(_Expression, names))

    def body(s: Any, *values: Any, **attributes: Any) -> Any:
        apart = _Apart(s, iter(values[arrays:]))
        return formula(apart, *values[:arrays], *expressions, **attributes)

    body.__name__ = formula.__name__
    return body


def numbers_of(
    formula: generated.Body, arrays: int, names: Sequence[str], attributes: Mapping[str, Any]
) -> Numbers:
    """A function of the named numbers, that gives what the formula makes of them alone.

    >>> from eagerflow.codegen.numpy.numbers import numbers_of
    >>> def decay(s, x, rate, /):
    ...     return s.multiply(x, s.subtract(1, rate))
    >>> numbers_of(decay, 1, ["rate"], {})(0.25)
    (0.75,)
    """
    anything = _Anything()
    apart = _Apart(anything, repeat(anything))
    formula(apart, *[anything] * arrays, *map(_Expression, names), **attributes)
    text = (
        f"def numbers({', '.join(names)}):\n    return ({''.join(f'{x}, ' for x in apart.found)})"
    )
    code = compiled(text, "<eagerflow numbers>", {"numbers", "inf", *names, *_PYTHON})
    quick = _made(code, _PYTHON)
    quiet = _made(code, {name: getattr(NUMPY, name) for name in _PYTHON})

    def numbers(*given: float) -> tuple[float, ...]:
        try:
            return quick(*given)
        except (ArithmeticError, ValueError):  # where NumPy gives inf or nan
            with np.errstate(all="ignore"):
                return tuple(map(float, quiet(*map(np.float64, given))))

    return numbers


def _made(code: Any, functions: Mapping[str, Any]) -> Numbers:
    names = {"inf": math.inf, **functions}
    exec(code, names)
    made: Numbers = names["numbers"]
    return made
