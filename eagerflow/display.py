"""Text of tensors at the prompt, and hooks for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.dims import symbolic
from eagerflow.errors import printable, short_repr
from eagerflow.spec import TensorSpec

options: dict[str, Any] = {"precision": 4, "threshold": 100}
"""Arguments of ``np.array2string`` for the values of tensors."""


def summary(value: Any) -> str:
    """Dtype, shape and device of a tensor in short form, or a description of other objects."""
    known = hasattr(type(value), "shape") and hasattr(type(value), "dtype")  # theirs may do more
    if known and getattr(value.dtype, "kind", "") not in tuple("OSTUMm"):
        place = getattr(value, "device", None) if not isinstance(value, np.ndarray) else None
        return str(TensorSpec(value.shape, value.dtype, None, place))
    return f"{type(value).__name__} {short_repr(value)}"


def function_name(f: Any) -> str:
    """The name of a function, or another callable object, in graphs and errors."""
    return str(getattr(f, "__name__", type(f).__name__)).strip("<>")


def escape(text: str) -> str:
    """Text for SVG and HTML; control characters, invalid in XML, are escaped."""
    # html.escape does most of it, but importing it costs more than all of this module.
    plain = printable(text, "\n\t")
    for sign, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        plain = plain.replace(sign, code)
    return plain


def _label(tensor: Any) -> tuple[str, str]:
    """The text before and after the values."""
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


def known_values(tensor: Any, part: Any = ...) -> Any:
    """The values, if known, in a form that NumPy can print and compute with.

    Only the ``part`` at an index is copied from the device.
    """
    held = getattr(tensor, "current", tensor)
    backend = held.device.backend
    with backend.on(held.device.index):
        values = backend.to_numpy(held._array[part])
    # bfloat16 and float8 print like the float32 they stand for.
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def text(tensor: Any) -> str:
    """Short, aligned representation: values, dtype and device."""
    before, after = _label(tensor)
    if not is_known(tensor):
        return f"{before}<symbolic>{after}"
    values = known_values(tensor)
    if values.size > options["threshold"] and values.ndim > 4:
        return f"{before}<{values.size} values>{after}"
    ends = {0: 3, 1: 3, 2: 3, 3: 2}.get(values.ndim, 1)  # so that 20 lines suffice for most
    how = {"edgeitems": ends, **options}
    return before + np.array2string(values, separator=", ", prefix=before, **how) + after


_view: Callable[[Any, str], str]


def set_view(view: Callable[[Any, str], str]) -> None:
    """Set the function behind ``html``: the display code is in a higher layer, loaded late."""
    global _view
    _view = view


def html(thing: Any, kind: str) -> str:
    """The HTML of an object for a notebook cell, by ``eagerflow.notebook.kind``."""
    return _view(thing, kind)
