"""Layouts: the properties of operands' memory that code depends on.

Axes that are contiguous in all operands are merged, so a kernel of contiguous arrays is a loop over
one axis, for any rank. The remainder is rows, along any number of outer axes, and the elements of a
row along one inner axis, with a stride that determines how vectors are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.region import Input, Output, Region

BROADCAST, UNIT, STRIDED = 0, 1, 2


class Entry(NamedTuple):
    """The view of arrays of one shape and dtype as an operand of a region.

    ``axes`` are the array's axes that the operand has, in the region's order: others have size 1.
    With a ``word``, the operand is that single element of a 1-d array.
    """

    shape: tuple[int, ...]
    dtype: Any
    axes: tuple[int, ...]
    word: int | None = None


class Like(NamedTuple):
    """The properties of a call's arrays that its code was made for."""

    strides: tuple[int, ...]
    dtype: Any


def like(*arrays: Any) -> list[Like]:
    """The properties required of other arrays that replace these."""
    return [Like(a.strides, a.dtype) for a in arrays]


@dataclass(frozen=True)
class Layout:
    """The parameters of code: the number of outer axes, and each operand's inner stride.

    Rows are ``long`` if the rounding of sums along them matters.
    """

    outer: int
    inner: tuple[int, ...]
    long: bool = False

    def __str__(self) -> str:
        kinds = "".join("01s"[kind] for kind in self.inner)
        return f"{self.outer} outer axes, inner strides {kinds}{', long rows' * self.long}"


@dataclass
class Binding:
    """A region's operands in one call: extents, strides in bytes, and their layout."""

    layout: Layout
    rows: int
    width: int
    extents: list[int]
    strides: list[tuple[list[int], int]]  # of each operand: along the outer axes, the inner axis
    side: int = 1  # size of the vectors' axis, if that is not the inner one
    steps: list[int] | None = None  # strides along it


def contiguous_strides(shape: Sequence[int], item_bytes: int = 1) -> tuple[int, ...]:
    """Strides of a contiguous row-major array."""
    return tuple(item_bytes * prod(shape[i + 1 :]) for i in range(len(shape)))


def imagined(
    shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None
) -> np.ndarray[Any, Any]:
    """An array with a shape, dtype and strides, but without memory: it is never read or written.

    It is a NumPy array, so that views of it can be made, with the memory of one element. Without
    ``strides`` it is like a new array.
    """
    if strides is None:
        strides = contiguous_strides(shape, dtype.itemsize)
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def lies_in_order(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> bool:
    """Whether an array is contiguous in row-major order.

    >>> lies_in_order((2, 1, 3), (12, 4, 4), 4), lies_in_order((3, 2), (4, 12), 4)
    (True, False)
    """
    wanted = contiguous_strides(shape, item_bytes)
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, wanted, strict=True))


def operands_of(region: Region) -> tuple[Input | Output, ...]:
    """Inputs, then the outputs that are written element by element or row by row."""
    return (*region.inputs, *(o for o in region.outputs if o.value not in region.columns))


def bind(
    region: Region, operands: Sequence[tuple[Any, tuple[str, ...]]], sizes: dict[str, int]
) -> Binding | None:
    """The traversal of the arrays of ``operands_of(region)``, each given with its axes.

    None if the axes of a row cannot be merged in some operand, so that no single stride leads from
    each element of a row to the next.
    """
    axes, parts = region.axes, operands_of(region)
    strides = [
        _full_strides(part, array, own, axes)
        for part, (array, own) in zip(parts, operands, strict=True)
    ]
    extents = [sizes[a] for a in axes]
    split = len(axes) - len(region.row_axes)
    inner = _at_least_one(collapse(extents[split:], [s[split:] for s in strides]))
    if len(inner[0]) > 1:
        return None
    outer = _at_least_one(collapse(extents[:split], [s[:split] for s in strides]))
    width, inner_strides = inner[0][0], [s[0] for s in inner[1]]
    varies = [not set(region.row_axes).isdisjoint(p.axes) for p in parts]
    if not region.reduces:
        outer, width, inner_strides = _joined(outer, width, inner_strides, varies)
    if width == 1:  # strides of axes of size 1 are arbitrary
        kinds = [UNIT if own else BROADCAST for own in varies]
    else:
        pairs = zip(inner_strides, operands, strict=True)
        kinds = [_kind(stride, array.itemsize) for stride, (array, _) in pairs]
    rows = prod(outer[0])
    return Binding(
        Layout(len(outer[0]), tuple(kinds)),
        rows,
        width,
        outer[0],
        list(zip(outer[1], inner_strides, strict=True)),
    )


