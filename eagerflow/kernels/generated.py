"""The door from eager ops to generated kernels: when they pay, and nothing loaded before.

An op states the body of its region beside its other facts, in scalar instructions; the region
is built for the dtypes it is called with, and kept. Small arrays, and machines without
llvmlite, take the op's NumPy kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from math import prod
from typing import Any

from eagerflow.kernels.buffers import empty

__all__ = ["BORDER", "Body", "elementwise", "pays", "region", "rows", "run"]

BORDER = 1 << 14
"""Elements from which a generated kernel's call costs less than NumPy's steps."""

Body = Callable[..., Any]
"""``body(s, *values, **attributes)`` gives the value of the output, or a tuple of values."""


@cache
def enabled() -> bool:
    """Whether there is a compiler: llvmlite is installed, and EAGERFLOW_LLVM does not say 0."""
    if os.environ.get("EAGERFLOW_LLVM", "1").lower() in ("0", "off", "no", "false"):
        return False
    return find_spec("llvmlite") is not None


def pays(size: int) -> bool:
    """Whether an array of this many elements is large enough."""
    return size >= BORDER and enabled()


@cache
def _machinery() -> Any:
    """The module that builds and runs regions; a program at a prompt needs none of it."""
    from eagerflow.kernels import kernel

    return kernel


@cache
def region(name: str, body: Body, axes: str, operands: tuple[tuple[str, str], ...],
           attributes: tuple[tuple[str, Any], ...] = ()) -> Any:  # fmt: skip
    """The region of a body; ``operands`` are the dtype and the axes of each input."""
    s = _machinery().Builder(name, axes)
    values = [s.input(f"x{i}", dtype, along) for i, (dtype, along) in enumerate(operands)]
    results = body(s, *values, **dict(attributes))
    for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
        s.output(f"y{i}", result)
    return s.region()


def run(region: Any, *arrays: Any) -> Any:
    """The outputs of a region in new arrays; one output comes without a tuple."""
    outputs = _machinery().run(region, arrays)
    return outputs[0] if len(outputs) == 1 else outputs


def rows(name: str, body: Body, axis: int, *arrays: Any, **attributes: Any) -> Any:
    """A body over rows ``n`` of arrays of one shape, along one axis counted from the front.

    Outputs with an element for each of the inputs' have the inputs' shape.
    """
    x = arrays[0]
    shape = x.shape
    length, inner = shape[axis], prod(shape[axis + 1 :])
    dtype = x.dtype.name
    if inner == 1:
        views = [a.reshape(-1, length) for a in arrays]
        found = region(name, body, "m n", ((dtype, "m n"),) * len(arrays), tuple(attributes.items()))
        return run(found, *views).reshape(shape)
    # The region's last axis is the one along a row; in memory the arrays keep their order.
    out = empty(shape, x.dtype)
    views = [a.reshape(-1, length, inner).swapaxes(1, 2) for a in (*arrays, out)]
    found = region(name, body, "a m n", ((dtype, "a m n"),) * len(arrays),
                   tuple(attributes.items()))  # fmt: skip
    _machinery().compute(found, views[:-1], views[-1:])
    return out


def elementwise(name: str, body: Body, x: Any, **attributes: Any) -> Any:
    """A body of one array's elements, in the array's order in memory."""
    order = "F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C"
    flat = x.ravel(order)
    found = region(name, body, "n", ((x.dtype.name, "n"),), tuple(attributes.items()))
    return run(found, flat).reshape(x.shape, order=order)
