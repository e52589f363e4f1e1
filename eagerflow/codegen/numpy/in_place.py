"""NumPy programs of scalar bodies: an op's formula as steps that write into buffers.

A body is recorded once, as a region; each of its statements is a NumPy call that fills an array
(``steps``). Results are placed in an output while it is free, otherwise in buffers, which are
reused as soon as their values are dead. The steps become a Python function, as a loop over them
would take longer than NumPy on small arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen.bodies import region_of as region_of  # for ``generated``, which imports this
from eagerflow.codegen.numpy.steps import (
    EXTENT,
    Step,
    column_results,
    needed_steps,
    select,
    steps_of,
)
from eagerflow.codegen.reductions import ufunc
from eagerflow.codegen.region import Constant, Region
from eagerflow.runtime.python_code import compiled

Fill = Callable[..., None]


def program_of(region: Region, makes: bool = False) -> Fill:
    """``fill(*arrays, *outputs)`` for a region; arrays and outputs that it fills have one shape.

    If it ``makes`` its outputs, it is ``fill(*arrays)`` and returns them, a single one without a
    tuple; its arrays have at least one axis. NumPy is faster at allocating a result than at taking
    it as an argument.

    With rows, that is, with two axes of the region, it is ``fill(axis, *arrays, *outputs)``: the
    second axis corresponds to ``axis`` of the arrays, the first to all others, and arrays that lack
    one of these have size 1 there.

    >>> from eagerflow.codegen.builder import Builder
    >>> from eagerflow.codegen.numpy.in_place import program_of
    >>> s = Builder("twice_exp", "n")
    >>> x = s.input("x", "float64", "n")
    >>> s.output("y", s.exp(x) * 2.0)
    >>> x, out = np.zeros(2), np.empty(2)
    >>> program_of(s.region())(x, out)
    >>> out.tolist()
    [2.0, 2.0]
    """
    writer = (_MakingWriter if makes else FunctionWriter)(region)
    writer.write()
    names = writer.globals.keys() | writer.names
    code = compiled("\n".join(writer.lines), "<eagerflow kernel>", names)
    exec(code, writer.globals)
    fill: Fill = writer.globals["fill"]
    return fill


def _extent(like: Any, axis: int) -> int:
    size: int = like.shape[axis]
    return size


class FunctionWriter:
    """Writes the function of a region's steps."""

    makes = False

    def __init__(self, region: Region) -> None:
        self.axes = region.axes
        self.inputs = [part.name for part in region.inputs]
        self.outputs = {f"y{i}": out.value for i, out in enumerate(region.outputs)}
        self.targets = {value: place for place, value in reversed(self.outputs.items())}
        self.steps = needed_steps(steps_of(region, quick=True), self.targets)
        self.made = {s.name: i for i, s in enumerate(self.steps)}
        self.last = {
            o: i for i, s in enumerate(self.steps) for o in s.operands if isinstance(o, str)
        }
        self.homes = {name: f"x{i}" for i, name in enumerate(self.inputs)}  # of values
        self.like = next(self.homes[p.name] for p in region.inputs if p.axes == region.axes)
        places = [*self.homes.values(), *self.outputs]
        parts: list[Any] = [*region.inputs, *region.outputs]
        self.kinds = {  # the axes and dtypes that arrays were created with
            place: (part.axes, np.dtype(part.dtype))
            for place, part in zip(places, parts, strict=True)
        }
        self.free = [place for value, place in self.targets.items() if value in self.made]
        self.globals: dict[str, Any] = {"empty": np.empty_like}
        given = [*["axis"] * (len(self.axes) > 1), *self.homes.values()]
        parameters = given if self.makes else [*given, *self.outputs]
        self.names = {"fill", "out", "where", *given, *self.outputs}
        self.lines = [f"def fill({', '.join(parameters)}):"]

    def write(self) -> None:
        """Write all lines."""
        for number, step in enumerate(self.steps):
            self._step(number, step)
        for place, value in self.outputs.items():
            if self.homes[value] != place:  # an argument, or the same as another output
                self._line(np.copyto, place, self.homes[value])

    def _line(self, call: Any, *arguments: str, result: str = "") -> None:
        self.lines.append(
            f"    {f'{result} = ' if result else ''}{self._global(call)}({', '.join(arguments)})"
        )

    def _global(self, value: Any) -> str:
        name = f"g{len(self.globals)}"
        self.globals[name] = value
        return name

    def _step(self, number: int, step: Step) -> None:
        if step.operands == (f"{self.axes[-1]}{EXTENT}",):
            self.homes[step.name] = self._new()
            self._line(_extent, self.like, "axis", result=self.homes[step.name])
            return
        given = [self._operand(o) for o in step.operands]
        dead = [
            self.homes[o]
            for o in dict.fromkeys(step.operands)
            if o in self.made and self.last[o] == number and self.homes[o] in self.kinds
            if o not in self.targets
        ]
        if step.over:
            self._reduction(step, given)
        elif step.call is select:
            self._choice(step, given, dead)
        else:
            self._fill(step, given, dead if step.in_place else [])
        self.free += [place for place in dead if place not in (*self.free, self.homes[step.name])]

    def _fill(self, step: Step, given: list[str], dead: list[str]) -> None:
        """A call that fills an array, possibly one that is dead after it."""
        self.free += dead
        self.homes[step.name] = place = self._place(step)
        self._write(step, given, place)

    def _write(self, step: Step, given: list[str], place: str) -> None:
        # The array to fill is the last argument where that is allowed, which is faster.
        plain = isinstance(step.call, np.ufunc) and step.call not in (np.maximum, np.minimum)
        self._line(step.call, *given, place if plain else f"out={place}")

    def _choice(self, step: Step, given: list[str], dead: list[str]) -> None:
        """A selection between two values by copying, over the second one if possible."""
        condition, x, y = given
        fits = y in dead and self.kinds[y] == (step.axes, np.dtype(step.dtype))
        place = y if fits and self.targets.get(step.name, y) == y else ""
        if not place:
            place = self._place(step)
            self._line(np.copyto, place, y)
        self._line(np.copyto, place, x, f"where={condition}")
        self.homes[step.name] = place

    def _reduction(self, step: Step, given: list[str]) -> None:
        """One number for each row in a new array, or for each column, if rows are along axis 1."""
        target = self.targets.get(step.name)
        result = "" if target else self._new()
        if step.over == self.axes[-1:]:
            where = ("axis", "None", target or "None", "True")
            self._line(ufunc(step.reduction).reduce, *given, *where, result=result)
        else:
            reduce = partial(column_results, step.reduction)
            self._line(reduce, *given, target or "None", result=result)
        self.homes[step.name] = place = target or result
        self.kinds[place] = step.axes, np.dtype(step.dtype)

    def _operand(self, operand: Any) -> str:
        if not isinstance(operand, Constant):
            return self.homes[operand]
        return self._global(np.array(operand.value, operand.dtype))

    def _new(self) -> str:
        name = f"b{len(self.names)}"
        self.names.add(name)
        return name

    # Places --------------------------------------------------------------------------------------

    def _place(self, step: Step) -> str:
        """The array that a step fills: an output, a free buffer, or a new buffer."""
        if target := self.targets.get(step.name):
            return target
        kind = step.axes, np.dtype(step.dtype)
        for place in reversed(self.free):  # preferably that of an operand of this step
            if self.kinds[place] == kind and self._is_free_until(place, self.last[step.name]):
                self.free.remove(place)
                return place
        name, dtype = self._new(), self._global(kind[1])
        self.kinds[name] = kind
        like = self.like if step.axes == self.axes else self._small_operand(step)
        self._buffer(name, like, dtype)
        return name

    def _buffer(self, name: str, like: str, dtype: str) -> None:
        """Create a new buffer."""
        self.lines.append(f"    {name} = empty({like}, {dtype})")

    def _small_operand(self, step: Step) -> str:
        """An operand broadcast to the shape of a result that lacks some axes."""
        return next(
            self.homes[o]
            for o in step.operands
            if isinstance(o, str) and self.kinds.get(self.homes[o], ("",))[0] == step.axes
        )

    def _is_free_until(self, place: str, last: int) -> bool:
        """Whether a buffer is unused by outputs until a step, the last reader of another value.

        That step may write to its operand, if each element is read before it is written.
        """
        if place not in self.outputs:
            return True
        number = self.made[self.outputs[place]]
        return last < number or (last == number and self._may_read_place(self.steps[number]))

    def _may_read_place(self, step: Step) -> bool:
        """Whether the array that a step fills may be one of its operands."""
        if step.call is select:
            second = step.operands[1]
            return isinstance(second, Constant) or second in self.inputs
        return step.in_place


