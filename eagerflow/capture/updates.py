"""Updates: arrays among the arguments that a traced function changes in place.

A trace has Tensors in place of them, which are immutable: ``a += 1`` makes a new one there. On an
array it would change the caller's object, and all views of it.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from eagerflow.dispatch import internal
from eagerflow.graph.ir import Value
from eagerflow.tensor import Tensor

COPYING = frozenset("array as_tensor asarray copy deepcopy tensor".split())
"""Names of functions that copy an array, and return the same Tensor in a trace."""

_VIEWS = frozenset(
    "broadcast_to expand_dims flip getitem permute_dims reshape split squeeze unstack view".split()
)
"""Ops with results that share memory in NumPy, unless arrays select elements."""


class Updates:
    """In-place changes by a function, by the values of whole arrays.

    ``caller`` is the code that calls the function.
    """

    def __init__(self) -> None:
        self.caller: CodeType | None = None
        self._places: dict[Value, str] = {}
        self._copied: set[Value] = set()

    def note(self, value: Value, place: str) -> None:
        """Record that the current code changes a value in place."""
        if self._is_passed_by_user():
            self._places.setdefault(_whole(value), place)

    def note_copy(self, tensor: Any) -> None:
        """Record a copy, which cannot be distinguished from the Tensor itself."""
        if type(tensor) is Tensor and type(tensor._array) is Value:
            self._copied.add(_whole(tensor._array))

    def place(self, argument: Any) -> str | None:
        """Where the value of an argument was changed; None if it was not changed."""
        value = argument._array if type(argument) is Tensor else None
        return None if value in self._copied else self._places.get(value)  # type: ignore[arg-type]

    def _is_passed_by_user(self) -> bool:
        """Whether the change is made by user calls: functions of eagerflow pass on Tensors."""
        frame: Any = sys._getframe(1)
        while frame is not None and internal[frame.f_code.co_filename]:
            frame = frame.f_back
        while frame is not None and not internal[frame.f_code.co_filename]:
            frame = frame.f_back
        return frame is not None and frame.f_code is self.caller


def _whole(value: Value) -> Value:
    """The value that this one is a view of, or itself."""
    node = value.node
    while node is not None and node.op.name in _VIEWS and len(node.inputs) == 1:
        value = node.inputs[0]
        node = value.node
    return value
