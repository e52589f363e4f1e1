"""Indices: their recorded form, the shape of the result, and errors.

The recorded form of an index is an attribute: an int, slice, None or Ellipsis, or a tuple of
these, in which ``"array"`` stands for an array of integers and ``"mask"`` for one of bools.
The arrays themselves are data arguments of the op, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from operator import index as as_index
from typing import Any, NamedTuple

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import Dim, DimLike
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, IndexRangeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.number import Number
from eagerflow.ops.family import define
from eagerflow.recorder import recorder_state
from eagerflow.spec import Namespace, broadcast
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "Layout",
    "check_values",
    "expanded",
    "filled",
    "index_array",
    "indexing_op",
    "integer_argument",
    "layout",
    "located",
    "out_of_range",
    "place_of",
    "recorded",
    "refuse_none",
    "signed",
    "slice_length",
    "unmasked",
]

ALL = slice(None)
MARKERS = frozenset({"array", "mask"})


# From what users write to the recorded form -------------------------------------------------------


def recorded(index: Any, given: Sequence[Any], op: str, device: Any) -> tuple[Any, list[Any]]:
    """The recorded form of ``index``, and its arrays as Tensors on ``device``.

    ``given`` are the arrays of existing markers in ``index``.
    """
    single = type(index) is not tuple
    items: list[Any] = []
    arrays: list[Any] = []
    rest = iter(given)
    for item in (index,) if single else index:
        form, array = _recorded_item(item, rest, op, device)
        items.append(form)
        if array is not None:
            arrays.append(array)
    if next(rest, None) is not None:
        raise IndexRangeError("there are more index arrays than the index has places for", op=op)
    return (items[0] if single and not arrays else tuple(items)), arrays


def _recorded_item(item: Any, rest: Iterator[Any], op: str, device: Any) -> tuple[Any, Any]:
    cls = type(item)
    if item is None or item is Ellipsis or cls in (int, bool, Dim):
        return item, None
    if cls is slice:
        return _plain_slice(item, op), None
    if cls is str and item in MARKERS and (array := next(rest, None)) is not None:
        return item, array
    if isinstance(item, np.bool_):
        return bool(item), None
    if isinstance(item, np.integer) or (
        hasattr(item, "__index__") and not hasattr(item, "__array__")
    ):
        return as_index(item), None
    array = index_array(item, op, "index", device)
    return ("mask" if array.dtype in BOOL else "array"), array


def _plain_slice(item: slice, op: str) -> slice:
    """The slice with Python integers; bounds may be symbolic."""
    bounds = (item.start, item.stop, item.step)
    if all(b is None or type(b) in (int, Dim) for b in bounds):
        return item
    plain = []
    for bound in bounds:
        try:
            plain.append(bound if bound is None or type(bound) is Dim else as_index(bound))
        except CaptureError:
            raise
        except raised_here(TypeError):
            raise DTypeError(
                f"a {type(bound).__name__} cannot bound a slice",
                op=op,
                argument="index",
                received=summary(bound),
                expected="integers or None",
                hint="int(bound) or bound // 1",
            ) from None
    return slice(*plain)


def index_array(item: Any, op: str, argument: str, device: Any = None) -> Tensor:
    """``item`` as a Tensor of integers or bools; an empty list counts as integers."""
    try:
        # A recorder keeps its operands, so it must not share memory that the user may change.
        array = as_tensor(
            item,
            None,
            None if isinstance(item, Operators) else device,
            copy=True if recorder_state()[1] is not None else None,
        )
    except EagerflowError as error:
        error.op, error.argument = op, argument
        error.expected = "integers, slices, None, ..., or arrays of integers or bools"
        raise
    if array.size == 0 and isinstance(item, list | tuple | range):
        array = as_tensor(np.empty(array.shape, np.int64), None, device)
    if array.dtype not in BOOL and array.dtype not in INTEGERS:
        raise DTypeError(
            f"{array.dtype.name} values cannot be indices",
            op=op,
            argument=argument,
            received=summary(item),
            expected="integers or bools",
            hint="int(i), i // 1 or i.astype('int64')",
        )
    return array


def place_of(x: Any) -> Any:
    """The device of a Tensor or Variable; None for other objects."""
    return x.device if isinstance(x, Operators) and type(x) is not Number else None


def refuse_none(op: str, **arguments: Any) -> None:
    """DTypeError if a data argument is None, which is invalid here."""
    for name, value in arguments.items():
        if value is None:
            raise DTypeError(
                "None is not a tensor, an array or a number",
                op=op,
                argument=name,
                received="None",
                expected="a tensor, an array or a number",
            )


def indexing_op(*, integers: str = "", **facts: Any) -> Any:
    """An op that is linear in its data, without dtype promotion, at valid indices.

    ``integers`` names the argument with the indices, which a tape keeps.
    """

    def decorate(kernel: Any) -> Any:
        own: dict[str, Any] = {"together": (), "jvp": "multilinear", "fails": True}
        if integers:
            position = kernel.__code__.co_varnames.index(integers) - 1
            own["arrange"] = integer_argument(kernel.__name__, position, integers)
            own["saves"] = integers
        return define("indexing", **own | facts)(kernel)

    return decorate


def integer_argument(op: str, position: int, name: str) -> Any:
    """An ``arrange`` fact that converts one data argument to a Tensor of integers.

    Lists and Python integers are taken as they are, not as numbers of the first tensor's dtype.
    """

    def arrange(*args: Any, **named: Any) -> tuple[Any, Any]:
        if len(args) > position:
            value = args[position]
        elif name in named:
            value = named[name]
        else:
            return args, named
        if type(value) is Tensor or value is None:
            return args, named
        first = args[0] if args and position else None
        value = index_array(value, op, name, place_of(first))
        if len(args) > position:
            return (*args[:position], value, *args[position + 1 :]), named
        return args, named | {name: value}

    return arrange


# From the recorded form to what NumPy takes -------------------------------------------------------


def filled(index: Any, arrays: Sequence[Any]) -> Any:
    """The index with its arrays (of a backend) in place of markers."""
    if not arrays:
        return index
    rest = iter(arrays)
    items = []
    for item in index:
        if item.__class__ is str:
            array = next(rest)
            if item == "mask" and array.dtype.kind != "b":
                array = array.astype(bool)  # it was promoted together with integers
            items.append(signed(array))
        else:
            items.append(item)
    return tuple(items)


def unmasked(
    index: Any, arrays: Iterable[Any], positions: Callable[[Any], list[Any]]
) -> tuple[Any, list[Any]]:
    """The index with the ``positions`` of true elements, one array for each axis, for masks."""
    items: list[Any] = []
    found: list[Any] = []
    rest = iter(arrays)
    for item in index if type(index) is tuple else (index,):
        if item.__class__ is not str:
            items.append(item)
            continue
        array = next(rest)
        parts = positions(array) if item == "mask" else [array]
        items += ["array"] * len(parts)
        found += parts
    return tuple(items), found


def signed(array: Any) -> Any:
    """uint64 as int64: NumPy would turn large values into negative ones."""
    if array.dtype.kind != "u" or array.dtype.itemsize < 8:
        return array
    largest = int(array.max()) if array.size else 0
    if largest >= 2**63:
        raise IndexError(f"index {largest} is out of range")
    return array.astype(np.int64)


def expanded(index: Any, rank: int, array_ranks: Sequence[int]) -> list[Any]:
    """The items of an index with one for each axis: slices follow ``...`` and fill up the end.

    The ellipsis stays, for zero axes: it still separates index arrays in NumPy.
    """
    items = list(index) if type(index) is tuple else [index]
    ranks = iter(array_ranks)
    used = 0
    dots: list[int] = []
    for position, item in enumerate(items):
        if item.__class__ is str:
            array_rank = next(ranks)
            used += array_rank if item == "mask" else 1
        elif item is Ellipsis:
            dots.append(position)
        elif item is not None and item.__class__ is not bool:
            used += 1
    if len(dots) > 1:
        raise IndexRangeError("an index can hold only one '...'", argument="index")
    if used > rank:
        raise IndexRangeError(
            f"there are {used} indices for {rank} ax{'i' if rank == 1 else 'e'}s",
            argument="index",
            expected=f"at most {rank} integers, slices or arrays",
        )
    at = dots[0] if dots else len(items)
    return [*items[: at + len(dots)], *[ALL] * (rank - used), *items[at + len(dots) :]]


# The shape of the result --------------------------------------------------------------------------


class Layout(NamedTuple):
    """The axes of a result: ``sizes`` of the sliced ones, ``meet`` of the index arrays.

    The arrays' axes are before ``sizes[at]``: at the first of them if they are adjacent, otherwise
    in front (NumPy's rule). ``meet`` is None if it depends on a mask.
    """

    sizes: tuple[Any, ...]
    at: int
    rank: int
    meet: tuple[Any, ...] | None

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the result; CaptureError if it depends on the values of a mask."""
        if self.meet is None:
            raise CaptureError(
                "the shape of the result depends on the values of a mask",
                argument="index",
                hint="ef.where(mask, x, 0) keeps the shape",
            )
        return (*self.sizes[: self.at], *self.meet, *self.sizes[self.at :])


def layout(index: Any, shape: Sequence[Any], arrays: Sequence[Sequence[Any]]) -> Layout:
    """How the result of ``index`` on ``shape`` looks; ``arrays`` are the index arrays' shapes.

    Raises IndexRangeError for integers out of range, masks that do not fit and too many
    indices.
    """
    items = expanded(index, len(shape), [len(s) for s in arrays])
    # A 0-d array counts as an integer, unless there are other arrays as well.
    real = any(len(s) for s in arrays) or any(
        item.__class__ is bool or item == "mask" for item in items if item.__class__ in (bool, str)
    )
    rest = iter(arrays)
    sizes: list[Any] = []
    meets: list[tuple[Any, ...]] = []
    spots: list[int] = []
    axis, at, masked = 0, 0, False
    for position, item in enumerate(items):
        if item is None or item is Ellipsis:
            sizes += [1] if item is None else []
            continue
        if item.__class__ is slice:
            sizes.append(slice_length(item, shape[axis]))
            axis += 1
            continue
        if real and not spots:
            at = len(sizes)
        spots.append(position)
        if item.__class__ is bool:
            meets.append((int(item),))
        elif item.__class__ is not str:
            size = shape[axis]
            if isinstance(item, int) and isinstance(size, int) and not -size <= item < size:
                raise out_of_range(item, axis, size)
            axis += 1
        elif item == "array":
            meets.append(tuple(next(rest)))
            axis += 1
        else:
            masked = True
            axis += _check_mask(tuple(next(rest)), shape, axis)
    if real and spots[-1] - spots[0] >= len(spots):
        at = 0
    return _met(tuple(sizes), at, meets, masked)


def _met(sizes: tuple[Any, ...], at: int, meets: list[tuple[Any, ...]], masked: bool) -> Layout:
    try:
        meet = broadcast(*meets)
    except ShapeError as error:
        error.argument = "index"
        raise
    if masked:
        return Layout(sizes, at, max(1, len(meet)), None)
    return Layout(sizes, at, len(meet), meet)


def _check_mask(mask: tuple[Any, ...], shape: Sequence[Any], axis: int) -> int:
    own = tuple(shape[axis : axis + len(mask)])
    if mask != own:
        raise IndexRangeError(
            f"a mask of shape {mask} does not fit axes of shape {own}",
            argument="index",
            expected="a mask with the sizes of the axes that it selects from",
        )
    return len(mask)


def slice_length(item: slice, size: DimLike) -> DimLike:
    """The number of elements that a slice selects from an axis; CaptureError if unknown."""
    if item.step is not None and item.step == 0:
        raise ShapeError("the step of a slice is 0", argument="index", expected="another step")
    bounds = (item.start, item.stop, item.step)
    if isinstance(size, int) and not any(isinstance(b, Dim) for b in bounds):
        return len(range(*item.indices(size)))
    step = 1 if item.step is None else item.step
    length = _undecided
    if isinstance(step, int):
        if item.stop is None and (item.start is None or (step > 0 and item.start == 0)):
            length, step = size, abs(step)  # all of it
        elif step > 0:
            first = _position(0 if item.start is None else item.start, size)
            last = _position(size if item.stop is None else item.stop, size)
            length = _difference(last, first)
    if length is _undecided:
        raise CaptureError(
            f"the length of the slice {_text(item)} of an axis of size {size} is not known",
            argument="index",
            hint="give the axis a number in the TensorSpec, or slice from its ends",
        )
    return length if step == 1 else (length + (step - 1)) // step


_undecided: Any = object()


def _least(size: Any) -> Any:
    """A number that a size is not below, as named dimensions are at least one; None if unknown."""
    if isinstance(size, int):
        return size
    terms: dict[tuple[str, ...], Any] = {}
    for atoms, factor in size._terms.items():
        upper, lower = size._quotients.get("".join(atoms), (None, None))
        if not any("//" in atom for atom in atoms):
            terms[atoms] = terms.get(atoms, 0) + factor
        elif not isinstance(lower, int) or lower < 0 or _least(upper) is None:
            return None
        elif factor > 0:
            terms[()] = terms.get((), 0) + factor * (_least(upper) // lower)
        else:  # a quotient is at most the exact one
            for more, times in upper._terms.items():
                terms[more] = terms.get(more, 0) + Fraction(factor * times, lower)
    if any(factor < 0 for atoms, factor in terms.items() if atoms):
        return None
    return sum(terms.values())


def _is_not_negative(size: Any) -> bool | None:
    """Whether a number or size is at least 0; None if that is not known."""
    least = _least(size)
    if isinstance(size, int) or (least is not None and least >= 0):
        return bool(least >= 0)
    try:
        return bool(size >= 0)
    except CaptureError:
        return None


def _position(bound: DimLike, size: DimLike) -> Any:
    """The position of a bound of a slice with a positive step, from 0 to ``size``."""
    if _is_not_negative(bound) is False:  # from the end
        bound = size + bound
        if _is_not_negative(bound) is False:
            return 0
    fits = _is_not_negative(bound) and _is_not_negative(size - bound)
    return _undecided if fits is None else bound if fits else size


def _difference(last: Any, first: Any) -> Any:
    """The length of a slice between two positions."""
    if last is _undecided or first is _undecided:
        return _undecided
    fits = _is_not_negative(last - first)
    return _undecided if fits is None else last - first if fits else 0


def _text(item: slice) -> str:
    parts = ["" if b is None else str(b) for b in (item.start, item.stop)]
    return ":".join(parts + ([] if item.step is None else [str(item.step)]))


# Errors -------------------------------------------------------------------------------------------


def out_of_range(value: Any, axis: int, size: Any, low: Any = None) -> IndexRangeError:
    """The error for an index that an axis does not have."""
    first = -size if low is None else low
    hint = None
    if low is not None and -size <= value < low:
        hint = "ef.take counts negative indices from the end"
    return IndexRangeError(
        f"index {value} is out of range for axis {axis} of length {size}",
        expected=f"integers from {first} to {size - 1}" if size else "no index: the axis is empty",
        hint=hint,
    )


def extremes(xp: Namespace, x: Any) -> tuple[int, int] | None:
    """The least and the largest element; None if there is none, or if they are unknown."""
    if 0 in x.shape or (type(x) is Tensor and type(x._array) is not x._kind.array_type):
        return None
    return int(xp.min(x)), int(xp.max(x))


def check_values(
    xp: Namespace, indices: Any, axis: int, size: int, low: int | None = None
) -> tuple[int, int] | None:
    """IndexRangeError if an integer array has an index out of range; otherwise its extremes.

    ``low`` is the least index allowed: 0, or None for ``-size``.
    """
    first = -size if low is None else low
    ends = extremes(xp, indices)
    if ends is not None and (ends[0] < first or ends[1] >= size):
        raise out_of_range(ends[1] if ends[1] >= size else ends[0], axis, size, low)
    return ends


def located(
    xp: Namespace, error: IndexError, index: Any, shape: Sequence[int], arrays: Sequence[Any]
) -> IndexRangeError:
    """The index behind NumPy's error: the value, the axis and its length."""
    try:
        layout(index, shape, [a.shape for a in arrays])
        check_arrays(xp, index, shape, arrays)
    except raised_here(IndexRangeError) as found:
        return found
    return IndexRangeError(str(error), argument="index")


def check_arrays(xp: Namespace, index: Any, shape: Sequence[int], arrays: Sequence[Any]) -> None:
    """IndexRangeError if an index array holds a value that its axis does not have."""
    rest = iter(arrays)
    axis = 0
    for item in expanded(index, len(shape), [a.ndim for a in arrays]):
        if item.__class__ is str:
            array = next(rest)
            if item == "array":
                check_values(xp, array, axis, shape[axis])
            axis += array.ndim if item == "mask" else 1
        elif item is not None and item is not Ellipsis and item.__class__ is not bool:
            axis += 1
