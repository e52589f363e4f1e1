"""Lowering: the statements of a region for a node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.builder import Value as Term
from eagerflow.codegen.instructions import INSTRUCTIONS, is_float, value_type
from eagerflow.codegen.region import REDUCTIONS, Constant
from eagerflow.dtypes import DType
from eagerflow.fusion.access import Number, row_rule
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Op
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.creation.filled import ones, ones_like, zeros, zeros_like
from eagerflow.ops.elementwise.arithmetic import divide, multiply, nextafter, reciprocal
from eagerflow.ops.elementwise.comparison import logical_and
from eagerflow.ops.elementwise.powers import power, square
from eagerflow.ops.elementwise.rounding import ceil, floor, round, trunc
from eagerflow.ops.family import op_of

SMALL_POWERS = (-2, -1, 1, 2, 3, 4)
"""Exponents of powers that are computed by a few products."""

_ROUNDING = (floor, ceil, trunc, round)
_AXIS_ATTRIBUTES = ("axis", "keepdims")  # where an op works, not its computation


class ReducedAxes(NamedTuple):
    """The names of a region's axes along a row op's rows, and of those around them.

    ``first`` are those reduced over rows, once the row is complete.
    """

    row: str = ""
    first: str = ""
    around: str = ""


def is_storage_only(dtype: DType) -> bool:
    """Whether a dtype only exists in memory, and kernels compute in another one."""
    return value_type(memory_type(dtype)) != memory_type(dtype)


@cache
def memory_type(dtype: DType) -> str:
    """The name of a dtype; cached, as NumPy constructs it each time."""
    name: str = dtype.name
    return name


# Nodes with equal elements -----------------------------------------------------------------------

_FROM_SHAPE = {zeros_like: zeros, ones_like: ones}


def fill_value(node: Node) -> Number:
    """The number in every element of the result of a node with an op that ``fills``."""
    number: Number = node.attributes.get("fill_value", int(node.op.call in (ones, ones_like)))
    return number


def without_inputs(node: Node) -> Node:
    """The same creation by an op that ``fills``, without the array that gives the shape."""
    if not node.inputs:
        return node
    (value,) = node.outputs
    attributes = {"shape": value.shape, "dtype": value.dtype, "device": None}
    op = op_of(_FROM_SHAPE[node.op.call])
    made = Node(op, (), attributes, node.name, node.origin, node.device)
    made.outputs = node.outputs
    return made


# Statements --------------------------------------------------------------------------------------


class _RowBuilder:
    """A builder for the body of rows: "n" and "m" are the axes of a node, under any names."""

    def __init__(self, builder: Builder, axes: ReducedAxes) -> None:
        self._builder, self._axes = builder, axes

    def __getattr__(self, name: str) -> Any:
        if name in REDUCTIONS:
            return lambda value, axes: self._reduce(name, value, axes)
        return getattr(self._builder, name)

    def _reduce(self, name: str, value: Any, axes: str) -> Any:
        own = self._axes
        parts = (own.row, own.first) if axes == "n" else (own.around,)
        for part in parts:
            if part:
                value = getattr(self._builder, name)(value, part)
        return value

    def mean(self, value: Any, axes: str) -> Any:
        """The sum over the count; divided before summing if a sum is also an output."""
        own = self._axes
        names = [*own.row.split(), *own.first.split()] if axes == "n" else own.around.split()
        late = own.first or axes == "m"
        if late:
            value = self._over(value, names)
        total = self._reduce("sum", value, axes)
        return total if late else self._over(total, names)

    def _over(self, value: Any, names: list[str]) -> Any:
        return self._builder.divide(value, self._count(names, value.dtype)) if names else value

    def _count(self, names: list[str], dtype: str) -> Any:
        count = self._builder.extent(names[0], dtype)
        for name in names[1:]:
            count = self._builder.multiply(count, self._builder.extent(name, dtype))
        return count

    def extent(self, axes: str, dtype: str) -> Any:
        """The number of elements of a row."""
        names = self._axes.row.split()
        return self._count(names, dtype) if names else Constant(1.0, dtype)

    def position(self, axis: str) -> Any:
        """The index along a row of one axis."""
        names = self._axes.row.split()
        if len(names) > 1:
            raise AttributeError("a row along several axes has no positions")
        return self._builder.position(names[0]) if names else Constant(0, "int64")


def emit(s: Builder, node: Node, given: Sequence[Any], axes: ReducedAxes) -> tuple[Any, ...]:
    """The values of a node's results, from those of its inputs: numbers and None are unchanged.

    Raises EagerflowError, or AttributeError, if there are no such statements.
    """
    op = node.op
    values = _operands(node, given)
    attributes = {n: v for n, v in node.attributes.items() if n not in _AXIS_ATTRIBUTES}
    if op.views == "all" or op.call is astype:
        out: Any = values[0]  # as another type below
    elif op.call is random_keep:
        out = _keep(s, node, given)
    elif (rule := row_rule(op)) is not None:
        out = rule.body(_RowBuilder(s, axes), *values, **attributes)
    elif isinstance(op.scalar, str):
        if op.call is nextafter and is_storage_only(node.outputs[0].dtype):
            raise AttributeError("a neighbour in float32 is rounded back to where it came from")
        out = _instruction(s, op, values)
    else:
        out = op.scalar(s, *values, **attributes)  # type: ignore[operator]
    results = out if isinstance(out, tuple) else (out,)
    return tuple(
        _as_type(s, result, value_type(memory_type(v.dtype)))
        for result, v in zip(results, node.outputs, strict=True)
    )


def _as_type(s: Builder, value: Any, dtype: str) -> Any:
    if type(value) is Constant:
        raise AttributeError("a number alone is no statement")
    if value.dtype == dtype:
        return value
    if dtype == "bool":
        return s.not_equal(value, 0)
    return s.convert(value, dtype)


def _operands(node: Node, given: Sequence[Any]) -> list[Any]:
    """Python numbers as constants of their dtype in eager calls."""
    op, found = node.op, list(given)
    for i, (x, value) in enumerate(zip(node.inputs, given, strict=True)):
        if x is None or isinstance(value, Term | tuple):
            continue
        dtype = x.dtype if type(x) is Value else _dtype_of_number(node, i)
        found[i] = _constant(value, dtype)
    if op.variadic:
        raise AttributeError("any number of operands")
    return found


def _dtype_of_number(node: Node, position: int) -> DType:
    op = node.op
    group = op.together if position in op.together else range(len(node.inputs))
    for i in group:
        other = node.inputs[i]
        if i != position and type(other) is Value:
            return other.dtype
    return node.outputs[0].dtype


def _constant(value: Any, dtype: DType) -> Constant:
    """A Python number as a constant of a dtype; AttributeError if it cannot be one."""
    kind = value_type(memory_type(dtype))
    if kind == "bool":
        if type(value) is not bool and value not in (0, 1):
            raise AttributeError(f"{value} is no bool")
        return Constant(bool(value), kind)
    if is_float(kind):
        with np.errstate(all="ignore"):  # it may round to infinity
            return Constant(float(dtype.type(value)), kind)
    limits = np.iinfo(kind)
    if int(value) != value or not limits.min <= value <= limits.max:
        raise AttributeError(f"{value} is no {kind}")
    return Constant(int(value), kind)


def _instruction(s: Builder, op: Op, values: list[Any]) -> Any:
    """The statement of an op that is one instruction, or an equivalent for these operands."""
    last = values[-1]
    floating = is_float(last.dtype)
    if op.call in _ROUNDING and not floating:
        return last
    if op.call is power and not floating:
        raise AttributeError("powers of integers")
    if op.call is power and type(last) is Constant:
        return _power(s, values[0], last)
    if op.call is divide and _same_in_row(s, *values):
        return _quotient(s, *values)
    if op.call is multiply and last.dtype == "bool":
        return _instruction(s, op_of(logical_and), values)
    name = str(op.scalar)
    takes = INSTRUCTIONS[name].takes
    if takes == "float" and not floating:
        raise AttributeError(f"{name} of {last.dtype}")
    if takes == "bool":
        values = [v if v.dtype == "bool" else s.not_equal(v, 0) for v in values]
    return getattr(s, name)(*values)


def _same_in_row(s: Builder, x: Any, divisor: Any) -> bool:
    """Whether a divisor is the same for all elements of a row."""
    inner = s._axes[-1]
    return (
        type(divisor) is Term
        and type(x) is Term
        and is_float(divisor.dtype)
        and inner in x.axes
        and inner not in divisor.axes
    )


def _quotient(s: Builder, x: Any, divisor: Any) -> Any:
    """Elements divided by a number for each row, within 1.5 units in the last place.

    They are multiplied by its reciprocal: a division takes as long as ten products. A power of
    two keeps the reciprocal of very small and large numbers in the normal range.
    """
    far = 64 if divisor.dtype == "float32" else 512
    size = s.abs(divisor)
    factor = s.select(
        s.greater(size, 2.0**far),
        s.constant(2.0**-far, divisor.dtype),
        s.select(s.less(size, 2.0**-far), s.constant(2.0**far, divisor.dtype), 1.0),
    )
    return s.multiply(s.multiply(x, s.reciprocal(s.multiply(divisor, factor))), factor)


def small_power(make: Callable[..., Any], x: Any, n: Any) -> Any:
    """``x ** n`` for one of SMALL_POWERS; ``make(op, *operands)`` is a step, such as ``square``.

    The reciprocal comes first: the square of a large number would overflow, and that of a
    small one lose digits, even if the result does neither.
    """
    if n < 0:
        x = make(reciprocal, x)
    if n in (1, -1):
        return x
    squared = make(square, x)
    if n == 3:
        return make(multiply, squared, x)
    return make(square, squared) if n == 4 else squared


def _power(s: Builder, x: Any, exponent: Constant) -> Any:
    """Powers computed by a few products, or a root."""
    n = exponent.value
    if n in SMALL_POWERS:
        return small_power(lambda op, *args: _instruction(s, op_of(op), [*args]), x, n)
    if n in (0.5, -0.5):
        # As for powers, results for -0 are those for 0, and for -infinity those for infinity.
        far = s.equal(x, -math.inf)
        root = s.select(far, math.inf, s.sqrt(s.add(x, 0.0)))
        return root if n > 0 else s.reciprocal(root)
    return s.power(x, exponent)


def _keep(s: Builder, node: Node, given: Sequence[Any]) -> Any:
    """Dropout's factors; ``given`` holds the words of the state as a tuple."""
    rate = node.attributes["rate"]
    kind = value_type(node.outputs[0].dtype.name)
    factor = Constant(float(np.dtype(kind).type(1 / (1 - rate))), kind)
    least = Constant(float(np.float32(rate)), "float32")
    return s.select(s.greater_equal(s.uniform(given[0]), least), factor, Constant(0.0, kind))
