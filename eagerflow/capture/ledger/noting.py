"""Noting: how a reading turns what it finds into facts, or into a refusal."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.ledger.lookup import Found, Run
from eagerflow.capture.ledger.remembering import (
    TooLarge,
    category,
    is_symbolic,
    is_tool,
    remember,
    remember_tree,
)
from eagerflow.capture.ledger.walking import Action

Watch = Any  # imports what imports this module

__all__ = ["Noting"]


class Noting:
    """Facts about what one run reads; the base of ``Reading``."""

    def __init__(self, watch: Watch, run: Run) -> None:
        self.watch = watch
        self.run = run
        self.action: Action | None = None  # which is looked at
        self.stored: dict[Any, Any] = {}  # what the line itself assigns

    def note(
        self, kind: str, name: str, how: str, holder: Any, key: Any, value: Any, known: bool = True
    ) -> bool:
        """Add a fact, unless the trace itself has put the value there; whether it is one."""
        if is_symbolic(value) or (how, id(holder), key) in self.stored:
            return False
        line = self.action.line if self.action else self.run.code.co_firstlineno
        place = self.run.file, line
        return self.watch.note(kind, name, how, holder, key, value, place, known)

    def found(self, value: Any, noted: bool, name: str) -> list[Found]:
        """What an edge leads to; it is from before the trace if the edge is."""
        if noted:
            self.watch.know(value)
        return [Found(value, noted or self.watch.knows(value), name)]

    def refuse(self, kind: str, name: str, value: Any) -> None:
        """Remember that the trace relied on what cannot be compared."""
        if not self.run.trusted:
            line = self.action.line if self.action else None
            self.watch.refuse(kind, name, value, f"{self.run.file}:{line}")

    def whole(self, found: Found, deep: bool, objects: bool = False) -> None:
        """A fact about everything in a container, an array or an object."""
        value, _, name = found
        kind = category(value)
        key: Any = (deep, objects)
        if self.run.trusted and self.watch.is_tree(value):
            key = "tree"
            if not self.watch.has("whole", value, key):
                held = remember_tree(value)
                self.note("contents", name, "whole", value, key, held)
                for _, part in held.parts:
                    self.watch.know(part)
            return
        if kind == "object" and (self.run.trusted or is_tool(value)):
            return
        if any(self.watch.has("whole", value, k) for k in (key, (True, objects), (True, True))):
            return
        pre = self.watch.mutated.get(id(value))
        try:
            held = pre[1] if pre else remember(
                value, deep, lambda kind, part: self.refuse(kind, f"a part of {name}", part),
                objects, self.watch.know,
            )  # fmt: skip
        except TooLarge as error:
            self.watch.too_large(name, value, f"{self.run.file}:{self._line()}", str(error))
            return
        if not held.fixed:
            self.note("array" if kind == "array" else "contents", name, "whole", value, key, held)

    def _line(self) -> int | None:
        return self.action.line if self.action else None
