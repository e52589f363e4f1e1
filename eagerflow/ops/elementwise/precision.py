"""Gradient rules of 16-bit floats that round once, as kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.dtypes import NARROW, float32
from eagerflow.ops.creation.cast import astype
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["in_float32"]

Rule = Callable[..., Any]


def in_float32(rule: Rule) -> Rule:
    """A partial derivative or vjp rule that computes float16 and bfloat16 in float32.

    A rule of several ops would round after each of them, and lose accuracy in differences or
    exponentials.
    """

    def wide(*values: Any, **attributes: Any) -> Any:
        dtype = _dtype(values)
        if dtype not in NARROW:
            return rule(*values, **attributes)
        parts = rule(*[_cast(x, dtype, float32) for x in values], **attributes)
        if type(parts) is not tuple:
            return _cast(parts, float32, dtype)
        # One for each argument, some of which may be float32 themselves.
        return tuple(
            part if x is None else _cast(part, float32, x.dtype)
            for part, x in zip(parts, values[2:], strict=True)
        )

    return wide


def _dtype(values: Any) -> Any:
    for x in values:
        found = x.dtype if type(x) is Tensor else _dtype(x) if type(x) is tuple else None
        if found is not None:
            return found
    return None


def _cast(x: Any, old: Any, new: Any) -> Any:
    if type(x) is tuple:
        return tuple(_cast(part, old, new) for part in x)
    if type(x) is Tensor:
        return astype(x, new) if x.dtype == old else x
    return x.like(dtype=new) if type(x) is TensorSpec and x.dtype == old else x
