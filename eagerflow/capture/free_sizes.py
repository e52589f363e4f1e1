"""Free sizes: sizes without a number while a function is traced, and questions about them.

The sizes of the call that is traced are the examples: ``if n > 3`` takes the side of the example,
and the graph is valid only for sizes with the same answers. A question for the number itself, as
in ``range(n)``, has no answer.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dispatch import internal
from eagerflow.errors import ShapeError
from eagerflow.graph.names import FreeNames
from eagerflow.graph.sizes import bind

T = TypeVar("T")
_REAL = (int, float, np.integer, np.floating)
_frame = sys._getframe


class SizesNeededError(Exception):
    """A trace with sizes freed by itself failed; the numbers of the call may succeed."""


class FreeSizes:
    """The free sizes of the arguments of a trace: which are equal, and answers about them.

    Equality is found where sizes meet. The function then runs once more with one name for
    both, so that a call with different sizes is rejected like any other that does not fit.
    With ``automatic`` the sizes are free without an ``input_signature``: code that may behave
    differently for names than for numbers, such as a size as a key of a dict, needs the numbers.
    """

    def __init__(self, automatic: bool = False) -> None:
        self.automatic = automatic
        self.examples: dict[str, int] = {}
        self.answers: dict[tuple[Callable[[Any, Any], bool], Any, Any], bool] = {}
        self.needed: str | None = None  # why the number of a size is needed
        self.is_open = True
        self._labels = FreeNames()
        self.names: set[str] = set()
        self._one: dict[str, str] = {}

    def size(self, name: str) -> Dim:
        """A free size of this name, or the size found to be equal to it."""
        self.names.add(name)
        return Dim(self._one.get(name, name))

    def shape(self, sizes: Sequence[Any], label: str, example: Sequence[int] | None) -> Any:
        """The shape of an argument, with a name for each size that is None."""
        found: list[Any] = []
        label = self._labels.take(label) if None in sizes else label  # a[0] and a_0 have one label
        for axis, size in enumerate(sizes):
            if size is None:
                size = self.size(f"{label}_dim{axis}")
            if isinstance(size, Dim) and example is not None:
                size = size.asked(self)
            found.append(size)
        if example is not None:
            bind(self.examples, tuple(found), tuple(example))
        return tuple(found)

    def traced(self, run: Callable[[FreeSizes], T]) -> T:
        """The result of ``run`` once all equal sizes are known."""
        while True:
            self.examples, self.answers, self.is_open = {}, {}, True
            self._labels = FreeNames()
            try:
                found = run(self)
            except ShapeError as error:
                pair = sorted(map(str, error.unlike))
                if self.automatic or len(pair) != 2 or not self.names.issuperset(pair):
                    raise
                kept, other = pair
                self._one |= {n: kept for n in self.names if self._one.get(n, n) == other}
            else:
                if self.automatic and self.needed is not None:
                    raise SizesNeededError(f"it depends on {self.needed}")
                return found
            finally:
                self.is_open = False

    def answer(self, how: Callable[[Any, Any], bool] | None, left: Any, right: Any) -> bool | None:
        """The answer for the sizes of the call, which other calls must share; None if unknown."""
        if not self.is_open:
            return None
        if how is None:
            self.need("the number of a size")
        elif isinstance(right, (*_REAL, Dim)):
            try:
                found = how(_number(left, self.examples), _number(right, self.examples))
            except ShapeError:  # a size that is no argument's
                return None
            self.answers[how, left, right] = found
            return found
        return None

    def are_equal(self, left: Dim, right: Any) -> bool:
        """The answer for user code; ops are right for all sizes, also those equal by chance."""
        is_asked = self.is_open and not internal[_frame(2).f_code.co_filename]
        return is_asked and bool(self.answer(operator.eq, left, right))

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether all answers are the same for these sizes."""
        return all(
            how(_number(left, sizes), _number(right, sizes)) == answer
            for (how, left, right), answer in self.answers.items()
        )

    def need(self, what: str) -> None:
        """Note that the trace depends on the number of a size."""
        self.needed = self.needed or what

    def note(self, what: str) -> None:
        """The same if user code asks: what it gets differs from that of a number."""
        if self.is_open and not internal[_frame(2).f_code.co_filename]:
            self.need(what)

    def class_of(self, size: Dim) -> type:
        """The class of a size for ``isinstance``: user code sees an int."""
        return int if self.is_open and not internal[_frame(2).f_code.co_filename] else Dim


def _number(x: Any, sizes: Mapping[str, int]) -> Any:
    return x.evaluate(sizes) if type(x) is Dim else x
