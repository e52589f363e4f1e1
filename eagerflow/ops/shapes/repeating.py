"""Ops that repeat a tensor or its elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import product
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.attributes import Axis, Sizes
from eagerflow.ops.family import batch_along_axis
from eagerflow.ops.indexing.indexing import index_scatter
from eagerflow.ops.indexing.indices import ALL
from eagerflow.ops.plain import plain
from eagerflow.ops.shapes.reshaping import broadcast_to, permute_dims, reshape, shape_op, sized
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis
from eagerflow.tensor import Operators, Tensor

__all__ = ["meshgrid", "repeat", "tile"]


def _repetitions(x: Any, repetitions: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shape of x and the repetitions, extended to the same number of axes."""
    times = sized(repetitions, "repetitions")
    rank = max(len(times), x.ndim)
    return (1,) * (rank - x.ndim) + tuple(x.shape), (1,) * (rank - len(times)) + times


def _tiled_spec(x: TensorSpec, repetitions: Any) -> TensorSpec:
    sizes, times = _repetitions(x, repetitions)
    return x.like(sized([n * t for n, t in zip(sizes, times, strict=True)], "repetitions"))


def _tile_back(g: Any, y: Any, x: Any, repetitions: Any) -> Any:
    sizes, times = _repetitions(x, repetitions)
    pairs = [d for pair in zip(times, sizes, strict=True) for d in pair]
    return reshape(reshape(g, tuple(pairs)).sum(axis=tuple(range(0, len(pairs), 2))), x.shape)


def _batched_tile(args: Any, batched: Any, size: Any, repetitions: Any) -> Any:
    (x,) = args
    sizes, times = _repetitions(TensorSpec(x.shape[1:], x.dtype), repetitions)
    return tile(reshape(x, (size, *sizes)), (1, *times))


def _tile_operator(w: Any, x: Any, *, repetitions: Any) -> Any:
    sizes, times = _repetitions(x, repetitions)
    return w.Tile(w.Reshape(x, w.shape(sizes), allowzero=1), w.shape(times))


@shape_op(
    infer=_tiled_spec,
    trusted=True,
    vjp=(_tile_back,),
    batch=_batched_tile,
    onnx=_tile_operator,
    method=True,
)
def tile(xp: Namespace, x: Array, /, repetitions: Sizes) -> Array:
    """The tensor laid out several times along its axes.

    ``repetitions`` is an integer or a tuple, counted from the last axis. Raises ShapeError
    for numbers that are negative or that no memory holds.

    >>> ef.tile(ef.tensor([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], shape=(2, 4), int64, cpu:0)
    """
    sizes, times = _repetitions(x, repetitions)
    ones = [d for size in sizes for d in (1, size)]
    pairs = [d for pair in zip(times, sizes, strict=True) for d in pair]
    whole = xp.broadcast_to(xp.reshape(x, tuple(ones)), tuple(pairs))
    return xp.reshape(whole, tuple(n * t for n, t in zip(sizes, times, strict=True)))


def _arrange_repeat(*args: Any, **named: Any) -> tuple[Any, Any]:
    """The numbers of repetitions, which decide the result's shape, as Python integers."""

    def plain(value: Any) -> Any:
        if isinstance(value, Operators | np.ndarray):
            array = as_tensor(value)
            if array.dtype.kind not in "iu":
                raise DTypeError(
                    f"{array.dtype.name} values are not numbers of repetitions",
                    op="repeat",
                    argument="repeats",
                    expected="integers",
                )
            return array.tolist()
        return value

    if len(args) > 1:
        args = (args[0], plain(args[1]), *args[2:])
    elif "repeats" in named:
        named["repeats"] = plain(named["repeats"])
    return args, named


def _repeats_of(x: Any, repeats: Any, axis: Any) -> tuple[int, Any]:
    """The axis, counted from the front, and an integer or one integer for each element."""
    at = 0 if axis is None else normalize_axis(axis, x.ndim)
    size = x.size if axis is None else x.shape[at]
    counts = sized(repeats, "repeats")
    if not isinstance(repeats, tuple | list) or len(counts) == 1:
        return at, counts[0]
    if not isinstance(size, int) or len(counts) != size:
        raise ShapeError(
            f"there are {len(counts)} numbers of repetitions for {size} elements",
            argument="repeats",
            expected="one number, or one for each element of the axis",
        )
    return at, counts


