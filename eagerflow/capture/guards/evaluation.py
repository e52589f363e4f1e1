"""Reading: which values a piece of a running function reads, and the facts that follow.

Expressions are evaluated with the values that the frame has when it comes to a line, by looking
alone: what code of the user's would compute (a property, a call) is found once the line has run,
where its result went to. Every value that is found carries its *origin*: whether it was there
before the trace, and its name as the user wrote it.
"""

from __future__ import annotations

import abc
import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from types import (
    BuiltinFunctionType,
    ModuleType,
)
from typing import Any

from eagerflow.capture.guards import (
    builtin_calls,  # noqa: F401 - it fills in what is exact
    calls,
)
from eagerflow.capture.guards.equality import ABSENT
from eagerflow.capture.guards.equality import PLAIN as PLAIN_TYPES
from eagerflow.capture.guards.line_reads import Action, Expression, Piece
from eagerflow.capture.guards.lookup import (
    CODE,
    LAYERS,
    MADE,
    MISSING,
    USER,
    Found,
    Run,
    functions_in,
    look,
    origins,
    own_names,
)
from eagerflow.capture.guards.snapshot import (
    TooLarge,
    attributes_of,
    category,
    remember,
)
from eagerflow.capture.guards.uses import Using
from eagerflow.variable import Variable

Watch = Any  # imports this module

__all__ = ["Reading"]

_GIVING = {"call", "spread", "attribute", "item", "built", "either", "result"}
_HOLDING = {"weakref", "_weakrefset", "collections"}  # classes that keep parts in an attribute


