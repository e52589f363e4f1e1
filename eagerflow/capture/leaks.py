"""Leaks: values of a trace that are held after its end, found without a full memory scan."""

from __future__ import annotations

import gc
import inspect
from typing import Any
from weakref import ref

from eagerflow.display import summary
from eagerflow.errors import CaptureError
from eagerflow.tensor import Tensor


def refuse_leaks(name: str, tensors: list[Tensor]) -> None:
    """Raise CaptureError if other objects still hold ``tensors`` of a trace that has ended.

    Cycles of unreachable objects are no leak. Objects created within ``young`` are found
    among the young objects; only those that remain are then searched for in all of memory.
    """
    held = tensors[:]
    tensors.clear()
    # After an explicit collection, the collector forgets that the next generation is due.
    due = gc.get_count()[1] > gc.get_threshold()[1]
    for generation in (int(due), 1, 2):
        if not held:
            return
        known_by = [ref(t) for t in held]
        del held
        gc.collect(generation)
        held = [t for t in (r() for r in known_by) if t is not None]
        held = [t for t in held if not _only_watched(t, held, 3)]
    if not held:
        return
    tensor = held[0]
    value = tensor._array
    made = "" if value.node is None else f", computed at {value.node.place}"
    del held[1:]
    raise CaptureError(
        f"a value of {name!r} is kept outside of it: {_holder(tensor, held)}",
        received=f"{value.name}: {summary(tensor)}{made}",
        expected="values of a captured function can leave it only as results",
        hint="return it, or keep it in an ef.Variable with assign",
        at=None if value.node is None else value.node.place,
    )


observers: set[int] = set()
"""The ``id`` of each collection used by a Monitor for its records: no leak."""


def _only_watched(value: Any, held: Any, depth: int) -> bool:
    """Whether only a Monitor holds a value, perhaps through containers."""
    holders = [h for h in gc.get_referrers(value) if h is not held and not inspect.isframe(h)]
    for holder in holders:
        if id(holder) in observers:
            continue
        inside = isinstance(holder, tuple | list | dict) and depth and holder is not holders
        if not inside or not _only_watched(holder, holders, depth - 1):
            return False
    return bool(holders)


def _holder(tensor: Tensor, held: list[Tensor]) -> str:
    """Where a tensor is held, as text."""
    for holder in gc.get_referrers(tensor):
        if holder is held or inspect.isframe(holder):
            continue
        if isinstance(holder, dict):
            key = _key_of(holder, tensor)
            for owner in gc.get_referrers(holder):
                if inspect.ismodule(owner):
                    return f"as the global {key!r} of {owner.__name__}"
                if getattr(owner, "__dict__", None) is holder:
                    return f"as the attribute {key!r} of a {type(owner).__name__}"
            if holder.get("__name__") is not None and "__builtins__" in holder:
                return f"as the global {key!r} of {holder['__name__']}"
            return f"as the item {key!r} of a dict"
        own = _key_of(getattr(holder, "__dict__", {}), tensor)
        if own is not None:
            return f"as the attribute {own!r} of a {type(holder).__name__}"
        if type(holder).__name__ == "cell":
            return "in a variable of an enclosing function (nonlocal)"
        return f"in a {type(holder).__name__}" + _owner_of(holder)
    return "by an object that the garbage collector does not know"


def _key_of(holder: dict[Any, Any], value: Any) -> Any:
    return next((k for k, v in holder.items() if v is value), None)


def _owner_of(holder: Any) -> str:
    for outer in gc.get_referrers(holder):
        if isinstance(outer, dict):
            key = _key_of(outer, holder)
            if isinstance(key, str):
                return f" named {key!r}"
    return ""
