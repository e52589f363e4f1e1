"""Ops that join tensors and take them apart."""

from __future__ import annotations

import inspect
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.op import Into, Split
from eagerflow.ops.attributes import Axis, Sizes
from eagerflow.ops.family import batch_along_axis, batch_first, split_others
from eagerflow.ops.indexing.indices import ALL, refuse_none
from eagerflow.ops.shapes.reshaping import copy_kernels, no_work, reshape, shape_op, sized
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis, passed_on

__all__ = ["concat", "split", "stack", "unstack"]


def _arrange_list(op: str, *args: Any, **named: Any) -> tuple[Any, Any]:
    """``f([a, b], axis)`` as ``f(a, b, axis=axis)``, which is the recorded form."""
    if "arrays" in named and not args:
        args = (named.pop("arrays"),)
    if args and isinstance(args[0], list | tuple):
        if len(args) > 1:
            named = {"axis": args[1], **named}
        args = tuple(args[0])
    for x in args:
        refuse_none(op, arrays=x)
    return args, named


def _at_least_one(arrays: Any) -> None:
    if not arrays:
        raise ShapeError(
            "there is nothing to join",
            argument="arrays",
            received="an empty list",
            expected="a list of at least one tensor",
        )


# Joining ------------------------------------------------------------------------------------------


def _concat_spec(*arrays: TensorSpec, axis: Any = 0) -> TensorSpec:
    _at_least_one(arrays)
    first = arrays[0]
    if axis is None:
        return first.like(sized((sum(a.size for a in arrays),), "arrays"))
    at = normalize_axis(axis, first.ndim)
    rest = (*first.shape[:at], *first.shape[at + 1 :])
    for i, a in enumerate(arrays):
        if a.ndim != first.ndim or (*a.shape[:at], *a.shape[at + 1 :]) != rest:
            unlike = [
                k for k, (n, m) in enumerate(zip(a.shape, first.shape, strict=False)) if n != m
            ]
            fits = a.ndim == first.ndim and len(unlike) == 1
            raise ShapeError(
                f"the shapes differ in more than axis {at}",
                argument=f"arrays[{i}]",
                expected=f"{first.ndim} axes with the sizes of arrays[0], except for axis {at}",
                hint=f"axis={unlike[0]}" if fits else None,
            )
    length = sum(a.shape[at] for a in arrays)
    return first.like(sized((*first.shape[:at], length, *first.shape[at + 1 :]), "arrays"))


def _concat_back(g: Any, y: Any, *arrays: Any, axis: Any) -> tuple[Any, ...]:
    if len(arrays) == 1:
        return (reshape(g, arrays[0].shape),)
    sizes = [a.size if axis is None else a.shape[axis] for a in arrays]
    ends = tuple(accumulate(sizes[:-1]))
    parts = split(g, ends, 0 if axis is None else axis)
    return tuple(
        reshape(part, a.shape) if axis is None else part
        for part, a in zip(parts, arrays, strict=True)
    )


def _concat_into(*arrays: Any, axis: Any = 0) -> Into | None:
    """The kernel that concatenates arrays of one dtype; None if they are flattened first."""
    if axis is None or len({a.dtype for a in arrays}) > 1:
        return None

    def call(*given: Any) -> Any:
        *parts, out = given if len(given) > len(arrays) else (*given, None)
        return np.concatenate(parts, axis=axis, out=out)

    return Into(call, lambda *given: copy_kernels().joined(*given, axis=axis))


@shape_op(
    arrange=partial(_arrange_list, "concat"),
    infer=_concat_spec,
    into=_concat_into,
    trusted=True,
    vjp=_concat_back,
    batch=batch_along_axis,
    split=split_others,
    onnx=lambda w, *arrays, axis: w.joined(arrays, axis),
)
def concat(xp: Namespace, /, *arrays: Array, axis: Axis = 0) -> Array:
    """Tensors one after another along an axis that they have.

    ``arrays`` is a list or tuple of tensors whose shapes agree in all other axes; dtypes are
    promoted together. ``axis=None`` flattens them first. Raises ShapeError where the shapes
    do not fit.

    >>> ef.concat([ef.tensor([1, 2]), ef.tensor([3])])
    Tensor([1, 2, 3], int64, cpu:0)
    """
    return xp.concat(arrays, axis=passed_on(axis))


def _stack_spec(*arrays: TensorSpec, axis: int = 0) -> TensorSpec:
    _at_least_one(arrays)
    first = arrays[0]
    at = normalize_axis(axis, first.ndim + 1)
    for i, a in enumerate(arrays):
        if a.shape != first.shape:
            raise ShapeError(
                "the shapes differ",
                argument=f"arrays[{i}]",
                expected=f"shape {first.shape}, like arrays[0]",
                hint="ef.concat along an axis",
            )
    return first.like(sized((*first.shape[:at], len(arrays), *first.shape[at:]), "arrays"))


def _batched_stack(args: Any, batched: Any, size: Any, axis: int) -> Any:
    whole = batch_first(args, batched, size)
    return stack(*whole, axis=normalize_axis(axis, whole[0].ndim) + 1)


def _stack_split(*arrays: TensorSpec, axis: int) -> list[Split]:
    at = normalize_axis(axis, arrays[0].ndim + 1)
    return [Split((i,) * len(arrays), i + (i >= at)) for i in range(arrays[0].ndim)]