def _kind(stride: int, item_bytes: int) -> int:
    return BROADCAST if stride == 0 else UNIT if stride == item_bytes else STRIDED


def _full_strides(
    part: Input | Output, array: Any, own: tuple[str, ...], axes: tuple[str, ...]
) -> list[int]:
    """Byte strides along all axes; 0 for axes that it does not have, and for the looked-up axis."""
    strides = dict(zip(own, array.strides, strict=True))
    if isinstance(part, Input) and part.gather:
        strides[part.axes[0]] = 0
    sizes = dict(zip(own, array.shape, strict=True))
    return [strides.get(a, 0) if sizes.get(a) != 1 else 0 for a in axes]


def sideways(binding: Binding, item_sizes: list[int]) -> Binding:
    """The same traversal with vectors along the last outer axis, and rows along the others.

    ``rows`` then counts the rows of the outer axes before that one.
    """
    side = binding.extents[-1]
    steps = [outer[-1] for outer, _ in binding.strides]
    kinds = tuple([_kind(*x) for x in zip(steps, item_sizes, strict=True)])
    rest = binding.extents[:-1] or [1]
    strides = [(outer[:-1] or [0], inner) for outer, inner in binding.strides]
    return Binding(Layout(len(rest), kinds), prod(rest), binding.width, rest, strides, side, steps)


def straight(
    region: Region,
    operands: Sequence[tuple[Any, tuple[str, ...]]],
    sizes: dict[str, int],
    read: bool = True,
) -> list[tuple[Any, tuple[str, ...]]]:
    """The operands, with contiguous copies of those without a single stride.

    Copies of outputs are uninitialized. Without ``read``, copies are ``imagined``.
    """
    found = []
    for part, (array, own) in zip(operands_of(region), operands, strict=True):
        inner = [a for a in region.row_axes if sizes[a] != 1]
        steps = dict(zip(own, array.strides, strict=True))
        expected, fits = None, True
        for axis in reversed(inner):
            step = steps.get(axis, 0)
            fits = fits and expected in (None, step)
            expected = step * sizes[axis]
        if fits:
            found.append((array, own))
            continue
        wanted = tuple(a for a in region.axes if a in own or a in region.row_axes)
        first = isinstance(part, Input) and part.gather is not None
        shape = [array.shape[own.index(a)] if a in own else 1 for a in wanted]
        full = [array.shape[0] if first and a == own[0] else sizes[a] for a in wanted]
        copy = np.empty(full, array.dtype) if read else imagined(full, array.dtype)
        if read and isinstance(part, Input):
            copy[...] = array.reshape(shape)
        found.append((copy, wanted))
    return found


def collapse(extents: list[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """The same traversal over as few axes as possible; over none for a single element."""
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for i in range(len(extents) - 1, -1, -1):
        size = extents[i]
        if size == 1:
            continue
        if kept and all(s[i] == f[0] * kept[0] for s, f in zip(strides, found, strict=True)):
            kept[0] *= size
            continue
        kept.insert(0, size)
        for s, f in zip(strides, found, strict=True):
            f.insert(0, s[i])
    return kept, found


def _at_least_one(
    walk: tuple[list[int], list[list[int]]],
) -> tuple[list[int], list[list[int]]]:
    extents, strides = walk
    return walk if extents else ([1], [[0] for _ in strides])


def _joined(
    outer: tuple[list[int], list[list[int]]], width: int, inner: list[int], varies: list[bool]
) -> tuple[tuple[list[int], list[list[int]]], int, list[int]]:
    """Without reductions, the last outer axis may be merged with the inner one.

    Operands with one number for each row must remain so.
    """
    extents, strides = outer
    last = [s[-1] for s in strides]
    if width == 1 and all(own or s == 0 for own, s in zip(varies, last, strict=True)):
        inner = last
    elif width == 1 or any(s != i * width for s, i in zip(last, inner, strict=True)):
        return outer, width, inner
    rest = ([*extents[:-1]] or [1], [s[:-1] or [0] for s in strides])
    return rest, width * extents[-1], inner
