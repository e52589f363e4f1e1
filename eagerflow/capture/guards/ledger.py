"""Ledger: Python state that a trace relied on, and whether it has changed since.

A *guard* is about one value that the traced code read: a global, an attribute of an object, an
item of a container. Each is checked by itself where it was read, so that a chain such as
``settings.model["rate"]`` has three guards, whichever link changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable
from operator import call, is_
from types import MethodType
from typing import Any

from eagerflow.capture.guards.categories import is_class_statement
from eagerflow.capture.guards.checks import CALLS_BEFORE_CODE, arranged
from eagerflow.capture.guards.equality import ABSENT, WeakValue, same
from eagerflow.capture.guards.lookup import plain_attribute, value_of_cell
from eagerflow.capture.guards.snapshot import Snapshot, item_of
from eagerflow.cells import file_name
from eagerflow.errors import printable, short_repr
from eagerflow.handlers import raised_here, suppress

# Readers of guards ------------------------------------------------------------------------------


def value_of_context(variable: Any, _: Any = None) -> Any:
    """The value of a context variable, ABSENT if it has none."""
    try:
        return variable.get()
    except raised_here(LookupError):
        return ABSENT


def result_of(f: Any, arguments: Any) -> Any:
    """The result of a call, or the class of its error."""
    try:
        return f(*arguments)
    except raised_here(Exception) as error:
        return type(error)


def _plain_attribute(holder: Any, name: str) -> Any:
    try:
        return plain_attribute(holder, name)
    except raised_here(AttributeError):
        return ABSENT


# Special names that describe how a class was made, not how its objects behave.
_NAMES_OF_MAKING = frozenset(
    """
    __abstractmethods__ __annotate__ __annotate_func__ __annotations__ __annotations_cache__
    __classcell__ __classdictcell__ __conditional_annotations__ __dict__ __doc__ __firstlineno__
    __module__ __qualname__ __slotnames__ __static_attributes__ __type_params__ __weakref__
    """.split()
)


def state_of_class(cls: type, every: Any = None) -> tuple[Any, ...]:
    """The bases of a class, and the special methods that it and they define in Python.

    With ``every`` also all other attributes that they define.
    """
    found: list[Any] = [cls.__mro__]
    for base in (c for c in cls.__mro__ if is_class_statement(c)):
        found += [
            part
            for name, part in vars(base).items()
            if (every or name[:2] == "__") and name not in _NAMES_OF_MAKING
        ]
    return tuple(found)


class Arguments(tuple[Any, ...]):
    """The arguments of a call, equal if they are the same objects."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arguments) and list(map(id, self)) == list(map(id, other))


UNWATCHED = "not watched"
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "item": item_of,
    "attribute": lambda holder, name: getattr(holder, name, ABSENT),
    "plain": _plain_attribute,
    "own": lambda holder, name: vars(holder).get(name, ABSENT),
    "cell": value_of_cell,
    "member": lambda cls, name: vars(cls).get(name, ABSENT),
    "__defaults__": lambda f, name: f.__defaults__,
    "__kwdefaults__": lambda f, name: tuple((f.__kwdefaults__ or {}).items()),
    "length": lambda holder, _: len(holder),
    "truth": lambda holder, _: bool(holder),
    "presence": lambda holder, key: key in holder,
    "environment": item_of,
    "alive": lambda holder, _: holder() is not None,
    "context": value_of_context,
    "call": result_of,
    "class": state_of_class,
    "contents": lambda holder, _: holder,
    "unwatched": lambda holder, _: UNWATCHED,
    "disturbed": lambda holder, _: ABSENT,
}
"""By ``Guard.access``: a function that reads the value, from the holder and the key."""


# Guards -----------------------------------------------------------------------------------------


