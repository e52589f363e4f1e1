"""How tensors look at the prompt and in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from eagerflow.spec import TensorSpec

__all__ = ["html", "summary", "text"]


def summary(value: Any) -> str:
    """Dtype, shape and device of a tensor in a few letters, or what else ``value`` is."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        place = getattr(value, "device", None) if not isinstance(value, np.ndarray) else None
        return str(TensorSpec(value.shape, value.dtype, None, place))
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def _label(tensor: Any) -> tuple[str, str]:
    """What stands before and after the values."""
    variable = hasattr(tensor, "trainable")
    facts = [f"name={tensor.name!r}"] if variable else []
    if tensor.size == 0 or tensor.ndim > 1 or tensor.size > 10:
        facts.append(f"shape={tuple(tensor.shape)}")
    facts += [tensor.dtype.name, str(tensor.device)]
    if variable and not tensor.trainable:
        facts.append("trainable=False")
    return f"{'Variable' if variable else 'Tensor'}(", f", {', '.join(facts)})"


def _concrete(tensor: Any) -> Any:
    """The array of values, or None while only the spec is known."""
    held = getattr(tensor, "current", tensor)
    if type(held._array) is not held._kind.array_type:
        return None
    return held.device.backend.to_numpy(held._array)


def text(tensor: Any) -> str:
    """Short, aligned representation: values, dtype and device."""
    before, after = _label(tensor)
    values = _concrete(tensor)
    if values is None:
        return f"{before}<{summary(tensor)}>)"
    if values.dtype.kind == "V":  # bfloat16 and float8 print like the float32 they stand for
        values = values.astype(np.float32)
    body = np.array2string(
        values, separator=", ", prefix=before, threshold=100, edgeitems=3, precision=4
    )
    return before + body + after


def html(tensor: Any) -> str:
    """A small table of the values for a notebook cell, with dtype, shape and device."""
    values = _concrete(tensor)
    caption = escape(summary(tensor))
    if getattr(tensor, "name", None):
        caption = f"{escape(str(tensor.name))}: {caption}"
    if values is None or values.ndim > 2 or values.size == 0:
        return f"<div><code>{caption}</code><pre>{escape(text(tensor))}</pre></div>"
    grid = np.atleast_2d(values)
    rows = "".join(_row(grid, i) for i in _shown(grid.shape[0]))
    return (
        "<table style='font-family:monospace;text-align:right'>"
        f"<caption style='text-align:left'>{caption}</caption>{rows}</table>"
    )


def _shown(count: int, limit: int = 8) -> list[int | None]:
    """The positions to show: all, or both ends with None for what is left out."""
    if count <= limit:
        return list(range(count))
    half = limit // 2
    return [*range(half), None, *range(count - half, count)]


def _row(grid: Any, i: int | None) -> str:
    cells = [
        "…" if i is None or j is None else _number(grid[i, j]) for j in _shown(grid.shape[1])
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _number(value: Any) -> str:
    if isinstance(value, bool | np.bool_ | np.integer):
        return str(value)
    return f"{value:.4g}"
