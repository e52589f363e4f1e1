"""Prepared calls of eager ops: the views of arrays, the outputs, and the compiled code.

All of this depends only on the shapes, strides and dtypes of the arrays, so it is computed once for
each set of them (``generated.ready``). A call then allocates the outputs and starts the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.bodies import region_of
from eagerflow.codegen.layout import collapse, contiguous_strides, imagined
from eagerflow.codegen.region import Region
from eagerflow.dtypes import as_dtype, dtype_name
from eagerflow.runtime.buffers import empty
from eagerflow.spec import normalize_axes

Array = np.ndarray[Any, Any]
Body = Callable[..., Any]
Enter = Callable[[Sequence[Array]], list[Array]]
"""The views of a region's inputs and outputs, one for each."""

Attributes = tuple[tuple[str, Any], ...]

MAX_KEPT_BYTES = 1 << 20  # of working memory that a prepared call may hold


class ReadyCall:
    """A region for arrays of certain shapes, strides and dtypes, which returns new arrays."""

    __slots__ = ("_enter", "_fixed", "_leave", "_made", "_sizes", "region")

    def __init__(
        self,
        region: Region,
        arrays: Sequence[Array],
        shapes: Sequence[tuple[int, ...]],
        enter: Enter,
        leave: Callable[..., Any] | None = None,
        sizes: dict[str, int] | None = None,
    ) -> None:
        """``enter`` returns a view of each array, and of each output, which are created like
        ``shapes``.

        ``leave`` converts the outputs to the result; a single one is not in a list. ``sizes`` are
        those of the region's axes, needed if no array has one of them.
        """
        self.region, self._enter, self._leave = region, enter, leave
        self._sizes = sizes or {}
        dtypes = [as_dtype(out.dtype) for out in region.outputs]
        self._made = [*zip(shapes, dtypes, strict=True)]
        given = [*arrays, *(imagined(*about) for about in self._made)]
        views = enter(given)
        self._fixed = self._fixed_call(given, views)

    def _outputs(self) -> list[Array]:
        return [empty(shape, dtype) for shape, dtype in self._made]

    def _fixed_call(self, given: list[Array], views: list[Array]) -> Any:
        """The kernel on the arrays themselves, which have the addresses of their views."""
        if not all(map(np.may_share_memory, given, views)):
            return None
        inputs, outputs = self._apart(views)
        return kernel.fixed_call(self.region, inputs, outputs, self._sizes, (), kept=MAX_KEPT_BYTES)

    def _apart(self, views: list[Array]) -> tuple[list[Array], list[Array]]:
        count = len(self.region.inputs)
        return views[:count], views[count:]

    def __call__(self, arrays: Sequence[Array]) -> Any:
        """The outputs of the region, or the result of ``leave``."""
        outs = self._outputs()
        fixed = self._fixed if kernel.listed is None else None
        if fixed is None or fixed(arrays, outs):
            kernel.compute(self.region, *self._apart(self._enter([*arrays, *outs])), self._sizes)
        if self._leave is not None:
            return self._leave(outs[0] if len(outs) == 1 else outs)
        return outs[0] if len(outs) == 1 else tuple(outs)


