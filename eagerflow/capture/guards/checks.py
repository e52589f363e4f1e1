"""Checks: the guards of a ledger, arranged so that a call checks all of them at once.

Guards with the same check become rows of one kind. Python checks the rows of a kind in one
expression; after ``CALLS_BEFORE_CODE`` checks, machine code checks those of all kinds in one call.
A check returns a true value if a guard does not hold, or may not: then the ledger checks each guard
by itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import chain, repeat
from operator import call, contains, eq, getitem, is_not
from types import MethodType
from typing import Any

from eagerflow.capture.guards.equality import ABSENT, WeakValue
from eagerflow.capture.guards.snapshot import Snapshot
from eagerflow.codegen.llvm.python_objects import NOTHING, Number, Row, can_ask, question
from eagerflow.handlers import raised_here

CALLS_BEFORE_CODE = 4
"""Checks by Python before switching to machine code: the ledger is likely to be used again."""
MIN_COMPARISONS = 8
"""Number of comparisons from which one machine code call is cheaper than Python expressions."""


def arranged(guards: Iterable[Any], by_code: bool) -> list[Callable[[], Any]]:
    """Checks of guards, by machine code if available."""
    rows: dict[str, list[Any]] = {}
    for guard in guards:
        for kind, row in _rows(guard):
            rows.setdefault(kind, []).append(row)
    checks: list[Callable[[], Any]] = []
    if by_code and _comparisons(rows) >= MIN_COMPARISONS and can_ask():
        asked = [ask(*row) for kind, ask in ASKED.items() for row in rows.pop(kind, ())]
        checks = [question(asked)] if asked else []
    return checks + [
        _CHECKS[kind](*zip(*rows[kind], strict=True)) for kind in _CHECKS if kind in rows
    ]


def _comparisons(rows: dict[str, list[Any]]) -> int:
    """The number of objects that machine code would compare."""
    found = 0
    for kind, own in rows.items():
        if kind in ("elements", "values"):
            found += sum(len(parts) for _, parts in own)
        elif kind in ASKED:
            found += len(own)
    return found


def _rows(guard: Any) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """The rows of a guard's check, with their kinds in ``_CHECKS``."""
    holder, value = guard.holder, guard.expected
    if type(value) is not Snapshot:
        return [_row(guard)]
    if guard.access != "contents" or guard._weak or guard.by_identity:
        return [("guard", (guard,))]
    if value.value is holder:
        try:
            return list(value.rows())
        except raised_here(TypeError):
            pass
    return [("snapshot", (value.matches, holder))]


def _row(guard: Any) -> tuple[str, tuple[Any, ...]]:
    """The row of a guard with a value that is compared by itself."""
    holder, key, value, access = guard.holder, guard.key, guard.expected, guard.access
    present = value is not ABSENT
    weak, method = type(value) is WeakValue, type(value) is MethodType
    if guard.held_by_caller and access == "attribute" and present:
        return ("method" if weak else "attribute"), (weakref.proxy(holder()), key, value)
    if weak:
        return "guard", (guard,)
    if guard._weak:
        plain = access == "attribute" and present and not method
        return ("weak", (holder, key, value)) if plain else ("guard", (guard,))
    if access == "item" and type(holder) is dict:
        return ("item", (holder, key, value)) if present else ("presence", (holder, key, False))
    if access == "item" and present and type(holder) in (list, tuple) and type(key) is int:
        return "item", (holder, key, value)
    if access == "member":
        names = vars(holder)
        return ("item", (names, key, value)) if present else ("presence", (names, key, False))
    if access in ("attribute", "__defaults__") or (access == "cell" and present):
        key = "cell_contents" if access == "cell" else key
        return ("method" if method else "attribute"), (holder, key, value)
    if access == "context" and present:
        return "context", (holder, value)
    if access == "call" and holder is isinstance and type(value) is bool:
        return "instance", (*key, value)
    if access == "presence":
        return "presence", (holder, key, value)
    if access in ("length", "truth"):
        return ("size" if access == "length" else "truth"), (holder, value)
    return "guard", (guard,)


_joined = chain.from_iterable
# By kind of check: from the columns of its rows, a function that returns whether any of
# them does not hold.
_CHECKS: dict[str, Callable[..., Callable[[], bool]]] = {
    "item": lambda a, keys, was: lambda: any(map(is_not, map(getitem, a, keys), was)),
    "attribute": lambda a, keys, was: (
        lambda: any(map(is_not, map(getattr, a, keys, repeat(ABSENT)), was))
    ),
    "weak": lambda a, keys, was: lambda: any(map(is_not, map(getattr, map(call, a), keys), was)),
    "method": lambda a, keys, was: lambda: not all(map(eq, was, map(getattr, a, keys))),
    "presence": lambda a, keys, was: lambda: any(map(is_not, map(contains, a, keys), was)),
    "instance": lambda a, cls, was: lambda: any(map(is_not, map(isinstance, a, cls), was)),
    "truth": lambda a, was: lambda: any(map(is_not, map(bool, a), was)),
    "context": lambda a, was: lambda: any(map(is_not, map(ContextVar.get, a), was)),
    "size": lambda a, was: lambda: not all(map(eq, map(len, a), was)),
    "elements": lambda a, was: lambda: any(map(is_not, _joined(a), _joined(was))),
    "values": lambda a, was: lambda: any(map(is_not, _joined(map(dict.values, a)), _joined(was))),
    "item type": lambda a, keys, was: (
        lambda: any(map(is_not, map(type, map(getitem, a, keys)), was))
    ),
    "snapshot": lambda matches, a: lambda: not all(map(call, matches, a)),
    "guard": lambda guards: lambda: not all(guard.holds() for guard in guards),
}

# The same rows as comparisons that machine code makes, all in one call.
_ELEMENTS: dict[type, str] = {list: "list", dict: "keys"}
ASKED: dict[str, Callable[..., Row]] = {
    "item": lambda a, key, was: ("dict_item" if type(a) is dict else "item", a, key, was),
    "attribute": lambda a, key, was: ("attribute", a, key, NOTHING if was is ABSENT else was),
    "weak": lambda a, key, was: ("weak", a, key, was),
    "method": lambda a, key, was: ("equal", a, key, was),
    "presence": lambda a, key, was: ("contains", a, key, Number(was)),
    "instance": lambda a, cls, was: ("instance", a, cls, Number(was)),
    "truth": lambda a, was: ("truth", a, NOTHING, Number(was)),
    "context": lambda a, was: ("context", a, NOTHING, was),
    "size": lambda a, was: ("size", a, NOTHING, Number(was)),
    "elements": lambda a, was: (_ELEMENTS.get(type(a), "elements"), a, Number(len(was)), was),
    "values": lambda a, was: ("values", a, Number(len(was)), was),
    "item type": lambda a, key, was: ("type_of_item", a, key, was),
}
