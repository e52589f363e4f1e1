"""Regions in NumPy: every statement as calls that fill an array, one after the other.

A call is made as ``call(*operands, out=array)``. Operands and results have all axes of the
region, with size 1 along those on which they do not depend, so NumPy's broadcasting does the
rest. Where one ufunc computes an instruction, the ufunc is the call.

Without llvmlite this computes regions (``compute``), and it checks machine code in the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import INSTRUCTIONS, NUMPY, is_float, value_type
from eagerflow.codegen.numpy import philox
from eagerflow.codegen.reductions import identity, ufunc
from eagerflow.codegen.region import REDUCTIONS, Constant, Input, Region, Statement, dependencies

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]

# Suffixes of operands other than values; names of values end with none of these.
EXTENT = ".size"  # follows an axis: its size
TABLE = ".table"  # follows an input with a lookup: the whole array


@dataclass(frozen=True)
class Step:
    """One call: its operands, and the type and axes of its result.

    ``in_place`` means that the result may use the memory of an operand of its shape. ``over`` holds
    the axes that a reduction removes.
    """

    name: str
    call: Call
    operands: tuple[str | Constant, ...]
    dtype: str
    axes: tuple[str, ...]
    in_place: bool = True
    over: tuple[str, ...] = ()
    reduction: str = ""


def copy(x: Any, out: Array) -> None:
    """Copy into another place, or as another type."""
    np.copyto(out, x, casting="unsafe")


# Reductions --------------------------------------------------------------------------------------

_RUN = 32  # numbers of a column that are summed before their sums are


def _reduce(x: Any, axes: tuple[int, ...], reduction: str, columns: bool, out: Array) -> None:
    if not x.size:
        out.fill(identity(reduction, out.dtype.name))
        return
    if columns and reduction == "sum" and out.size > 1:
        x = _short_columns(x, axes)
    ufunc(reduction).reduce(x, axes, out.dtype, out, True)


def _short_columns(x: Any, axes: tuple[int, ...]) -> Any:
    """Sums of long columns in runs, since sequential summation loses digits.

    For contiguous columns, NumPy uses pairwise summation itself.
    """
    long = [a for a in axes if x.shape[a] > 1]
    if x.dtype.kind != "f" or [x.strides[a] for a in long] == [x.itemsize]:
        return x
    for axis in long:
        before = (slice(None),) * axis
        while x.shape[axis] >= 2 * _RUN:
            count = -(-x.shape[axis] // _RUN)
            run, rest = divmod(x.shape[axis], count)
            # Every count-th number, so that operations are long and contiguous.
            shape = (*x.shape[:axis], run, count, *x.shape[axis + 1 :])
            sums = np.add.reduce(x[(*before, slice(0, run * count))].reshape(shape), axis)
            if rest:
                sums[(*before, slice(0, rest))] += x[(*before, slice(run * count, None))]
            x = sums
    return x


def column_results(reduction: str, x: Any, out: Array | None) -> Any:
    """The reductions of a matrix along its first axis, which is kept, in ``out`` or a new array."""
    x = _short_columns(x, (0,)) if reduction == "sum" else x
    return ufunc(reduction).reduce(x, 0, None, out, True)


# Instructions that take several calls of NumPy ------------------------------------------------


def select(condition: Any, x: Any, y: Any, out: Array) -> None:
    """``x`` where the condition holds, ``y`` elsewhere."""
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def _bitcast(x: Any, out: Array) -> None:
    np.copyto(out.view(x.dtype), x)


def _to_integer(x: Any, out: Array) -> None:
    """Conversion towards zero; out-of-range numbers saturate, and NaN becomes 0."""
    limits = np.iinfo(out.dtype)
    low, high = x.dtype.type(limits.min), x.dtype.type(limits.max)
    below_high = high if int(high) <= limits.max else np.nextafter(high, x.dtype.type(0))
    inside = np.clip(x, low, below_high)
    np.copyto(out, np.where(np.isnan(x), 0, inside), casting="unsafe")
    np.copyto(out, limits.max, where=np.greater_equal(x, high))


def _clamp(region: Region, part: Statement) -> list[Step]:
    """A select that clamps a number to a constant, and keeps NaN: one NumPy call."""
    condition, bound, x = part.operands
    if type(condition) is str and type(bound) is Constant and bound.value != 0:
        asked = region.statement(condition)
        if isinstance(asked, Statement) and asked.operands == (x, bound):
            call = {"less": np.maximum, "greater": np.minimum}.get(asked.instruction)
            if call is not None:
                return [Step(part.name, call, (x, bound), part.dtype, part.axes)]
    return []


def _through(function: Call) -> Call:
    """A call of a function that allocates its result."""

    def call(*operands: Any, out: Array) -> None:
        np.copyto(out, function(*operands))

    return call


def _instruction(part: Statement, operand: str, quick: bool) -> list[Step]:
    """An instruction on operands of a type, usually a single step."""
    name = part.instruction

    def step(suffix: str, call: Call, *operands: str | Constant, in_place: bool = True) -> Step:
        return Step(part.name + suffix, call, operands, part.dtype, part.axes, in_place)

    given, own = part.operands, part.name
    if name == "fma":
        return [step(".p", np.multiply, *given[:2]), step("", np.add, f"{own}.p", given[2])]
    if name == "rsqrt":
        return [step(".r", np.sqrt, *given), step("", np.reciprocal, f"{own}.r")]
    if name == "sigmoid":
        zero, one = Constant(0.0, part.dtype), Constant(1.0, part.dtype)
        if quick:  # exp(-x) may overflow: results below the normal range are 0 then
            return [
                step(".n", np.negative, *given),
                step(".e", np.exp, f"{own}.n"),
                step(".d", np.add, f"{own}.e", one),
                step("", np.divide, one, f"{own}.d"),
            ]
        # exp(min(x, 0)) / (1 + exp(-|x|)): nothing overflows, and tiny results are accurate.
        return [
            step(".s", np.abs, *given),
            step(".n", np.negative, f"{own}.s"),
            step(".e", np.exp, f"{own}.n"),
            step(".d", np.add, f"{own}.e", one),
            step(".m", np.minimum, *given, zero),
            step(".u", np.exp, f"{own}.m"),
            step("", np.divide, f"{own}.u", f"{own}.d"),
        ]
    if name == "convert":
        saturates = is_float(operand) and not is_float(part.dtype) and part.dtype != "bool"
        return [step("", _to_integer if saturates else copy, *given, in_place=not saturates)]
    if name == "bitcast":
        return [step("", _bitcast, *given)]
    if name == "select":
        return [step("", select, *given, in_place=False)]
    if name.endswith("_shift") and part.dtype == "bool":
        return [step("", np.greater, *given)]  # a shift by one moves the only bit out
    if INSTRUCTIONS[name].numpy is None:
        return [step("", _through(getattr(NUMPY, name)), *given, in_place=False)]
    return [step("", getattr(NUMPY, name), *given)]


# Values of the index space, and rows that are looked up ------------------------------------------


def _gathered(region: Region, part: Input) -> Step:
    """Elements of a table: at an index along its first axis, and at the position along the rest."""
    axes = region.axes
    own = tuple(axes.index(a) for a in part.axes)
    index_axes = region.statement(str(part.gather)).axes
    by_rows = set(index_axes) <= set(part.axes[:1])

    def call(table: Any, index: Any, out: Array) -> None:
        if by_rows:
            found = table[index.reshape(-1)]
            sizes = dict(zip(own, found.shape, strict=True))
            found = found.reshape([sizes.get(i, 1) for i in range(len(axes))])
        else:
            found = table[(index, *(_places(n, i, len(axes)) for n, i in behind(table)))]
        np.copyto(out, found, casting="unsafe")

    def behind(table: Any) -> Any:
        return zip(table.shape[1:], own[1:], strict=True)

    held = value_type(part.dtype)
    given = f"{part.name}{TABLE}", str(part.gather)
    return Step(part.name, call, given, held, part.axes, False)


def _places(size: int, axis: int, rank: int) -> Array:
    """The positions along an axis, in the shape of the region."""
    return np.arange(size).reshape([-1 if i == axis else 1 for i in range(rank)])


def _position(region: Region, part: Statement) -> Step:
    axis = region.axes.index(part.over[0])

    def call(out: Array) -> None:
        out[...] = _places(out.shape[axis], axis, out.ndim)

    return Step(part.name, call, (), part.dtype, part.axes, False)


def _random_bits(region: Region, part: Statement) -> Step:
    """Words of a counter-based generator, by their index along ``over``."""
    over = [region.axes.index(a) for a in part.over]

    def call(*words: Any, out: Array) -> None:
        if not out.size:
            return
        vary = [any(np.shape(w)[i : i + 1] > (1,) for w in words) for i in over]
        varying = [n for n, varies in enumerate(vary) if varies]
        run_axes = over[max(varying, default=-1) + 1 :]  # along these the state is one
        outer = [i for i in range(out.ndim) if i not in run_axes]
        for at in np.ndindex(*(out.shape[i] for i in outer)):
            place = dict(zip(outer, at, strict=True))
            first = 0
            for i in over:
                first = first * out.shape[i] + place.get(i, 0)
            here = tuple(place.get(i, slice(None)) for i in range(out.ndim))
            state = [np.broadcast_to(w, out.shape)[here].flat[0] for w in words]
            found = _bits(state, first, out[here].size, out.dtype)
            out[here] = found.reshape(out[here].shape)

    return Step(part.name, call, part.operands, part.dtype, part.axes, False)


def _bits(state: Sequence[Any], first: int, count: int, dtype: Any) -> Any:
    words = np.array(state, np.uint64)
    if dtype.itemsize == 8:
        return philox.bits(words, count, first=first)
    found = philox.bits(words, (first % 2 + count + 1) // 2, first=first // 2)
    return found.astype("<u8", copy=False).view("<u4")[first % 2 : first % 2 + count]


def _extent(part: Statement) -> Step:
    return Step(part.name, copy, (f"{part.over[0]}{EXTENT}",), part.dtype, (), False)


# A whole region ----------------------------------------------------------------------------------


def _reduction(region: Region, part: Statement) -> Step:
    axes = tuple(region.axes.index(a) for a in part.over)
    reduction = part.instruction
    columns = region.axes[-1] not in part.over

    def call(x: Any, out: Array) -> None:
        _reduce(x, axes, reduction, columns, out)

    return Step(part.name, call, part.operands, part.dtype, part.axes, False, part.over, reduction)


@lru_cache(1024)
def steps_of(region: Region, quick: bool = False) -> dict[str, Step]:
    """The steps of a region by the names of their results, in a valid order.

    ``quick`` means fewer steps, with a loss of digits only for denormal numbers.
    """
    steps: list[Step] = [_gathered(region, p) for p in region.inputs if p.gather]
    for part in region.body:
        if part.instruction in REDUCTIONS:
            steps.append(_reduction(region, part))
        elif part.instruction == "position":
            steps.append(_position(region, part))
        elif part.instruction == "random_bits":
            steps.append(_random_bits(region, part))
        elif part.instruction == "extent":
            steps.append(_extent(part))
        else:
            first = part.operands[0]
            source = first if isinstance(first, Constant) else region.statement(first)
            clamp = _clamp(region, part) if part.instruction == "select" else []
            steps += clamp or _instruction(part, value_type(source.dtype), quick)
    found = {s.name: s for s in steps}
    return _with_divisions(region, found) if quick else found


def _with_divisions(region: Region, steps: dict[str, Step]) -> dict[str, Step]:
    """The steps, with divisions in place of products by reciprocals that nothing else needs."""
    uses = Counter(o for s in steps.values() for o in s.operands)
    found = dict(steps)
    for part in region.body:
        inverse = steps[part.name]
        if part.instruction == "reciprocal" and uses[part.name] == 1 and part.axes != region.axes:
            step = next((s for s in steps.values() if part.name in s.operands), inverse)
            if step.call is np.multiply and step.axes != part.axes:
                (x,) = (o for o in step.operands if o != part.name)
                operands = x, *inverse.operands
                found[step.name] = replace(step, call=np.divide, operands=operands)
    return found


def needed_steps(steps: dict[str, Step], names: Iterable[str]) -> list[Step]:
    """The steps that lead to these values."""
    needed = dependencies(names, lambda n: steps[n].operands if n in steps else ())
    return [step for name, step in steps.items() if name in needed]


def compute(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], sizes: dict[str, int]
) -> None:
    """Fill the outputs of a region.

    ``inputs`` and ``outputs`` are in the region's order, have the shapes given by ``sizes``, and
    any strides; an in-place output is its input's array.

    >>> from eagerflow.codegen.builder import Builder
    >>> b = Builder("scale", "m n")
    >>> b.output("y", b.input("x", "float32", "m n") * b.input("s", "float32", "n"))
    >>> x, s, y = np.ones((2, 3), "f"), np.arange(3, dtype="f"), np.empty((2, 3), "f")
    >>> compute(b.region(), (x, s), (y,), {"m": 2, "n": 3})
    >>> y.tolist()
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """
    known: dict[Any, Any] = {f"{a}{EXTENT}": np.array(n) for a, n in sizes.items()}
    for part, array in zip(region.inputs, inputs, strict=True):
        if part.gather:
            known[f"{part.name}{TABLE}"] = array
        else:
            held = np.dtype(value_type(part.dtype))
            known[part.name] = _in_space(region, array, part.axes).astype(held, copy=False)
    results = [out.value for out in region.outputs]
    steps = needed_steps(steps_of(region), results)
    last = {o: i for i, step in enumerate(steps) for o in step.operands if isinstance(o, str)}
    with np.errstate(all="ignore"):
        for number, step in enumerate(steps):
            given = [_value(known, o) for o in step.operands]
            out = np.empty([sizes[a] if a in step.axes else 1 for a in region.axes], step.dtype)
            step.call(*given, out=out)
            known[step.name] = out
            for o in step.operands:  # the memory of a value is free after its last use
                if isinstance(o, str) and last[o] == number and o not in results:
                    known.pop(o, None)
        made = [_value(known, name) for name in results]
        # An input that an output replaces is copied first, if another output shows it.
        made = [x.copy() if any(np.may_share_memory(x, y) for y in outputs) else x for x in made]
        for output, value, array in zip(region.outputs, made, outputs, strict=True):
            copy(value, _in_space(region, array, output.axes))


def _in_space(region: Region, array: Array, axes: tuple[str, ...]) -> Array:
    """The array with all axes of the region, of size 1 where it lacks them."""
    if axes == region.axes:
        return array
    return array[tuple(slice(None) if a in axes else None for a in region.axes)]


def _value(known: dict[Any, Any], operand: str | Constant) -> Any:
    if isinstance(operand, Constant):
        return np.array(operand.value, operand.dtype)
    return known[operand]
