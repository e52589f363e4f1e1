"""Memory for new values of Variables on a device: that of values without references.

A Variable's array is never written over, as others may hold it. In the run of a step its new value
takes the memory of the value before the last one, if it has no references, so that after two steps
all arrays are where they were: what was recorded for their addresses can be started again.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

MAX_BLOCKS = 4  # that are kept while what is in them is held


class Renewal:
    """Gives arrays of one shape and dtype, one for each run at a time."""

    def __init__(self, backend: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self._backend, self._shape, self._dtype = backend, shape, dtype
        self._blocks: list[Any] = []
        self._given: list[ref[Any]] = []  # the array that was given last in each of them

    def __call__(self) -> Any:
        """An array of arbitrary values that shares memory with none that is held."""
        number = next((i for i, given in enumerate(self._given) if given() is None), None)
        if number is None:
            if len(self._blocks) >= MAX_BLOCKS:
                del self._blocks[0], self._given[0]
            self._blocks.append(self._backend.empty(self._shape, self._dtype))
            self._given.append(ref(self._blocks[-1]))
            number = -1
        # Views of this array hold it, and not the block, which would not tell them apart.
        found = self._backend.renamed(self._blocks[number])
        self._given[number] = ref(found)
        return found
