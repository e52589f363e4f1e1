"""Ops that add elements around a tensor, cut them off, turn it round, or shift it."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import Dim, product
from eagerflow.display import summary
from eagerflow.dtypes import COMPLEX, FLOATS, promote
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.number import Number
from eagerflow.op import Split
from eagerflow.ops.attributes import Axes, NumberLike, Sizes, Widths
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import ANY, FLOAT8, as_operand, batch_along_axes, define, split_others
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.indexing.indices import ALL
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.reshaping import reshape, shape_op, sized
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axes, normalize_axis
from eagerflow.tensor import Operators, Tensor

__all__ = ["crop", "flip", "pad", "roll"]

_ARRAYS = (Operators, np.ndarray)
MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


# Adding elements ----------------------------------------------------------------------------------


def pad_widths(
    pad_width: Any, rank: int, argument: str = "pad_width"
) -> tuple[tuple[Any, Any], ...]:
    """The padding before and after each axis, from all of NumPy's forms."""
    given = pad_width
    if isinstance(given, int | Dim):
        given = ((given, given),) * rank
    elif (
        isinstance(given, tuple | list)
        and len(given) <= 2
        and all(isinstance(n, int | Dim) for n in given)
        and given
    ):
        given = ((given[0], given[-1]),) * rank
    elif isinstance(given, tuple | list) and len(given) == 1 and rank != 1:
        given = tuple(given) * rank
    pairs = given if isinstance(given, tuple | list) else ()
    if (
        len(pairs) != rank
        or any(not isinstance(pair, tuple | list) or not 1 <= len(pair) <= 2 for pair in pairs)
        or pad_width is None
    ):
        raise ShapeError(
            f"{pad_width!r} does not say how to {argument.partition('_')[0]} {rank} "
            f"ax{'i' if rank == 1 else 'e'}s",
            argument=argument,
            expected="an integer, a pair (before, behind), or one pair for each axis",
        )
    found = []
    for pair in pairs:
        for number in pair:
            sized(number, argument)  # refuses invalid and too large sizes
        found.append((pair[0], pair[-1]))
    return tuple(found)


def _untouched(x: TensorSpec, widths: Any, argument: str) -> list[Split]:
    """Along every axis that stays as it is."""
    pairs = pad_widths(widths, x.ndim, argument)
    return [Split((i,), i) for i, pair in enumerate(pairs) if pair == (0, 0)]


def _padded_spec(
    x: TensorSpec, pad_width: Any, mode: str = "constant", constant_values: Any = 0
) -> TensorSpec:
    if mode not in MODES:
        raise ShapeError(
            f"{mode!r} is not a way to pad",
            argument="mode",
            received=repr(mode),
            expected="one of " + ", ".join(MODES),
        )
    _check_constant(x.dtype, constant_values)
    widths = pad_widths(pad_width, x.ndim)
    for axis, (size, pair) in enumerate(zip(x.shape, widths, strict=True)):
        if mode != "constant" and size == 0 and pair != (0, 0):
            raise ShapeError(
                f"axis {axis} has no elements to pad with",
                argument="mode",
                received=repr(mode),
                expected="mode='constant' for an empty axis",
            )
        if mode != "constant" and isinstance(size, Dim) and pair != (0, 0):
            raise CaptureError(
                f"axis {axis} has a size that is not known, {size}",
                argument="mode",
                received=repr(mode),
                hint="mode='constant', or a number in the TensorSpec",
            )
    return x.like(
        sized([a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)], "pad_width")
    )


def _check_constant(dtype: Any, value: Any) -> None:
    kind = type(value)
    fits = kind in (bool, int) or (kind is float and dtype in FLOATS | COMPLEX | FLOAT8)
    if fits and kind is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max
    if not fits and not (kind is complex and dtype in COMPLEX):
        raise DTypeError(
            f"{value!r} is not a value of {dtype.name}",
            argument="constant_values",
            received=repr(value),
            expected=f"a Python number that {dtype.name} can hold",
        )


def _inside(shape: Any, widths: Any) -> tuple[slice, ...]:
    """Where the values are in the padded tensor."""
    return tuple(slice(a, a + n) for n, (a, _) in zip(shape, widths, strict=True))


def _sources(size: int, pair: tuple[int, int], mode: str) -> Any:
    """The source index of each position of the padded axis."""
    places = np.arange(-pair[0], size + pair[1])
    if mode == "edge":
        return places.clip(0, size - 1)
    if mode == "wrap":
        return places % size
    if mode == "symmetric":
        places = places % (2 * size)
        return np.minimum(places, 2 * size - 1 - places)
    period = max(1, 2 * (size - 1))
    places = places % period
    return np.minimum(places, period - places) if size > 1 else places * 0