def _repeated_spec(x: TensorSpec, repeats: Any, axis: Any = None) -> TensorSpec:
    at, counts = _repeats_of(x, repeats, axis)
    shape = (x.size,) if axis is None else x.shape
    size = sum(counts) if isinstance(counts, tuple) else shape[at] * counts
    return x.like(sized((*shape[:at], size, *shape[at + 1 :]), "repeats"))


def _repeat_back(g: Any, y: Any, x: Any, repeats: Any, axis: Any) -> Any:
    at, counts = _repeats_of(x, repeats, axis)
    shape = (x.size,) if axis is None else x.shape
    if isinstance(counts, tuple):
        ids = as_tensor(np.repeat(np.arange(len(counts)), counts), None, g.device)
        back = index_scatter(g, ids, shape=shape, index=(*(ALL,) * at, "array"))
    else:
        back = reshape(g, (*shape[:at], shape[at], counts, *shape[at + 1 :])).sum(axis=at + 1)
    return reshape(back, x.shape)


def _repeat_operator(w: Any, x: Any, *, repeats: Any, axis: Any) -> Any:
    """The rule of ONNX: elements gathered by indices."""
    count = int(product(x.shape) if axis is None else x.shape[axis])
    places = w.constant(np.repeat(np.arange(count), repeats))
    return w.Gather(w.flat(x) if axis is None else x, places, axis=axis or 0)


@shape_op(
    arrange=_arrange_repeat,
    infer=_repeated_spec,
    onnx=_repeat_operator,
    vjp=(_repeat_back,),
    batch=batch_along_axis,
    method=True,
)
def repeat(xp: Namespace, x: Array, /, repeats: Sizes, axis: Axis = None) -> Array:
    """Each element repeated, next to itself.

    ``repeats`` is an integer, or one integer for each element along ``axis`` (a tuple, or an array,
    whose values are read); without ``axis`` the tensor is flattened. Raises ShapeError for numbers
    that are negative, mismatched or beyond memory.

    >>> ef.repeat(ef.tensor([1, 2]), 2), ef.repeat(ef.tensor([1, 2]), (0, 3))
    (Tensor([1, 1, 2, 2], int64, cpu:0), Tensor([2, 2, 2], int64, cpu:0))
    """
    if isinstance(repeats, tuple):
        repeats = xp.asarray(repeats, dtype=xp.int64)
    return xp.repeat(x, repeats, axis=axis)


# Compositions -------------------------------------------------------------------------------------


@plain
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector along a separate axis, repeated along the rest.

    ``arrays`` are tensors with at most one axis. With
    ``indexing="ij"`` the first vector runs along the first axis, with ``"xy"`` along the
    second. With ``sparse`` they are not repeated, but broadcast. Raises ShapeError for tensors with
    more axes.

    >>> [x.shape for x in ef.meshgrid(ef.arange(3), ef.arange(2))]
    [(2, 3), (2, 3)]
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(
            f"{indexing!r} is not an order of axes",
            op="meshgrid",
            argument="indexing",
            received=repr(indexing),
            expected="'xy' or 'ij'",
        )
    vectors = [as_tensor(x) for x in arrays]
    for i, x in enumerate(vectors):
        if x.ndim > 1:
            raise ShapeError(
                f"a tensor with {x.ndim} axes is not a vector",
                op="meshgrid",
                argument=f"arrays[{i}]",
                received=f"shape {x.shape}",
                expected="one axis at most",
            )
    vectors = [reshape(x, (1,)) if x.ndim == 0 else x for x in vectors]
    shape = tuple(x.shape[0] for x in vectors)
    rank = len(shape)
    grids = [reshape(x, (1,) * i + x.shape + (1,) * (rank - 1 - i)) for i, x in enumerate(vectors)]
    if not sparse:
        grids = [broadcast_to(x, shape) for x in grids]
    if indexing == "xy" and rank > 1:
        grids = [permute_dims(x, (1, 0, *range(2, rank))) for x in grids]
    return tuple(grids)
