"""Regions: the computation of a generated kernel, as data.

A region is a loop nest over an index space: each value is one number for each index along its axes.
Inputs are read at the index, statements compute one value from others, reductions along trailing
axes give one number for each row, which later statements may use on all elements of the row;
reductions along leading axes give one number for each column. A region does not specify loops,
vectors or threads: ``llvm``, ``cuda`` and ``numpy`` each decide that.

    region softmax[m, n]
      in x: float32[m, n]
      %1: float32[m] = max %x over n
      %2: float32[m, n] = subtract %x, %1
      ...
      out y: float32[m, n] = %5
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from eagerflow.codegen.instructions import (
    GENERATORS,
    INSTRUCTIONS,
    MEMORY_TYPES,
    TYPES,
    bit_width,
    is_float,
    is_signed,
    value_type,
)
from eagerflow.codegen.reductions import JOINS
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, ShapeError
from eagerflow.runtime.properties import cached_property

REDUCTIONS = tuple(JOINS)
"""Instructions that reduce many numbers to one; mean, variance and argmax are made of them."""


@dataclass(frozen=True)
class Constant:
    """A number in a region, with its type."""

    value: Any
    dtype: str

    def __str__(self) -> str:
        if self.dtype in ("float32", "int64", "bool"):
            return repr(self.value)
        return f"{self.value!r}:{self.dtype}"


@dataclass(frozen=True)
class Input:
    """An input array: its type in memory, and its axes.

    ``gather`` names an integer input; if given, the first axis of this array is looked up: the
    element read is ``array[gather[...], ...]``.
    """

    name: str
    dtype: str
    axes: tuple[str, ...]
    gather: str | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """The prerequisites of reading the array: the index of looked-up rows."""
        return () if self.gather is None else (self.gather,)

    def __str__(self) -> str:
        place = f" at {self.gather}" if self.gather else ""
        return f"in {self.name}: {_typed(self.dtype, self.axes)}{place}"


@dataclass(frozen=True)
class Statement:
    """One value, from others: an instruction, or a reduction ``over`` some axes.

    Operands are names of inputs and earlier statements, and Constants. ``position`` is the index
    along its axis ``over``, ``extent`` the axis's size. ``random_bits`` is number ``i`` of the draw
    identified by its three operands, the words of a generator's state; ``i`` counts along ``over``.
    """

    name: str
    instruction: str
    operands: tuple[str | Constant, ...]
    dtype: str
    axes: tuple[str, ...]
    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = ", ".join(f"%{o}" if isinstance(o, str) else str(o) for o in self.operands)
        over = f" over {', '.join(self.over)}" if self.over else ""
        what = f"{self.instruction} {given}".rstrip()
        return f"%{self.name}: {_typed(self.dtype, self.axes)} = {what}{over}"


@dataclass(frozen=True)
class Output:
    """An array that is written with a value, possibly replacing an input."""

    name: str
    value: str
    dtype: str
    axes: tuple[str, ...]
    inplace: str | None = None

    def __str__(self) -> str:
        place = f" in place of {self.inplace}" if self.inplace else ""
        return f"out {self.name}: {_typed(self.dtype, self.axes)} = %{self.value}{place}"


def dependencies(
    names: Iterable[str], operands: Callable[[str], Iterable[str | Constant]]
) -> set[str]:
    """These values and all that they are computed from; ``operands`` returns the operands of each.

    >>> made_of = {"y": ("x", "e"), "e": ("x", Constant(1.0, "float32"))}
    >>> sorted(dependencies(["y"], lambda name: made_of.get(name, ())))
    ['e', 'x', 'y']
    """
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [o for o in operands(name) if isinstance(o, str)]
    return found


def reduction_depths(parts: Iterable[Any], reduces: Callable[[Any], bool]) -> dict[str, int]:
    """The depth of dependent reductions for each value, including itself.

    ``parts`` have a name and operands, and are in a valid order of computation.
    """
    depths: dict[str, int] = {}
    for part in parts:
        below = max((depths.get(o, 0) for o in part.operands if isinstance(o, str)), default=0)
        depths[part.name] = below + reduces(part)
    return depths


def _typed(dtype: str, axes: tuple[str, ...]) -> str:
    return f"{dtype}{_named(axes)}"


def _named(axes: Iterable[str]) -> str:
    return f"[{', '.join(axes)}]"


class LoopNest:
    """The computation for each index of a space: a region, or a part of it for one launch."""

    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...]

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes of a row."""
        raise NotImplementedError

    @cached_property
    def columns(self) -> dict[str, Statement]:
        """The statements that reduce columns, by name."""
        return {}

    @cached_property
    def _parts(self) -> dict[str, Statement | Input]:
        parts: list[Statement | Input] = [*self.inputs, *self.body]
        return {part.name: part for part in parts}

    def statement(self, name: str) -> Statement | Input:
        """The statement or input of a name."""
        return self._parts[name]

    def is_row_reduction(self, part: Statement | Input) -> bool:
        """Whether a value is the result of reducing a row."""
        return isinstance(part, Statement) and part.instruction in REDUCTIONS


