"""Recording: the guards that follow from the reads of one run of a function, or an error."""

from __future__ import annotations

import decimal
import importlib.machinery
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy._core import arrayprint, umath

from eagerflow.capture.guards.categories import category, is_symbolic, is_tool, is_user_class
from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.capture.guards.ledger import READERS, UNWATCHED, Arguments, result_of, state_of_class
from eagerflow.capture.guards.lookup import Found, Run, has_own_lookup
from eagerflow.capture.guards.snapshot import (
    ALL,
    ATTRIBUTES,
    PARTS,
    Snapshot,
    TooLarge,
    elements,
    name_of_item,
    snapshot_of,
    snapshot_of_tree,
)
from eagerflow.cells import file_name

Monitor = Any  # imports what imports this module

_NUMPY_VALUES = (np.ndarray, np.generic)


def _decimal_context() -> tuple[Any, ...]:
    own = decimal.getcontext()
    traps = [signal for signal, on in own.traps.items() if on]
    return own.prec, own.rounding, own.Emin, own.Emax, own.capitals, own.clamp, tuple(traps)


def _importable(name: str) -> bool:
    """Whether an import would find a module."""
    return name in sys.modules or importlib.machinery.PathFinder.find_spec(name) is not None


class GuardBuilder:
    """Adds guards to a monitor for the reads of one line."""

    def __init__(self, monitor: Monitor, run: Run) -> None:
        self.monitor = monitor
        self.run = run
        self.line: int | None = run.code.co_firstlineno
        self.assigned: dict[Any, Any] = {}  # assigned by the line itself

    @property
    def place(self) -> str:
        return f"{file_name(self.run.file)}:{self.line}"

    def add(
        self,
        kind: str,
        name: str,
        access: str,
        holder: Any,
        key: Any,
        value: Any,
        external: bool = True,
    ) -> bool:
        """Add a guard, unless the trace assigned the value; returns whether there is one."""
        if is_symbolic(value) or (access, id(holder), key) in self.assigned:
            return False
        place = self.run.file, self.line
        return self.monitor.add(kind, name, access, holder, key, value, place, external)

    def found(self, value: Any, guarded: bool, name: str) -> list[Found]:
        """A value that was read; it predates the trace if it has a guard."""
        if guarded:
            self.monitor.mark_external(value)
        return [Found(value, guarded or self.monitor.is_external(value), name)]

    def read(self, kind: str, name: str, access: str, holder: Any, key: Any) -> list[Found]:
        """A value with a guard; empty if there is none yet."""
        value = READERS[access](holder, key)
        guarded = self.add(kind, name, access, holder, key, value)
        return [] if value is ABSENT else self.found(value, guarded, name)

    def refuse(self, kind: str, name: str, value: Any = None) -> None:
        """Reject a value that cannot be compared, or a call that cannot be relied on."""
        if not self.run.trusted:
            self.monitor.refuse(kind, name, name if value is None else value, self.place)

    # Contents -----------------------------------------------------------------------------------

    def contents(self, found: Found, reach: int) -> None:
        """A guard about everything in a container, an array or an object."""
        value, _, name = found
        kind = category(value)
        if self.run.trusted and id(value) in self.monitor.trees:
            self._tree(found)
            return
        if kind == "object" and (self.run.trusted or is_tool(value)):
            return
        if any(self.monitor.covers("contents", value, key) for key in range(reach, ALL + 1)):
            return
        before = self.monitor.mutated.get(id(value))
        held = before or self._snapshot_with_classes(value, name, reach)
        if held is not None and not held.immutable:
            self.add(
                "array" if kind == "array" else "contents", name, "contents", value, reach, held
            )

    def _tree(self, found: Found) -> None:
        """Guards about attributes that eagerflow searches, and about containers among them."""
        value, _, name = found
        if not self.monitor.covers("contents", value, "tree"):
            held = snapshot_of_tree(value)
            self.add("contents", name, "contents", value, "tree", held)
            for key, part in held.parts:
                self._containers(Found(part, True, name_of_item(name, key)))

    def _containers(self, found: Found) -> None:
        """Guards about the identities of objects in containers, at any depth."""
        value, _, name = found
        self.monitor.mark_external(value)
        if category(value) == "container" and self.monitor.is_first("containers", id(value)):
            self.contents(found, PARTS)
            for key, part in elements(value):
                self._containers(Found(part, True, name_of_item(name, key)))

    def _snapshot_with_classes(self, value: Any, name: str, reach: int) -> Snapshot | None:
        """The current contents of a value, with guards about the classes of its parts."""

        def refuse(kind: str, part: Any) -> None:
            self.refuse(kind, f"a part of {name}", part)

        def visit(part: Any) -> None:
            self.monitor.mark_external(part)
            if reach >= ATTRIBUTES:
                self.class_of(Found(part, True, f"a part of {name}"), reach == ALL)

        return self._snapshot(name, value, reach, refuse, visit)

    def _snapshot(self, name: str, value: Any, *arguments: Any) -> Snapshot | None:
        """The current contents of a value; None, and an error, if it is too large."""
        try:
            return snapshot_of(value, *arguments)
        except TooLarge as error:
            self.monitor.refuse_size(name, value, self.place, str(error))
            return None

    def before_change(self, found: Found, by_method: bool = False) -> None:
        """Take a snapshot of a container before the trace changes it, in case it is read later.

        The contents of an argument matter even if unread when a method changes it (``by_method``):
        a later call would change it again.
        """
        value, external, name = found
        mutated = self.monitor.mutated
        if category(value) == "container":
            self.monitor.changed_at.setdefault(id(value), self.place)
        if external and category(value) == "container" and id(value) not in mutated:
            held = self._snapshot(name, value, PARTS, lambda kind, part: None)
            if held is not None:
                mutated[id(value)] = held
        if by_method and id(value) in mutated and id(value) in self.monitor.arguments:
            self.contents(found, PARTS)

    # Calls --------------------------------------------------------------------------------------

    def unwatched(self, name: str, f: Any) -> None:
        """Note in the ledger that the reads of a call are not known."""
        if not self.run.trusted:
            text = name if " " in name else f"{name}()"
            self.add("call", text, "unwatched", f, None, UNWATCHED)

    def call(self, name: str, f: Callable[..., Any], *arguments: Any) -> list[Found]:
        """A guard about the result of a call, which is repeated at each check."""
        key = Arguments(arguments)
        value = held = result_of(f, key)
        again = result_of(f, key)
        if again is not value and category(value) in ("container", "array", "object"):
            held = self._snapshot_with_classes(value, f"{name}(...)", ATTRIBUTES)
        elif not same(value, again):  # a different result each time
            self.unwatched(name, f)
            return []
        guarded = held is None or self.add("call", f"{name}(...)", "call", f, key, held)
        return self.found(value, guarded, f"{name}(...)")

    def importable(self, name: str) -> None:
        """Record that a module was not found."""
        if not self.run.trusted:
            self.call(f"import {name}", _importable, name)

    # Classes ------------------------------------------------------------------------------------

    def class_of(self, found: Found, every: bool = False) -> None:
        """Guards about the class of a value and the state of that class."""
        self.which_class(found)
        self.class_state(type(found.value), every)

    def which_class(self, found: Found) -> None:
        """A guard that a value keeps its class."""
        value, external, name = found
        cls = type(value)
        if not self.run.trusted and is_user_class(cls) and external and category(value) != "code":
            access = "plain" if has_own_lookup(cls) else "attribute"
            self.add("attribute", f"{name}.__class__", access, value, "__class__", cls)

    def class_state(self, cls: type, every: bool = False) -> None:
        """A guard about the bases and the special methods of a class, or all its attributes."""
        key = True if every else None
        if self.run.trusted or not is_user_class(cls) or self.monitor.covers("class", cls, key):
            return
        self.add("class", cls.__name__, "class", cls, key, state_of_class(cls, key))

    def members(self, cls: type, name: str, after: type | None = None) -> Any:
        """The attribute of a class, or of ``super`` after one of its bases, with guards."""
        return self.monitor.add_members(cls, name, (self.run.file, self.line), after)

    def class_lookup(self, value: Any, name: str) -> None:
        """Guards about where the class of a value has an attribute; for a class, also its own."""
        if self.run.trusted:
            return
        for cls in (type(value), value) if isinstance(value, type) else (type(value),):
            if is_user_class(cls):
                self.members(cls, name)

    # Surroundings -------------------------------------------------------------------------------

    def environment_variable(self, name: Any, environ: Any = os.environ) -> list[Found]:
        return self.read("environment", str(name), "environment", environ, name)

    def context_variable(self, name: str, variable: ContextVar[Any]) -> list[Found]:
        return self.read("call", name, "context", variable, None)

    def decimal_context(self) -> None:
        """Guard the decimal context, which influences arithmetic."""
        if not self.run.trusted:
            self.call("decimal.getcontext", _decimal_context)

    def numeric_settings(self, value: Any) -> None:
        """Guard settings of NumPy or decimal numbers that influence arithmetic with a value."""
        if self.run.trusted:
            return
        if isinstance(value, decimal.Decimal):
            self.decimal_context()
        elif isinstance(value, _NUMPY_VALUES):
            self._numpy_setting("np.geterr()", umath, "_extobj_contextvar", np.geterr)

    def print_options(self) -> None:
        """Guard NumPy's print options, which influence texts."""
        if not self.run.trusted:
            self._numpy_setting(
                "np.get_printoptions()", arrayprint, "format_options", np.get_printoptions
            )

    def _numpy_setting(
        self, name: str, module: Any, variable: str, public: Callable[[], Any]
    ) -> None:
        """A setting of NumPy; uses the object that holds it if there is one, which is fast."""
        held = getattr(module, variable, None)
        if isinstance(held, ContextVar):
            self.context_variable(name, held)
        else:
            self.call(name, public)
