"""Indexing: ``x[index]``, and its transpose, which its gradient is."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dispatch import record
from eagerflow.dtypes import BOOL, INTEGERS, STANDARD
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.op import Cost, Into, Split, ops
from eagerflow.ops.attributes import Index, Sizes
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.family import ANY, op_of
from eagerflow.ops.indexing.indices import (
    ALL,
    check_arrays,
    expanded,
    filled,
    indexing_op,
    layout,
    located,
    place_of,
    recorded,
    refuse_none,
    unmasked,
)
from eagerflow.ops.indexing.operators import select_rule, write_rule
from eagerflow.ops.indexing.positions import native, one_by_one, positions, summed_at, taken_at
from eagerflow.ops.shapes.reshaping import copy_kernels, permute_dims, reshape, sized, unbroadcast
from eagerflow.recorder import process, recorder_state
from eagerflow.spec import Array, Namespace, TensorSpec, broadcast
from eagerflow.tensor import Operators, Tensor

__all__ = ["getitem", "index_scatter"]

INDICES = BOOL | INTEGERS


def _cost(x: Any, *rest: Any, index: Any, **attributes: Any) -> Cost:
    """Slices are views; index arrays copy."""
    moved = [s.size for s in rest if isinstance(s, TensorSpec)]
    sizes = [n for n in moved if isinstance(n, int)]
    return Cost(0, sum(sizes) * (8 + x.dtype.itemsize) if sizes else 0)


def no_repeats(index: Any) -> bool:
    """Whether an index selects each element at most once: slices, integers and masks do."""
    return type(index) is not tuple or not any(
        item.__class__ is str and item == "array" for item in index
    )


# Batches ------------------------------------------------------------------------------------------


def along_batch(
    index: Any, shape: Any, arrays: Any, flags: Any, size: Any, joined: bool
) -> tuple[Any, list[Any], list[int]]:
    """An index for a batch: its recorded form, its arrays, and how to order the result's axes.

    ``shape`` is that of one example; ``joined`` is whether the indexed tensor has the batch as its
    first axis. The order moves the batch axis of the result to the front and others to their
    positions in one example's result.
    """
    if not any(flags):
        plan = layout(index, shape, [a.shape for a in arrays])
        items = expanded(index, len(shape), [a.ndim for a in arrays])
        rank = len(plan.sizes) + plan.rank
        order = list(range(rank + 1))
        if plan.rank and not _in_place(items, plan.at):
            order = [plan.rank, *range(plan.rank), *range(plan.rank + 1, rank + 1)]
        return (ALL, *items), list(arrays), order
    index, given = unmasked(index, zip(arrays, flags, strict=True), _positions)
    logical = [a.shape[1:] if flag else a.shape for a, flag in given]
    plan = layout(index, shape, logical)
    items = expanded(index, len(shape), [len(s) for s in logical])
    lined = [
        reshape(a, (size, *(1,) * (plan.rank - len(s)), *s)) if flag else a
        for (a, flag), s in zip(given, logical, strict=True)
    ]
    if joined:
        items = ["array", *items]
        lined = [reshape(arange(size), (size, *(1,) * plan.rank)), *lined]
    whole = layout(tuple(items), (size, *shape) if joined else shape, [a.shape for a in lined])
    met = [whole.at + 1 + i for i in range(plan.rank)]
    others = [i for i in range(len(whole.shape)) if i != whole.at and i not in met]
    return tuple(items), lined, [whole.at, *others[: plan.at], *met, *others[plan.at :]]


def _in_place(items: list[Any], at: int) -> bool:
    """Whether the axes of index arrays stay after a slice that is prepended to the index."""
    between = (None, Ellipsis)
    spots = [
        i for i, item in enumerate(items) if item.__class__ is not slice and item not in between
    ]
    return spots[-1] - spots[0] < len(spots)


def _positions(mask: tuple[Any, bool]) -> list[tuple[Any, bool]]:
    """The positions of true elements, where all examples have the same ones."""
    array, is_batched = mask
    if is_batched:
        raise CaptureError(
            "inside vmap the mask differs between examples, so the shape of the result does",
            argument="index",
            hint="ef.where(mask, x, 0) keeps the shape",
        )
    return [(part, False) for part in ops["nonzero"].call(array)]


def ordered(x: Any, order: list[int]) -> Any:
    """The axes in another order, unless it is the identity."""
    return x if order == sorted(order) else permute_dims(x, tuple(order))


def aligned(value: Any, flag: bool, size: Any, order: list[int]) -> Any:
    """A value that is written at a batched index, with its axes where the index has them."""
    shape = value.shape[1:] if flag else value.shape
    if not flag and order == sorted(order):
        return value
    missing = len(order) - 1 - len(shape)
    value = reshape(value, (size if flag else 1, *(1,) * missing, *shape[max(0, -missing) :]))
    inverse = [order.index(i) for i in range(len(order))]
    return ordered(value, inverse)


# Reading ------------------------------------------------------------------------------------------


def _arrange_getitem(*args: Any, **named: Any) -> tuple[Any, Any]:
    if not args or ("index" not in named and len(args) != 2):
        raise TypeError(f"getitem() takes a tensor and an index, {len(args)} arguments were given")
    if "index" not in named:
        args, named = args[:1], {"index": args[1], **named}
    x, *given = args
    refuse_none("getitem", x=x)
    index, arrays = recorded(named["index"], given, "getitem", place_of(x))
    return (x, *arrays), {**named, "index": index}


def _getitem_back(g: Any, y: Any, x: Any, *indices: Any, index: Any) -> tuple[Any, ...]:
    back = index_scatter(g, *indices, shape=x.shape, index=index)
    return (back, *(None,) * len(indices))


def _batched_getitem(args: Any, batched: Any, size: Any, index: Any) -> Any:
    x, *arrays = args
    shape = x.shape[1:] if batched[0] else x.shape
    items, lined, order = along_batch(index, shape, arrays, batched[1:], size, batched[0])
    return ordered(getitem(x, *lined, index=items), order)


def _getitem_split(x: TensorSpec, *indices: TensorSpec, index: Any) -> list[Split]:
    """Along every axis that is taken whole, by ``:``."""
    found = layout(index, x.shape, [i.shape for i in indices])
    whole = (None,) * len(indices)
    masks = [len(i.shape) for i in indices if i.dtype in BOOL]
    splits, axis, place = [], 0, 0
    for item in expanded(index, x.ndim, [len(i.shape) for i in indices]):
        if item == ALL:
            moved = found.rank if place >= found.at else 0
            splits.append(Split((axis, *whole), place + moved))
        place += item is None or item.__class__ is slice
        if item == "mask":
            axis += masks.pop(0)
        elif item is not None and item is not Ellipsis and item.__class__ is not bool:
            axis += 1
    return splits


@indexing_op(
    dtypes=(ANY, INDICES),
    arrange=_arrange_getitem,
    infer=lambda x, *indices, index: x.like(
        layout(index, x.shape, [i.shape for i in indices]).shape
    ),
    trusted=True,
    vjp=_getitem_back,
    saves="indices",
    batch=_batched_getitem,
    split=_getitem_split,
    cost=_cost,
    onnx=select_rule,
)
def getitem(xp: Namespace, x: Array, /, *indices: Array, index: Index) -> Array:
    """The part of a tensor that an index selects: ``x[index]``.

    ``index`` is the expression between Python's brackets: integers, slices, ``None``, ``...``, and
    tensors, arrays or lists of integers or bools, with NumPy's meaning. In the recorded form the
    arrays follow ``x`` and the strings ``"array"`` and ``"mask"`` hold their places. Raises
    IndexRangeError for indices out of range, DTypeError for invalid indices.

    >>> x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x[-1], x[:, [1, 1, 0]].shape, x[x > 2.5]
    (Tensor([3., 4.], float32, cpu:0), (2, 3), Tensor([3., 4.], float32, cpu:0))
    """
    try:
        if indices and xp is not np:  # elsewhere indices may wrap around silently
            check_arrays(xp, index, x.shape, indices)
        if not native(xp):
            return taken_at(xp, x, positions(xp, index, x.shape, indices))
        return x[filled(index, indices)]
    except raised_here(IndexError) as error:
        raise located(xp, error, index, x.shape, indices) from None


_PLAIN = frozenset({int, slice, type(None), type(Ellipsis), np.int64})
_QUICK_INDICES = (np.dtype("int64"), np.dtype("int32"), np.dtype("bool"))
_GETITEM = op_of(getitem)
_new = object.__new__


def _quick_getitem(self: Any, index: Any, /) -> Tensor:
    """Part of the tensor: ``x[index]``, as NumPy has it; see ``ef.getitem``."""
    append = None
    if process.recorders:
        append, recorder, _ = recorder_state()
        if append is None and recorder is not None:
            return getitem(self, index)
    try:
        kind = self._kind
        cls = type(index)
        out: Any = None
        if cls in _PLAIN or (cls is tuple and _PLAIN.issuperset(map(type, index))):
            out = self._array[index]
        elif (
            cls is Tensor and kind.array_type is np.ndarray and index._kind.dtype in _QUICK_INDICES
        ):
            out = self._array[index._array]
        if out is not None:
            y = _new(Tensor)
            y._array = out if type(out) is kind.array_type else kind.wrap(out)
            y._kind = kind
            y._key = None
            if append is not None and self._key is not None:
                if cls is Tensor:
                    form: Any = ("mask",) if index._kind.dtype in BOOL else ("array",)
                    record(append, _GETITEM, (self, index), {"index": form}, y)
                else:
                    form = index if cls is int else recorded(index, (), "getitem", None)[0]
                    record(append, _GETITEM, (self,), {"index": form}, y)
            return y
    except raised_here(Exception):
        # the general path succeeds, or raises its own error without this one as context
        pass
    return getitem(self, index)


Operators.__getitem__ = _quick_getitem  # type: ignore[method-assign]


# The transpose of reading -------------------------------------------------------------------------


def _scatter_spec(updates: TensorSpec, *indices: TensorSpec, shape: Any, index: Any) -> TensorSpec:
    wanted = sized(shape, "shape")
    plan = layout(index, wanted, [i.shape for i in indices])
    if plan.meet is not None:
        check_fits(updates.shape, plan.shape, "updates")
    return updates.like(wanted)


def check_fits(value: Any, selected: Any, argument: str) -> None:
    """ShapeError if a value does not broadcast to the selection of an index (except leading 1s)."""
    shape = tuple(value)
    while len(shape) > len(selected) and shape[0] == 1:
        shape = shape[1:]
    try:
        fits = broadcast(shape, selected) == tuple(selected)
    except raised_here(ShapeError):
        fits = False
    if not fits:
        raise ShapeError(
            f"shape {tuple(value)} does not broadcast to the selected part's, {tuple(selected)}",
            argument=argument,
            expected="sizes that are equal or 1, counted from the last axis",
        )


def _scatter_back(
    g: Any, y: Any, updates: Any, *indices: Any, shape: Any, index: Any
) -> tuple[Any, ...]:
    part = unbroadcast(getitem(g, *indices, index=index), updates.shape)
    return (part, *(None,) * len(indices))


def _batched_scatter(args: Any, batched: Any, size: Any, shape: Any, index: Any) -> Any:
    updates, *arrays = args
    items, lined, order = along_batch(index, shape, arrays, batched[1:], size, True)
    value = aligned(updates, batched[0], size, order)
    return index_scatter(value, *lined, shape=(size, *shape), index=items)


def _arrange_scatter(*args: Any, **named: Any) -> tuple[Any, Any]:
    if "index" not in named or not args:
        raise TypeError("index_scatter() needs the argument 'index' by name, behind the updates")
    updates, *given = args
    refuse_none("index_scatter", updates=updates)
    index, arrays = recorded(named["index"], given, "index_scatter", place_of(updates))
    return (updates, *arrays), {**named, "index": index}


def _scatter_into(updates: Any, *indices: Any, shape: Any, index: Any) -> Into | None:
    """The kernel that writes updates to one part of zeros; None if arrays select it."""
    if indices:
        return None
    items = index if type(index) is tuple else (index,)
    at = items if any(item is Ellipsis for item in items) else (*items, ...)

    def call(given: Any, out: Any = None) -> Any:
        if out is None:
            out = np.zeros(shape, given.dtype)
        else:
            out.fill(0)
        out[at] = given
        return out

    return Into(call, lambda given, out: copy_kernels().scattered(given, out, at))


@indexing_op(
    dtypes=(STANDARD, INDICES),
    arrange=_arrange_scatter,
    into=_scatter_into,
    infer=_scatter_spec,
    trusted=True,
    vjp=_scatter_back,
    saves="indices",
    batch=_batched_scatter,
    onnx=lambda w, updates, *indices, shape, index: write_rule(
        "add", w, w.filled(0, shape, updates.dtype), updates, *indices, index=index
    ),
)
def index_scatter(
    xp: Namespace, updates: Array, /, *indices: Array, shape: Sizes, index: Index
) -> Array:
    """Zeros of a shape with ``updates`` added at an index: the transpose of ``getitem``.

    ``updates`` broadcasts to the part that ``index`` selects of a tensor of shape ``shape``; where
    positions repeat, their updates are summed. Raises IndexRangeError for indices out of range,
    ShapeError for mismatched updates.

    >>> ef.index_scatter(ef.tensor([1.0, 2.0, 4.0]), shape=(3,), index=[0, 2, 2])
    Tensor([1., 0., 6.], float32, cpu:0)
    """
    try:
        if indices and xp is not np:
            check_arrays(xp, index, shape, indices)
        if not native(xp):
            places, out = positions(xp, index, shape, indices), xp.zeros(shape, dtype=updates.dtype)
            return one_by_one(out, places, updates, xp.add, xp)
        if no_repeats(index):
            out = xp.zeros(shape, dtype=updates.dtype)
            out[filled(index, indices)] = updates
            return out
        return summed_at(xp, shape, filled(index, indices), updates)
    except raised_here(IndexError) as error:
        raise located(xp, error, index, shape, indices) from None
