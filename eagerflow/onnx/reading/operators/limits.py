"""How much arrays and loops may grow that numbers in a file ask for."""

from __future__ import annotations

from math import prod
from typing import Any

from eagerflow.onnx.reading.calls import Call
from eagerflow.onnx.reading.folding import FREE_ELEMENTS

MAX_STEPS = 4096
"""How many parts of a tensor an operator may be made of, one after another."""


def check_elements(call: Call, *sizes: Any) -> None:
    """Refuse an array of these sizes that is too large to be computed while importing."""
    if prod(max(n, 0) for n in sizes) > FREE_ELEMENTS:
        call.refuse(f"constants of shape {sizes}, which have more than {FREE_ELEMENTS} elements")


def check_steps(call: Call, *sizes: int) -> None:
    """Refuse a window or another nest of steps of these sizes that has too many."""
    if prod(max(n, 0) for n in sizes) > MAX_STEPS:
        call.refuse(f"{sizes} parts one after another, which are more than {MAX_STEPS}")