class Guard:
    """One piece of state that a trace relied on.

    ``kind`` is ``global``, ``builtin``, ``closure``, ``attribute``, ``default``, ``item``,
    ``contents``, ``array``, ``class``, ``function``, ``call``, ``environment`` or ``watch``;
    ``name`` is as the user wrote it, ``value`` a short text, ``file`` and ``line`` where it was
    read first. ``access`` says how ``expected`` was read from ``holder`` at ``key``.
    """

    # Not a dataclass: a generated method would be traced like user code.
    def __init__(
        self,
        kind: str,
        name: str,
        access: str,
        holder: Any,
        key: Any,
        expected: Any,
        file: str = "",
        line: int | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.access = access
        self.holder = holder
        self.key = key
        self.expected = expected
        self.file = file and file_name(file)
        self.line = line
        self.changed_by_trace = False  # after the traced function had read it
        self.by_identity = False  # identity matters: an equal object counts as a change
        self.held_by_caller = False  # by the caller of the check: the holder is alive during it
        self._weak = False

    @property
    def value(self) -> str:
        """The value read, as short text."""
        known = self.expected.value if isinstance(self.expected, Snapshot) else None
        return short_repr(self.expected if known is None else known)

    def weaken(self, others: Container[int] = ()) -> bool:
        """Hold the object weakly: if it is gone, it cannot change either.

        The value read is held weakly too if it is one of ``others``, by identity, or bound to
        one of them. False if that is impossible, as for lists and dicts.
        """
        try:
            weak = weakref.ref(self.holder)
        except raised_here(TypeError):
            return False
        was = self.expected
        if id(was.__self__ if type(was) is MethodType else was) in others:
            with suppress(TypeError):  # lists and dicts stay
                self.expected = WeakValue(was)
        self.holder, self._weak = weak, True
        return True

    @property
    def watched(self) -> bool:
        """Whether a change would be noticed; else the read is only reported."""
        return self.access != "unwatched"

    @property
    def gone(self) -> bool:
        """Whether the object that it was read from is deleted."""
        return self._weak and self.holder() is None

    def now(self) -> Any:
        """The value now, ``ABSENT`` if there is none."""
        holder = self.holder() if self._weak else self.holder
        return READERS[self.access](holder, self.key)

    def holds(self) -> bool:
        """Whether the function would read the same now."""
        if self.gone or not self.watched:
            return True
        try:
            return self._is_as_expected(self.now())
        except raised_here(Exception):
            # the check runs user code, such as a property defined since
            return False

    def _is_as_expected(self, now: Any) -> bool:
        was = self.expected
        if isinstance(was, Snapshot):
            if self.by_identity:
                return was.difference(now, "", is_) is None
            return was.matches(now)
        if type(was) is WeakValue:
            return was == now
        return now is was if self.by_identity else same(was, now)

    def change(self) -> str:
        """The change as text: ``global RATE changed from 0.1 to 0.2 (train.py:12)``."""
        name, was, now = self.name, self.expected, self.now() if not self.gone else ABSENT
        if isinstance(was, Snapshot):
            found = was.difference(now, name, is_ if self.by_identity else same)
            name, was, now = found or (name, was.value, now)
        what = self.kind if self.kind not in name.split() else ""
        place = f" ({self.file}:{self.line})" if self.file else ""
        if was is now or short_repr(was) == short_repr(now):
            return f"{what} {name} changed: {short_repr(now)}{place}".strip()
        return f"{what} {name} changed from {short_repr(was)} to {short_repr(now)}{place}".strip()

    def __repr__(self) -> str:
        return printable(f"<Guard {self.kind} {self.name}: {self.value}>")


class Ledger:
    """The guards of one trace, in the order in which their values were read."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self.guards = list(guards)
        self._left = CALLS_BEFORE_CODE
        self._arrange()

    def _arrange(self) -> None:
        """Combine the checks, so that they run without a Python step for each."""
        watched = [guard for guard in self.guards if guard.watched and not guard.gone]
        self._checks = arranged(watched, by_code=self._left < 1)

    def hold_weakly(self, value: Any) -> None:
        """Hold ``value`` weakly as a holder and as an expected value of guards.

        Later checks get it from their caller.
        """
        for guard in self.guards:
            was = guard.expected
            if was is value or (type(was) is MethodType and was.__self__ is value):
                guard.expected = WeakValue(was)
            if guard.holder is value:
                guard.held_by_caller = guard.weaken()
        self._arrange()

    def changed(self) -> Guard | None:
        """The first guard that no longer holds, None if all of them do."""
        try:
            if any(map(call, self._checks)):
                return self.search()
        except raised_here(Exception):  # something is gone: the search finds it
            return self.search()
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._arrange()
        return None

    def search(self) -> Guard | None:
        renewed = False
        for guard in self.guards:
            if not guard.holds():
                return guard
            plain = not isinstance(guard.expected, Snapshot | MethodType | WeakValue)
            if plain and guard.watched and not guard.gone:
                # An equal value replaced the expected one: expect the new one from now on.
                now = guard.now()
                renewed = renewed or now is not guard.expected
                guard.expected = now
        here = [guard for guard in self.guards if not guard.gone]
        if renewed or len(here) < len(self.guards):
            self.guards = here
            self._arrange()
        return None

    def unwatched(self) -> list[str]:
        """Calls of the trace that cannot be compared, with their places."""
        return [f"{f.name} ({f.file}:{f.line})" for f in self.guards if not f.watched]

    def __iter__(self) -> Any:
        return iter(self.guards)

    def __len__(self) -> int:
        return len(self.guards)

    def __str__(self) -> str:
        rows = [("kind", "name", "value", "read at")]
        for guard in self.guards:
            place = f"{guard.file}:{guard.line}" if guard.file else ""
            note = " (changed by the function itself)" if guard.changed_by_trace else ""
            rows.append((guard.kind, printable(guard.name), printable(guard.value), place + note))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(
            "  ".join(
                [*(text.ljust(width) for text, width in zip(row[:3], widths, strict=True)), row[3]]
            ).rstrip()
            for row in rows
        )

    def __repr__(self) -> str:
        return f"<Ledger of {len(self.guards)} guards>"
