"""Evaluation: which values a line of a running function reads, and their uses.

Expressions are evaluated with the values of the frame when it reaches a line, by inspection
only: results of user code (a property, a call) are known once the line has run,
at their destination. For every value found, the evaluation knows whether it existed before
the trace, and its name as the user wrote it.
"""

from __future__ import annotations

import abc
import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np

from eagerflow.capture.guards import calls
from eagerflow.capture.guards.bytecode import Action, Expression
from eagerflow.capture.guards.categories import (
    PLAIN,
    SETTINGS_OF_VARIABLES,
    category,
    is_key,
    is_standard,
    is_user_class,
    keeps_parts_inside,
)
from eagerflow.capture.guards.equality import ABSENT
from eagerflow.capture.guards.line_reads import LineReads
from eagerflow.capture.guards.lookup import (
    COMPUTED,
    FRESH,
    MISSING,
    Changes,
    Found,
    Run,
    computes,
    functions_in,
    has_own_lookup,
    is_watched,
    lookup_attribute,
    method_of,
    own_names,
    value_of_cell,
)
from eagerflow.capture.guards.recording import GuardBuilder
from eagerflow.capture.guards.snapshot import (
    ATTRIBUTES,
    NESTED,
    PARTS,
    attributes_of,
    elements,
    item_of,
    name_of_item,
)
from eagerflow.capture.number_questions import answers
from eagerflow.handlers import raised_here
from eagerflow.number import Number
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

Monitor = Any  # imports this module

# Expressions with a value that may be a part of their operands.
_DERIVING = {"call", "spread", "attribute", "item", "built", "either", "result"}
# The method applied to each value of an action, by its verb.
_LOOKING = {
    "identity": "identity",
    "iterate": "iterate",
    "text": "operand",
    "truth": "truth",
    "use": "operand",
}
_ARRAYS = ("array", "foreign")  # passed to a trace as Tensors
_MAX_PARTS = 1_000  # limit of parts inspected for the possible result of a call


