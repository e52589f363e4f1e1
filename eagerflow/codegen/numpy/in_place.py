"""NumPy programs of scalar bodies: from the one formula of an op, steps that write into buffers.

A body is written down once, as a region of one axis; each of its statements is a call of NumPy
that fills an array (``tile_steps``). What is left to find is where results lie: in the output as
long as it is free, else in buffers, which values share as soon as they are dead. The steps become
a Python function, as a loop over them would take longer than NumPy does on small arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen.builder import Builder as Builder  # for ``generated``, which loads this
from eagerflow.codegen.numpy.tile_steps import Step, needed_steps, select, steps_of
from eagerflow.codegen.numpy.tiling import filled
from eagerflow.codegen.region import Constant, Region
from eagerflow.runtime import threads
from eagerflow.runtime.python_code import compiled

Fill = Callable[..., None]


def program_of(region: Region, tile: bool) -> Fill:
    """``fill(*arrays, out)`` for a region of one axis and one output; the arrays have one shape.

    They have at most ``tiling.TILE_ELEMENTS`` elements. With ``tile``, they lie along one axis,
    buffers are the thread's own and outlast the call, and steps are those that are quick on many
    elements.

    >>> from eagerflow.codegen.numpy.in_place import Builder, program_of
    >>> s = Builder("twice_exp", "n")
    >>> x = s.input("x", "float64", "n")
    >>> s.output("y", s.exp(x) * 2.0)
    >>> x, out = np.zeros(2), np.empty(2)
    >>> program_of(s.region(), False)(x, out)
    >>> out.tolist()
    [2.0, 2.0]
    """
    writer = _FunctionWriter(region, tile)
    writer.write()
    names = writer.globals.keys() | writer.names
    code = compiled("\n".join(writer.lines), "<eagerflow kernel>", names)
    exec(code, writer.globals)
    fill: Fill = writer.globals["fill"]
    return fill


def _head(filled: Any, like: Any) -> Any:
    """A tile of one value, as long as another array; see ``tiling.filled``."""
    return filled[: like.size]


def _scratch(name: str, like: Any, dtype: Any) -> Any:
    return threads.scratch(name, like.shape, dtype)


class _FunctionWriter:
    """Writes the function of a region's steps."""

    def __init__(self, region: Region, tile: bool) -> None:
        self.tile = tile
        self.inputs = [part.name for part in region.inputs]
        self.result = region.outputs[0].value
        self.dtype = np.dtype(region.outputs[0].dtype)
        self.steps = needed_steps(steps_of(region, quick=True), (self.result,))
        self.last = {
            o: i for i, s in enumerate(self.steps) for o in s.operands if isinstance(o, str)
        }
        self.homes = {name: f"x{i}" for i, name in enumerate(self.inputs)}  # of values
        self.free: dict[int, list[str]] = {}  # buffers by the bytes of an element
        self.kinds: dict[str, Any] = {"out": self.dtype}  # the dtypes that buffers were made with
        self.globals: dict[str, Any] = {"empty": np.empty_like, "head": _head, "scratch": _scratch}
        self.names = {"fill", "out", "where", *self.homes.values()}
        self.lines = [f"def fill({', '.join(self.homes.values())}, out):"]
        if self.steps and self._may_read_output(self.steps[-1]):
            self.free[self.dtype.itemsize] = ["out"]

    def _is_choice(self, step: Step) -> bool:
        """Whether a step is a selection that is made by copying, as is quickest on few elements."""
        return step.call is select and not self.tile

    def _may_read_output(self, last: Step) -> bool:
        """Whether the output may hold what the last step reads while that fills it."""
        if self._is_choice(last):
            return isinstance(last.operands[1], Constant) or last.operands[1] in self.inputs
        return last.in_place

    def write(self) -> None:
        """Write all lines."""
        if not self.steps:  # the result is an argument
            self._line(np.copyto, "out", self.homes[self.result])
        for number, step in enumerate(self.steps):
            self._step(number, step)

    def _line(self, call: Any, *arguments: str) -> None:
        name = self._global(call)
        self.lines.append(f"    {name}({', '.join(arguments)})")

    def _global(self, value: Any) -> str:
        name = f"g{len(self.globals)}"
        self.globals[name] = value
        return name

    def _step(self, number: int, step: Step) -> None:
        given = [self._operand(o, step) for o in step.operands]
        dead = [
            self.homes[o]
            for o in dict.fromkeys(step.operands)
            if isinstance(o, str) and self.last[o] == number and o not in self.inputs
        ]
        if step.in_place:
            self._release(dead)
        last = step.name == self.result
        if self._is_choice(step):
            self._choice(step, given, dead, last)
            return
        self.homes[step.name] = place = "out" if last else self._buffer(np.dtype(step.dtype))
        if not step.in_place:
            self._release(dead)
        # The array to fill is the last argument where that is allowed, which is quicker.
        plain = isinstance(step.call, np.ufunc) and step.call not in (np.maximum, np.minimum)
        self._line(step.call, *given, place if plain else f"out={place}")

    def _choice(self, step: Step, given: list[str], dead: list[str], last: bool) -> None:
        """One of two values for each element, where the second one lies if that may be changed."""
        condition, x, y = given
        place = y if y in dead and (not last or y == "out") else ""
        if not place:
            place = "out" if last else self._buffer(np.dtype(step.dtype))
            self._line(np.copyto, place, y)
        self._line(np.copyto, place, x, f"where={condition}")
        self.homes[step.name] = place
        self._release([name for name in dead if name != place])

    def _release(self, places: list[str]) -> None:
        for place in places:
            self.free.setdefault(self.kinds[place].itemsize, []).append(place)

    def _operand(self, operand: Any, step: Step) -> str:
        if not isinstance(operand, Constant):
            return self.homes[operand]
        value = np.array(operand.value, operand.dtype)
        if self.tile and step.call in (np.maximum, np.minimum):
            tile = self._global(filled(value, value))
            name = self._new()
            self.lines.append(f"    {name} = head({tile}, x0)")
            return name
        return self._global(value)

    def _new(self) -> str:
        name = f"b{len(self.names)}"
        self.names.add(name)
        return name

    def _buffer(self, dtype: Any) -> str:
        """A free buffer of this dtype; a new one if there is none."""
        waiting = self.free.setdefault(dtype.itemsize, [])
        for place in waiting:
            if self.kinds[place] == dtype:
                waiting.remove(place)
                return place
        name, kind = self._new(), self._global(dtype)
        self.kinds[name] = dtype
        label = self._global(f"in place: {name}")
        make = f"scratch({label}, x0, {kind})" if self.tile else f"empty(x0, {kind})"
        self.lines.append(f"    {name} = {make}")
        return name
