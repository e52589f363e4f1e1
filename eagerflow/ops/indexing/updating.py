"""Changed copies: ``x.at[index].set(value)`` and its relatives, each an op."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor, number_type
from eagerflow.dims import product
from eagerflow.dtypes import BOOL, COMPLEX, INTEGERS, NARROW, NUMERIC, REAL, STANDARD, default_dtype
from eagerflow.errors import DTypeError
from eagerflow.handlers import raised_here
from eagerflow.number import Number
from eagerflow.op import ops
from eagerflow.ops.absent import explain
from eagerflow.ops.attributes import Index
from eagerflow.ops.creation.filled import full, zeros, zeros_like
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.family import ANY, Batch, batch_first, define
from eagerflow.ops.indexing.indexing import (
    INDICES,
    aligned,
    along_batch,
    check_fits,
    getitem,
    no_repeats,
)
from eagerflow.ops.indexing.indices import (
    check_arrays,
    filled,
    layout,
    located,
    recorded,
    refuse_none,
)
from eagerflow.ops.indexing.operators import write_rule
from eagerflow.ops.indexing.positions import add_at, combine_at, native, one_by_one, positions, runs
from eagerflow.ops.late import load
from eagerflow.ops.other_names import table
from eagerflow.ops.shapes.reshaping import reshape, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Operators, Tensor

__all__ = ["index_add", "index_max", "index_min", "index_multiply", "index_set"]


def _arrange_write(op: str) -> Any:
    """Bind x, value and index of a writing op; the value takes the dtype of x."""

    def arrange(*args: Any, **named: Any) -> tuple[Any, Any]:
        if len(args) < 2 or ("index" not in named and len(args) != 3):
            raise TypeError(f"{op}() takes 3 arguments: a tensor, a value and an index")
        if "index" not in named:
            args, named = args[:2], {"index": args[2], **named}
        x, value, *given = args
        refuse_none(op, x=x, value=value)
        x = as_tensor(x) if type(x) is Number or not isinstance(x, Operators) else x
        index, arrays = recorded(named["index"], given, op, x.device)
        return (x, as_value(value, x, op), *arrays), {**named, "index": index}

    return arrange


def as_value(value: Any, x: Any, op: str) -> Any:
    """The value that an op writes into ``x``, in its dtype; DTypeError if it does not fit."""
    if type(value) is Tensor and value._kind.dtype == x.dtype:
        return value
    kind = number_type(value)
    if kind is None:
        value = as_tensor(value, None, None if isinstance(value, Operators) else x.device)
    own = value.dtype if kind is None else default_dtype(kind)
    if _rank(own) > _rank(x.dtype):
        raise DTypeError(
            f"{own.name} values do not fit into a tensor of {x.dtype.name}",
            op=op,
            argument="value",
            expected=f"values that {x.dtype.name} can hold",
            hint=f"x.astype({own.name!r}) first, or value.astype({x.dtype.name!r})",
        )
    return as_tensor(value, x.dtype, None if isinstance(value, Tensor) else x.device)


def _rank(dtype: Any) -> int:
    """Bools fit into integers, these into floats, these into complex numbers."""
    if dtype in BOOL:
        return 0
    if dtype in INTEGERS:
        return 1
    return 3 if dtype in COMPLEX else 2


def _write_spec(x: TensorSpec, value: TensorSpec, *indices: TensorSpec, index: Any) -> TensorSpec:
    plan = layout(index, x.shape, [i.shape for i in indices])
    if plan.meet is not None:
        check_fits(value.shape, plan.shape, "value")
    return x.like()


def _batched_write(call: Any, args: Any, batched: Any, size: Any, index: Any) -> Any:
    x, value, *arrays = args
    (whole,) = batch_first([x], batched[:1], size)
    items, lined, order = along_batch(index, whole.shape[1:], arrays, batched[2:], size, True)
    return call(whole, aligned(value, batched[1], size, order), *lined, index=items)


_REDUCTIONS = {"index_set": "none", "index_add": "add", "index_multiply": "mul"}
_REDUCTIONS |= {"index_max": "max", "index_min": "min"}


def _writing(name: str, **facts: Any) -> Any:
    """An op that returns a copy of x in which the selected part is combined with a value."""
    own: dict[str, Any] = {
        "dtypes": (STANDARD, STANDARD, INDICES),
        "together": (),
        "arrange": _arrange_write(name),
        "infer": _write_spec,
        "trusted": True,
        "saves": "indices",
        "fails": True,
        "aliases": False,
        "batch": Batch(_batched_write),
        "onnx": partial(write_rule, _REDUCTIONS[name]),
    } | facts
    return define("indexing", **own)


def _write(xp: Namespace, x: Any, value: Any, indices: Any, index: Any, function: str = "") -> Any:
    """A copy of x with ``function(part, value)``, or the value alone, at an index."""
    combine = getattr(xp, function) if function else (lambda part, value: value)
    try:
        if indices and xp is not np:
            check_arrays(xp, index, x.shape, indices)
        if not native(xp):
            return one_by_one(x, positions(xp, index, x.shape, indices), value, combine, xp)
        at = filled(index, indices)
        out = xp.array(x, order="C")
        if no_repeats(index) or not function:
            out[at] = combine(out[at], value) if function else value
        elif function != "add":
            combine_at(xp, combine, out, at, value)
        elif x.dtype in NARROW:
            wide = add_at(xp, out.astype(xp.float32), at, value.astype(xp.float32))
            out = wide.astype(x.dtype)
        else:
            out = add_at(xp, out, at, value)
        return out
    except raised_here(IndexError) as error:
        raise located(xp, error, index, x.shape, indices) from None


def _part(x: TensorSpec, value: TensorSpec, *indices: TensorSpec, index: Any) -> Any:
    """A function that returns the written ``runs``; None for masks, whose number is unknown."""
    if type(index) is tuple and any(type(item) is str and item == "mask" for item in index):
        return None

    tell = runs(index, x.shape, [i.shape for i in indices])
    return lambda x, value, *indices: tell(value.astype(x.dtype, copy=False), *indices)


def _winners(shape: Any, indices: Any, index: Any, selected: Any, device: Any) -> Any:
    """Which of the values written at an index that repeats positions stayed: the last ones."""
    order = reshape(arange(product(selected), device=str(device)), selected)
    blank = full(shape, -1, dtype="int64", device=str(device))
    stayed = getitem(index_set(blank, order, *indices, index=index), *indices, index=index)
    return ops["equal"].call(stayed, order)


def _set_back(g: Any, y: Any, x: Any, value: Any, *indices: Any, index: Any) -> tuple[Any, ...]:
    nothing = zeros((), dtype=g.dtype, device=str(g.device))
    back = index_set(g, nothing, *indices, index=index)
    part = getitem(g, *indices, index=index)
    if not no_repeats(index):
        won = _winners(x.shape, indices, index, part.shape, g.device)
        part = ops["where"].call(won, part, nothing)
    return (back, unbroadcast(part, value.shape), *(None,) * len(indices))


def _both(tangents: Any, x: Any, value: Any) -> tuple[Any, Any]:
    """Tangents of x and value, zeros for missing ones."""
    return (
        zeros_like(x) if tangents[0] is None else tangents[0],
        zeros_like(value) if tangents[1] is None else tangents[1],
    )


@_writing(
    "index_set",
    dtypes=(ANY, ANY, INDICES),
    writes=_part,
    vjp=_set_back,
    jvp=lambda tangents, y, x, value, *indices, index: index_set(
        *_both(tangents, x, value), *indices, index=index
    ),
)
def index_set(xp: Namespace, x: Array, value: Array, /, *indices: Array, index: Index) -> Array:
    """A copy of ``x`` with a value at an index: ``x.at[index].set(value)``.

    ``value`` broadcasts to the selected part and is cast to the dtype of ``x``. Where
    positions repeat, the last value stays, and it alone gets a gradient. Raises
    IndexRangeError, ShapeError, or DTypeError for values that the dtype cannot hold.

    >>> ef.index_set(ef.zeros(4), [1.0, 2.0], [0, -1])
    Tensor([1., 0., 0., 2.], float32, cpu:0)
    """
    return _write(xp, x, value, indices, index)


@_writing(
    "index_add",
    vjp=lambda g, y, x, value, *indices, index: (
        g,
        unbroadcast(getitem(g, *indices, index=index), value.shape),
        *(None,) * len(indices),
    ),
    jvp=lambda tangents, y, x, value, *indices, index: index_add(
        *_both(tangents, x, value), *indices, index=index
    ),
)
def index_add(xp: Namespace, x: Array, value: Array, /, *indices: Array, index: Index) -> Array:
    """A copy of ``x`` with a value added at an index: ``x.at[index].add(value)``.

    ``value`` broadcasts to the selected part and is cast to the dtype of ``x``; where
    positions repeat, all values are added. Raises IndexRangeError, ShapeError, or DTypeError
    for values that the dtype cannot hold.

    >>> ef.index_add(ef.ones(3), 1.0, [0, 2, 2])
    Tensor([2., 1., 3.], float32, cpu:0)
    """
    return _write(xp, x, value, indices, index, "add")


def _multiply_back(
    g: Any, y: Any, x: Any, value: Any, *indices: Any, index: Any
) -> tuple[Any, ...]:
    """With repeated positions a value's derivative is x times all the other values there.

    That is y / value where no value is 0; at a single 0 it is the product of the rest.
    """
    none = (None,) * len(indices)
    back = index_multiply(g, conj(value), *indices, index=index)
    part = getitem(g, *indices, index=index)
    if no_repeats(index):
        others = getitem(x, *indices, index=index)
    else:
        where = ops["where"].call
        zero = ops["equal"].call(value, 0)
        filled_in = where(zero, 1, value)
        product_of = index_multiply(x, filled_in, *indices, index=index)
        count = index_add(
            zeros(x.shape, dtype="int64", device=str(x.device)),
            zero.astype("int64"),
            *indices,
            index=index,
        )
        count = getitem(count, *indices, index=index) - zero.astype("int64")
        others = getitem(product_of, *indices, index=index) / filled_in
        others = where(ops["equal"].call(count, 0), others, 0)
    return (back, unbroadcast(part * conj(others), value.shape), *none)


@_writing(
    "index_multiply",
    dtypes=(NUMERIC, NUMERIC, INDICES),
    vjp=_multiply_back,
    saves="x value indices",
)
def index_multiply(
    xp: Namespace, x: Array, value: Array, /, *indices: Array, index: Index
) -> Array:
    """A copy of ``x`` multiplied by a value at an index: ``x.at[index].multiply(value)``.

    ``value`` broadcasts to the selected part and is cast to the dtype of ``x``; where
    positions repeat, all values are multiplied in. Raises IndexRangeError, ShapeError, or
    DTypeError for values that the dtype cannot hold.

    >>> ef.index_multiply(ef.ones(3), 3.0, [0, 2, 2])
    Tensor([3., 1., 9.], float32, cpu:0)
    """
    return _write(xp, x, value, indices, index, "multiply")


def _extreme_back(g: Any, y: Any, x: Any, value: Any, *indices: Any, index: Any) -> tuple[Any, ...]:
    """The gradient goes to the elements equal to the result; ties share it."""
    equal, where = ops["equal"].call, ops["where"].call
    stayed = equal(x, y).astype(g.dtype)
    won = equal(value, getitem(y, *indices, index=index)).astype(g.dtype)
    ties = index_add(stayed, won, *indices, index=index)
    share = g / where(equal(ties, 0), 1, ties)  # NaN equals nothing
    part = getitem(share, *indices, index=index) * won
    return (share * stayed, unbroadcast(part, value.shape), *(None,) * len(indices))


@_writing("index_min", dtypes=(REAL, REAL, INDICES), vjp=_extreme_back, saves="x value indices y")
def index_min(xp: Namespace, x: Array, value: Array, /, *indices: Array, index: Index) -> Array:
    """A copy of ``x``, at most a value at an index: ``x.at[index].min(value)``.

    ``value`` broadcasts to the selected part and is cast to the dtype of ``x``. Values that
    tie share the gradient. Raises IndexRangeError, ShapeError, or DTypeError for values that
    the dtype cannot hold and for complex ones.

    >>> ef.index_min(ef.tensor([1.0, 5.0, 6.0]), 3.0, slice(0, 2))
    Tensor([1., 3., 6.], float32, cpu:0)
    """
    return _write(xp, x, value, indices, index, "minimum")


@_writing("index_max", dtypes=(REAL, REAL, INDICES), vjp=_extreme_back, saves="x value indices y")
def index_max(xp: Namespace, x: Array, value: Array, /, *indices: Array, index: Index) -> Array:
    """A copy of ``x``, at least a value at an index: ``x.at[index].max(value)``.

    ``value`` broadcasts to the selected part and is cast to the dtype of ``x``. Values that
    tie share the gradient. Raises IndexRangeError, ShapeError, or DTypeError for values that
    the dtype cannot hold and for complex ones.

    >>> ef.index_max(ef.tensor([1.0, 5.0, 6.0]), 3.0, slice(0, 2))
    Tensor([3., 5., 6.], float32, cpu:0)
    """
    return _write(xp, x, value, indices, index, "maximum")


class _Place:
    """``x.at[index]``: a part of a tensor, for updated copies."""

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x = x
        self._index = index

    def get(self) -> Tensor:
        """The values of the part: ``x[index]``."""
        return getitem(self._x, self._index)

    def set(self, value: Any) -> Tensor:
        """A copy with ``value`` there; see ``ef.index_set``."""
        return index_set(self._x, value, self._index)

    def add(self, value: Any) -> Tensor:
        """A copy with ``value`` added there; see ``ef.index_add``."""
        return index_add(self._x, value, self._index)

    def multiply(self, value: Any) -> Tensor:
        """A copy multiplied by ``value`` there; see ``ef.index_multiply``."""
        return index_multiply(self._x, value, self._index)

    def min(self, value: Any) -> Tensor:
        """A copy with the smaller of itself and ``value`` there; see ``ef.index_min``."""
        return index_min(self._x, value, self._index)

    def max(self, value: Any) -> Tensor:
        """A copy with the larger of itself and ``value`` there; see ``ef.index_max``."""
        return index_max(self._x, value, self._index)

    def mean(self, value: Any) -> Tensor:
        """A copy with the mean of itself and of all values there."""
        return load("indexing.combining").reduced_at(self._x, value, self._index, "mean", True)


class _At:
    """``x.at``: waits for an index."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> _Place:
        return _Place(self._x, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise DTypeError(
            "tensors cannot be changed in place", op="at", hint="y = x.at[index].set(value)"
        )


def _at(self: Any) -> _At:
    """Copies that differ at an index: ``x.at[index].set(value)``, ``.add``, ``.multiply`` ...

    >>> x = ef.zeros((3,))
    >>> x.at[1].set(5.0), x
    (Tensor([0., 5., 0.], float32, cpu:0), Tensor([0., 0., 0.], float32, cpu:0))
    """
    return _At(self)


explain(_At, table("At"))
explain(_Place, table("Place"))
Operators.at = property(_at)  # type: ignore[assignment, method-assign]
