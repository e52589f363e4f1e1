"""The generated code of a region, for inspection only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.codegen.cuda import launch as cuda
from eagerflow.codegen.cuda.binding import Memory
from eagerflow.codegen.llvm import launch
from eagerflow.codegen.region import Region


def text_of(
    code: str,
    region: Region,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    sizes: dict[str, int],
) -> str:
    """A region, or its code for such arrays: "llvm", "assembly" or "cuda"."""
    if code == "region":
        return str(region)
    if code == "cuda":
        places = [Memory(0, a.strides) for a in (*inputs, *outputs)]
        return cuda.prepare(region, places, sizes).text
    call = launch.KernelCall(region, inputs, outputs, sizes)
    text = launch.intermediate if code == "llvm" else launch.assembly
    return text(region, call.launch.binding.layout, call.launch.variant)
