"""The direct sums of a convolution as machine code, for windows that Winograd's is not meant for.

It pays where columns of windows would cost more to write down than to multiply: with few
channels or filters. How the work is cut follows from shapes alone, so results have the same bits
with any number of threads.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.library.llvm.direct import SLOTS, FilterWriter, Form, ForwardWriter
from eagerflow.library.llvm.program import Program, aligned, kept, processor
from eagerflow.library.windows import Window
from eagerflow.runtime import buffers

__all__ = ["filter_gradient", "forward", "scatters", "strided_input_gradient", "takes"]

Windows = tuple[Window, ...]

BORDER = 1 << 19  # multiplications from which making a kernel pays
PATCH = 1 << 15  # bytes of the elements that a piece sees
PIECE = 1 << 17  # multiplications from which a piece is large enough
SHARED = 1 << 22  # multiplications from which waking another thread pays
SUMS = 1 << 18  # elements of all pieces' sums, as long as there are no fewer than LANES
LANES = 4


def takes(x: Any, windows: Windows, channels: int, filters: int) -> bool:
    """Whether a convolution of ``x``, or one that leads back to it, is meant for this, and pays."""
    if x.dtype.char not in "fd" or len(windows) > 2 or all(a.kernel == 1 for a in windows):
        return False
    window = prod(a.kernel for a in windows) * channels
    work = len(x) * prod(a.out for a in windows) * window * filters
    return work > 0 and filters * x.itemsize >= 32 and generated.pays(work, BORDER)


class _Kernel(NamedTuple):
    """A program, and the bytes that it works in."""

    program: Program
    scratch: int
    shared: int
    band: int


def _form(dtype: str, windows: Windows, channels: int, filters: int, turned: bool) -> Form:
    high, wide = windows if len(windows) == 2 else (Window(1, 1, 1, 1, 0, 1), windows[0])
    line = (wide.size + wide.extent) * channels * np.dtype(dtype).itemsize * high.stride
    pieces = -(-high.out // max(PATCH // line, 1))
    return Form(
        dtype,
        high.size,
        wide.size,
        channels,
        filters,
        (high.kernel, wide.kernel),
        (high.stride, wide.stride),
        (high.dilation, wide.dilation),
        (high.before, wide.before),
        high.out,
        wide.out,
        -(-high.out // pieces),
        turned,
    )


@kept
def _forward_kernel(
    dtype: str, windows: Windows, channels: int, filters: int, turned: bool
) -> _Kernel:
    form = _form(dtype, windows, channels, filters, turned)

    def writer(code: Any, slots: list[str]) -> ForwardWriter:
        return ForwardWriter(code, form, *processor(dtype), slots)

    plan = writer(None, [])
    made = Program(
        f"direct {form}", lambda *given: writer(*given).module(), ["weights", "kernel"], SLOTS
    )
    return _Kernel(made, plan.scratch, plan.weights, form.band)


@kept
def _filter_kernel(dtype: str, windows: Windows, channels: int, filters: int) -> _Kernel:
    form = _form(dtype, windows, channels, filters, False)

    def writer(code: Any, slots: list[str]) -> FilterWriter:
        return FilterWriter(code, form, *processor(dtype), slots)

    plan = writer(None, [])
    made = Program(
        f"direct filters {form}", lambda *given: writer(*given).module(), ["sums", "join"], SLOTS
    )
    return _Kernel(made, plan.scratch, plan.sums, form.band)


def _rows(windows: Windows) -> int:
    return windows[0].out if len(windows) == 2 else 1


def forward(x: Any, w: Any, windows: Windows, turned: bool) -> Any:
    """The convolution of ``x`` with ``w``, or with the turned filters of one that leads back."""
    channels, filters = w.shape[-2:]
    if turned:
        channels, filters = filters, channels
    kernel = _forward_kernel(x.dtype.name, windows, channels, filters, turned)
    images, rows = len(x), _rows(windows)
    y = buffers.empty((images, *(a.out for a in windows), filters), x.dtype)
    work = y[0].size * prod(a.kernel for a in windows) * channels  # of an image
    height = 1 if kernel.band < rows else max(min(PIECE // work, images // 8), 1)
    kernel.program.run(
        (images, rows, height, kernel.band),
        kernel.scratch,
        work * images >= SHARED,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(w),
        result=y,
        weights=aligned("weights", kernel.shared),
    )
    return y


def filter_gradient(x: Any, g: Any, windows: Windows) -> Any:
    """The gradient by the filters."""
    channels, filters = x.shape[-1], g.shape[-1]
    kernel = _filter_kernel(x.dtype.name, windows, channels, filters)
    images, rows = len(x), _rows(windows)
    shape = (*(a.kernel for a in windows), channels, filters)
    # Lanes of whole images if there are enough, else of bands of rows.
    lanes = max(LANES, min(16, SUMS // prod(shape)))
    height = max(images // lanes, 1)
    span = rows if images >= lanes else -(-rows * images // lanes)
    span = -(-span // kernel.band) * kernel.band
    count = -(-images // height) * -(-rows // span)
    found = np.empty(shape, x.dtype)
    kernel.program.run(
        (images, rows, height, span),
        kernel.scratch,
        g.size * prod(shape[:-1]) >= SHARED,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(g),
        result=found,
        weights=aligned("weights", count * kernel.shared),
    )
    return found


# Strides: elements of the images that see the same elements of the window ------------------------


class _Phase(NamedTuple):
    """Every ``stride``-th element along an axis, and what of the window it is seen by."""

    elements: slice
    taps: slice
    positions: slice
    """The first positions may see none of them."""
    window: Window
    """How the positions are seen from there."""


def _phases(a: Window) -> list[_Phase]:
    found = []
    for first in range(min(a.stride, a.kernel)):
        start = (first - a.before) % a.stride
        kernel, out = len(range(first, a.kernel, a.stride)), len(range(start, a.size, a.stride))
        before = kernel - 1 - (start + a.before - first) // a.stride
        beyond = max(-before, 0)
        window = Window(a.out - beyond, kernel, 1, 1, before + beyond, out)
        every = slice(start, None, a.stride), slice(first, None, a.stride), slice(beyond, None)
        found.append(_Phase(*every, window))
    return found


def scatters(g: Any, windows: Windows, channels: int) -> bool:
    """Whether ``strided_input_gradient`` is meant for this, and pays."""
    work = g.size * prod(a.kernel for a in windows) * channels
    return (
        g.dtype.char in "fd"
        and len(windows) <= 2
        and channels * g.itemsize >= 32
        and all(a.dilation == 1 for a in windows)
        and work > 0
        and generated.pays(work, BORDER)
    )


def strided_input_gradient(g: Any, w: Any, windows: Windows) -> Any:
    """The gradient by the images: a convolution without strides for each phase of the strides."""
    shape = (len(g), *(a.size for a in windows), w.shape[-2])
    x = buffers.empty(shape, g.dtype)
    if any(a.stride > a.kernel for a in windows):
        x.fill(0)  # some elements are seen by no window
    for phases in product(*map(_phases, windows)):
        own = tuple(p.window for p in phases)
        aim = x[(slice(None), *(p.elements for p in phases))]
        if any(a.size < 1 for a in own):
            aim[...] = 0
        elif aim.size:
            seen = g[(slice(None), *(p.positions for p in phases))]
            aim[...] = forward(seen, w[tuple(p.taps for p in phases)], own, True)
    return x