@dataclass(frozen=True, eq=False)
class Region(LoopNest):
    """A validated description of a kernel; ``sizes`` has the axes with fixed extents.

    Raises DTypeError for mismatched types, ShapeError for mismatched axes, and ArgumentError for
    values that are undefined or defined twice; each shows the text of the region with the position
    marked.
    """

    name: str
    axes: tuple[str, ...]
    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    calls: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Prepared executions, by the shapes, strides and dtypes of operands."""
    derived: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Cached analyses of other modules, by name."""

    def __post_init__(self) -> None:
        _Check(self).all()

    @classmethod
    def shared(cls, *parts: Any) -> Region:
        """The region of these parts, shared with an existing one and its prepared executions.

        A network repeats its layers: most regions of a plan are equal. ``parts`` are the fields, by
        a writer whose names are unambiguous in the text.
        """
        key = _hash_of(_lines(*parts))
        found = _in_use.get(key)
        if found is None:
            found = _in_use[key] = cls(*parts)
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __eq__(self, other: object) -> bool:
        # By the text, which distinguishes 0.0 from -0.0, and in which a NaN equals itself.
        return isinstance(other, Region) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def _lines(self) -> Iterator[str]:
        return _lines(self.name, self.axes, self.inputs, self.body, self.outputs, self.sizes)

    def refuse(
        self, kind: type[EagerflowError], message: str, line: int | None = None, **more: Any
    ) -> None:
        """Raise an error that shows the text of the region, optionally with a line of it marked."""
        lines = list(self._lines())
        if line is not None:
            lines[line] = f"> {lines[line].strip()}   <-- here"
        raise kind("\n    ".join([message, *lines]), op=f"region {self.name}", **more)

    @cached_property
    def key(self) -> str:
        """The hash of the text, which identifies the region wherever code is cached."""
        return _hash_of(self._lines())

    @cached_property
    def reduced_axes(self) -> tuple[str, ...]:
        """The trailing axes of row reductions; none if there are none."""
        return next((s.over for s in self.body if self.is_row_reduction(s)), ())

    @cached_property
    def columns(self) -> dict[str, Statement]:
        """The statements that reduce columns, by name."""
        return {s.name: s for s in self.body if self.is_column_reduction(s)}

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes of a row: those of row reductions, or otherwise the last one."""
        return self.reduced_axes or self.axes[-1:]

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced, along rows or columns."""
        return any(s.instruction in REDUCTIONS for s in self.body)

    @cached_property
    def without_gathers(self) -> Region:
        """The same region without lookups: every input has all of its axes."""
        return replace(self, inputs=tuple(replace(p, gather=None) for p in self.inputs))

    def is_row_reduction(self, part: Statement | Input) -> bool:
        """Whether a value is the result of reducing a row."""
        return (
            isinstance(part, Statement) and part.instruction in REDUCTIONS and _trails(self, part)
        )

    def is_column_reduction(self, statement: Statement) -> bool:
        """Whether a statement reduces leading axes, and not those of the row."""
        return statement.instruction in REDUCTIONS and not _trails(self, statement)


