"""Questions that only a number itself can answer: its text, its rounding, a NumPy array of it.

A trace goes on after such a question, and its graph is right for no call: each number that comes
has a graph of its own, in which it is known (``Function._captured``).
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
    """Code asks what is known of the number of a call alone; an error for a size."""
    if number.assumptions is None:
        number.refuse(how)
    number.assumptions.is_never_true = True


def answers(number: Number, name: str) -> bool:
    """Whether an attribute of the number that comes is the one that a trace has in its place."""
    own = vars(Number).get(name)
    return isinstance(own, FunctionType | property) and hasattr(number.__class__, name)


_described = Number.__repr__


def _text(self: Number, spec: str = "") -> str:
    if not internal[sys._getframe(1).f_code.co_filename]:  # messages of eagerflow tell of it
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