class Reading(Using):
    """One look at a piece, before it runs or (``late``) after it has run."""

    def __init__(self, watch: Watch, run: Run, values: Any, late: bool) -> None:
        super().__init__(watch, run)
        self.values = values
        self.late = late
        self.bound: dict[str, list[Found]] = {}  # locals that the line itself assigns
        self.memo: dict[Expression, list[Found]] = {}
        self.unknown: set[Expression] = set()
        self.settled: set[Expression] = set()  # calls that give nothing to look into
        self.walked: set[Expression] = set()  # calls that give what walks over known elements
        self.open = False  # something is known only once the line has run

    def piece(self, piece: Piece) -> tuple[Action, ...]:
        """Read a piece; gives the actions that have to be read again when it has run."""
        late = []
        for number, action in enumerate(piece.actions):
            self.open = False
            self.act(action, number < piece.straight)
            if self.open and self._matters(action):
                late.append(action)
        self.run.stores += self.stored.values()
        return tuple(late)

    def _matters(self, action: Action) -> bool:
        """Whether more is learned from an action once the results of calls are known."""
        if action.verb == "bind" or (action.verb == "return" and not self.run.root):
            return False
        if action.verb != "call":
            return True
        waiting = list(action.parts[0].parts)  # only what it is called with, and not its result
        while waiting:
            part = waiting.pop()
            if part in self.unknown:
                return True
            if part.kind in ("built", "either"):
                waiting += part.parts
        return False

    def again(self, actions: Iterable[Action]) -> None:
        """Read what could not be read before the piece has run."""
        for action in actions:
            self.act(action, False)

    def act(self, action: Action, certain: bool) -> None:
        """Read what one action reads."""
        self.action = action
        verb, parts = action.verb, action.parts
        if verb == "bind":
            self.bound[action.name] = self.find(parts[0])
        elif verb in ("read", "call"):
            self.find(parts[0])
        elif verb == "iterate":
            self.each(parts[0], self.iterate)
        elif verb == "use":
            for part in parts:
                self.each(part, self.operand)
        elif verb == "text":
            for part in parts:
                self.each(part, self.operand)
                self.text(part)
        elif verb == "identity":
            for part in parts:
                self.each(part, self.identity)
        elif verb == "kind":
            self.classes(parts[0])
            self.ask("abc.get_cache_token", abc.get_cache_token)
        elif verb == "match":
            self.match(parts[0], parts[1], *action.name)
        elif verb == "truth":
            self.each(parts[0], self.truth)
        elif verb == "contains":
            self.contains(*parts)
        elif verb == "make":
            self.watch.made.setdefault(id(action.name), []).append(self.run.cells)
        elif verb == "return":
            if self.run.root:
                self.each(parts[0], self.use)
        elif not self.late:
            self.store(action, certain)

    def each(self, expression: Expression, do: Callable[[Found], None], deep: bool = False) -> None:
        """``do`` with every value that an expression can have, ``deep`` also within new lists."""
        if expression.kind in ("built", "either"):
            for part in expression.parts:
                self.each(part, do if deep or expression.kind == "either" else self.use, deep)
            return
        values = self.find(expression)
        if not values and not (do == self.iterate and self._is_walked(expression)):
            values = self.perhaps(expression, do not in (self.use, self.iterate, self.truth))
        for found in values:
            do(found)

    def _is_walked(self, expression: Expression) -> bool:
        """Whether a value only leads to elements that are known: an iterator, or what it gives."""
        while expression.kind == "call" and expression.parts[0].kind == "unknown":
            expression = expression.parts[-1]
        self.find(expression)
        return expression in self.walked

    def store(self, action: Action, certain: bool) -> None:
        """Something is assigned: the trace has put there what it reads after that."""
        targets: list[tuple[Any, Any]] = []
        if action.verb == "store_attribute":
            targets = [
                (("attribute", id(f.value), action.name), f.value)
                for f in self.find(action.parts[0])
            ]
        elif action.verb == "store_global":
            targets = [(("item", id(self.run.globals), action.name), self.run.globals)]
        elif action.verb == "store_deref":
            cells = self.run.cells.get(action.name, ())
            targets = [(("cell", id(cell), None), cell) for cell in cells]
        else:
            keys = self.find(action.parts[1])
            for found in self.find(action.parts[0]):
                self.mutate(found)
                if len(keys) == 1 and calls.is_key(keys[0].value):
                    targets.append((("item", id(found.value), keys[0].value), found.value))
        if certain and len(targets) == 1:
            self.stored[targets[0][0]] = targets[0]

    def mutate(self, found: Found) -> None:
        """A container is changed: remember what it held, in case that it is read later."""
        value, known, _ = found
        if known and category(value) == "container" and id(value) not in self.watch.mutated:
            try:
                held = remember(value, False, lambda kind, part: None)
            except TooLarge as error:
                place = f"{self.run.file}:{self._line()}"
                self.watch.too_large(found.name, value, place, str(error))
                return
            self.watch.mutated[id(value)] = value, held

    # Values of expressions ----------------------------------------------------------------------

    def find(self, expression: Expression) -> list[Found]:
        """The values that an expression can have; empty if the trace makes them."""
        known = self.memo.get(expression)
        if known is not None:
            self.open = self.open or expression in self.unknown
            return known
        finder = _FINDERS.get(expression.kind)
        if finder is None:
            return []
        before, self.open = self.open, False
        known = self.memo[expression] = finder(self, expression)
        if self.open:
            self.unknown.add(expression)
        self.open = self.open or before
        return known

    def _constant(self, expression: Expression) -> list[Found]:
        return [Found(expression.name, False, repr(expression.name))]

    def _either(self, expression: Expression) -> list[Found]:
        return [found for part in expression.parts for found in self.find(part)]

    def _local(self, expression: Expression) -> list[Found]:
        name = expression.name
        if not self.late and name in self.bound:
            self.open = True
            return self.bound[name]
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return []
        return [Found(value, self.watch.knows(value), name)]

    def _deref(self, expression: Expression) -> list[Found]:
        name = expression.name
        cells = self.run.cells.get(name)
        if not cells:
            return self._local(expression)
        found = []
        for cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:
                self.note("closure", name, "cell", cell, None, ABSENT)
                continue
            noted = name == "__class__" or self.note("closure", name, "cell", cell, None, value)
            found += self.found(value, noted, name)
        return found

    def _global(self, expression: Expression) -> list[Found]:
        name, names = expression.name, self.run.globals
        if self.run.trusted:
            value = names.get(name, self.run.builtins.get(name, ABSENT))
            return [] if value is ABSENT else self.found(value, True, name)
        if name in names:
            value = names[name]
            noted = self.note("global", name, "item", names, name, value)
            return self.found(value, noted, name)
        value = self.run.builtins.get(name, ABSENT)
        if self.note("builtin", name, "item", names, name, ABSENT):
            self.note("builtin", name, "item", self.run.builtins, name, value)
        return [] if value is ABSENT else self.found(value, True, name)

    def _name(self, expression: Expression) -> list[Found]:
        known = expression.name in self.values
        return self._local(expression) if known else self._global(expression)

    def _module(self, expression: Expression) -> list[Found]:
        name = expression.name
        module = sys.modules.get(name)
        if module is None:
            self.open = True  # it is loaded when the line runs
            if self.late:
                self.importable(name)
            return []
        if not self.run.trusted:
            self.note("global", f"import {name}", "item", sys.modules, name, module)
        return [Found(module, True, name)]

    def _super(self, expression: Expression) -> list[Found]:
        found = []
        for cls in self.find(expression.parts[0]):
            # Of an object that the trace makes, what its class has.
            for own in self.find(expression.parts[1]) or [cls]:
                if isinstance(cls.value, type):
                    try:
                        found.append(Found(super(cls.value, own.value), True, "super()"))
                    except TypeError:
                        continue
        return found

    def _attribute(self, expression: Expression) -> list[Found]:
        (base,) = expression.parts
        result = self._given(expression)
        owners = self.owners(base)
        for owner in owners:
            result += self.attribute(owner, expression.name, expression.offset)
        for cls in self.made_of(base):
            result += self.attribute(Found(cls, True, cls.__name__), expression.name)
        return result

    def _given(self, expression: Expression) -> list[Found]:
        """What Python code gave where this was asked for."""
        given = self.run.returned.get(expression.offset, ()) if self.late else ()
        return [Found(value, self.watch.knows(value), "a result") for value in given]

    def owners(self, base: Expression) -> list[Found]:
        """The values that something is read from, or what they may be."""
        if base.kind == "either":
            return [found for part in base.parts for found in self.owners(part)]
        return self.find(base) or self.perhaps(base)

    def perhaps(self, base: Expression, inside: bool = True) -> list[Found]:
        """What a value may be that cannot be found, now that no more is learned about it."""
        if base in self.settled or (base in self.unknown and not self.late):
            return []
        return self.candidates(base, inside)

    def attribute(self, owner: Found, name: str, offset: int = -1) -> list[Found]:
        """The value of an attribute, and the fact that it has this value."""
        value, known, label = owner
        kind = category(value)
        full = f"{label}.{name}"
        if kind == "plain":
            self.surroundings(value)
            found = getattr(value, name, None) if type(value) in PLAIN_TYPES else None
            return [Found(found, known, full)] if callable(found) else []
        if kind == "tensor":
            if isinstance(value, Variable) and name in ("name", "trainable"):
                held = getattr(value, name)
                self.note("attribute", full, "attribute", value, name, held, known)
            return []
        if name == "__dict__" and isinstance(value, type):
            return self.found(vars(value), True, full)
        what, found = look(value, name)
        if what == CODE:
            return self._computed(owner, name, found, offset)
        if what == MISSING:
            return self._missing(owner, name, found, offset)
        if not known and kind == "object":
            known = self._by_class(owner, name, found)
        own = name in own_names(value) or category(found) == "plain"
        if (kind not in ("object", "code", "container") and not own) or what == MADE:
            if not callable(found):
                self.use(owner, True)
                return []
            return [Found(found, known, full)]
        if isinstance(found, BuiltinFunctionType) and not isinstance(value, ModuleType | type):
            return [Found(found, known, full)]
        if self.run.trusted and isinstance(value, ModuleType):
            return self.found(found, True, full)
        known = known or self.watch.knows(value)
        noted = self.note("attribute", full, "attribute", value, name, found, known)
        return self.found(found, noted and known, full)

    def _by_class(self, owner: Found, name: str, found: Any) -> bool:
        """Whether an object that the trace makes has an attribute from its class, from before."""
        cls = type(owner.value)
        if name in own_names(owner.value) or self.run.trusted:
            return False
        given = self.attribute(Found(cls, True, cls.__name__), name)
        return any(f.known and f.value is found for f in given)

    def _computed(self, owner: Found, name: str, raw: Any, offset: int) -> list[Found]:
        """An attribute that Python code gives; the user's is watched while it runs."""
        value, known, label = owner
        full = f"{label}.{name}"
        if isinstance(raw, functools.cached_property):
            self.watch.register(raw.func, True)
            if name in getattr(value, "__dict__", ()):  # it has run by now
                held = vars(value)[name]
                noted = self.note("attribute", full, "attribute", value, name, held, known)
                return self.found(held, noted and known, full)
            self.open = True
            return []
        functions = functions_in(raw) or functions_in(getattr(type(raw), "__get__", None))
        self.watch.register(raw, known)
        if isinstance(raw, functools.singledispatchmethod):
            dispatch: Any = raw.dispatcher
            calls.closed(self, dispatch.dispatch, full)
        elif any(origins[f.__code__.co_filename] in (USER, LAYERS) for f in functions):
            return self._later(offset, full)
        elif known and category(value) == "object":
            return self.ask(full, getattr, value, name)
        self.use(owner, True)
        return []

    def _later(self, offset: int, name: str) -> list[Found]:
        """What Python code gave, which is known once the line has run."""
        self.open = True
        given = self.run.returned.get(offset, ()) if self.late else ()
        return [Found(value, self.watch.knows(value), name) for value in given]

    def _missing(self, owner: Found, name: str, getter: Any, offset: int) -> list[Found]:
        """An attribute that is not there, or that ``__getattr__`` makes up."""
        value, known, label = owner
        full = f"{label}.{name}"
        if isinstance(value, ModuleType):  # its __getattr__ may load it when the line runs
            if not self.run.trusted:
                self.note("attribute", full, "own", value, name, ABSENT)
            self.open = True
            return []
        if category(value) == "container" and not (known and hasattr(value, "__dict__")):
            return []  # it cannot get attributes, or nobody else can give it some
        if getter is None:
            self.note("attribute", full, "attribute", value, name, ABSENT, known)
            return []
        if hasattr(value, "__dict__"):
            self.note("attribute", full, "own", value, name, ABSENT, known)
        if isinstance(value, dict):
            return self.item(owner, [Found(name, False, repr(name))], offset)
        self.watch.register(getter, known)
        return self._later(offset, full)

    def _item(self, expression: Expression) -> list[Found]:
        container, key = expression.parts
        result = self._given(expression)
        branches = container.parts if container.kind == "either" else (container,)
        for branch in branches:
            owners = self.find(branch)
            for owner in owners:
                result += self.item(owner, self.find(key), expression.offset)
            for owner in [] if owners else self.perhaps(branch):
                result.append(owner)
                if owner.known and category(owner.value) in ("container", "array"):
                    self.use(owner)
                    result += self._parts(owner)
        return result

    def item(
        self, owner: Found, keys: list[Found], offset: int = -1, direct: bool = False
    ) -> list[Found]:
        """The values at some keys, and the facts that they are there.

        ``direct`` is for the container's own way, also where a subclass has another.
        """
        value, known, name = owner
        kind = category(value)
        self.classed(owner)
        if kind == "container":
            own = None if direct else calls.method_of(value, "__getitem__")
            if own is not None:
                self.watch.register(own, known)
                return self._later(offset, f"{name}[...]")
            keys = [k for k in keys if calls.is_key(k.value)]
            if keys and not isinstance(value, set | frozenset):
                return [found for key in keys for found in self._at(owner, key.value)]
            self.iterate(owner)
        elif kind == "array":
            self.use(owner)
            return self._parts(owner)
        elif kind in ("foreign", "iterator", "file", "opaque", "memory"):
            self.use(owner)
        elif kind == "object":
            if (found := calls.environment(value, keys, self)) is not None:
                return found
            own = calls.method_of(value, "__getitem__")
            if own is not None and origins[own.__code__.co_filename] in (USER, LAYERS):
                self.watch.register(own, known)
                return self._later(offset, f"{name}[...]")
            self.use(owner, True)
        return []

    def _at(self, owner: Found, key: Any) -> list[Found]:
        container, known, name = owner
        full = f"{name}[{key!r}]"
        value = calls.item_of(container, key)
        if not known:
            return [] if value is ABSENT else [Found(value, self.watch.knows(value), full)]
        pre = self.watch.mutated.get(id(container))
        was = calls.item_of(calls.restored(pre[1]), key) if pre else value
        noted = self.note("item", full, "item", container, key, was)
        return [] if value is ABSENT else self.found(value, noted, full)

    def _parts(self, owner: Found) -> list[Found]:
        """The items of a container, or the attributes of an object."""
        value, known, name = owner
        kind = category(value)
        if kind == "container" or (kind == "array" and value.dtype.hasobject):
            return [Found(part, known, f"{name}[{key!r}]") for key, part in self._few(value)]
        if kind != "object":
            return []
        result = []
        for key, part in attributes_of(value).items():
            inner = Found(part, known, f"{name}.{key}")
            result.append(inner)
            if type(value).__module__ in _HOLDING:  # what it holds in a container of its own
                result += [
                    Found(v() if isinstance(v, weakref.ref) else v, k, n)
                    for v, k, n in self._parts(inner)
                ]
        return result

    def _call(self, expression: Expression) -> list[Found]:
        return calls.call(self, expression)

    def candidates(self, expression: Expression, inside: bool) -> list[Found]:
        """What code that is not watched may have given: what it was given, or parts of that.

        ``inside`` counts the attributes of an object among its parts; who only looks at a result
        as a whole need not know, as all of the object has been looked at when it was passed on.
        """
        if expression.kind not in _GIVING:
            return []
        result: list[Found] = []
        first, *parts = expression.parts or (None,)
        if first is not None and expression.kind in ("call", "spread"):
            before = [first] if first.kind in ("call", "spread") else []
            parts = [*(first.parts if first.kind == "attribute" else before), *parts]
        elif first is not None:
            parts = [first, *parts]
        for part in parts:
            for found in self.find(part) or self.candidates(part, inside):
                result.append(found)
                if found.known and (inside or category(found.value) != "object"):
                    result += self._parts(found)
        return [f for f in result if category(f.value) in ("container", "object", "array")]


_FINDERS: dict[str, Callable[[Reading, Expression], list[Found]]] = {
    "constant": Reading._constant,
    "given": lambda reading, expression: [expression.name],
    "either": Reading._either,
    "local": Reading._local,
    "deref": Reading._deref,
    "global": Reading._global,
    "name": Reading._name,
    "module": Reading._module,
    "super": Reading._super,
    "attribute": Reading._attribute,
    "item": Reading._item,
    "call": Reading._call,
    "spread": Reading._call,
}