_in_use: WeakValueDictionary[str, Region] = WeakValueDictionary()


def _lines(
    name: str,
    axes: tuple[str, ...],
    inputs: tuple[Input, ...],
    body: tuple[Statement, ...],
    outputs: tuple[Output, ...],
    sizes: tuple[tuple[str, int], ...] = (),
) -> Iterator[str]:
    """The text of a region."""
    fixed = dict(sizes)
    own = (f"{a}={fixed[a]}" if a in fixed else a for a in axes)
    yield f"region {name}[{', '.join(own)}]"
    for part in (*inputs, *body, *outputs):
        yield f"  {part}"


def _hash_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _holds(dtype: str, value: Any) -> bool:
    """Whether a Python number is one of a type, as it is written in a region."""
    if dtype == "bool" or isinstance(value, bool):
        return dtype == "bool" and isinstance(value, bool)
    if is_float(dtype):
        return isinstance(value, float)
    signed, bits = is_signed(dtype), bit_width(dtype)
    return isinstance(value, int) and -(2 ** (bits - 1)) * signed <= value < 2 ** (bits - signed)


def _trails(region: Region, statement: Statement) -> bool:
    """Whether a reduction is along the last axes of the region."""
    count = len(statement.over)
    return statement.over == region.axes[len(region.axes) - count :]


