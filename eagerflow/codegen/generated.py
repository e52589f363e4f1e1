"""The door from eager ops to generated kernels: when they pay, and nothing loaded before.

An op states the body of its region beside its other facts, in scalar instructions; the region
is built for the dtypes it is called with, and kept. Small arrays, and machines without
llvmlite, take the op's NumPy kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from eagerflow.dtypes import dtype_name
from eagerflow.extras import switched_off
from eagerflow.guard import ScopeGuard
from eagerflow.runtime.buffers import empty
from eagerflow.spec import normalize_axes

MIN_COMPILED_ELEMENTS = 1 << 14
"""Elements from which a generated kernel's call costs less than NumPy's steps."""

Body = Callable[..., Any]
"""``body(s, *values, **attributes)`` gives the value of the output, or a tuple of values."""


@cache
def enabled() -> bool:
    """Whether there is a compiler: llvmlite is installed, and EAGERFLOW_LLVM does not say 0."""
    if switched_off("EAGERFLOW_LLVM"):
        return False
    try:
        return find_spec("llvmlite") is not None
    except ImportError:  # somebody's finder refuses it
        return False


calls: list[Any] | None = None
"""Those made while somebody watches."""


def pays(size: int, border: int | None = None) -> bool:
    """Whether an array of this many elements is large enough."""
    least = MIN_COMPILED_ELEMENTS if border is None else border
    return (size >= least and enabled()) or calls is not None


def takes(x: Any, border: int | None = None) -> bool:
    """Whether an array's size, at least ``border``, and dtype are those of generated kernels."""
    return x.dtype.char in "fd" and pays(x.size, border)


class watching(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which arrays of all sizes go to generated kernels, and calls are listed."""

    def __init__(self) -> None:
        self._before = calls
        self.calls: list[Any] = []

    def acquire(self) -> None:
        """List calls from now on."""
        self._tell(self.calls)

    def release(self) -> None:
        """List them where they were listed before, if anywhere."""
        self._tell(self._before)

    def _tell(self, listed: list[Any] | None) -> None:
        global calls
        _machinery().watch(listed)
        calls = listed


def text_of(call: Any, code: str) -> str:
    """The code of a call that was listed."""
    from eagerflow.codegen import texts

    return texts.text_of(code, *call)


@cache
def _machinery() -> Any:
    """The module that builds and runs regions; a program at a prompt needs none of it."""
    from eagerflow.codegen import kernel

    return kernel


@cache
def _programs() -> Any:
    """The module that writes programs of NumPy's steps; nor does a prompt need this one."""
    from eagerflow.codegen.numpy import in_place

    return in_place


def program(found: Any, tile: bool) -> Callable[..., None]:
    """``fill(*arrays, *outputs)`` by steps of NumPy's, for a region; see ``in_place``."""
    made: Callable[..., None] = _programs().program_of(found, tile)
    return made


@cache
def region(
    body: Body,
    axes: str,
    operands: tuple[tuple[str, str], ...],
    attributes: tuple[tuple[str, Any], ...] = (),
) -> Any:
    """The region of a body; ``operands`` are the dtype and the axes of each input."""
    s = _programs().Builder(body.__name__.strip("_").removesuffix("_body"), axes)
    values = [s.input(f"x{i}", dtype, along) for i, (dtype, along) in enumerate(operands)]
    results = body(s, *values, **dict(attributes))
    for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
        s.output(f"y{i}", result)
    return s.region()


def run(found: Any, *arrays: Any, **sizes: int) -> Any:
    """The outputs of a region in new arrays; one output comes without a tuple.

    ``sizes`` are those of axes along which no array lies.
    """
    outputs = _machinery().run(found, arrays, sizes or None)
    return outputs[0] if len(outputs) == 1 else outputs


def compute(found: Any, inputs: Any, outputs: Any) -> None:
    """Fill the arrays ``outputs`` with what a region computes."""
    _machinery().compute(found, inputs, outputs)


def row_views(axis: int, arrays: Sequence[Any]) -> tuple[str, list[tuple[str, str]], list[Any]]:
    """The axes of a region whose rows lie along ``axis`` of arrays, operands, and views of them.

    ``axis`` is counted from the front. The last of the region's axes is the one along a row; in
    memory arrays keep their order. Arrays that lack the axis have one number for each row.
    """
    shape = arrays[0].shape
    length, inner = shape[axis], prod(shape[axis + 1 :])
    axes, outer = ("m n", "m") if inner == 1 else ("a m n", "a m")
    operands, views = [], []
    for a in arrays:
        whole = a.ndim == len(shape)
        operands.append((dtype_name(a.dtype), axes if whole else outer))
        if inner == 1:
            views.append(a.reshape((-1, length) if whole else -1))
        else:
            view = a.reshape((-1, length, inner) if whole else (-1, inner))
            views.append(view.swapaxes(1, 2) if whole else view)
    return axes, operands, views


def rows(body: Body, axis: int, *arrays: Any, **attributes: Any) -> Any:
    """The outputs of a body over rows ``n`` that lie along ``axis``; one comes without a tuple.

    Arrays that lack the axis have one number for each row, as reduced outputs do.
    """
    x = arrays[0]
    axes, operands, views = row_views(axis, arrays)
    found = region(body, axes, tuple(operands), tuple(attributes.items()))
    reduced = (*x.shape[:axis], *x.shape[axis + 1 :])
    shapes = [x.shape if "n" in out.axes else reduced for out in found.outputs]
    if axes == "m n":
        made = run(found, *views)
        if len(shapes) == 1:
            return made.reshape(shapes[0])
        outs = [out.reshape(shape) for out, shape in zip(made, shapes, strict=True)]
    else:
        outs = [empty(shape, x.dtype) for shape in shapes]
        compute(found, views, row_views(axis, (x, *outs))[2][1:])
    return outs[0] if len(outs) == 1 else tuple(outs)


def reduced_rows(body: Body, axis: Any, keepdims: bool, x: Any, **attributes: Any) -> Any:
    """One number for each row of ``x``: a body over rows ``n``, along axes as reductions take."""
    axes = normalize_axes(axis, x.ndim)
    kept = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    shape = kept if keepdims else tuple(s for i, s in enumerate(x.shape) if i not in axes)
    if len(axes) != 1:
        last = tuple(range(x.ndim - len(axes), x.ndim))
        x, axes = np.moveaxis(x, axes, last).reshape(-1, prod(x.shape[i] for i in axes)), (1,)
    along, operands, views = row_views(axes[0], (x,))
    found = region(body, along, tuple(operands), tuple(attributes.items()))
    return run(found, *views).reshape(shape)


def elementwise(body: Body, *arrays: Any, **attributes: Any) -> Any:
    """A body of the elements of arrays of one shape, in the first one's order in memory.

    Arrays without axes are numbers that stand beside each element. One output comes without a
    tuple.
    """
    x = arrays[0]
    order = "F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C"
    flat = [a.ravel(order) if a.shape == x.shape else a for a in arrays]
    operands = tuple([(dtype_name(a.dtype), "n" if a.ndim else "") for a in flat])
    found = region(body, "n", operands, tuple(attributes.items()))
    outs = [out.reshape(x.shape, order=order) for out in _machinery().run(found, flat)]
    return outs[0] if len(outs) == 1 else tuple(outs)
