"""How tensors look at the prompt and in a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dims import symbolic
from eagerflow.errors import printable, short_repr
from eagerflow.spec import TensorSpec

MAX_ELEMENTS = 100  # elements from which on the middle is left out


def summary(value: Any) -> str:
    """Dtype, shape and device of a tensor in a few letters, or what else ``value`` is."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        place = getattr(value, "device", None) if not isinstance(value, np.ndarray) else None
        return str(TensorSpec(value.shape, value.dtype, None, place))
    return f"{type(value).__name__} {short_repr(value)}"


def escape(text: str) -> str:
    """Text for SVG and HTML, where control characters are escaped, as XML may hold none."""
    # html.escape does most of it, but importing it costs more than all of this module.
    plain = printable(text, "\n\t")
    for sign, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        plain = plain.replace(sign, code)
    return plain


def _label(tensor: Any) -> tuple[str, str]:
    """What stands before and after the values."""
    variable = hasattr(tensor, "trainable")
    facts = [f"name={tensor.name!r}"] if variable else []
    shape = tuple(tensor.shape)
    plain = len(shape) < 2 and not symbolic(shape) and 0 < tensor.size <= 10
    if not plain or not is_known(tensor):
        facts.append(f"shape={shape}")
    facts += [tensor.dtype.name, str(tensor.device)]
    if variable and not tensor.trainable:
        facts.append("trainable=False")
    return f"{'Variable' if variable else 'Tensor'}(", f", {', '.join(facts)})"


def is_known(tensor: Any) -> bool:
    """Whether there are values, not only a recorder's symbol for them."""
    held = getattr(tensor, "current", tensor)
    return type(held._array) is held._kind.array_type


def known_values(tensor: Any) -> Any:
    """The values, where they are known, in a form that NumPy prints and computes with."""
    held = getattr(tensor, "current", tensor)
    values = held.device.backend.to_numpy(held._array)
    # bfloat16 and float8 print like the float32 they stand for.
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def text(tensor: Any) -> str:
    """Short, aligned representation: values, dtype and device."""
    before, after = _label(tensor)
    if not is_known(tensor):
        return f"{before}<symbolic>{after}"
    values = known_values(tensor)
    if values.size > MAX_ELEMENTS and values.ndim > 4:
        return f"{before}<{values.size} values>{after}"
    ends = {0: 3, 1: 3, 2: 3, 3: 2}.get(values.ndim, 1)  # so that 20 lines do for most
    body = np.array2string(
        values, separator=", ", prefix=before, threshold=MAX_ELEMENTS, edgeitems=ends, precision=4
    )
    return before + body + after


def html(tensor: Any) -> str:
    """A small table of the values for a notebook cell, with dtype, shape and device."""
    caption = escape(summary(tensor))
    if getattr(tensor, "name", None):
        caption = f"{escape(str(tensor.name))}: {caption}"
    values = known_values(tensor) if is_known(tensor) else None
    if values is None or values.ndim > 3 or values.size == 0:
        return f"<div><code>{caption}</code><pre>{escape(text(tensor))}</pre></div>"
    if values.ndim < 3:
        return _table(np.atleast_2d(values), caption)
    parts = [
        "<p>…</p>" if i is None else _table(values[i], f"[{i}]") for i in _shown(len(values), 4)
    ]
    return f"<div><code>{caption}</code>{''.join(parts)}</div>"


def _table(grid: Any, caption: str) -> str:
    rows, columns = _shown(grid.shape[0]), _shown(grid.shape[1])
    shown = grid[[i for i in rows if i is not None]][:, [j for j in columns if j is not None]]
    # One format for all cells, padded, so that the decimal points stand below each other.
    listed = np.array2string(
        shown.ravel(), separator="\n", precision=4, threshold=shown.size + 1, max_line_width=1
    )
    texts = listed[1:-1].replace("\n ", "\n").split("\n")
    width = max(map(len, texts))
    cells = iter([text.ljust(width) for text in texts])
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{'…' if i is None or j is None else escape(next(cells))}</td>" for j in columns
        )
        + "</tr>"
        for i in rows
    )
    return (
        "<table style='font-family:monospace;white-space:pre;text-align:right'>"
        f"<caption style='text-align:left'>{caption}</caption>{body}</table>"
    )


def _shown(count: int, limit: int = 8) -> list[int | None]:
    """The positions to show: all, or both ends with None for what is left out."""
    if count <= limit:
        return list(range(count))
    half = limit // 2
    return [*range(half), None, *range(count - half, count)]