class _Check:
    """The validation of a region; the first violation is raised."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.line = 0  # the current line of the region's text
        self.types: dict[str, str] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.columns: set[str] = set()  # results of column reductions are only for outputs

    def all(self) -> None:
        region = self.region
        self._space()
        self._names()
        first, second = 1 + len(region.inputs), 1 + len(region.inputs) + len(region.body)
        self._each(self._input, region.inputs, 1)
        self._each(self._gather, region.inputs, 1)
        self._each(self._statement, region.body, first)
        self._each(self._output, region.outputs, second)
        self._each(self._row, region.body, first)
        if not region.outputs:
            self.line = 0
            self._fail(ArgumentError, "a region without outputs computes nothing")

    def _each(self, check: Callable[[Any], None], parts: Iterable[Any], line: int) -> None:
        for number, part in enumerate(parts):
            self.line = line + number
            check(part)

    def _fail(self, kind: type[EagerflowError], message: str, **more: Any) -> None:
        self.region.refuse(kind, message, self.line, **more)

    def _space(self) -> None:
        axes = self.region.axes
        if not axes or len(set(axes)) != len(axes):
            self._fail(ShapeError, "a region has one or more axes, each named once")
        for number, (name, size) in enumerate(self.region.sizes):
            if name not in axes:
                self._fail(ShapeError, f"a size is given for {name!r}, which is no axis")
            if size < 0 or name in dict(self.region.sizes[:number]):
                self._fail(ShapeError, f"axis {name!r} needs one size, of 0 or more")

    def _names(self) -> None:
        region = self.region
        values = [p.name for p in region.inputs] + [s.name for s in region.body]
        for name in (region.name, *region.axes, *values, *(out.name for out in region.outputs)):
            # The text identifies the region: no name may be ambiguous in it.
            if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
                self._fail(
                    ArgumentError, f"{name!r} is not a name", expected="letters, digits, _ . -"
                )

    def _along(self, axes: tuple[str, ...]) -> None:
        own = self.region.axes
        for axis in axes:
            if axis not in own:
                self._fail(
                    ShapeError, f"there is no axis {axis!r}", expected=f"of {', '.join(own)}"
                )
        order = [own.index(axis) for axis in axes]
        if order != sorted(set(order)):
            self._fail(ShapeError, f"{_named(axes)} are not axes in the region's order, once each")

    def _define(self, name: str, dtype: str, axes: tuple[str, ...]) -> None:
        if name in self.types:
            self._fail(ArgumentError, f"%{name} is defined twice")
        self._along(axes)
        self.types[name], self.axes[name] = dtype, axes

    def _input(self, part: Input) -> None:
        if part.dtype not in MEMORY_TYPES:
            self._fail(DTypeError, f"{part.dtype!r} is not a type of arrays in kernels")
        self._define(part.name, value_type(part.dtype), part.axes)

    def _gather(self, part: Input) -> None:
        if part.gather is None:
            return
        index = next((p for p in self.region.inputs if p.name == part.gather), None)
        if index is None:
            self._fail(ArgumentError, f"%{part.gather} is not an input")
        elif index.dtype not in ("int32", "int64"):
            message = f"rows are looked up by int32 or int64, not {index.dtype}: %{index.name}"
            self._fail(DTypeError, message)
        elif index.gather is not None:
            self._fail(ArgumentError, f"%{index.name} is looked up itself")
        elif set(index.axes) & set(self.region.axes[-1:]) or not part.axes:
            message = "rows are looked up by one number for each row, and "
            self._fail(ShapeError, f"{message}%{index.name} varies along {_named(index.axes)}")
        elif not set(index.axes) <= set(part.axes):
            message = (
                f"%{index.name} varies along {_named(index.axes)}, so the looked-up input does too"
            )
            self._fail(ShapeError, f"{message}, and not along {_named(part.axes)} alone")

    def _operand(self, operand: str | Constant) -> tuple[str, tuple[str, ...]]:
        if isinstance(operand, Constant):
            if operand.dtype not in TYPES:
                self._fail(DTypeError, f"{operand.dtype!r} is not a type of values")
            if not _holds(operand.dtype, operand.value):
                self._fail(DTypeError, f"{operand.value!r} is no {operand.dtype}")
            return operand.dtype, ()
        if operand not in self.types:
            self._fail(ArgumentError, f"%{operand} is not defined before it is used")
        if operand in self.columns:
            self._fail(ArgumentError, f"%{operand} is complete only after the last row")
        return self.types[operand], self.axes[operand]

    def _statement(self, part: Statement) -> None:
        known = [self._operand(operand) for operand in part.operands]
        types = [dtype for dtype, _ in known]
        along = {axis for _, axes in known for axis in axes}
        if part.dtype not in TYPES:
            self._fail(DTypeError, f"{part.dtype!r} is not a type of values")
        self._along(part.over)
        if part.instruction in REDUCTIONS:
            along = self._reduction(part, types, along)
        elif part.instruction in GENERATORS:
            along |= set() if part.instruction == "extent" else set(part.over)
            self._generator(part, types)
            if part.instruction == "random_bits" and any(axes for _, axes in known):
                self._fail(ShapeError, "the state is the same for all of the region")
        else:
            self._instruction(part, types)
            if part.over:
                self._fail(ShapeError, f"{part.instruction} is not over axes")
        expected = tuple(a for a in self.region.axes if a in along)
        if part.axes != expected:
            message = f"the result varies along {_named(expected)}, not {_named(part.axes)}"
            self._fail(ShapeError, message)
        self._define(part.name, part.dtype, part.axes)

    def _reduction(self, part: Statement, types: list[str], along: set[str]) -> set[str]:
        axes, count = self.region.axes, len(part.over)
        if len(types) != 1:
            self._fail(ArgumentError, f"{part.instruction} has 1 operand, not {len(types)}")
        if types[0] != part.dtype:
            message = f"{part.instruction} of {types[0]} gives {types[0]}, not {part.dtype}"
            self._fail(DTypeError, message)
        if part.instruction in ("any", "all") and part.dtype != "bool":
            self._fail(DTypeError, f"{part.instruction} is a question about bool")
        if part.instruction in ("sum", "product") and part.dtype == "bool":
            self._fail(DTypeError, "numbers are summed and multiplied, not bool")
        leading = part.over == axes[:count]
        if not count or not (leading or _trails(self.region, part)):
            message = "reductions are over one or more of the first axes, or of the last"
            self._fail(ShapeError, message)
        if not along >= set(part.over):
            known = _named(axis for axis in axes if axis in along)
            message = f"the operand varies along {known}, not along all of {_named(part.over)}"
            self._fail(ShapeError, message)
        if not _trails(self.region, part):
            self.columns.add(part.name)
        return along - set(part.over)

    def _generator(self, part: Statement, types: list[str]) -> None:
        if part.instruction == "position":
            if types or len(part.over) != 1 or part.dtype != "int64":
                self._fail(DTypeError, "position is an int64 along one axis")
        elif part.instruction == "extent":
            if types or len(part.over) != 1 or part.dtype == "bool":
                self._fail(DTypeError, "extent is a number, the size of one axis")
        elif types != ["uint64"] * 3 or part.dtype not in ("uint32", "uint64"):
            self._fail(DTypeError, "random_bits makes uint32 or uint64 of three uint64")

    def _instruction(self, part: Statement, types: list[str]) -> None:
        rule = INSTRUCTIONS.get(part.instruction)
        if rule is None:
            self._fail(ArgumentError, f"there is no instruction {part.instruction!r}")
            return
        if len(types) != rule.operands:
            count = f"{rule.operands} operand{'s' * (rule.operands > 1)}"
            self._fail(ArgumentError, f"{part.instruction} has {count}, not {len(types)}")
        if part.instruction == "select":
            if types[0] != "bool":
                self._fail(DTypeError, f"select needs a condition of bool, not {types[0]}")
            types = types[1:]
        if len(set(types)) != 1:
            message = f"operands of one type are needed, not {', '.join(types)}"
            self._fail(DTypeError, message, hint="the instruction convert")
        taken = {
            "number": types[0] != "bool",
            "float": is_float(types[0]),
            "integer": not is_float(types[0]),
            "bool": types[0] == "bool",
            "any": True,
        }
        if not taken[rule.takes]:
            self._fail(DTypeError, f"{part.instruction} takes {rule.takes}, not {types[0]}")
        given, wanted = bit_width(types[0]), bit_width(part.dtype)
        if part.instruction == "bitcast" and given != wanted:
            self._fail(DTypeError, f"{types[0]} has {given} bits, and {part.dtype} {wanted}")
        gives = {"same": types[0], "bool": "bool", "stated": part.dtype}[rule.gives]
        if part.dtype != gives:
            self._fail(DTypeError, f"{part.instruction} gives {gives}, not {part.dtype}")

    def _output(self, part: Output) -> None:
        if part.value not in self.types:
            self._fail(ArgumentError, f"%{part.value} is not defined")
        before = self.region.outputs[: self.line - 1 - len(self.region.inputs + self.region.body)]
        held, axes = self.types[part.value], self.axes[part.value]
        if part.dtype not in MEMORY_TYPES or value_type(part.dtype) != held:
            message = f"a {held} cannot be stored as {part.dtype!r}"
            self._fail(DTypeError, message, hint="the instruction convert")
        if any(part.name == other.name for other in before):
            self._fail(ArgumentError, f"two outputs have the name {part.name}")
        self._along(part.axes)
        if not set(part.axes) >= set(axes):
            message = f"%{part.value} varies along {_named(axes)}, which {_named(part.axes)} lacks"
            self._fail(ShapeError, message)
        if part.inplace is not None:
            source = next((p for p in self.region.inputs if p.name == part.inplace), None)
            if source is None:
                self._fail(ArgumentError, f"%{part.inplace} is not an input")
            elif (source.axes, source.dtype) != (part.axes, part.dtype) or source.gather:
                message = (
                    "an output in place of an input has its type and axes, and replaces no rows"
                )
                self._fail(ShapeError, f"{message} that are looked up: {source}")
            elif any(part.inplace == other.inplace for other in before):
                self._fail(ArgumentError, f"two outputs take the place of %{part.inplace}")

    def _row(self, part: Statement) -> None:
        before, here = _named(self.region.reduced_axes), _named(part.over)
        if self.region.is_row_reduction(part) and here != before:
            message = f"all rows lie along the same axes, which are {before} before and {here} here"
            self._fail(ShapeError, message)
