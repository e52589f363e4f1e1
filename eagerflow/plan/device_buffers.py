"""Memory for new values of Variables on a device: reuses values without references.

A Variable's array is never overwritten, as there may be other references. In a run, its new value
takes the memory of the value before the last one, if it has no references, so that addresses
repeat after two steps, and recordings for these addresses can be launched again.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

MAX_BLOCKS = 4  # kept while their contents are referenced


class Renewal:
    """Provides arrays of one shape and dtype, for one run at a time."""

    def __init__(self, backend: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self._backend, self._shape, self._dtype = backend, shape, dtype
        self._blocks: list[Any] = []
        self._given: list[ref[Any]] = []  # the most recent array of each block

    def __call__(self) -> Any:
        """An array of arbitrary values that shares memory with no live array."""
        number = next((i for i, given in enumerate(self._given) if given() is None), None)
        if number is None:
            if len(self._blocks) >= MAX_BLOCKS:
                del self._blocks[0], self._given[0]
            self._blocks.append(self._backend.empty(self._shape, self._dtype))
            self._given.append(ref(self._blocks[-1]))
            number = -1
        # Views refer to this array, not to the block, which could not distinguish them.
        found = self._backend.renamed(self._blocks[number])
        self._given[number] = ref(found)
        return found
