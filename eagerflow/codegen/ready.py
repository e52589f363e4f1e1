"""Calls of eager ops kept ready: how arrays enter a region, what it gives, and the code that runs.

All of this follows from the shapes, strides and dtypes of the arrays, so it is found once for
each set of them (``generated.ready``). A call then makes the outputs and starts the kernel.
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
"""The views with which a region's inputs and outputs enter it, one for each."""

Attributes = tuple[tuple[str, Any], ...]

MAX_KEPT_BYTES = 1 << 20  # of memory to work in that a call which is ready may hold


class ReadyCall:
    """A region for arrays of certain shapes, strides and dtypes, which gives new arrays."""

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
        """``enter`` gives a view of each array, and of each output, which are made like ``shapes``.

        ``leave`` makes the result of the outputs; a single one comes without a list. ``sizes`` are
        those of the region's axes, where no array may lie along one of them.
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
        """The kernel on the arrays themselves, as their views have the same addresses."""
        if not all(map(np.may_share_memory, given, views)):
            return None
        inputs, outputs = self._apart(views)
        return kernel.fixed_call(self.region, inputs, outputs, self._sizes, (), kept=MAX_KEPT_BYTES)

    def _apart(self, views: list[Array]) -> tuple[list[Array], list[Array]]:
        count = len(self.region.inputs)
        return views[:count], views[count:]

    def __call__(self, arrays: Sequence[Array]) -> Any:
        """The outputs of the region, or what they leave as."""
        outs = self._outputs()
        fixed = self._fixed if kernel.listed is None else None
        if fixed is None or fixed(arrays, outs):
            kernel.compute(self.region, *self._apart(self._enter([*arrays, *outs])), self._sizes)
        if self._leave is not None:
            return self._leave(outs[0] if len(outs) == 1 else outs)
        return outs[0] if len(outs) == 1 else tuple(outs)


# Rows --------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """How rows lie in an array: ``length`` elements, ``inner`` rows side by side, ``outer`` times.

    The last of the region's axes is the one along a row; in memory arrays keep their order.
    """

    outer: int
    length: int
    inner: int

    @property
    def axes(self) -> str:
        """Those of the region."""
        return "m n" if self.inner == 1 else "a m n"

    @property
    def across(self) -> str:
        """Those of what has one number for each row."""
        return self.axes.removesuffix(" n")

    def whole(self, x: Array) -> Array:
        """An array as it enters."""
        if self.inner == 1:
            return x.reshape((self.outer, self.length))
        return x.reshape((self.outer, self.length, self.inner)).swapaxes(1, 2)

    def narrow(self, x: Array) -> Array:
        """An array of one number for each row as it enters."""
        return x.reshape(self.outer if self.inner == 1 else (self.outer, self.inner))


def rows_of(body: Body, axis: int, arrays: Sequence[Array], attributes: Attributes) -> ReadyCall:
    """A body over rows ``n`` that lie along ``axis``, counted from the front, of the first array.

    Arrays that lack the axis have one number for each row.
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
"""Numbers side by side up to which sums across them are quickest as rows that lie so."""
MIN_COLUMN_ELEMENTS = 1 << 20
"""From which wider ones are, added up as columns; NumPy does as well with fewer."""


def reduced_of(
    body: Body,
    axis: Any,
    keepdims: bool,
    x: Array,
    instead: Callable[..., Any] | None,
    attributes: Attributes,
) -> Callable[[Sequence[Array]], Any]:
    """A body of one number for each row ``n``, which lie along axes as reductions take them.

    With ``instead`` the body is a mere reduction, which may work along columns, and which that
    method of a ufunc does ``instead`` where rows lie so that it is quicker.
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
    """A body of the elements of arrays that broadcast.

    The region has as few axes as lead through all of them, and an array that is the same along
    one is not read along it, be it by its shape or by a stride of 0. Outputs lie in memory as
    those of a ufunc do.
    """
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    walks = [np.broadcast_to(a, shape).strides for a in arrays]
    order = _order(walks, len(shape))
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


def _order(walks: Sequence[tuple[int, ...]], rank: int) -> list[int]:
    """The order of axes in memory, outer ones first, that NumPy gives results of such strides.

    An axis moves inwards over another one if it has smaller steps in some array, and larger ones
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