class Evaluator:
    """One evaluation of a line, before it runs or (``has_run``) after that."""

    def __init__(self, monitor: Monitor, run: Run, values: Any, has_run: bool) -> None:
        self.monitor = monitor
        self.run = run
        self.values = values  # of locals
        self.has_run = has_run
        self.guards = GuardBuilder(monitor, run)
        self.bound: dict[str, list[Found]] = {}  # locals assigned by the line itself
        self.memo: dict[Expression, list[Found]] = {}
        self.pending = False  # whether something is known only once the line has run
        self.pending_expressions: set[Expression] = set()
        self.without_parts: set[Expression] = set()  # calls with a result without parts
        self.iterators: set[Expression] = set()  # calls that return iterators over known elements
        self.changes = Changes.NONE

    # Actions ------------------------------------------------------------------------------------

    def line(self, line: LineReads) -> tuple[Action, ...]:
        """Evaluate a line; returns the actions to evaluate again when it has run."""
        deferred = []
        for number, action in enumerate(line.actions):
            self.pending = False
            self.act(action, number < line.straight)
            if self.pending and self._is_worth_deferring(action):
                deferred.append(action)
        self.run.assignments += self.guards.assigned.values()
        return tuple(deferred)

    def _is_worth_deferring(self, action: Action) -> bool:
        """Whether results of calls, once known, can add to the reads of an action."""
        if action.verb == "bind" or (action.verb == "return" and not self.run.root):
            return False
        if action.verb != "call":
            return True
        waiting = list(action.parts[0].parts)  # only its arguments, not its result
        while waiting:
            part = waiting.pop()
            if part in self.pending_expressions:
                return True
            if part.kind in ("built", "either"):
                waiting += part.parts
        return False

    def again(self, actions: Iterable[Action]) -> None:
        """Evaluate actions that could not be evaluated before the line has run."""
        for action in actions:
            self.act(action, False)

    def act(self, action: Action, certain: bool) -> None:
        """Record the reads of one action."""
        self.guards.line = action.line
        verb, parts = action.verb, action.parts
        if verb == "bind":
            self.bound[action.name] = self.evaluate(parts[0])
        elif verb in ("read", "call"):
            self.evaluate(parts[0])
        elif verb in _LOOKING:
            if verb == "use" and len(parts) > 1:  # perhaps an operator in place
                for found in self.evaluate(parts[0]):
                    if category(found.value) in ("container", "object"):
                        self.changed(found)
            if verb == "identity":
                self.aliases(*parts)
            for part in parts:
                self.each(part, getattr(self, _LOOKING[verb]))
                if verb == "text":
                    self.text(part)
        elif verb == "kind":
            self.classes(parts[0])
            self.subclass_registry()
        elif verb == "class":
            self.classes(parts[0])
        elif verb == "match":
            self.match(parts[0], parts[1], *action.name)
        elif verb == "contains":
            self.contains(*parts)
        elif verb == "make":
            self.monitor.closures.setdefault(id(action.name), []).append(self.run.cells)
        elif verb == "return":
            if self.run.root:
                self.each(parts[0], self.use)
        elif not self.has_run:
            self.store(action, certain)

    def each(self, expression: Expression, do: Callable[[Found], None], deep: bool = False) -> None:
        """``do`` with every value of an expression, ``deep`` also within new lists."""
        if expression.kind in ("built", "either"):
            for part in expression.parts:
                self.each(part, do if deep or expression.kind == "either" else self.use, deep)
            return
        values = self.evaluate(expression)
        if not values and not (do == self.iterate and self._is_iterator(expression)):
            values = self.candidates(expression, do not in (self.use, self.iterate, self.truth))
        for found in values:
            do(found)

    def _is_iterator(self, expression: Expression) -> bool:
        """Whether a value only leads to known elements: an iterator, or an element of one."""
        while expression.kind == "call" and expression.parts[0].kind == "unknown":
            expression = expression.parts[-1]
        self.evaluate(expression)
        return expression in self.iterators

    def store(self, action: Action, certain: bool) -> None:
        """Record an assignment: later reads of the target see a value of the trace."""
        targets: list[tuple[Any, Any]] = []
        if action.verb == "store_attribute":
            owners = [found.value for found in self.evaluate(action.parts[0])]
            targets = [(("attribute", id(own), action.name), own) for own in owners]
            self.changes = Changes.OBJECTS
            for own in owners:
                self.monitor.changed_at.setdefault(id(own), self.guards.place)
        elif action.verb == "store_global":
            targets = [(("item", id(self.run.globals), action.name), self.run.globals)]
            self.changes = Changes.OBJECTS
        elif action.verb == "store_deref":
            cells = self.run.cells.get(action.name, ())
            targets = [(("cell", id(cell), None), cell) for cell in cells]
            self.changes = Changes.OBJECTS
        else:
            keys = self.evaluate(action.parts[1])
            self.changed(None)
            for found in self.evaluate(action.parts[0]):
                self.changed(found)
                self.guards.before_change(found)
                if len(keys) == 1 and is_key(keys[0].value):
                    targets.append((("item", id(found.value), keys[0].value), found.value))
        if certain and len(targets) == 1:
            self.guards.assigned[targets[0][0]] = targets[0]

    def changed(self, found: Found | None) -> None:
        """Note that the line may change a value, or one that the trace has made."""
        outside = found is not None and found.external
        if outside or not self.run.trusted:
            self.changes = max(self.changes, Changes.OBJECTS if outside else Changes.CONTAINERS)

    # Values of expressions ----------------------------------------------------------------------

    def evaluate(self, expression: Expression) -> list[Found]:
        """The possible values of an expression; empty if the trace makes them."""
        known = self.memo.get(expression)
        if known is not None:
            self.pending = self.pending or expression in self.pending_expressions
            return known
        method = _BY_KIND.get(expression.kind)
        if method is None:
            return []
        before, self.pending = self.pending, False
        known = self.memo[expression] = method(self, expression)
        if self.pending:
            self.pending_expressions.add(expression)
        self.pending = self.pending or before
        return known

    def _constant(self, expression: Expression) -> list[Found]:
        return [Found(expression.name, False, repr(expression.name))]

    def _either(self, expression: Expression) -> list[Found]:
        return [found for part in expression.parts for found in self.evaluate(part)]

    def _local(self, expression: Expression) -> list[Found]:
        name = expression.name
        if not self.has_run and name in self.bound:
            self.pending = True
            return self.bound[name]
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return []
        return [Found(value, self.monitor.is_external(value), name)]

    def _deref(self, expression: Expression) -> list[Found]:
        name = expression.name
        cells = self.run.cells.get(name)
        if not cells:
            return self._local(expression)
        found = []
        for cell in cells:
            value = value_of_cell(cell)
            if name == "__class__" and value is not ABSENT:  # set by the compiler, for super()
                found += self.guards.found(value, True, name)
            else:
                found += self.guards.read("closure", name, "cell", cell, None)
        return found

    def _global(self, expression: Expression) -> list[Found]:
        name, names = expression.name, self.run.globals
        if self.run.trusted:
            value = names.get(name, self.run.builtins.get(name, ABSENT))
            return [] if value is ABSENT else self.guards.found(value, True, name)
        if name in names:
            return self.guards.read("global", name, "item", names, name)
        value = self.run.builtins.get(name, ABSENT)
        if self.guards.add("builtin", name, "item", names, name, ABSENT):
            self.guards.add("builtin", name, "item", self.run.builtins, name, value)
        return [] if value is ABSENT else self.guards.found(value, True, name)

    def _name(self, expression: Expression) -> list[Found]:
        is_local = expression.name in self.values
        return self._local(expression) if is_local else self._global(expression)

    def _module(self, expression: Expression) -> list[Found]:
        name = expression.name
        module = sys.modules.get(name)
        if module is None:
            self.pending = True  # loaded when the line runs
            if self.has_run:
                self.guards.importable(name)
            return []
        if not self.run.trusted:
            self.guards.add("global", f"import {name}", "item", sys.modules, name, module)
        return [Found(module, True, name)]

    def _super(self, expression: Expression) -> list[Found]:
        classes, objects = (
            [found.value for found in self.evaluate(part)] for part in expression.parts
        )
        return self.supers(classes, objects)

    def supers(self, classes: list[Any], objects: list[Any]) -> list[Found]:
        """The results of ``super``; for an object made by the trace, attributes of its class."""
        found = []
        for cls in classes:
            for own in objects or [cls]:
                try:
                    found.append(Found(super(cls, own), True, "super()"))
                except raised_here(TypeError):
                    continue
        return found

    def _attribute(self, expression: Expression) -> list[Found]:
        (base,) = expression.parts
        result = self._returned(expression.offset, "a result")
        for owner in self.owners(base):
            result += self.attribute(owner, expression.name, expression.offset)
        for cls in self.constructed_classes(base):
            result += self.attribute(Found(cls, True, cls.__name__), expression.name)
        return result

    def _returned(self, offset: int, name: str) -> list[Found]:
        """Results of Python code called by the instruction at ``offset``."""
        given = self.run.returned.get(offset, ()) if self.has_run else ()
        return [Found(value, self.monitor.is_external(value), name) for value in given]

    def deferred_result(self, offset: int, name: str) -> list[Found]:
        """The result of Python code, known once the line has run."""
        self.pending = True
        return self._returned(offset, name)

    def owners(self, base: Expression) -> list[Found]:
        """The values that something is read from, or candidates for them."""
        if base.kind == "either":
            return [found for part in base.parts for found in self.owners(part)]
        return self.evaluate(base) or self.candidates(base)

    def candidates(self, expression: Expression, inside: bool = True) -> list[Found]:
        """The possible values of an expression that cannot be evaluated further.

        ``inside`` counts the attributes of an object among its parts; uses of a result as a whole
        do not need them, as the whole object was recorded when it was passed on.
        """
        pending = expression in self.pending_expressions and not self.has_run
        if pending or expression in self.without_parts:
            return []
        return self._sources(expression, inside)

    def _sources(self, expression: Expression, inside: bool) -> list[Found]:
        """Possible results of unwatched code: its arguments, or parts of them."""
        if expression.kind not in _DERIVING:
            return []
        result: list[Found] = []
        first, *parts = expression.parts or (None,)
        if first is not None and expression.kind in ("call", "spread"):
            before = [first] if first.kind in ("call", "spread") else []
            parts = [*(first.parts if first.kind == "attribute" else before), *parts]
        elif first is not None:
            parts = [first, *parts]
        for part in parts:
            for found in self.evaluate(part) or self._sources(part, inside):
                result.append(found)
                if found.external and (inside or category(found.value) != "object"):
                    result += self.parts(found)
        return [f for f in result if category(f.value) in ("container", "object", "array")]

    # Attributes ---------------------------------------------------------------------------------

    def attribute(
        self, owner: Found, name: str, offset: int = -1, plain: bool = False
    ) -> list[Found]:
        """The value of an attribute, with a guard for this value.

        ``plain`` is for ``object.__getattribute__``, also if a class overrides it.
        """
        value, external, label = owner
        kind = category(value)
        full = f"{label}.{name}"
        if type(value) is Number and not answers(value, name):
            self.number(owner)
        if kind == "plain":
            self.guards.numeric_settings(value)
            found = getattr(value, name, None) if type(value) in PLAIN else None
            return [Found(found, external, full)] if callable(found) else []
        if kind == "tensor" and not self._is_own_of_variable(value, name):
            return []
        if type(value) is super and name != "__class__":
            return self._of_super(value, name, offset)
        if name == "__dict__" and isinstance(value, type):
            return self.guards.found(vars(value), True, full)
        what, found = lookup_attribute(value, name, plain)
        if what == COMPUTED:
            return self._computed(owner, name, found, offset, plain)
        if what == MISSING:
            return self._missing(owner, name, found, offset, plain)
        if not external and kind == "object":
            external = self._is_from_class(owner, name, found)
        own = name in own_names(value) or category(found) == "plain" or kind == "tensor"
        if (kind not in ("object", "code", "container") and not own) or what == FRESH:
            if not callable(found):
                self.use(owner, ATTRIBUTES)
                return []
            return [Found(found, external, full)]
        if isinstance(found, BuiltinFunctionType) and not isinstance(value, ModuleType | type):
            return [Found(found, external, full)]
        if self.run.trusted and isinstance(value, ModuleType):
            return self.guards.found(found, True, full)
        external = external or self.monitor.is_external(value)
        access = "plain" if plain else "attribute"
        guarded = self.guards.add("attribute", full, access, value, name, found, external)
        return self.guards.found(found, guarded and external, full)

    def _is_own_of_variable(self, value: Any, name: str) -> bool:
        """Whether an attribute is a setting of a Variable, or belongs to a user subclass."""
        if not isinstance(value, Variable):
            return False
        cls = type(value)
        self.guards.class_lookup(value, name)
        by_user = any(name in vars(base) for base in cls.__mro__ if is_user_class(base))
        return by_user or name in SETTINGS_OF_VARIABLES or name in own_names(value)

    def _of_super(self, value: Any, name: str, offset: int) -> list[Found]:
        """An attribute of ``super()``, looked up in the bases after a class."""
        full = f"super().{name}"
        cls, after = value.__self_class__, value.__thisclass__
        raw = ABSENT if cls is None else self.guards.members(cls, name, after)
        if raw is ABSENT:
            return []
        self.monitor.register(raw, True)
        if type(raw) is property or computes(raw):
            return self.deferred_result(offset, full)
        return self.guards.found(getattr(value, name), True, full)

    def _is_from_class(self, owner: Found, name: str, found: Any) -> bool:
        """Whether an object made by the trace has an attribute from its class, set before."""
        cls = type(owner.value)
        if name in own_names(owner.value) or self.run.trusted:
            return False
        given = self.attribute(Found(cls, True, cls.__name__), name)
        return any(f.external and f.value is found for f in given)

    def _computed(self, owner: Found, name: str, raw: Any, offset: int, plain: bool) -> list[Found]:
        """An attribute computed by Python code; user code is watched while it runs."""
        value, external, label = owner
        full = f"{label}.{name}"
        hook = has_own_lookup(type(value)) and not plain
        self.guards.which_class(owner)
        self.guards.class_lookup(value, "__getattribute__" if hook else name)
        if isinstance(raw, functools.cached_property):
            self.monitor.register(raw.func, True)
            if name in getattr(value, "__dict__", ()):  # it has run by now
                held = vars(value)[name]
                guarded = self.guards.add(
                    "attribute", full, "attribute", value, name, held, external
                )
                return self.guards.found(held, guarded and external, full)
            self.pending = True
            return []
        if not hook and not hasattr(type(raw), "__set__") and name not in own_names(value):
            self.guards.add("attribute", full, "own", value, name, ABSENT, external)
        functions = functions_in(raw) or functions_in(getattr(type(raw), "__get__", None))
        self.monitor.register(raw, external)
        if isinstance(raw, functools.singledispatchmethod):
            dispatch: Any = raw.dispatcher
            calls.read_closure(self, dispatch.dispatch, full)
        elif any(is_watched(x) for x in functions):
            return self.deferred_result(offset, full)
        elif external and category(value) == "object":
            return self.guards.call(full, getattr, value, name)
        self.use(owner, ATTRIBUTES)
        return []

    def _missing(
        self, owner: Found, name: str, getter: Any, offset: int, plain: bool
    ) -> list[Found]:
        """An attribute that is missing, or computed by ``__getattr__``."""
        value, external, label = owner
        full = f"{label}.{name}"
        if isinstance(value, ModuleType):  # its __getattr__ may load it when the line runs
            if not self.run.trusted:
                self.guards.add("attribute", full, "own", value, name, ABSENT)
                getter = vars(value).get("__getattr__", ABSENT)
                getter_name = f"{label}.__getattr__"
                self.guards.add("attribute", getter_name, "own", value, "__getattr__", getter)
            self.pending = True
            return []
        kind = category(value)
        if kind == "container" and not (external and hasattr(value, "__dict__")):
            return []  # it cannot get attributes, or no other code can set them
        if getter is None:
            access = "plain" if plain else "attribute"
            self.guards.add("attribute", full, access, value, name, ABSENT, external)
            return []
        if hasattr(value, "__dict__"):
            self.guards.add("attribute", full, "own", value, name, ABSENT, external)
        if isinstance(value, dict):
            return self.item(owner, [Found(name, False, repr(name))], offset)
        self.monitor.register(getter, external)
        self.guards.class_lookup(value, name)
        self.guards.class_lookup(value, "__getattr__")
        if (
            external
            and kind != "container"
            and not any(is_watched(x) for x in functions_in(getter))
        ):
            return self.guards.call(full, getattr, value, name)
        return self.deferred_result(offset, full)

    # Items --------------------------------------------------------------------------------------

    def _item(self, expression: Expression) -> list[Found]:
        container, key = expression.parts
        result = self._returned(expression.offset, "a result")
        branches = container.parts if container.kind == "either" else (container,)
        for branch in branches:
            owners = self.evaluate(branch)
            for owner in owners:
                result += self.item(owner, self.evaluate(key), expression.offset)
            for owner in [] if owners else self.candidates(branch):
                result.append(owner)
                if owner.external and category(owner.value) in ("container", "array"):
                    self.use(owner)
                    result += self.parts(owner)
        return result

    def item(
        self, owner: Found, keys: list[Found], offset: int = -1, direct: bool = False
    ) -> list[Found]:
        """The values at some keys, with guards that they are there.

        ``direct`` is for the container's own lookup, also if a subclass overrides it.
        """
        value, external, name = owner
        kind = category(value)
        self.guards.class_of(owner)
        asks_class = kind in ("container", "object") and not direct
        own = method_of(value, "__getitem__") if asks_class else None
        if own is not None and (kind == "container" or is_watched(own)):
            self.monitor.register(own, external)
            return self.deferred_result(offset, f"{name}[...]")
        if kind == "container":
            keys = [k for k in keys if is_key(k.value)]
            if keys and not isinstance(value, set | frozenset):
                return [found for key in keys for found in self._item_at(owner, key.value)]
            self.iterate(owner)
        elif kind == "array":
            self.use(owner)
            return self.parts(owner)
        elif kind in ("foreign", "iterator", "file", "opaque", "memory"):
            self.use(owner)
        elif kind == "object":
            if value is os.environ:
                return [f for key in keys for f in self.guards.environment_variable(key.value)]
            self.use(owner, ATTRIBUTES)
        return []

    def _item_at(self, owner: Found, key: Any) -> list[Found]:
        container, external, name = owner
        full = name_of_item(name, key)
        value = item_of(container, key)
        if not external:
            found = [Found(value, self.monitor.is_external(value), full)]
            return [] if value is ABSENT else found
        before = self.monitor.mutated.get(id(container))
        was = before.item(key) if before else value
        guarded = self.guards.add("item", full, "item", container, key, was)
        return [] if value is ABSENT else self.guards.found(value, guarded, full)

    def parts(self, owner: Found) -> list[Found]:
        """The items of a container, or the attributes of an object."""
        value, external, name = owner
        kind = category(value)
        if kind == "container" or (kind == "array" and value.dtype.hasobject):
            known = self.monitor.is_external
            items = _some_parts(value)
            return [Found(x, external or known(x), name_of_item(name, key)) for key, x in items]
        if kind != "object":
            return []
        result = []
        for key, part in attributes_of(value).items():
            inner = Found(part, external, f"{name}.{key}")
            result.append(inner)
            if keeps_parts_inside(type(value)):
                result += [
                    Found(v() if isinstance(v, weakref.ref) else v, e, n)
                    for v, e, n in self.parts(inner)
                ]
        return result

    # Uses of values -----------------------------------------------------------------------------

    def use(self, found: Found, reach: int = NESTED) -> None:
        """Record a read of a whole value, up to ``reach`` also of attributes of objects."""
        value, external, name = found
        kind = category(value)
        self.guards.numeric_settings(value)
        if kind == "plain" or kind == "tensor":
            return
        self.guards.class_of(found)
        if kind == "code":
            calls.pass_on(self, found)
        elif kind == "container" and not external:
            for key, part in _some_parts(value):
                inner = Found(part, self.monitor.is_external(part), name_of_item(name, key))
                if inner.external or category(part) == "container":
                    self.use(inner, reach)
        elif not external:
            return
        elif kind in ("container", "array") or (kind == "object" and reach >= ATTRIBUTES):
            self.guards.contents(found, reach)
        elif kind != "object":
            self.guards.refuse(kind, name, value)

    def operand(self, found: Found) -> None:
        """Record a read by an operator or a formatter, as defined by the value's class."""
        self.use(found, ATTRIBUTES if is_standard(type(found.value)) else NESTED)

    def match(self, subject: Expression, cls: Expression, count: int, names: Any) -> None:
        """Record a match of a value with a class pattern."""
        self.instance_check(subject, cls, isinstance)
        for owner in self.evaluate(subject) or self.candidates(subject):
            self.use(owner, ATTRIBUTES)
            for found in self.evaluate(cls):
                given = getattr(found.value, "__match_args__", ())[:count]
                for name in (*given, *names):
                    self.attribute(owner, name)

    def text(self, expression: Expression) -> None:
        """Record formatting of a value: if it may hold an array, NumPy's options matter."""
        if expression.kind == "built":
            for part in expression.parts:
                self.text(part)
            return
        values = self.evaluate(expression)
        if (
            not values
            or any(category(f.value) not in ("plain", "tensor") for f in values)
            or any(isinstance(f.value, np.generic) for f in values)
        ):
            self.guards.print_options()
        for found in values:
            self._text_of_variables(found, 3)

    def _text_of_variables(self, found: Found, depth: int) -> None:
        """Report Variables in a text, which show their value at the time of the trace."""
        if isinstance(found.value, Variable):
            self.guards.unwatched(f"the value of {found.name} in a text", found.value)
        elif depth and category(found.value) == "container":
            for part in self.parts(found):
                self._text_of_variables(part, depth - 1)

    def identity(self, found: Found) -> None:
        """Record a check of a value's identity: an equal one would differ."""
        if category(found.value) == "plain" or type(found.value) in (tuple, frozenset):
            self.monitor.by_identity.append(found.value)

    def aliases(self, *parts: Expression) -> None:
        """Reject a comparison by ``is`` that depends on which arguments are the same object."""
        own = self.monitor.remade
        for pair in itertools.product(*[self.evaluate(x) for x in parts]):
            mine = [f for f in pair if id(f.value) in own]
            a, b = pair
            if a.value.__class__ is b.value.__class__:  # a number may be a Python integer
                self.number(a)
                self.number(b)
            if mine and a.value is not b.value and _may_be_one(mine[0].value, pair):
                self.guards.refuse("alias", f"whether {a.name} is {b.name}", f"{a.name}, {b.name}")

    def which(self, found: Found) -> None:
        """Record a read of the identity of a value."""
        self.number(found)
        if id(found.value) in self.monitor.remade:
            self.guards.refuse("alias", f"which object {found.name} is", found.name)

    def which_parts(self, found: Found) -> None:
        """The same for the parts of a container."""
        if category(found.value) != "container":
            self.which(found)
            return
        for key, part in _some_parts(found.value):
            self.which(Found(part, False, name_of_item(found.name, key)))

    def number(self, found: Found) -> None:
        """Invalidate symbolic numbers where the concrete value of a number argument matters."""
        if type(found.value) is Number and found.value.assumptions is not None:
            found.value.assumptions.is_never_true = True

    def numbers(self, found: Found, depth: int = 3) -> None:
        """The same for all numbers in a container."""
        self.number(found)
        if depth and category(found.value) == "container":
            for _, part in _some_parts(found.value):
                self.numbers(found._replace(value=part), depth - 1)

    def copy(self, found: Found) -> None:
        """Note a copy of an array."""
        self.monitor.updates.note_copy(found.value)

    def classes(self, expression: Expression) -> None:
        """Record a read of the class of a value, or of facts that depend on it."""
        owners = self.evaluate(expression)
        for owner in owners:
            self.guards.class_of(owner)
        if not owners:
            self.constructed_classes(expression)

    def constructed_classes(self, expression: Expression) -> list[type]:
        """The classes called to make an otherwise unknown value."""
        if expression.kind not in ("call", "spread") or self.run.trusted:
            return []
        found = [f.value for f in self.evaluate(expression.parts[0]) if isinstance(f.value, type)]
        for cls in found:
            self.guards.class_state(cls)
        return found

    def instance_check(
        self, expression: Expression, classes: Expression, check: Callable[..., bool]
    ) -> None:
        """Record a class check: ``isinstance`` or ``issubclass``."""
        if self.run.trusted:
            return
        wanted = classes.parts if classes.kind == "built" else (classes,)
        found = [f for part in wanted for f in self.evaluate(part)]
        plain = found and all(type(f.value) is type for f in found)
        self.classes(expression)
        for f in found:
            self.guards.class_of(f)
            if isinstance(f.value, type):
                self.guards.class_state(f.value)
        owners = self.evaluate(expression)
        for owner in owners:
            if check is issubclass and isinstance(owner.value, type):
                self.guards.class_state(owner.value)
            if owner.external and category(owner.value) in ("object", "code", "container", "array"):
                for f in [] if plain else found:
                    self.guards.call(check.__name__, check, owner.value, f.value)
        if not plain and not (owners and all(owner.external for owner in owners)):
            self.subclass_registry()

    def subclass_registry(self) -> None:
        """Guard against new subclasses of abstract classes, which may be registered at any time."""
        self.guards.call("abc.get_cache_token", abc.get_cache_token)

    def iterate(self, found: Found) -> None:
        """Record an iteration over the elements of a value."""
        value, external, _ = found
        kind = category(value)
        self.guards.class_of(found)
        if not external or kind in ("plain", "tensor", "code"):
            return
        if kind == "container" and not method_of(value, "__iter__"):
            self.guards.contents(found, PARTS)
        elif kind == "object":
            own = method_of(value, "__iter__", "__getitem__")
            if own is None or not is_watched(own):
                self.guards.contents(found, ATTRIBUTES)
        else:
            self.use(found)

    def truth(self, found: Found) -> None:
        """Record a read of the truth of a value."""
        value, external, name = found
        kind = category(value)
        self.guards.class_of(found)
        if external and kind == "container" and not method_of(value, "__bool__", "__len__"):
            self._measure("truth", f"bool({name})", value, bool)
        elif external and kind in ("array", "foreign"):
            self.use(found)

    def length(self, found: Found) -> None:
        """Record a read of the length of a value."""
        value, external, name = found
        if external and category(value) == "container" and not method_of(value, "__len__"):
            self._measure("length", f"len({name})", value, len)
        else:
            self.iterate(found)

    def _measure(self, access: str, name: str, value: Any, measure: Callable[[Any], Any]) -> None:
        if any(self.monitor.covers("contents", value, reach) for reach in (PARTS, NESTED)):
            return
        before = self.monitor.mutated.get(id(value))
        now = measure(before.parts if before else value)
        self.guards.add("contents", name, access, value, None, now)

    def contains(self, item: Expression, container: Expression) -> None:
        """Record a membership test."""
        items = self.evaluate(item)
        if container.kind == "built":
            self.each(container, self.use)
        for found in self.evaluate(container):
            value, external, name = found
            self.guards.class_of(found)
            if external and isinstance(value, dict) and not method_of(value, "__contains__"):
                keys = [k.value for k in items if category(k.value) == "plain" and is_key(k.value)]
                for key in keys:
                    self._presence(value, key, f"{key!r} in {name}")
                if len(keys) < max(1, len(items)):
                    self.guards.contents(found, PARTS)
            elif external and category(value) not in ("plain", "tensor", "code"):
                self.use(found, ATTRIBUTES)
        self.each(item, self.use)

    def _presence(self, value: Any, key: Any, name: str) -> None:
        before = self.monitor.mutated.get(id(value))
        keys = dict(before.parts) if before else value
        self.guards.add("contents", name, "presence", value, key, dict.__contains__(keys, key))


def _may_be_one(argument: Any, pair: tuple[Found, ...]) -> bool:
    """Whether an argument, remade by a trace, may originally be the object it is compared with."""
    if type(argument) is Tensor:
        return all(type(f.value) is Tensor or category(f.value) in _ARRAYS for f in pair)
    return type(pair[0].value) is type(pair[1].value)


def _some_parts(value: Any) -> Iterable[tuple[Any, Any]]:
    return list(itertools.islice(elements(value), _MAX_PARTS))


_BY_KIND: dict[str, Callable[[Evaluator, Expression], list[Found]]] = {
    "constant": Evaluator._constant,
    "given": lambda evaluator, expression: [expression.name],
    "either": Evaluator._either,
    "local": Evaluator._local,
    "deref": Evaluator._deref,
    "global": Evaluator._global,
    "name": Evaluator._name,
    "module": Evaluator._module,
    "super": Evaluator._super,
    "attribute": Evaluator._attribute,
    "item": Evaluator._item,
    "call": calls.call,
    "spread": calls.call,
}
