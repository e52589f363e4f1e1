"""Construction of regions: a builder is the namespace ``s`` for scalar rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import INSTRUCTIONS, is_float, value_type
from eagerflow.codegen.region import (
    REDUCTIONS,
    Constant,
    Input,
    Output,
    Region,
    Statement,
    dependencies,
)
from eagerflow.errors import DTypeError


def _operator(name: str) -> tuple[Callable[..., Value], Callable[..., Value]]:
    """An instruction as a left operand's operator, and as a right operand's."""
    return (
        lambda self, other: getattr(self.builder, name)(self, other),
        lambda self, other: getattr(self.builder, name)(other, self),
    )


class Value:
    """A value of a region under construction; arithmetic on it appends statements."""

    __slots__ = ("axes", "builder", "dtype", "name")

    def __init__(self, builder: Builder, name: str, dtype: str, axes: tuple[str, ...]) -> None:
        self.builder, self.name, self.dtype, self.axes = builder, name, dtype, axes

    def __repr__(self) -> str:
        return f"%{self.name}: {self.dtype}[{', '.join(self.axes)}]"

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("divide")

    def __neg__(self) -> Value:
        return self.builder.negative(self)


class Builder:
    """A region under construction: inputs, then instructions as methods, then outputs.

    ``axes`` are names separated by blanks; ``sizes`` fixes the extent of some of them.

    >>> b = Builder("softmax", "m n")
    >>> x = b.input("x", "float32", "m n")
    >>> e = b.exp(x - b.max(x, "n"))
    >>> b.output("y", e / b.sum(e, "n"))
    >>> print(b.region())
    region softmax[m, n]
      in x: float32[m, n]
      %1: float32[m] = max %x over n
      %2: float32[m, n] = subtract %x, %1
      %3: float32[m, n] = exp %2
      %4: float32[m] = sum %3 over n
      %5: float32[m, n] = divide %3, %4
      out y: float32[m, n] = %5
    """

    def __init__(self, name: str, axes: str, **sizes: int) -> None:
        self._name = name
        self._axes = tuple(axes.split())
        self._sizes = tuple(sizes.items())
        self._inputs: list[Input] = []
        self._body: dict[Any, Statement] = {}  # common subexpressions are shared
        self._outputs: list[Output] = []

    def input(self, name: str, dtype: str, axes: str, gather: str | None = None) -> Value:
        """An array that is read at each index along ``axes``."""
        part = Input(name, dtype, tuple(axes.split()), gather)
        self._inputs.append(part)
        return Value(self, name, value_type(dtype), part.axes)

    def output(
        self, name: str, value: Any, dtype: str = "", axes: str = "", inplace: str | None = None
    ) -> None:
        """An output array; its axes and type default to the value's."""
        along = tuple(axes.split()) or value.axes
        self._outputs.append(Output(name, value.name, dtype or value.dtype, along, inplace))

    def region(self) -> Region:
        """The region, validated, without unused statements."""
        made_of = {statement.name: statement.operands for statement in self._body.values()}
        needed = dependencies((o.value for o in self._outputs), lambda n: made_of.get(n, ()))
        body = tuple(s for s in self._body.values() if s.name in needed)
        inputs, outputs = tuple(self._inputs), tuple(self._outputs)
        return Region.shared(self._name, self._axes, inputs, body, outputs, self._sizes)

    # Statements ----------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name in INSTRUCTIONS:
            return partial(self._instruction, name)
        if name in REDUCTIONS:
            return partial(self._reduction, name)
        raise AttributeError(f"{name!r} is neither a scalar instruction nor a reduction")

    def _append(
        self, instruction: str, operands: Any, dtype: str, axes: set[str], over: Any = ()
    ) -> Value:
        given = tuple(o.name if isinstance(o, Value) else o for o in operands)
        what = (instruction, repr(given), dtype, tuple(over))  # 0.0 and -0.0 are equal, but differ
        statement = self._body.get(what)
        if statement is None:
            along = tuple(a for a in self._axes if a in axes)
            name = str(len(self._body) + 1)
            statement = Statement(name, instruction, given, dtype, along, tuple(over))
            self._body[what] = statement
        return Value(self, statement.name, statement.dtype, statement.axes)

    def constant(self, value: Any, dtype: str) -> Constant:
        """A number with an explicit type."""
        return Constant(np.dtype(dtype).type(value).item(), dtype)

    def _instruction(self, name: str, *operands: Any, dtype: str = "") -> Value:
        rule = INSTRUCTIONS[name]
        if rule.gives == "stated" and len(operands) == 2:
            dtype, operands = operands[1], operands[:1]
        known = [o for o in operands if isinstance(o, (Value, Constant))]
        choices = known[1:] if name == "select" and known and known[0] is operands[0] else known
        if not known or (not choices and dtype == ""):
            choices = [Constant(0, self._usual())]
        like = choices[0].dtype if choices else ""
        full = [
            o if isinstance(o, (Value, Constant)) else self._number(name, o, like) for o in operands
        ]
        axes = {a for o in full if isinstance(o, Value) for a in o.axes}
        gives = {"same": full[-1].dtype, "bool": "bool", "stated": dtype}[rule.gives]
        return self._append(name, full, gives, axes)

    def _usual(self) -> str:
        """The type of numbers without a typed operand: that of the first input."""
        return value_type(self._inputs[0].dtype) if self._inputs else "float32"

    def _number(self, name: str, value: Any, dtype: str) -> Constant:
        if isinstance(value, float) and not is_float(dtype) and not float(value).is_integer():
            raise DTypeError(
                f"{name}: {value} is not a number of type {dtype}", op=f"region {self._name}"
            )
        return self.constant(value, dtype)

    def _reduction(self, name: str, value: Value, axes: str) -> Value:
        over = tuple(axes.split())
        return self._append(name, (value,), value.dtype, set(value.axes) - set(over), over)

    # Composite instructions ----------------------------------------------------------------------

    def position(self, axis: str) -> Value:
        """The index along an axis, an int64."""
        return self._append("position", (), "int64", {axis}, (axis,))

    def extent(self, axis: str, dtype: str) -> Value:
        """The size of an axis as a number of a type."""
        return self._append("extent", (), dtype, set(), (axis,))

    def random_bits(self, state: tuple[Value, Value, Value], dtype: str = "uint32") -> Value:
        """Random bits for each index of the whole space, numbered in row-major order."""
        return self._append("random_bits", state, dtype, set(self._axes), self._axes)

    def uniform(self, state: tuple[Value, Value, Value]) -> Value:
        """float32 numbers from 0 up to, not including, 1; those of ``philox.uniform``."""
        half = self.bitwise_right_shift(self.random_bits(state), 8)
        return self.convert(self.bitcast(half, "int32"), "float32") * 2.0**-24

    def mean(self, value: Value, axes: str) -> Value:
        """The sum along axes, divided by their size."""
        total = self._reduction("sum", value, axes)
        for axis in axes.split():
            total = total / self.extent(axis, value.dtype)
        return total

    def variance(self, value: Value, axes: str) -> Value:
        """The mean of the squared deviations from the mean along axes."""
        return self.mean(self.square(value - self.mean(value, axes)), axes)

    def argmax(self, value: Value, axis: str) -> Value:
        """The index of the first maximum along an axis; a NaN counts as the maximum."""
        return self._first(value, self._reduction("max", value, axis), axis)

    def argmin(self, value: Value, axis: str) -> Value:
        """The index of the first minimum along an axis; a NaN counts as the minimum."""
        return self._first(value, self._reduction("min", value, axis), axis)

    def _first(self, value: Value, wanted: Value, axis: str) -> Value:
        found = self.equal(value, wanted)
        if is_float(value.dtype):
            found = self.logical_or(found, self.isnan(value))
        last = self.constant(2**62, "int64")
        return self._reduction("min", self.select(found, self.position(axis), last), axis)
