"""The steps of the tiles way: every statement of a region as calls that fill an array.

A call is made as ``call(*operands, out=array)``. Operands and results have all axes of the
region, with size 1 along those on which they do not depend, so NumPy's broadcasting does the
rest. Where one ufunc computes an instruction, the ufunc is the call.
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
from eagerflow.codegen.region import (
    REDUCTIONS,
    Constant,
    Input,
    Region,
    Statement,
    dependencies,
)
from eagerflow.runtime import threads

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]
Box = tuple[slice, ...]

# Suffixes of operands other than values; names of values end with none of these.
BOX = ".box"  # the part of the index space that is computed
FIRST = ".first"  # whether a tile is the first of those whose results are summed
SPARE = ".spare"  # a buffer like the result
EXTENT = ".size"  # follows an axis: its size
TABLE = ".table"  # follows an input with a lookup: the whole array

CONTIGUOUS = frozenset((np.isfinite, np.isinf, np.isnan, np.signbit))
"""Functions that may not fill arrays with gaps: NumPy 2.4 writes into the gaps."""


@dataclass(frozen=True)
class Step:
    """One call: its operands, and the type and axes of its result.

    ``in_place`` means that the result may use the memory of an operand of its shape. ``over`` holds
    the axes that a reduction removes; with ``sums`` it adds to the results of earlier tiles.
    ``output`` is the output that a copy writes.
    """

    name: str
    call: Call
    operands: tuple[str | Constant, ...]
    dtype: str
    axes: tuple[str, ...]
    in_place: bool = True
    over: tuple[str, ...] = ()
    reduction: str = ""
    sums: bool = False
    output: str | None = None


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
    if len(long) != 1 or x.dtype.kind != "f" or x.strides[long[0]] == x.itemsize:
        return x
    axis = long[0]
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


def accumulate(region: Region, step: Step) -> Step:
    """A reduction that adds a tile's result to that of earlier tiles."""
    axes = tuple(region.axes.index(a) for a in step.over)
    reduction, join = step.reduction, ufunc(step.reduction)
    columns = region.axes[-1] not in step.over

    def call(first: bool, x: Any, spare: Any, out: Array) -> None:
        if first:
            _reduce(x, axes, reduction, columns, out)
        else:
            _reduce(x, axes, reduction, columns, spare)
            join(out, spare, out=out)

    return replace(step, call=call, operands=(FIRST, *step.operands, SPARE), sums=True)


# Instructions that take several calls of NumPy ------------------------------------------------


def select(condition: Any, x: Any, y: Any, out: Array) -> None:
    """Selection by bits: the time of NumPy's own depends on the condition, up to tenfold."""
    mask = threads.scratch("tiles: condition", condition.shape, np.int8)
    np.negative(condition.view(np.int8), out=mask)
    integer = np.dtype(f"i{out.itemsize}")
    if integer.itemsize > 1:
        wide = threads.scratch("tiles: mask", condition.shape, integer)
        np.copyto(wide, mask)
        mask = wide
    bits, below = out.view(integer), y.view(integer)
    np.bitwise_xor(x.view(integer), below, out=bits)
    np.bitwise_and(bits, mask, out=bits)
    np.bitwise_xor(bits, below, out=bits)


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

    def call(box: Box, table: Any, index: Any, out: Array) -> None:
        if by_rows:
            rows = table[(slice(None), *(box[i] for i in own[1:]))]
            found = rows[index.reshape(-1)]
            shape = [1] * len(axes)
            for i, size in zip(own, found.shape, strict=True):
                shape[i] = size
            found = found.reshape(shape)
        else:
            places = [np.arange(box[i].start, box[i].stop) for i in own[1:]]
            shaped = [
                p.reshape([-1 if a == i else 1 for a in range(len(axes))])
                for i, p in zip(own[1:], places, strict=True)
            ]
            found = table[(index, *shaped)]
        np.copyto(out, found, casting="unsafe")

    table = f"{part.name}{TABLE}"
    held = value_type(part.dtype)
    return Step(part.name, call, (BOX, table, str(part.gather)), held, part.axes, False)


def _position(region: Region, part: Statement) -> Step:
    axis = region.axes.index(part.over[0])
    shape = [-1 if i == axis else 1 for i in range(len(region.axes))]

    def call(box: Box, out: Array) -> None:
        out[...] = np.arange(box[axis].start, box[axis].stop).reshape(shape)

    return Step(part.name, call, (BOX,), part.dtype, part.axes, False)


def _random_bits(region: Region, part: Statement) -> Step:
    """Words of a counter-based generator, for the indices in the box."""
    over = [region.axes.index(a) for a in part.over]
    sizes = [f"{a}{EXTENT}" for a in part.over]

    def call(box: Box, *operands: Any, out: Array) -> None:
        if not out.size:
            return
        extents, words = [int(e) for e in operands[: len(over)]], operands[len(over) :]
        varying = [i for i in range(out.ndim) if any(np.shape(w)[i : i + 1] > (1,) for w in words)]
        # Numbers are generated in runs: along all axes after the last cut one.
        start = max((n for n, i in enumerate(over) if i in varying), default=-1) + 1
        for n in range(len(over) - 1, start, -1):
            if out.shape[over[n]] < extents[n]:
                start = n
                break
        outer = [i for i in range(out.ndim) if i in varying or i in over[:start]]
        for place in np.ndindex(*(out.shape[i] for i in outer)):
            at = dict(zip(outer, place, strict=True))
            index = 0
            for n, i in enumerate(over):
                index = index * extents[n] + box[i].start + at.get(i, 0)
            here = tuple(
                slice(at[i], at[i] + 1) if i in at else slice(None) for i in range(out.ndim)
            )
            state = [w if w.ndim == 0 else np.broadcast_to(w, out.shape)[here] for w in words]
            run = out[here]
            run[...] = _bits(state, index, run.size, out.dtype).reshape(run.shape)

    return Step(part.name, call, (BOX, *sizes, *part.operands), part.dtype, part.axes, False)


def _bits(state: Sequence[Any], first: int, count: int, dtype: Any) -> Any:
    words = np.array([w.flat[0] for w in state], np.uint64)
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

    def call(x: Any, out: Array) -> None:
        _reduce(x, axes, reduction, False, out)

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


def needed_steps(
    steps: dict[str, Step], names: Iterable[str], known: frozenset[str] = frozenset()
) -> list[Step]:
    """The steps that lead to these values, without those of ``known`` ones."""
    own = {name: step for name, step in steps.items() if name not in known}
    needed = dependencies(names, lambda n: own[n].operands if n in own else ())
    return [step for name, step in own.items() if name in needed]
