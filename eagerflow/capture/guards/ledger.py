"""Ledger: what a trace relied on in Python, and whether it has changed since.

A *fact* is one value that the traced code read: a global, an attribute of an object, an item of a
container. Each is checked by itself where it was read, so that a chain such as
``settings.model["rate"]`` is three facts, whichever link changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from operator import call, contains, eq, getitem, is_
from types import MethodType
from typing import Any

from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.capture.guards.snapshot import Remembered, in_rows
from eagerflow.errors import printable, short_repr

__all__ = ["UNWATCHED", "Fact", "Given", "Ledger", "answer", "in_cell", "in_context", "specials"]


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return dict.get(holder, key, ABSENT)  # nothing is made up for a missing key
    try:
        return holder[key]
    except (KeyError, IndexError, TypeError):
        return ABSENT


def in_cell(cell: Any, _: Any = None) -> Any:
    """The value of a variable of an enclosing function, ABSENT if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not assigned yet
        return ABSENT


def in_context(variable: Any, _: Any = None) -> Any:
    """The value of a context variable, ABSENT if it has none."""
    try:
        return variable.get()
    except LookupError:
        return ABSENT


def answer(f: Any, given: Any) -> Any:
    """What a call gives, or the class of its error."""
    try:
        return f(*given)
    except Exception as error:
        return type(error)


# What a class says by its special methods; the rest of these names say how it was made.
_OF_MAKING = {
    "__abstractmethods__",
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__classcell__",
    "__classdictcell__",
    "__conditional_annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__qualname__",
    "__slotnames__",
    "__static_attributes__",
    "__type_params__",
    "__weakref__",
}


def specials(cls: type, every: Any = None) -> tuple[Any, ...]:
    """The bases of a class, and the special methods that it and they define in Python.

    With ``every`` also all else that they define.
    """
    found: list[Any] = [cls.__mro__]
    for base in cls.__mro__:
        if base.__flags__ & _HEAP:
            found += [
                part
                for name, part in vars(base).items()
                if (every or name[:2] == "__") and name not in _OF_MAKING
            ]
    return tuple(found)


_HEAP = 1 << 9  # a class that a class statement made


