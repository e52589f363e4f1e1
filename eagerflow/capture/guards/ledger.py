"""Ledger: what a trace relied on in Python, and whether it has changed since.

A *guard* is about one value that the traced code read: a global, an attribute of an object, an
item of a container. Each is checked by itself where it was read, so that a chain such as
``settings.model["rate"]`` has three guards, whichever link changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import chain, repeat
from operator import call, contains, eq, getitem, is_, is_not
from types import MethodType
from typing import Any

from eagerflow.capture.guards.categories import is_class_statement
from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.capture.guards.lookup import value_of_cell
from eagerflow.capture.guards.snapshot import Snapshot, item_of
from eagerflow.codegen.llvm.python_objects import NOTHING, Number, Row, can_ask, question
from eagerflow.errors import printable, short_repr

CALLS_BEFORE_CODE = 4
"""Checks that Python makes of a ledger before machine code does: what is asked that often will be
asked again."""

# What guards read -------------------------------------------------------------------------------


def value_of_context(variable: Any, _: Any = None) -> Any:
    """The value of a context variable, ABSENT if it has none."""
    try:
        return variable.get()
    except LookupError:
        return ABSENT


def result_of(f: Any, arguments: Any) -> Any:
    """What a call gives, or the class of its error."""
    try:
        return f(*arguments)
    except Exception as error:
        return type(error)


# Special names that say how a class was made, and not how its objects behave.
_NAMES_OF_MAKING = frozenset(
    """
    __abstractmethods__ __annotate__ __annotate_func__ __annotations__ __annotations_cache__
    __classcell__ __classdictcell__ __conditional_annotations__ __dict__ __doc__ __firstlineno__
    __module__ __qualname__ __slotnames__ __static_attributes__ __type_params__ __weakref__
    """.split()
)


def state_of_class(cls: type, every: Any = None) -> tuple[Any, ...]:
    """The bases of a class, and the special methods that it and they define in Python.

    With ``every`` also all else that they define.
    """
    found: list[Any] = [cls.__mro__]
    for base in filter(is_class_statement, cls.__mro__):
        found += [
            part
            for name, part in vars(base).items()
            if (every or name[:2] == "__") and name not in _NAMES_OF_MAKING
        ]
    return tuple(found)


class Arguments(tuple[Any, ...]):
    """The arguments of a call, which are the same if they are the same objects."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arguments) and list(map(id, self)) == list(map(id, other))


UNWATCHED = "not watched"
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "item": item_of,
    "attribute": lambda holder, name: getattr(holder, name, ABSENT),
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
"""By ``Guard.access``: how the value is read, from the holder and the key."""


# Guards -----------------------------------------------------------------------------------------


class WeakValue:
    """An object that was read, or a method bound to it, without keeping the object alive."""

    __slots__ = ("function", "referent")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        bound = type(value) is MethodType
        self.function = value.__func__ if bound else None
        self.referent = weakref.ref(value.__self__ if bound else value)

    def __eq__(self, now: object) -> bool:
        if self.function is None:
            return now is self.referent()
        return (
            type(now) is MethodType
            and now.__func__ is self.function
            and now.__self__ is self.referent()
        )

    def __repr__(self) -> str:
        return repr(self.referent() if self.function is None else self.function)


