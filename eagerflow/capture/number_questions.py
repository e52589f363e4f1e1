"""Operations that need the concrete number: its text, its rounding, a NumPy array of it.

A trace continues after such an operation, but its graph is valid for no call: each argument value
gets a graph of its own, with the number as a constant (``Function._captured``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from eagerflow.capture.assumptions import NumbersNeededError
from eagerflow.dispatch import internal
from eagerflow.number import Number


def ask(number: Number, how: str) -> None:
    """Note that code needs the concrete number of a call; an error for a size."""
    if number.assumptions is None:
        number.refuse(how)
    number.assumptions.is_never_true = True


def answers(number: Number, name: str) -> bool:
    """Whether an attribute of the actual number exists on its placeholder in a trace as well."""
    own = vars(Number).get(name)
    return isinstance(own, FunctionType | property) and hasattr(number.__class__, name)


_described = Number.__repr__


def _text(self: Number, spec: str = "") -> str:
    if not internal[sys._getframe(1).f_code.co_filename]:  # messages of eagerflow may show it
        ask(self, "the text")
    return _described(self)


def _same(self: Number, *_: Any) -> Number:
    return self


def _asked(how: str) -> Callable[..., NoReturn]:
    def method(self: Number, *_: Any, **__: Any) -> NoReturn:
        ask(self, how)
        raise NumbersNeededError

    return method


_ASKED = """
__array__ __array_function__ __ceil__ __floor__ __getitem__ __imatmul__ __iter__ __matmul__
__reduce_ex__ __rmatmul__ __round__ __sizeof__ __trunc__
"""

for _name, _method in {
    "__repr__": _text,
    "__format__": _text,
    "__copy__": _same,
    "__deepcopy__": _same,
    **{name: _asked(name) for name in _ASKED.split()},
}.items():
    setattr(Number, _name, _method)
