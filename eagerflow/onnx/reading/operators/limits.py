"""Limits on arrays and loops whose sizes come from a file."""

from __future__ import annotations

from math import prod
from typing import Any

from eagerflow.onnx.reading.calls import Call
from eagerflow.onnx.reading.folding import FREE_ELEMENTS

MAX_STEPS = 4096
"""The largest number of parts of a tensor in an unrolled operator."""


def check_elements(call: Call, *sizes: Any) -> None:
    """Refuse an array of these sizes that is too large to be computed during the import."""
    if prod(max(n, 0) for n in sizes) > FREE_ELEMENTS:
        call.refuse(f"constants of shape {sizes}, which have more than {FREE_ELEMENTS} elements")


def check_steps(call: Call, *sizes: int) -> None:
    """Refuse a window or another loop nest with too many steps."""
    if prod(max(n, 0) for n in sizes) > MAX_STEPS:
        call.refuse(f"{sizes} parts one after another, which are more than {MAX_STEPS}")