# Rows --------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The rows of an array: ``length`` elements, ``inner`` interleaved rows, ``outer`` times.

    The last of the region's axes is the one along a row; the memory order is unchanged.
    """

    outer: int
    length: int
    inner: int

    @property
    def axes(self) -> str:
        """The axes of the region."""
        return "m n" if self.inner == 1 else "a m n"

    @property
    def across(self) -> str:
        """The axes of per-row numbers."""
        return self.axes.removesuffix(" n")

    def whole(self, x: Array) -> Array:
        """The view of an array."""
        if self.inner == 1:
            return x.reshape((self.outer, self.length))
        return x.reshape((self.outer, self.length, self.inner)).swapaxes(1, 2)

    def narrow(self, x: Array) -> Array:
        """The view of an array with one number for each row."""
        return x.reshape(self.outer if self.inner == 1 else (self.outer, self.inner))


def rows_of(body: Body, axis: int, arrays: Sequence[Array], attributes: Attributes) -> ReadyCall:
    """A body over rows ``n`` along ``axis``, counted from the front, of the first array.

    Arrays without the axis have one number for each row.
    """
    shape = arrays[0].shape
    before, behind = shape[:axis], shape[axis + 1 :]
    rows = _Rows(prod(before), shape[axis], prod(behind))

    def enter(given: Sequence[Array]) -> list[Array]:
        return [rows.whole(a) if a.ndim == len(shape) else rows.narrow(a) for a in given]

    operands = [
        (dtype_name(a.dtype), rows.axes if a.ndim == len(shape) else rows.across) for a in arrays
    ]
    found = region_of(body, rows.axes, tuple(operands), attributes)
    shapes = [shape if "n" in out.axes else (*before, *behind) for out in found.outputs]
    return ReadyCall(found, arrays, shapes, enter)


# One number for each row -------------------------------------------------------------------------

MAX_SIDE_WIDTH = 128
"""The number of interleaved rows up to which sums by rows are fastest."""
MIN_COLUMN_ELEMENTS = 1 << 20
"""The number from which sums by columns are fastest; NumPy is as good below."""


def reduced_of(
    body: Body,
    axis: Any,
    keepdims: bool,
    x: Array,
    instead: Callable[..., Any] | None,
    attributes: Attributes,
) -> Callable[[Sequence[Array]], Any]:
    """A body of one number for each row ``n``, along axes as for reductions.

    With ``instead`` the body is a plain reduction, which may work along columns, and is replaced by
    that ufunc method for layouts where it is faster.
    """
    axes = normalize_axes(axis, x.ndim)
    left = [size for i, size in enumerate(x.shape) if i not in axes]
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else (*left,)
    first, last = min(axes, default=0), max(axes, default=-1) + 1
    length, inner = prod(x.shape[i] for i in axes), prod(x.shape[last:])
    if apart := len(axes) != last - first:
        inner = 1
    rows = _Rows(prod(left) // max(inner, 1), length, inner)

    def ordered(x: Array) -> Array:
        if apart:
            return np.moveaxis(x, axes, range(-len(axes), 0))
        return x.T if not left and x.flags.f_contiguous else x

    wide = inner > MAX_SIDE_WIDTH and instead is not None
    if instead is not None:
        copied = not np.may_share_memory(x, rows.whole(ordered(x)))
        columns = rows.outer == 1 and x.size >= MIN_COLUMN_ELEMENTS
        if not axes or copied or (wide and not columns):
            return lambda given: instead(*given, axis, None, None, keepdims)

    def enter(given: Sequence[Array]) -> list[Array]:
        x, out = given
        if wide:
            return [x.reshape((length, inner)), out.reshape(inner)]
        return [rows.whole(ordered(x)), rows.narrow(out)]

    names = "n m" if wide else rows.axes
    found = region_of(body, names, ((dtype_name(x.dtype), names),), attributes)
    return ReadyCall(found, (x,), [shape], enter)


# Elements ----------------------------------------------------------------------------------------


def elements_of(body: Body, arrays: Sequence[Array], attributes: Attributes) -> ReadyCall:
    """An elementwise body of broadcasting arrays.

    The region has as few axes as possible, and an array that is constant along one, by its shape or
    by a stride of 0, is not read along it. Outputs have the memory order of a ufunc's.
    """
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    walks = [np.broadcast_to(a, shape).strides for a in arrays]
    order = order_of(walks, len(shape))
    extents = [shape[i] for i in order]
    shapes = [tuple(extents)]
    steps = [*contiguous_strides(extents)]
    extents, strides = collapse(extents, [*([w[i] for i in order] for w in walks), steps])
    if not extents:
        extents, strides = [1], [[0] for _ in strides]
    names = [*[f"a{i}" for i in range(len(extents) - 2)], "m", "n"][-len(extents) :]
    along = [" ".join(n for n, s in zip(names, own, strict=True) if s) for own in strides]
    axes = " ".join(names)
    operands = tuple((dtype_name(a.dtype), own) for a, own in zip(arrays, along, strict=False))
    found = region_of(body, axes, operands, attributes, axes)
    own_extents = [[n for n, s in zip(extents, own, strict=True) if s] for own in strides[:-1]]
    own_strides = [[s for s in own if s] for own in strides[:-1]]
    for out in found.outputs:
        own_extents.append(extents)
        item = as_dtype(out.dtype).itemsize
        own_strides.append([item * s for s in strides[-1]])

    def enter(given: Sequence[Array]) -> list[Array]:
        strided = np.lib.stride_tricks.as_strided
        return [*map(strided, given, own_extents, own_strides)]

    back = sorted(range(len(shape)), key=order.__getitem__)

    def turned(outs: Any) -> Any:
        if isinstance(outs, np.ndarray):
            return outs.transpose(back)
        return tuple([out.transpose(back) for out in outs])

    sizes = dict(zip(names, extents, strict=True))
    leave = None if back == sorted(back) else turned
    return ReadyCall(found, arrays, shapes * len(found.outputs), enter, leave, sizes)


def order_of(walks: Sequence[tuple[int, ...]], rank: int) -> list[int]:
    """The memory order of axes, outer ones first, of NumPy's results for such strides.

    An axis moves inwards past another one if it has smaller strides in some array, and larger ones
    in none.
    """
    inner_first: list[int] = []
    for axis in reversed(range(rank)):
        place = len(inner_first)
        for at in range(len(inner_first) - 1, -1, -1):
            inner = inner_first[at]
            pairs = [(abs(w[inner]), abs(w[axis])) for w in walks if w[inner] and w[axis]]
            if pairs and any(a <= b for a, b in pairs):
                break
            if pairs:
                place = at
        inner_first.insert(place, axis)
    return inner_first[::-1]
