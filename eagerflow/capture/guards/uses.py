"""Using: what is done with the values that a line reads, and the facts that follow."""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.capture.guards import calls
from eagerflow.capture.guards.line_reads import Expression
from eagerflow.capture.guards.lookup import CORE, FOREIGN, Found, origins
from eagerflow.capture.guards.recording import Noting
from eagerflow.capture.guards.snapshot import category, elements
from eagerflow.variable import Variable

__all__ = ["Using"]

_FEW = 1_000  # parts of a container that are looked at for what a call may have given


class Using(Noting):
    """What operators, loops, calls and questions read from values; the base of ``Reading``.

    Which values an expression can have, ``Reading`` finds.
    """

    find: Callable[[Expression], list[Found]]
    each: Callable[..., None]
    perhaps: Callable[[Expression], list[Found]]
    attribute: Callable[..., list[Found]]
    _parts: Callable[[Found], list[Found]]

    def use(self, found: Found, objects: bool = False) -> None:
        """All of a value may be looked at."""
        value, known, name = found
        kind = category(value)
        self.surroundings(value)
        if kind == "plain" or kind == "tensor":
            return
        self.classed(found)
        if kind == "code":
            calls.pass_on(self, found)
        elif kind == "container" and not known:
            for key, part in self._few(value):
                inner = Found(part, self.watch.knows(part), f"{name}[{key!r}]")
                if inner.known or category(part) == "container":
                    self.use(inner, objects)
        elif not known:
            return
        elif kind in ("container", "array") or (kind == "object" and objects):
            self.whole(found, True, objects)
        elif kind != "object":
            self.refuse(kind, name, value)

    def operand(self, found: Found) -> None:
        """An operator, or what makes a text, looks at a value in a way that its class has."""
        root = type(found.value).__module__.partition(".")[0]
        self.use(found, root in sys.stdlib_module_names and root != "__main__")

    def match(self, subject: Expression, cls: Expression, count: int, names: Any) -> None:
        """A value is matched with a class pattern."""
        self.belongs(subject, cls, isinstance)
        owners = self.find(subject)
        for owner in owners or self.perhaps(subject):
            self.use(owner, True)
            for found in self.find(cls):
                given = getattr(found.value, "__match_args__", ())[:count]
                for name in (*given, *names):
                    self.attribute(owner, name)

    def text(self, expression: Expression) -> None:
        """A value is written as text: if it may hold an array, as NumPy's options say."""
        if expression.kind == "built":
            for part in expression.parts:
                self.text(part)
            return
        values = self.find(expression)
        if (
            not values
            or any(category(f.value) not in ("plain", "tensor") for f in values)
            or any(isinstance(f.value, np.generic) for f in values)
        ):
            self.printing()
        for found in values:
            self._shown(found, 3)

    def _shown(self, found: Found, depth: int) -> None:
        """The text of a Variable shows the value of now."""
        if isinstance(found.value, Variable):
            self.tell(f"the value of {found.name} in a text", found.value)
        elif depth and category(found.value) == "container":
            for part in self._parts(found):
                self._shown(part, depth - 1)

    def identity(self, found: Found) -> None:
        """It is asked which object a value is: an equal one is another."""
        if category(found.value) == "plain" or type(found.value) in (tuple, frozenset):
            self.watch.exact.append(found.value)

    def classes(self, expression: Expression) -> list[type]:
        """The classes of what an expression may be, and what they say."""
        found = []
        for owner in self.find(expression):
            self.classed(owner)
            found.append(type(owner.value))
        return found or self.made_of(expression)

    def made_of(self, expression: Expression) -> list[type]:
        """The classes that are called to make a value of which no more is known."""
        if expression.kind not in ("call", "spread") or self.run.trusted:
            return []
        found = [f.value for f in self.find(expression.parts[0]) if isinstance(f.value, type)]
        for cls in found:
            self.of_class(cls)
        return found

    def belongs(
        self, expression: Expression, classes: Expression, ask: Callable[..., bool]
    ) -> None:
        """It is asked whether a value belongs to a class."""
        if self.run.trusted:
            return
        wanted = classes.parts if classes.kind == "built" else (classes,)
        found = [f for part in wanted for f in self.find(part)]
        plain = found and all(type(f.value) is type for f in found)
        self.classes(expression)
        for f in found:
            self.classed(f)
            if isinstance(f.value, type):
                self.of_class(f.value)
        owners = self.find(expression)
        for owner in owners:
            if ask is issubclass and isinstance(owner.value, type):
                self.of_class(owner.value)
            if owner.known and category(owner.value) in ("object", "code", "container", "array"):
                for f in [] if plain else found:
                    self.ask(ask.__name__, ask, owner.value, f.value)
        if not plain and not (owners and all(owner.known for owner in owners)):
            self.ask("abc.get_cache_token", abc.get_cache_token)

    def _few(self, value: Any) -> list[tuple[Any, Any]]:
        pairs = []
        for pair in elements(value):
            pairs.append(pair)
            if len(pairs) == _FEW:
                break
        return pairs

    def iterate(self, found: Found) -> None:
        """The elements of a value are walked over."""
        value, known, _ = found
        kind = category(value)
        self.classed(found)
        if not known or kind in ("plain", "tensor", "code"):
            return
        if kind == "container" and not calls.method_of(value, "__iter__"):
            self.whole(found, False)
        elif kind == "object":
            own = calls.method_of(value, "__iter__") or calls.method_of(value, "__getitem__")
            if own is None or origins[own.__code__.co_filename] in (CORE, FOREIGN):
                self.whole(found, True, True)
        else:
            self.use(found)

    def truth(self, found: Found) -> None:
        """A value is asked whether it is true."""
        value, known, name = found
        kind = category(value)
        self.classed(found)
        if known and kind == "container" and not calls.method_of(value, "__bool__", "__len__"):
            self._measure("truth", f"bool({name})", value, bool)
        elif known and kind in ("array", "foreign"):
            self.use(found)

    def length(self, found: Found) -> None:
        """A value is asked how long it is."""
        value, known, name = found
        if known and category(value) == "container" and not calls.method_of(value, "__len__"):
            self._measure("length", f"len({name})", value, len)
        else:
            self.iterate(found)

    def _measure(self, how: str, name: str, value: Any, measure: Callable[[Any], Any]) -> None:
        if any(self.watch.has("whole", value, (deep, False)) for deep in (False, True)):
            return
        pre = self.watch.mutated.get(id(value))
        now = measure(pre[1].parts if pre else value)
        self.note("contents", name, how, value, None, now)

    def contains(self, item: Expression, container: Expression) -> None:
        """A container is asked for an element."""
        items = self.find(item)
        if container.kind == "built":
            self.each(container, self.use)
        for found in self.find(container):
            value, known, name = found
            self.classed(found)
            if known and isinstance(value, dict) and not calls.method_of(value, "__contains__"):
                for key in items:
                    if category(key.value) == "plain" and calls.is_key(key.value):
                        self._presence(value, key.value, f"{key.value!r} in {name}")
                    else:
                        self.whole(found, False)
                if not items:
                    self.whole(found, False)
            elif known and category(value) not in ("plain", "tensor", "code"):
                self.use(found, True)
        self.each(item, self.use)

    def _presence(self, value: Any, key: Any, name: str) -> None:
        pre = self.watch.mutated.get(id(value))
        now = any(key == k for k, _ in pre[1].parts) if pre else dict.__contains__(value, key)
        self.note("contents", name, "presence", value, key, now)