class _MakingWriter(FunctionWriter):
    """Writes a function in which arrays are created by the first step that fills them."""

    makes = True

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self.absent = set(self.outputs)  # buffers that have not been created yet
        self.types = {part.name: part.dtype for part in region.inputs}
        self.types |= {step.name: step.dtype for step in self.steps}

    def write(self) -> None:
        """Write all lines, and the return statement."""
        super().write()
        self.lines.append(f"    return {', '.join(self.outputs)}")

    def _buffer(self, name: str, like: str, dtype: str) -> None:
        self.absent.add(name)

    def _line(self, call: Any, *arguments: str, result: str = "") -> None:
        for place in [a.removeprefix("out=") for a in arguments]:
            if place in self.absent:
                self._make(place)
        super()._line(call, *arguments, result=result)

    def _make(self, place: str) -> None:
        self.absent.remove(place)
        dtype = self._global(self.kinds[place][1])
        self.lines.append(f"    {place} = empty({self.like}, {dtype})")

    def _fill(self, step: Step, given: list[str], dead: list[str]) -> None:
        self.free += dead
        self.homes[step.name] = place = self._place(step)
        if place in self.absent and self._comes_out(step):
            self.absent.remove(place)
            self._line(step.call, *given, result=place)
        else:
            self._write(step, given, place)

    def _comes_out(self, step: Step) -> bool:
        """Whether NumPy's own result has all axes, and the right type."""
        if not isinstance(step.call, np.ufunc) or step.axes != self.axes:
            return False
        known = [o.dtype if isinstance(o, Constant) else self.types[o] for o in step.operands]
        with np.errstate(all="ignore"):
            made: Any = step.call(*[np.ones(1, dtype) for dtype in known])
        return bool(made.dtype.name == step.dtype)
