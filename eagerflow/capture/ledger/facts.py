"""Ledger: what a trace relied on in Python, and whether it has changed since.

A *fact* is one value that the traced code read: a global, an attribute of an object, an item of a
container. Each is checked by itself where it was read, so that a chain such as
``settings.model["rate"]`` is three facts, whichever link changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from operator import contains, eq, getitem, is_
from types import MethodType
from typing import Any

from eagerflow.capture.ledger.remembering import ABSENT, Remembered, in_rows, same
from eagerflow.errors import printable, short_repr

__all__ = ["Fact", "Ledger"]


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return dict.get(holder, key, ABSENT)  # nothing is made up for a missing key
    try:
        return holder[key]
    except (KeyError, IndexError, TypeError):
        return ABSENT


def _contents(cell: Any, _: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not assigned yet
        return ABSENT


_READERS: dict[str, Callable[[Any, Any], Any]] = {
    "item": _item,
    "attribute": lambda holder, name: getattr(holder, name, ABSENT),
    "own": lambda holder, name: vars(holder).get(name, ABSENT),
    "cell": _contents,
    "member": lambda cls, name: vars(cls).get(name, ABSENT),
    "__defaults__": lambda f, name: f.__defaults__,
    "__kwdefaults__": lambda f, name: tuple((f.__kwdefaults__ or {}).items()),
    "length": lambda holder, _: len(holder),
    "truth": lambda holder, _: bool(holder),
    "presence": lambda holder, key: key in holder,
    "environment": lambda holder, name: holder.get(name, ABSENT),
    "reference": lambda holder, _: holder(),
    "context": lambda holder, _: holder.get(ABSENT),
    "whole": lambda holder, _: holder,
    "never": lambda holder, _: holder,
    "always": lambda holder, _: ABSENT,
}


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
    ``contents``, ``array``, ``function``, ``call``, ``environment`` or ``watch``; ``name`` is as
    the user wrote it, ``value`` a short text, ``file`` and ``line`` where it was read first.
    ``by_itself`` says that the traced function changed it after it had read it.
    """

    __slots__ = (
        "_weak", "by_itself", "file", "holder", "how", "key", "kind", "lent", "line", "name",
        "remembered",
    )  # fmt: skip

    def __init__(
        self, kind: str, name: str, how: str, holder: Any, key: Any, remembered: Any,
        file: str = "", line: int | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.name = name
        self.how = how
        self.holder = holder
        self.key = key
        self.remembered = remembered
        self.file = file
        self.line = line
        self.by_itself = False
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
    def gone(self) -> bool:
        """Whether the object that it was read from is no more."""
        return self._weak and self.holder() is None

    def now(self) -> Any:
        """The value now, ``ABSENT`` if there is none."""
        holder = self.holder() if self._weak else self.holder
        return _READERS[self.how](holder, self.key)

    def holds(self) -> bool:
        """Whether the function would read the same now."""
        if self.gone or self.how == "never":
            return True
        if isinstance(self.remembered, Remembered):
            return self.remembered.holds(self.now())
        if type(self.remembered) is Weakly:
            return self.remembered == self.now()
        try:
            return same(self.remembered, self.now())
        except Exception:  # code of the user's that a check runs, such as a property set since
            return False

    def story(self) -> str:
        """What has changed, in words: ``global RATE changed from 0.1 to 0.2 (train.py:12)``."""
        name, was, now = self.name, self.remembered, self.now() if not self.gone else ABSENT
        if isinstance(was, Remembered):
            name, was, now = was.difference(now, name) or (name, was.value, now)
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
        items: list[Any] = []
        attributes: list[Any] = []
        methods: list[Any] = []
        missing: list[Any] = []
        wholes: list[Any] = []
        self._others = []
        for fact in self.facts:
            kind = type(fact.remembered)
            plain = not fact._weak and kind is not Remembered and kind is not Weakly
            row = fact.holder, fact.key, fact.remembered
            if plain and fact.how == "item" and type(fact.holder) is dict:
                (missing if fact.remembered is ABSENT else items).append(row)
            elif plain and fact.how == "member" and fact.remembered is not ABSENT:
                items.append((vars(fact.holder), fact.key, fact.remembered))
            elif plain and fact.how == "attribute" and fact.remembered is not ABSENT:
                (methods if kind is MethodType else attributes).append(row)
            elif (
                fact.lent
                and kind is not Remembered
                and fact.how == "attribute"
                and (fact.remembered is not ABSENT)
            ):
                own = weakref.proxy(fact.holder()), fact.key, fact.remembered
                (methods if kind is Weakly else attributes).append(own)
            elif fact.how == "whole" and not fact._weak:
                wholes.append((fact.remembered, fact.holder))
            elif fact.how != "never":
                self._others.append(fact)
        self._items = _columns(items)
        self._attributes = _columns(attributes)
        self._methods = _columns(methods)
        self._missing = _columns(missing)
        self._parts, self._wholes = in_rows(wholes)

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
            holders, keys, values = self._items
            if all(map(is_, map(getitem, holders, keys), values)):
                holders, keys, values = self._attributes
                if all(map(is_, map(getattr, holders, keys), values)):
                    holders, keys, values = self._methods
                    if (
                        all(map(eq, values, map(getattr, holders, keys)))
                        and not any(map(contains, self._missing[0], self._missing[1]))
                        and self._parts.hold()
                    ):
                        for holds, holder in self._wholes:
                            if not holds(holder):
                                return self._search()
                        for fact in self._others:
                            if not fact.holds():
                                return self._search()
                        return None
        except Exception:  # something is gone: which one, the search tells
            pass
        return self._search()

    def _search(self) -> Fact | None:
        renewed = False
        for fact in self.facts:
            if not fact.holds():
                return fact
            if not isinstance(fact.remembered, Remembered | MethodType | Weakly) and not fact.gone:
                # An equal value in place of the one remembered: from now on that is the one.
                now = fact.now()
                renewed = renewed or now is not fact.remembered
                fact.remembered = now
        if renewed:
            self._arrange()
        return None

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


def _columns(rows: list[Any]) -> tuple[Any, Any, Any]:
    return tuple(zip(*rows, strict=True)) if rows else ((), (), ())  # type: ignore[return-value]