@shape_op(
    arrange=partial(_arrange_list, "stack"),
    infer=_stack_spec,
    trusted=True,
    vjp=lambda g, y, *arrays, axis: tuple(unstack(g, axis)),
    batch=_batched_stack,
    split=_stack_split,
    onnx=lambda w, *arrays, axis: w.joined(
        [w.Unsqueeze(x, w.axes(normalize_axis(axis, x.ndim + 1))) for x in arrays],
        normalize_axis(axis, arrays[0].ndim + 1),
    ),
)
def stack(xp: Namespace, /, *arrays: Array, axis: int = 0) -> Array:
    """Tensors of one shape along a new axis.

    ``arrays`` is a list or tuple of tensors, ``axis`` the position of the new axis in the result;
    dtypes are promoted together. Raises ShapeError where the shapes differ.

    >>> ef.stack([ef.zeros(3), ef.ones(3)], axis=-1).shape
    (3, 2)
    """
    return xp.stack(arrays, axis=axis)


# Taking apart -------------------------------------------------------------------------------------


def _unstack_spec(x: TensorSpec, axis: int = 0) -> tuple[TensorSpec, ...]:
    at = normalize_axis(axis, x.ndim)
    size = x.shape[at]
    if isinstance(size, Dim):
        raise CaptureError(
            f"into how many parts an axis of size {size} is unstacked is not known",
            argument="axis",
            hint="give the axis a number in the TensorSpec",
        )
    return (x.like((*x.shape[:at], *x.shape[at + 1 :])),) * size


@shape_op(
    views="some",
    infer=_unstack_spec,
    outputs=0,  # as many as the size of the axis
    vjp=(lambda g, y, x, axis: stack(*g, axis=axis) if g else None,),
    batch=batch_along_axis,
    split=lambda x, axis: [
        cut._replace(axis=to) for to, cut in enumerate(split_others(x, axis=axis))
    ],
    cost=no_work,
    onnx=lambda w, x, *, axis: tuple(
        w.Squeeze(part, w.axes(axis)) for part in w.parts(x, [1] * x.shape[axis], axis)
    ),
)
def unstack(xp: Namespace, x: Array, /, axis: int = 0) -> Array:
    """The tensor cut along an axis into a tuple of tensors that lack it.

    ``axis`` is an integer. Raises ShapeError for an axis that does not exist, CaptureError
    where its size is symbolic.

    >>> ef.unstack(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    (Tensor([1., 3.], float32, cpu:0), Tensor([2., 4.], float32, cpu:0))
    """
    at = axis % x.ndim
    return tuple(x[(*(ALL,) * at, i, ...)] for i in range(x.shape[at]))


MAX_EMPTY = 1 << 16
"""Parts of an empty axis: any number would divide it."""


def _cuts(size: Any, parts: Any) -> tuple[Any, ...]:
    """Where an axis is cut: the ends of all parts but the last."""
    if isinstance(parts, bool) or not isinstance(parts, int | tuple | list):
        raise ShapeError(
            f"{parts!r} does not say how to split",
            argument="indices_or_sections",
            expected="a number of equal parts, or a tuple of the positions to cut at",
        )
    if isinstance(parts, int):
        if isinstance(size, int) and parts > max(size, MAX_EMPTY):
            raise ShapeError(
                f"{parts} parts of an axis of size {size}",
                argument="indices_or_sections",
                expected=f"at most {max(size, MAX_EMPTY)}",
            )
        if parts < 1 or (size % parts) > 0:
            raise ShapeError(
                f"an axis of size {size} does not split into {parts} equal parts",
                argument="indices_or_sections",
                expected="a number that divides the size",
                hint="a tuple of the positions to cut at, as in numpy.split",
            )
        width = size // parts
        return tuple(width * i for i in range(1, parts))
    cuts = tuple(
        c + size if isinstance(c, int) and isinstance(size, int) and c < 0 else c for c in parts
    )
    known = [n for n in (0, *cuts, size) if isinstance(n, int)]
    if not all(isinstance(c, int | Dim) for c in cuts) or known != sorted(known):
        raise ShapeError(
            f"an axis of size {size} cannot be cut at {tuple(parts)}",
            argument="indices_or_sections",
            expected="ascending positions within the axis: where each part but the last ends",
        )
    return cuts


def _split_spec(x: TensorSpec, indices_or_sections: Any, axis: int = 0) -> tuple[TensorSpec, ...]:
    at = normalize_axis(axis, x.ndim)
    ends = (0, *_cuts(x.shape[at], indices_or_sections), x.shape[at])
    return tuple(x.like((*x.shape[:at], b - a, *x.shape[at + 1 :])) for a, b in pairwise(ends))


@shape_op(
    views="some",
    infer=_split_spec,
    outputs=0,  # as many as parts
    vjp=(lambda g, y, x, indices_or_sections, axis: concat(*g, axis=axis),),
    batch=batch_along_axis,
    split=split_others,
    cost=no_work,
    onnx=lambda w, x, *, indices_or_sections, axis: w.parts(
        x, [v.shape[axis] for v in w.results], axis
    ),
)
def split(xp: Namespace, x: Array, /, indices_or_sections: Sizes, axis: int = 0) -> Array:
    """The tensor cut along an axis into a tuple of parts.

    ``indices_or_sections`` is a number of equal parts, or a tuple of the positions to cut at
    (not of sizes), as in ``numpy.split``. Raises ShapeError for parts that are not equal and
    for positions that do not ascend within the axis.

    >>> [part.shape for part in ef.split(ef.zeros((5, 2)), (1, 3))]
    [(1, 2), (2, 2), (2, 2)]
    """
    at = axis % x.ndim
    ends = (0, *_cuts(x.shape[at], indices_or_sections), x.shape[at])
    return tuple(x[(*(ALL,) * at, slice(a, b))] for a, b in pairwise(ends))


# As users call them; ops have their tensors one by one.
concat.__signature__ = stack.__signature__ = inspect.signature(  # type: ignore[attr-defined]
    lambda arrays, /, axis=0: None
)