def _pad_back(g: Any, y: Any, x: Any, pad_width: Any, mode: str, constant_values: Any) -> Any:
    widths = pad_widths(pad_width, x.ndim)
    if mode == "constant":
        return g[_inside(x.shape, widths)] if x.ndim else g
    for axis, (size, pair) in enumerate(zip(x.shape, widths, strict=True)):
        if pair != (0, 0):
            places = _sources(size, pair, mode)
            shape = (*g.shape[:axis], size, *g.shape[axis + 1 :])
            g = index_scatter(g, places, shape=shape, index=(*(ALL,) * axis, "array"))
    return g


def _pad_operator(w: Any, x: Any, *, pad_width: Any, mode: str, constant_values: Any) -> Any:
    """The rule of ONNX; repeated elements are gathered by indices."""
    pairs, shape = pad_widths(pad_width, x.ndim), x.shape
    if not pairs:
        return x
    if mode == "constant":
        ends = w.integers([a for a, _ in pairs] + [b for _, b in pairs])
        return w.Pad(x, ends, w.constant(constant_values, x.dtype))
    for axis, pair in enumerate(pairs):
        if pair != (0, 0):
            places = _sources(int(shape[axis]), pair, mode)
            x = w.Gather(x, w.constant(places), axis=axis)
    return x


@define(
    "shape",
    dtypes=ANY,
    infer=_padded_spec,
    vjp=(_pad_back,),
    jvp=lambda tangents, y, x, pad_width, mode, constant_values: _pad(tangents[0], pad_width, mode),
    batch=lambda args, batched, size, pad_width, **more: _pad(
        args[0], ((0, 0), *pad_widths(pad_width, args[0].ndim - 1)), **more
    ),
    split=lambda x, pad_width, **more: _untouched(x, pad_width, "pad_width"),
    onnx=_pad_operator,
)
def _pad(
    xp: Namespace,
    x: Array,
    /,
    pad_width: Widths,
    mode: str = "constant",
    constant_values: NumberLike = 0,
) -> Array:
    """The tensor with elements added before and after its axes."""
    widths = pad_widths(pad_width, x.ndim)
    if mode == "constant":
        shape = tuple(a + n + b for n, (a, b) in zip(x.shape, widths, strict=True))
        out = xp.full(shape, constant_values, dtype=x.dtype)
        out[(*_inside(x.shape, widths), ...)] = x
        return out
    for axis, pair in enumerate(widths):
        if pair != (0, 0):
            x = xp.take(x, xp.asarray(_sources(x.shape[axis], pair, mode)), axis=axis)
    return x


