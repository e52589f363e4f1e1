"""What nodes mean in a region: over which axes they walk, and the statements they become."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.builder import Value as Term
from eagerflow.codegen.instructions import INSTRUCTIONS, MEMORY_TYPES, is_float, value_type
from eagerflow.codegen.region import Constant
from eagerflow.dtypes import as_dtype
from eagerflow.errors import EagerflowError
from eagerflow.fusion.powers import SMALL_POWERS, small_power
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Missing
from eagerflow.ops.family import Rows
from eagerflow.spec import normalize_axes

__all__ = [
    "Reduced",
    "Walk",
    "cost",
    "emit",
    "memory_type",
    "narrow",
    "number_of",
    "walk",
]

_TRUTH = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
_WHOLE = frozenset({"floor", "ceil", "trunc", "round"})
_LAID_OUT = ("axis", "keepdims")  # attributes that say where, and not what
_DTYPES = frozenset(as_dtype(name) for name in MEMORY_TYPES)
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38}
_WORDS = 3  # of a random generator's state

Axes = tuple[int, ...]
"""For each axis of an array the one of the walk that it lies along, -1 where its size is 1."""


class Walk(NamedTuple):
    """The index space of a node, and how its operands and results lie in it.

    ``reduced`` are the axes that a node of rows works along; None of an element-wise node.
    """

    sizes: tuple[int, ...]
    inputs: tuple[Axes, ...]  # empty for a Python number, and for None
    outputs: tuple[Axes, ...]
    reduced: Axes | None = None


class Reduced(NamedTuple):
    """The names of a region's axes that a node of rows works along, and of those around them.

    ``first`` are those of them that are reduced row after row, once the row is complete.
    """

    row: str = ""
    first: str = ""
    around: str = ""


def narrow(dtype: Any) -> bool:
    """Whether values of a dtype exist in memory only."""
    return value_type(memory_type(dtype)) != memory_type(dtype)


@cache
def memory_type(dtype: Any) -> str:
    """The name of a dtype; NumPy makes it up each time."""
    name: str = dtype.name
    return name


def number_of(node: Node) -> Any:
    """The number that every element of a creation's result is."""
    name = node.op.name
    return node.attributes["fill_value"] if name == "full" else int(name.startswith("ones"))


# Where the operands lie --------------------------------------------------------------------------


def walk(node: Node) -> Walk | None:
    """How a node walks over its operands; None for those that no region computes."""
    op = node.op
    first = node.inputs[0] if node.inputs else None
    values = [x for x in node.inputs if type(x) is Value]
    if not node.outputs:
        return None
    for value in (*values, *node.outputs):
        if value.dtype not in _DTYPES:
            return None
    repeats = op.views == "all" and type(first) is Value and first.size != node.outputs[0].size
    if type(first) is Value and op.views == "all" and not repeats:
        return _renamed(first.shape, node.outputs[0].shape)
    if isinstance(op.scalar, Rows):
        return _rows(node, op.scalar)
    if op.family == "rows" and callable(op.scalar):
        return _rows(node, Rows(op.scalar, ("mn",) * len(node.inputs), ("mn",)))
    if op.name == "random_keep":
        return _drawn(node)
    if isinstance(op.scalar, Missing) and op.name != "astype" and not repeats:
        return None
    sizes = node.outputs[0].shape
    if not values or any(v.shape != sizes for v in node.outputs):
        return None
    if not all(v.shape == sizes or _spreads(v.shape, sizes) for v in values):
        return None
    inputs = tuple(_from_right(x.shape, sizes) if type(x) is Value else () for x in node.inputs)
    return Walk(sizes, inputs, (_from_right(sizes, sizes),) * len(node.outputs))


