"""Dropout."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, known_number, operator


@operator("Dropout", pure=False)
def dropout(
    call: Call,
    x: Any,
    ratio: Any = None,
    training_mode: Any = None,
    *,
    seed: int | None = None,
) -> Any:
    """The tensor, or in training mode with randomly zeroed elements; and the mask."""
    trains = training_mode is not None and bool(known_number(training_mode))
    rate = 0.5 if ratio is None else known_number(ratio)
    if not trains or rate == 0:
        return x, ops.ones_like(x, dtype="bool") if call.wants(1) else None
    if seed is not None:
        call.refuse("numbers of another library's generator for a seed")
    if not 0 <= rate < 1:
        call.refuse(f"dropout at a rate of {rate}")
    scaled = ops.dropout(ops.ones_like(x), rate)
    return x * scaled, ops.greater(scaled, 0)