@plain
def pad(x: Any, /, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """The tensor with elements added before and after its axes.

    ``pad_width`` is an integer for all sides, a pair (before, after) for all axes, or one pair for
    each axis. ``mode`` selects the added elements: ``"constant"`` the number (or tensor without
    axes) ``constant_values``, ``"edge"`` the last element, ``"reflect"`` the elements mirrored at
    the last one, ``"symmetric"`` with it repeated, ``"wrap"`` those of the other end. Raises
    ShapeError for widths that are negative or do not fit the axes, DTypeError for a constant that
    the dtype cannot hold.

    >>> ef.pad(ef.tensor([1, 2, 3]), (1, 2)), ef.pad(ef.tensor([1, 2, 3]), 2, mode="reflect")
    (Tensor([0, 1, 2, 3, 0, 0], int64, cpu:0), Tensor([3, 2, 1, 2, 3, 2, 1], int64, cpu:0))
    """
    if mode != "constant" or not isinstance(constant_values, _ARRAYS):
        return _pad(x, pad_width, mode, constant_values)
    x = as_tensor(x)
    if type(constant_values) is Number:
        value = as_operand(constant_values, x)
    else:
        value = as_tensor(constant_values, device=x.device)
    if value.ndim or promote(x.dtype, value.dtype) != x.dtype:
        raise DTypeError(
            "this is not one value of the tensor's dtype",
            op="pad",
            argument="constant_values",
            received=summary(value),
            expected=f"a number, or a {x.dtype.name} tensor without axes",
        )
    inside = _pad(ones_like(x, dtype="bool"), pad_width)
    return where(inside, _pad(x, pad_width), value)


# Cutting off -----------------------------------------------------------------------------------


def _kept(shape: Any, crop_width: Any) -> tuple[tuple[slice, ...], tuple[Any, ...]]:
    """The positions of the kept elements in each axis, and their number."""
    pairs = pad_widths(crop_width, len(shape), "crop_width")
    columns = list(zip(shape, pairs, strict=True))
    sizes = tuple(n - a - b for n, (a, b) in columns)
    for axis, left in enumerate(sizes):
        if isinstance(left, int) and left < 0:
            raise ShapeError(
                f"{pairs[axis]} elements are more than axis {axis} has",
                argument="crop_width",
                received=f"size {shape[axis]}",
            )
    return tuple(slice(a, n - b) for n, (a, b) in columns), sizes


@shape_op(
    infer=lambda x, crop_width: x.like(_kept(x.shape, crop_width)[1]),
    vjp=(lambda g, y, x, crop_width: pad(g, crop_width),),
    batch=lambda args, batched, size, crop_width: crop(
        args[0], ((0, 0), *pad_widths(crop_width, args[0].ndim - 1, "crop_width"))
    ),
    split=lambda x, crop_width: _untouched(x, crop_width, "crop_width"),
)
def crop(xp: Namespace, x: Array, /, crop_width: Widths) -> Array:
    """The tensor without the first and the last elements of its axes: the inverse of ``pad``.

    ``crop_width`` is an integer, a pair (before, after), or one pair for each axis. An axis may
    have an unknown size during tracing, unlike for a slice. Raises ShapeError for numbers that are
    negative or more than an axis has.

    >>> ef.crop(ef.arange(6), (1, 2))
    Tensor([1, 2, 3], int64, cpu:0)
    """
    places, _ = _kept(x.shape, crop_width)
    return x[(*places, ...)]


# Turning round and shifting -----------------------------------------------------------------------


def _flipped_spec(x: TensorSpec, axis: Any = None) -> TensorSpec:
    normalize_axes(axis, x.ndim)
    return x.like()


@shape_op(
    infer=_flipped_spec,
    vjp=(lambda g, y, x, axis: flip(g, axis),),
    batch=batch_along_axes,
    split=split_others,
    method=True,
)
def flip(xp: Namespace, x: Array, /, axis: Axes = None) -> Array:
    """The tensor with the order along axes reversed.

    ``axis`` is an integer, a tuple of integers, or None for all axes. Raises ShapeError for
    an axis that does not exist.

    >>> ef.flip(ef.tensor([[1, 2], [3, 4]]), axis=1)
    Tensor([[2, 1],
            [4, 3]], shape=(2, 2), int64, cpu:0)
    """
    axes = normalize_axes(axis, x.ndim)
    back = tuple(slice(None, None, -1) if i in axes else ALL for i in range(x.ndim))
    return x[(*back, ...)]


def _shifts(shift: Any, axis: Any, rank: int) -> list[tuple[int, int]]:
    """Pairs of axis and shift."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list) else (shift,) * len(axes)
    for number in shifts or (shift,):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ShapeError(
                f"{number!r} is not a shift",
                argument="shift",
                received=repr(shift),
                expected="an integer, or a tuple with one for each axis",
            )
    if len(shifts) != len(axes):
        raise ShapeError(
            f"there are {len(shifts)} shifts for {len(axes)} axes",
            argument="shift",
            received=f"shift={shift}, axis={axis}",
            expected="one shift for each axis",
        )
    where = [0 if a is None else normalize_axis(a, rank) for a in axes]
    return list(zip(where, shifts, strict=True))


def _rolled_spec(x: TensorSpec, shift: Any, axis: Any = None) -> TensorSpec:
    _shifts(shift, axis, x.ndim)
    return x.like()


def _batched_roll(args: Any, batched: Any, size: Any, shift: Any, axis: Any) -> Any:
    (x,) = args
    if axis is None:
        return reshape(roll(reshape(x, (size, product(x.shape[1:]))), shift, 1), x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return roll(x, shift, tuple(normalize_axis(a, x.ndim - 1) + 1 for a in axes))


def _roll_back(g: Any, y: Any, x: Any, shift: Any, axis: Any) -> Any:
    back = tuple(-s for s in shift) if isinstance(shift, tuple) else -shift
    return roll(g, back, axis)


@shape_op(
    infer=_rolled_spec,
    vjp=(_roll_back,),
    batch=_batched_roll,
    split=lambda x, shift, axis: [] if axis is None else _same_set(x, axis),
)
def roll(xp: Namespace, x: Array, /, shift: Sizes, axis: Axes = None) -> Array:
    """The tensor shifted along axes; elements wrap around.

    ``shift`` is an integer, or one for each axis; ``axis`` an integer or a tuple. Without it the
    flattened tensor is shifted. Raises ShapeError if they do not match.

    >>> ef.roll(ef.tensor([1, 2, 3]), 1)
    Tensor([3, 1, 2], int64, cpu:0)
    """
    out = xp.reshape(x, (-1,)) if axis is None else x
    for at, number in _shifts(shift, axis, x.ndim):
        size = out.shape[at]
        if size and (cut := number % size):
            ends = (slice(size - cut, None), slice(0, size - cut))
            out = xp.concat([out[(*(ALL,) * at, end, ...)] for end in ends], axis=at)
    return xp.reshape(out, x.shape) if axis is None else out


def _same_set(x: TensorSpec, axis: Any) -> list[Split]:
    """Along all axes that are not shifted; an axis may occur twice."""
    axes = {a for a, _ in _shifts(0, axis, x.ndim)}
    return [Split((i,), i) for i in range(x.ndim) if i not in axes]