class Given(tuple[Any, ...]):
    """The arguments of a question, which are the same if they are the same objects."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and list(map(id, self)) == list(map(id, other))


_READERS: dict[str, Callable[[Any, Any], Any]] = {
    "item": _item,
    "attribute": lambda holder, name: getattr(holder, name, ABSENT),
    "own": lambda holder, name: vars(holder).get(name, ABSENT),
    "cell": in_cell,
    "member": lambda cls, name: vars(cls).get(name, ABSENT),
    "__defaults__": lambda f, name: f.__defaults__,
    "__kwdefaults__": lambda f, name: tuple((f.__kwdefaults__ or {}).items()),
    "length": lambda holder, _: len(holder),
    "truth": lambda holder, _: bool(holder),
    "presence": lambda holder, key: key in holder,
    "environment": lambda holder, name: holder.get(name, ABSENT),
    "alive": lambda holder, _: holder() is not None,
    "context": in_context,
    "asked": answer,
    "class": specials,
    "whole": lambda holder, _: holder,
    "never": lambda holder, _: UNWATCHED,
    "always": lambda holder, _: ABSENT,
}


UNWATCHED = "not watched"


class Weakly:
    """An object that was read, or a method bound to it, without keeping the object alive."""

    __slots__ = ("function", "held")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        bound = type(value) is MethodType
        self.function = value.__func__ if bound else None
        self.held = weakref.ref(value.__self__ if bound else value)

    def __eq__(self, now: object) -> bool:
        if self.function is None:
            return now is self.held()
        return (
            type(now) is MethodType
            and now.__func__ is self.function
            and now.__self__ is self.held()
        )

    def __repr__(self) -> str:
        return repr(self.held() if self.function is None else self.function)


class Fact:
    """One thing that a trace relied on.

    ``kind`` is ``global``, ``builtin``, ``closure``, ``attribute``, ``default``, ``item``,
    ``contents``, ``array``, ``class``, ``function``, ``call``, ``environment`` or ``watch``;
    ``name`` is as the user wrote it, ``value`` a short text, ``file`` and ``line`` where it was
    read first. ``by_itself`` says that the traced function changed it after it had read it,
    ``exact`` that it is asked who the value is, and an equal one is another.
    """

    __slots__ = (
        "_weak",
        "by_itself",
        "exact",
        "file",
        "holder",
        "how",
        "key",
        "kind",
        "lent",
        "line",
        "name",
        "remembered",
    )

    def __init__(
        self,
        kind: str,
        name: str,
        how: str,
        holder: Any,
        key: Any,
        remembered: Any,
        file: str = "",
        line: int | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.how = how
        self.holder = holder
        self.key = key
        self.remembered = remembered
        self.file = file
        self.line = line
        self.by_itself = False
        self.exact = False
        self._weak = False
        self.lent = False  # by whoever asks: the holder is there whenever that is done

    @property
    def value(self) -> str:
        """What was read, in short."""
        known = self.remembered.value if isinstance(self.remembered, Remembered) else None
        return short_repr(self.remembered if known is None else known)

    def weaken(self) -> bool:
        """Hold on to the object no longer: what nobody else holds cannot be changed either.

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
        return self.how != "never"

    @property
    def gone(self) -> bool:
        """Whether the object that it was read from is no more."""
        return self._weak and self.holder() is None

    def now(self) -> Any:
        """The value now, ``ABSENT`` if there is none."""
        holder = self.holder() if self._weak else self.holder
        return _READERS[self.how](holder, self.key)

    def holds(self) -> bool:
        """Whether the function would read the same now."""
        if self.gone or not self.watched:
            return True
        if isinstance(self.remembered, Remembered):
            if self.exact:
                return self.remembered.difference(self.now(), "", is_) is None
            return self.remembered.holds(self.now())
        if type(self.remembered) is Weakly:
            return self.remembered == self.now()
        if self.exact:
            return self.now() is self.remembered
        try:
            return same(self.remembered, self.now())
        except Exception:  # code of the user's that a check runs, such as a property set since
            return False

    def story(self) -> str:
        """What has changed, in words: ``global RATE changed from 0.1 to 0.2 (train.py:12)``."""
        name, was, now = self.name, self.remembered, self.now() if not self.gone else ABSENT
        if isinstance(was, Remembered):
            found = was.difference(now, name, is_ if self.exact else same)
            name, was, now = found or (name, was.value, now)
        what = self.kind if self.kind not in name.split() else ""
        place = f" ({self.file}:{self.line})" if self.file else ""
        if was is now or short_repr(was) == short_repr(now):
            return f"{what} {name} changed: {short_repr(now)}{place}".strip()
        return f"{what} {name} changed from {short_repr(was)} to {short_repr(now)}{place}".strip()

    def __repr__(self) -> str:
        return printable(f"<Fact {self.kind} {self.name}: {self.value}>")


