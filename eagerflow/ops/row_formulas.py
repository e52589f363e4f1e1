"""Ops along an axis, defined by the formula of one row in public ops.

    @by_row(("mn", "mn", "m"), vjp=..., saves=...)
    def mean_squared_difference_gradient(x1, x2, g, /, *, axis=-1):
        \"\"\"...\"\"\"
        return g / row_size(x1) * (2 * (x1 - x2))

Kernels for NumPy and CuPy, machine code and regions are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from eagerflow.codegen.numpy.rows import RowKernel, whole_rows
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Split
from eagerflow.ops.family import Rows, batch_along_axis, define, split_others
from eagerflow.ops.formula import Formula
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis

__all__ = ["by_row"]


def by_row(
    along: tuple[str, ...] = ("mn",),
    gives: str = "mn",
    *,
    on_numpy: Callable[..., Any] | None = None,
    on_complex: Callable[..., Any] | None = None,
    check: Callable[..., None] | None = None,
    **facts: Any,
) -> Any:
    """An op along ``axis`` of its first argument, defined by the formula of a row.

    ``along`` has "mn" for each argument like the first and "m" for one without the axis; ``gives``
    is the same of the result. ``on_numpy(rows, axis, *arrays)`` replaces ``rows(axis, *arrays)``,
    the kernel for NumPy. ``on_complex(xp, *arrays, axis)`` computes the op of complex numbers, and
    ``check(xp, *arrays, axis)`` raises for wrong values.
    """
    alike = {*along, gives} == {"mn"}

    def decorate(formula: Callable[..., Any]) -> Any:
        body = Formula(formula)
        rows = RowKernel(body)
        kernel = rows if on_numpy is None else partial(on_numpy, rows)

        def checked(xp: Namespace, x: Any, *more: Any, axis: int = -1, **attributes: Any) -> Any:
            if check is not None:
                check(xp, x, *more, axis=axis)
            return kernel(normalize_axis(axis, x.ndim), x, *more, **attributes)

        overrides = {"numpy": checked} | facts.pop("overrides", {})
        if on_complex is not None:
            overrides["complex"] = on_complex
        own: dict[str, Any] = {
            "scalar": body if alike else Rows(body, along, (gives,)),
            "dtypes": FLOATS,
            "infer": row_spec,
            "overrides": overrides,
            "batch": batch_along_axis,
            "split": split_others if alike else _split(gives),
        }
        if along == ("mn",):
            direct = lambda x, axis=-1: kernel(normalize_axis(axis, x.ndim), x)
            own |= {"trusted": True, "direct": lambda xp: direct if xp is np else None}
        return define("rows", **own | facts)(_OnArrays(body, gives, check))

    return decorate


class _OnArrays:
    """The kernel of a formula of rows, on arrays of any library."""

    def __init__(self, body: Formula, gives: str, check: Any) -> None:
        update_wrapper(self, body)
        self.body, self.formula, self.gives, self.check = body, body.formula, gives, check

    def __call__(
        self, xp: Namespace, x: Array, *more: Array, axis: int = -1, **attributes: Any
    ) -> Array:
        at = normalize_axis(axis, x.ndim)
        if self.check is not None:
            self.check(xp, x, *more, axis=axis)
        if self.gives == "mn" and not x.size:
            return xp.zeros(x.shape, dtype=x.dtype)
        found = whole_rows(self.body, xp, at, x, *more, **attributes)
        return found if self.gives == "mn" else xp.squeeze(found, axis=at)


def row_spec(x: TensorSpec, *more: TensorSpec, axis: int = -1) -> TensorSpec:
    """A result like ``x``; further arguments must have its shape."""
    normalize_axis(axis, x.ndim)
    if any(other.shape != x.shape for other in more):
        raise ShapeError("the shapes of the arguments differ", expected="equal shapes")
    return x


def _split(gives: str) -> Callable[..., list[Split]]:
    """The fact ``split``: along all axes but the one of the rows, which some values lack."""

    def split(x: TensorSpec, *more: TensorSpec, axis: int = -1, **attributes: Any) -> list[Split]:
        at = normalize_axis(axis, x.ndim)
        found = []
        for i in range(x.ndim):
            if i != at:
                without = i - (i > at)
                cuts = (i, *(i if own.ndim == x.ndim else without for own in more))
                found.append(Split(cuts, i if gives == "mn" else without))
        return found

    return split