class Guard:
    """One thing that a trace relied on.

    ``kind`` is ``global``, ``builtin``, ``closure``, ``attribute``, ``default``, ``item``,
    ``contents``, ``array``, ``class``, ``function``, ``call``, ``environment`` or ``watch``;
    ``name`` is as the user wrote it, ``value`` a short text, ``file`` and ``line`` where it was
    read first. ``access`` says how ``expected`` was read from ``holder`` at ``key``.
    """

    # Not a dataclass: a method that is generated would be traced like code of the user's.
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
        self.file = file
        self.line = line
        self.changed_by_trace = False  # after the traced function had read it
        self.by_identity = False  # the function asked which object it is: an equal one is another
        self.held_by_caller = False  # of the check: the holder is there whenever that is done
        self._weak = False

    @property
    def value(self) -> str:
        """What was read, in short."""
        known = self.expected.value if isinstance(self.expected, Snapshot) else None
        return short_repr(self.expected if known is None else known)

    def weaken(self) -> bool:
        """Keep the object alive no longer: if it is gone, it cannot be changed either.

        False where that cannot be done, as for lists and dicts.
        """
        try:
            self.holder = weakref.ref(self.holder)
            self._weak = True
        except TypeError:
            return False
        return True

    @property
    def watched(self) -> bool:
        """Whether a change would be noticed; else it is only told that it was read."""
        return self.access != "unwatched"

    @property
    def gone(self) -> bool:
        """Whether the object that it was read from is no more."""
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
        except Exception:  # code of the user's that a check runs, such as a property set since
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
        """What has changed, in words: ``global RATE changed from 0.1 to 0.2 (train.py:12)``."""
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
        """Checks of one kind side by side, so that they are made without a step of Python."""
        rows: dict[str, list[Any]] = {}
        for guard in self.guards:
            if guard.watched:
                for kind, row in _rows(guard):
                    rows.setdefault(kind, []).append(row)
        checks: list[Callable[[], Any]] = []
        if self._left < 1 and can_ask():
            asked = [ask(*row) for kind, ask in _ASKED.items() for row in rows.pop(kind, ())]
            checks = [question(asked)] if asked else []
        self._checks = checks + [
            _CHECKS[kind](*zip(*rows[kind], strict=True)) for kind in _CHECKS if kind in rows
        ]

    def hold_weakly(self, value: Any) -> None:
        """Keep ``value`` alive no longer where it was read from, or where it was what was read.

        Whoever asks whether something has changed has it then.
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
                return self._search()
        except Exception:  # something is gone: the search finds which
            return self._search()
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._arrange()
        return None

    def _search(self) -> Guard | None:
        renewed = False
        for guard in self.guards:
            if not guard.holds():
                return guard
            plain = not isinstance(guard.expected, Snapshot | MethodType | WeakValue)
            if plain and guard.watched and not guard.gone:
                # An equal value in place of the one expected: from now on that is the one.
                now = guard.now()
                renewed = renewed or now is not guard.expected
                guard.expected = now
        here = [guard for guard in self.guards if not guard.gone]
        if renewed or len(here) < len(self.guards):
            self.guards = here
            self._arrange()
        return None

    def unwatched(self) -> list[str]:
        """What the trace called and cannot be compared, with the place."""
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


def _rows(guard: Guard) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """How a guard is checked beside others like it: the kinds of ``_CHECKS``, and rows of them."""
    holder, value = guard.holder, guard.expected
    if type(value) is not Snapshot:
        return [_row(guard)]
    if guard.access != "contents" or guard._weak or guard.by_identity:
        return [("guard", (guard,))]
    if value.value is holder:
        try:
            return list(value.rows())
        except TypeError:
            pass
    return [("snapshot", (value.matches, holder))]


def _row(guard: Guard) -> tuple[str, tuple[Any, ...]]:
    """The same of a guard whose value is compared by itself."""
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
    if access == "item" and (type(holder) is dict if not present else type(holder) in _PLAIN):
        return ("item", (holder, key, value)) if present else ("presence", (holder, key, False))
    if access == "member" and present:
        return "item", (vars(holder), key, value)
    if access == "attribute" or (access == "cell" and present):
        key = "cell_contents" if access == "cell" else key
        return ("method" if method else "attribute"), (holder, key, value)
    if access == "context" and present:
        return "context", (holder, value)
    if access == "call" and holder is isinstance:
        return "instance", (*key, value)
    if access == "presence":
        return "presence", (holder, key, value)
    if access in ("length", "truth"):
        return ("size" if access == "length" else "truth"), (holder, value)
    return "guard", (guard,)


_PLAIN = (dict, list, tuple)  # whose items are found by no code of the user's
_joined = chain.from_iterable
# By how guards are checked: from the columns of their rows, a function that tells whether any of
# them does not hold.
_CHECKS: dict[str, Callable[..., Callable[[], bool]]] = {
    "item": lambda a, keys, was: lambda: any(map(is_not, map(getitem, a, keys), was)),
    "attribute": lambda a, keys, was: lambda: any(
        map(is_not, map(getattr, a, keys, repeat(ABSENT)), was)
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
    "item type": lambda a, keys, was: lambda: any(
        map(is_not, map(type, map(getitem, a, keys)), was)
    ),
    "snapshot": lambda matches, a: lambda: not all(map(call, matches, a)),
    "guard": lambda guards: lambda: not all(guard.holds() for guard in guards),
}

# The same rows as questions that machine code asks, all in one call.
_ELEMENTS = {list: "list", dict: "keys"}
_ASKED: dict[str, Callable[..., Row]] = {
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