class Ledger:
    """The facts of one trace, in the order in which they were read."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts = list(facts)
        self._arrange()

    def _arrange(self) -> None:
        """Facts of one kind side by side, so that they are checked without a step of Python."""
        rows: dict[str, list[Any]] = {}
        for fact in self.facts:
            if fact.watched:
                kind, row = _row(fact)
                rows.setdefault(kind, []).append(row)
        parts, rest = in_rows(rows.pop("whole", ()))
        self._checks = [
            _CHECKS[kind](*zip(*rows[kind], strict=True)) for kind in _CHECKS if kind in rows
        ]
        if not parts.empty:
            self._checks.append(parts.hold)
        if rest:
            self._checks.append(lambda: all(holds(holder) for holds, holder in rest))

    def hold_weakly(self, value: Any) -> None:
        """Keep ``value`` alive no longer where it was read from, or where it was what was read.

        Whoever asks whether something has changed has it then.
        """
        for fact in self.facts:
            was = fact.remembered
            if was is value or (type(was) is MethodType and was.__self__ is value):
                fact.remembered = Weakly(was)
            if fact.holder is value:
                fact.lent = fact.weaken()
        self._arrange()

    def changed(self) -> Fact | None:
        """The first fact that no longer holds, None if all of them do."""
        try:
            for holds in self._checks:
                if not holds():
                    return self._search()
            return None
        except Exception:  # something is gone: which one, the search tells
            return self._search()

    def _search(self) -> Fact | None:
        renewed = False
        for fact in self.facts:
            if not fact.holds():
                return fact
            plain = not isinstance(fact.remembered, Remembered | MethodType | Weakly)
            if plain and fact.watched and not fact.gone:
                # An equal value in place of the one remembered: from now on that is the one.
                now = fact.now()
                renewed = renewed or now is not fact.remembered
                fact.remembered = now
        here = [fact for fact in self.facts if not fact.gone]
        if renewed or len(here) < len(self.facts):
            self.facts = here
            self._arrange()
        return None

    def unwatched(self) -> list[str]:
        """What the trace called and cannot be compared, with the place."""
        return [f"{f.name} ({f.file}:{f.line})" for f in self.facts if not f.watched]

    def __iter__(self) -> Any:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def __str__(self) -> str:
        rows = [("kind", "name", "value", "read at")]
        for fact in self.facts:
            place = f"{fact.file}:{fact.line}" if fact.file else ""
            note = " (changed by the function itself)" if fact.by_itself else ""
            rows.append((fact.kind, printable(fact.name), printable(fact.value), place + note))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(
            "  ".join(
                [*(text.ljust(width) for text, width in zip(row[:3], widths, strict=True)), row[3]]
            ).rstrip()
            for row in rows
        )

    def __repr__(self) -> str:
        return f"<Ledger of {len(self.facts)} facts>"


def _row(fact: Fact) -> tuple[str, tuple[Any, ...]]:
    """How a fact is checked beside others like it, and the row that it fills there."""
    holder, key, value = fact.holder, fact.key, fact.remembered
    there = value is not ABSENT
    kind = type(value)
    if fact.lent and kind is not Remembered and fact.how == "attribute" and there:
        own = weakref.proxy(holder()), key, value
        return ("method" if kind is Weakly else "attribute"), own
    if kind is Remembered or kind is Weakly:
        pass
    elif fact._weak and fact.how == "attribute" and there and kind is not MethodType:
        return "weak", (holder, key, value)
    elif not fact._weak:
        if fact.how == "item" and type(holder) is dict:
            return ("item" if there else "missing"), (holder, key, value)
        if fact.how == "member" and there:
            return "item", (vars(holder), key, value)
        if fact.how in ("attribute", "cell") and there:
            key = "cell_contents" if fact.how == "cell" else key
            return ("method" if kind is MethodType else "attribute"), (holder, key, value)
        if fact.how == "context" and there:
            return "context", (holder, value)
        if fact.how == "asked" and holder is isinstance:
            return "instance", (*key, value)
        if fact.how in _MEASURES:
            return "measure", (_MEASURES[fact.how], holder, value)
    if fact.how == "whole" and not fact._weak and not fact.exact:
        return "whole", (value, holder)
    return "other", (fact,)


_MEASURES: dict[str, Any] = {"length": len, "truth": bool}
# By how facts are checked: from the columns of their rows, a function that tells whether all hold.
_CHECKS: dict[str, Callable[..., Callable[[], bool]]] = {
    "item": lambda *c: lambda: all(map(is_, map(getitem, c[0], c[1]), c[2])),
    "attribute": lambda *c: lambda: all(map(is_, map(getattr, c[0], c[1]), c[2])),
    "weak": lambda *c: lambda: all(map(is_, map(getattr, map(call, c[0]), c[1]), c[2])),
    "method": lambda *c: lambda: all(map(eq, c[2], map(getattr, c[0], c[1]))),
    "missing": lambda *c: lambda: not any(map(contains, c[0], c[1])),
    "instance": lambda *c: lambda: all(map(is_, map(isinstance, c[0], c[1]), c[2])),
    "measure": lambda *c: lambda: all(map(eq, map(call, c[0], c[1]), c[2])),
    "context": lambda *c: lambda: all(map(is_, map(ContextVar.get, c[0]), c[1])),
    "other": lambda facts: lambda: all(fact.holds() for fact in facts),
}
