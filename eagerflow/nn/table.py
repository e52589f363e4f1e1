"""The table that ``model.summary()`` prints."""

from __future__ import annotations

from typing import Any

from eagerflow.graph.text import aligned_columns

__all__ = ["layer_rows", "model_table", "total_text"]


def _shape(shape: Any) -> str:
    if shape is None:  # of a layer that its parent does not call, but computes itself
        return ""
    if isinstance(shape, tuple) and all(not isinstance(size, tuple) for size in shape):
        return f"({', '.join(['batch', *map(str, shape[1:])])})" if shape else "()"
    return str(shape)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def layer_rows(layer: Any, depth: int = 0) -> list[tuple[str, str, str]]:
    """Name, output shape and number of parameters of each layer in a layer, indented by depth."""
    rows = []
    heads = getattr(layer, "_heads", None)
    for part in [*(heads.held if heads else ()), *layer.sublayers]:
        count = part.count_params()
        frozen = "" if part.trainable or not count else " (frozen)"
        label = f"{'  ' * depth}{part.name} ({type(part).__name__})"
        rows.append((label, _shape(part.output_shape), f"{count:,}{frozen}"))
        rows += layer_rows(part, depth + 1)
    return rows


def model_table(model: Any) -> str:
    """The layers of a model, one in each line, with output shapes and numbers of parameters."""
    names = ("Layer", "Output shape", "Parameters")
    head, *rows = aligned_columns([names, *layer_rows(model)], "<<>")
    line = "─" * len(head)
    title = f'Model "{model.name}" ({type(model).__name__})'
    return "\n".join([title, line, head, line, *rows, line, total_text(model)])


def total_text(model: Any) -> str:
    """The number of parameters, their memory, and the number of trained ones."""
    trainable = sum(w.size for w in model.trainable_weights)
    weights = model.weights
    total = sum(w.size for w in weights)
    size = _bytes(sum(w.nbytes for w in weights))
    split = f"{trainable:,} trainable" if trainable < total else "all trainable"
    return f"Parameters: {total:,} ({size}), {split}" if total else "No parameters yet"
