"""Noting: how a reading turns what it finds into facts, or into a refusal."""

from __future__ import annotations

import decimal
import importlib.machinery
import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy._core import arrayprint, umath

from eagerflow.capture.guards.bytecode import Action
from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.capture.guards.ledger import UNWATCHED, Given, answer, in_context, specials
from eagerflow.capture.guards.lookup import Found, Run
from eagerflow.capture.guards.snapshot import (
    ALL,
    Remembered,
    TooLarge,
    category,
    elements,
    is_symbolic,
    is_tool,
    remember,
    remember_tree,
)

Watch = Any  # imports what imports this module

__all__ = ["Noting"]

_DEPTHS: dict[bool | str, int] = {ALL: 1, True: 2, False: 3}
_OTHERS = {*sys.stdlib_module_names, "eagerflow", "ml_dtypes", "numpy"} - {"__main__"}
_users: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_users(cls: type) -> bool:
    """Whether a class was made by a class statement of the user's, who may change it."""
    known = _users.get(cls)
    if known is None:
        root = str(cls.__module__).partition(".")[0]
        known = _users[cls] = bool(cls.__flags__ & 1 << 9) and root not in _OTHERS
    return known


def _decimals() -> tuple[Any, ...]:
    own = decimal.getcontext()
    traps = [signal for signal, on in own.traps.items() if on]
    return own.prec, own.rounding, own.Emin, own.Emax, own.capitals, own.clamp, tuple(traps)


def _importable(name: str) -> bool:
    """Whether an import would find a module."""
    return name in sys.modules or importlib.machinery.PathFinder.find_spec(name) is not None


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
            self.watch.refuse(kind, name, value, f"{self.run.file}:{self._line()}")

    def refuse_call(self, kind: str, name: str) -> None:
        """Remember that the trace relied on a call that nobody can be sure of."""
        if not self.run.trusted:
            self.watch.refuse_call(kind, f"{name}()", self.run.file, self._line())

    def whole(self, found: Found, deep: bool, objects: bool | str = False) -> None:
        """A fact about everything in a container, an array or an object."""
        value, _, name = found
        kind = category(value)
        key: Any = (deep, objects)
        if self.run.trusted and self.watch.is_tree(value):
            self._tree(found)
            return
        if kind == "object" and (self.run.trusted or is_tool(value)):
            return
        deeper = [(True, ALL), (True, True), (True, False)][: _DEPTHS[objects] if deep else 3]
        if any(self.watch.has("whole", value, k) for k in (key, *deeper)):
            return
        pre = self.watch.mutated.get(id(value))
        known = pre[1] if pre else self._remember(value, name, deep, objects)
        if known is not None and not known.fixed:
            what = "array" if kind == "array" else "contents"
            self.note(what, name, "whole", value, key, known)

    def _tree(self, found: Found) -> None:
        """Facts about attributes that eagerflow walks over, and about containers among them."""
        value, _, name = found
        if not self.watch.has("whole", value, "tree"):
            held = remember_tree(value)
            self.note("contents", name, "whole", value, "tree", held)
            for key, part in held.parts:
                self._nest(Found(part, True, f"{name}[{key!r}]"))

    def _nest(self, found: Found) -> None:
        """Facts about which objects are in containers, however deep."""
        value, _, name = found
        self.watch.know(value)
        if category(value) == "container" and self.watch.once("nest", id(value)):
            self.whole(found, False)
            for key, part in elements(value):
                self._nest(Found(part, True, f"{name}[{key!r}]"))

    def _remember(
        self, value: Any, name: str, deep: bool, objects: bool | str
    ) -> Remembered | None:
        """What a value holds now; None, and a refusal, if that is too much."""

        def refuse(kind: str, part: Any) -> None:
            self.refuse(kind, f"a part of {name}", part)

        def know(part: Any) -> None:
            self.watch.know(part)
            if objects:
                self.classed(Found(part, True, f"a part of {name}"), objects == ALL)

        try:
            return remember(value, deep, refuse, objects, know)
        except TooLarge as error:
            self.watch.too_large(name, value, f"{self.run.file}:{self._line()}", str(error))
            return None

    def _line(self) -> int | None:
        return self.action.line if self.action else None

    # What is not the value of something ---------------------------------------------------------

    def tell(self, name: str, f: Any) -> None:
        """What a call reads is not known: the ledger says so."""
        if not self.run.trusted:
            self.note("call", name if " " in name else f"{name}()", "never", f, None, UNWATCHED)

    def ask(self, name: str, f: Callable[..., Any], *given: Any) -> list[Found]:
        """A fact about what a call gives, which is asked for again at each check."""
        key = Given(given)
        value = held = answer(f, key)
        again = answer(f, key)
        if again is not value and category(value) in ("container", "array", "object"):
            held = self._remember(value, f"{name}(...)", True, True)
        elif not same(value, again):  # it is another one each time
            self.tell(name, f)
            return []
        noted = held is None or self.note("call", f"{name}(...)", "asked", f, key, held)
        return self.found(value, noted, f"{name}(...)")

    def importable(self, name: str) -> None:
        """A module was not found."""
        if not self.run.trusted:
            self.ask(f"import {name}", _importable, name)

    def variable(self, name: str, variable: ContextVar[Any]) -> list[Found]:
        """The value of a context variable."""
        value = in_context(variable)
        noted = self.note("call", name, "context", variable, None, value)
        return [] if value is ABSENT else self.found(value, noted, name)

    def classed(self, found: Found, every: bool = False) -> None:
        """What a value does where Python asks its class: its class, and what this says."""
        value, known, name = found
        cls = type(value)
        if self.run.trusted or not _is_users(cls):
            return
        if known and category(value) != "code":
            self.note("attribute", f"{name}.__class__", "attribute", value, "__class__", cls)
        self.of_class(cls, every)

    def of_class(self, cls: type, every: bool = False) -> None:
        """A fact about the bases and the special methods of a class, or all that it has."""
        key = True if every else None
        if not self.run.trusted and _is_users(cls) and not self.watch.has("class", cls, key):
            self.note("class", cls.__name__, "class", cls, key, specials(cls, key))

    def decimals(self) -> None:
        """The context of decimal numbers decides how they are computed with."""
        if not self.run.trusted:
            self.ask("decimal.getcontext", _decimals)

    def surroundings(self, value: Any) -> None:
        """The settings of NumPy or of decimal numbers that decide how a value is computed with."""
        if self.run.trusted:
            return
        if isinstance(value, decimal.Decimal):
            self.decimals()
        elif isinstance(value, np.ndarray | np.generic):
            self._setting("np.geterr()", umath, "_extobj_contextvar", np.geterr)

    def printing(self) -> None:
        """NumPy's print options decide on a text."""
        if not self.run.trusted:
            self._setting(
                "np.get_printoptions()", arrayprint, "format_options", np.get_printoptions
            )

    def _setting(self, name: str, module: Any, variable: str, public: Callable[[], Any]) -> None:
        """A setting of NumPy: the object that holds it if there is one, which is quick."""
        held = getattr(module, variable, None)
        if isinstance(held, ContextVar):
            self.variable(name, held)
        else:
            self.ask(name, public)
