"""Small host values as kernel arguments, the only transfer that never blocks.

A copy from pageable memory blocks until the driver has staged it; arguments of a kernel are passed
with its launch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen.cuda.modules import Module
from eagerflow.codegen.cuda.nest import Code

WORDS = 16  # of eight bytes, per launch
BYTES = 8 * WORDS

_NAMES = [f"w{n}" for n in range(WORDS)]
_KERNEL = f"""extern "C" __global__ void __launch_bounds__({BYTES}) store_words(
    unsigned char *to, const long long count, {", ".join(f"const long long {n}" for n in _NAMES)}
) {{
    const long long words[{WORDS}] = {{{", ".join(_NAMES)}}};
    const int i = threadIdx.x;
    if (i < count) to[i] = (unsigned char)((unsigned long long)words[i / 8] >> i % 8 * 8);
}}"""


class WordStore:
    """Writes host values to a GPU's memory, as they are at the call."""

    def __init__(self, cupy: Any) -> None:
        self._module = Module(cupy).add(Code((), (_KERNEL,)))

    def __call__(self, device: int, address: int, values: np.ndarray[Any, Any]) -> None:
        """Store all bytes of ``values`` at an address of the current GPU."""
        store = self._module.function(device, "store_words")
        data = np.ascontiguousarray(values).tobytes()
        for start in range(0, len(data), BYTES):
            part = data[start : start + BYTES]
            words = np.frombuffer(part.ljust(BYTES, b"\0"), "<i8")
            store(
                (1, 1, 1), (BYTES, 1, 1), (np.uint64(address + start), np.int64(len(part)), *words)
            )