def _spreads(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether an array of a shape can be broadcast to some sizes."""
    missing = len(sizes) - len(shape)
    return missing >= 0 and all(n in (1, sizes[missing + i]) for i, n in enumerate(shape))


def _from_right(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Axes:
    """The axes of an array that is broadcast."""
    missing = len(sizes) - len(shape)
    return tuple([missing + i if size != 1 else -1 for i, size in enumerate(shape)])


def _renamed(shape: tuple[int, ...], given: tuple[int, ...]) -> Walk | None:
    """A view that has axes of size 1 more or less."""
    sizes = tuple([size for size in shape if size != 1])
    if sizes != tuple([size for size in given if size != 1]):
        return None
    return Walk(sizes, (_counted(shape),), (_counted(given),))


def _counted(shape: tuple[int, ...]) -> Axes:
    at, found = 0, []
    for size in shape:
        found.append(at if size != 1 else -1)
        at += size != 1
    return tuple(found)


def _rows(node: Node, rule: Rows) -> Walk | None:
    first = node.inputs[0]
    if type(first) is not Value or len(rule.along) < len(node.inputs):
        return None
    shape = first.shape
    try:
        axes = normalize_axes(node.attributes.get("axis"), len(shape))
    except EagerflowError:
        return None
    if list(axes) != sorted(axes):
        return None  # parameters would have their axes in another order
    own = set(axes)
    kept = [i for i in range(len(shape)) if i not in own]
    lying = {"mn": range(len(shape)), "m": kept, "n": axes}
    inputs: list[Axes] = []
    for x, along in zip(node.inputs, rule.along, strict=False):
        if type(x) is not Value:
            inputs.append(())
            continue
        found = tuple([i if shape[i] != 1 else -1 for i in lying[along]])
        if x.shape != tuple([shape[i] for i in lying[along]]):
            return None
        inputs.append(found)
    outputs = []
    for value, along in zip(node.outputs, rule.gives, strict=True):
        wide = along == "m" and node.attributes.get("keepdims")
        places = range(len(shape)) if wide else lying[along]
        outputs.append(
            tuple([i if shape[i] != 1 and not (wide and i in own) else -1 for i in places])
        )
        if len(value.shape) != len(outputs[-1]):
            return None
    reduced = tuple([i for i in axes if shape[i] != 1])
    return Walk(shape, tuple(inputs), tuple(outputs), reduced)


def _drawn(node: Node) -> Walk | None:
    """The numbers of one generator, of which each word of the state is an operand of its own."""
    state, result = node.inputs[0], node.outputs[0]
    if type(state) is not Value or state.shape != (_WORDS,):
        return None
    return Walk(result.shape, ((),), (_from_right(result.shape, result.shape),))


# Statements --------------------------------------------------------------------------------------


class _Along:
    """A builder for the body of rows: "n" and "m" are the axes of a node, whatever their names."""

    def __init__(self, builder: Builder, axes: Reduced) -> None:
        self._builder, self._axes = builder, axes

    def __getattr__(self, name: str) -> Any:
        if name in ("sum", "product", "max", "min", "any", "all"):
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
        """The sum over how many there are; shares are summed where a sum is an output at once."""
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
        """How many elements a row has."""
        names = self._axes.row.split()
        return self._count(names, dtype) if names else Constant(1.0, dtype)

    def position(self, axis: str) -> Any:
        """The index along a row of one axis."""
        names = self._axes.row.split()
        if len(names) > 1:
            raise AttributeError("a row along several axes has no positions")
        return self._builder.position(names[0]) if names else Constant(0, "int64")


def emit(s: Builder, node: Node, given: Sequence[Any], axes: Reduced) -> tuple[Any, ...]:
    """The values of a node's results, from those of its inputs: numbers and None are as they are.

    Raises EagerflowError, or AttributeError, where there are no such statements.
    """
    op = node.op
    values = _operands(s, node, given)
    attributes = {n: v for n, v in node.attributes.items() if n not in _LAID_OUT}
    if op.views == "all":
        out: Any = values[0]
    elif op.name == "astype":
        out = values[0]  # converted below
    elif op.name == "random_keep":
        out = _keep(s, node, given)
    elif isinstance(op.scalar, Rows):
        out = op.scalar.body(_Along(s, axes), *values, **attributes)
    elif op.family == "rows":
        out = op.scalar(_Along(s, axes), *values, **attributes)  # type: ignore[operator]
    elif isinstance(op.scalar, str):
        if op.scalar == "nextafter" and narrow(node.outputs[0].dtype):
            raise AttributeError("a neighbour in float32 is rounded back to where it came from")
        out = _instruction(s, op.scalar, values)
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


def _operands(s: Builder, node: Node, given: Sequence[Any]) -> list[Any]:
    """Python numbers as constants of the dtype that they take on in eager calls."""
    op, found = node.op, list(given)
    for i, (x, value) in enumerate(zip(node.inputs, given, strict=True)):
        if x is None or isinstance(value, Term | tuple):
            continue
        dtype = x.dtype if type(x) is Value else _dtype_of_number(node, i)
        found[i] = _constant(value, dtype)
    if op.variadic:
        raise AttributeError("any number of operands")
    return found


def _dtype_of_number(node: Node, position: int) -> Any:
    op = node.op
    group = op.together if position in op.together else range(len(node.inputs))
    for i in group:
        other = node.inputs[i]
        if i != position and type(other) is Value:
            return other.dtype
    return node.outputs[0].dtype


def _constant(value: Any, dtype: Any) -> Constant:
    """A Python number as one of a dtype; AttributeError where it is none."""
    kind = value_type(memory_type(dtype))
    if kind == "bool":
        if type(value) is not bool and value not in (0, 1):
            raise AttributeError(f"{value} is no bool")
        return Constant(bool(value), kind)
    if is_float(kind):
        if abs(value) > _LARGEST.get(
            memory_type(dtype), math.inf
        ):  # also where it rounds to infinity
            with np.errstate(all="ignore"):
                return Constant(float(dtype.type(value)), kind)
        return Constant(float(dtype.type(value)), kind)
    limits = np.iinfo(kind)
    if int(value) != value or not limits.min <= value <= limits.max:
        raise AttributeError(f"{value} is no {kind}")
    return Constant(int(value), kind)


def _instruction(s: Builder, name: str, values: list[Any]) -> Any:
    last = values[-1]
    if name == "multiply" and last.dtype == "bool":
        name = "logical_and"
    if name in _TRUTH:
        values = [v if v.dtype == "bool" else s.not_equal(v, 0) for v in values]
    if name in _WHOLE and not is_float(last.dtype):
        return last
    if name == "power":
        if not is_float(last.dtype):
            raise AttributeError("powers of integers")
        if type(last) is Constant:
            return _power(s, values[0], last)
    if name == "divide" and _same_in_row(s, *values):
        return _quotient(s, *values)
    rule = INSTRUCTIONS[name]
    if rule.takes == "float" and not is_float(last.dtype):
        raise AttributeError(f"{name} of {last.dtype}")
    return getattr(s, name)(*values)


def _same_in_row(s: Builder, x: Any, divisor: Any) -> bool:
    """Whether a divisor is the same for all elements of a row, which are divided by it."""
    inner = s._axes[-1]
    return (
        type(divisor) is Term
        and type(x) is Term
        and is_float(divisor.dtype)
        and inner in x.axes
        and inner not in divisor.axes
    )


def _quotient(s: Builder, x: Any, divisor: Any) -> Any:
    """Elements divided by a number of their row, within 1.5 units in the last place.

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


def _power(s: Builder, x: Any, exponent: Constant) -> Any:
    """Powers that are a few products, or a root."""
    n = exponent.value
    if n in SMALL_POWERS:
        return small_power(lambda name, *args: getattr(s, name)(*args), x, n)
    if n in (0.5, -0.5):
        # As powers have it, those of -0 are those of 0, and those of -infinity those of infinity.
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


# Costs -------------------------------------------------------------------------------------------

_costs: dict[Any, int | None] = {}
_KNOWN = 1 << 10  # kinds of nodes whose cost is remembered


def cost(node: Node, place: Walk, numbers: dict[Value, Any]) -> int | None:
    """How many statements a node becomes; None where it becomes none that a region can hold.

    ``numbers`` are values that are one number everywhere.
    """
    kinds: list[Any] = []
    for x in node.inputs:
        if type(x) is not Value:
            kinds.append((type(x), x))
        else:
            kinds.append((x.dtype, numbers.get(x)))
    own = tuple([(n, repr(v)) for n, v in node.attributes.items() if n != "shape"])
    row = None if place.reduced is None else len(place.reduced)
    key = node.op.name, tuple(kinds), own, row
    try:
        return _costs[key]
    except KeyError:
        pass
    if len(_costs) >= _KNOWN:
        _costs.clear()
    found = _costs[key] = _tried(node, place, numbers)
    return found


def _tried(node: Node, place: Walk, numbers: dict[Value, Any]) -> int | None:
    """The statements of a node in a region of its own."""
    names = [f"a{i}" for i, size in enumerate(place.sizes) if size != 1] or ["a"]
    reduced = [f"a{i}" for i in place.reduced or ()]
    around = [n for n in names if n not in reduced] if place.reduced is not None else []
    s = Builder("trial", " ".join([*around, *(n for n in names if n not in around)]))
    given = []
    for i, (x, axes) in enumerate(zip(node.inputs, place.inputs, strict=False)):
        along = " ".join(f"a{a}" for a in axes if a >= 0)
        if type(x) is not Value:
            given.append(x)
        elif x in numbers:
            given.append(numbers[x])
        elif node.op.name == "random_keep":
            given.append(tuple(s.input(f"x{i}{k}", "uint64", "") for k in range(_WORDS)))
        else:
            ordered = [n for n in s._axes if n in along.split()]
            given.append(s.input(f"x{i}", x.dtype.name, " ".join(ordered)))
    try:
        results = emit(s, node, given, Reduced(" ".join(reduced), "", " ".join(around)))
        for i, (result, value) in enumerate(zip(results, node.outputs, strict=True)):
            s.output(f"y{i}", result, value.dtype.name)
        return len(s.region().body)
    except (EagerflowError, AttributeError):
        return None
