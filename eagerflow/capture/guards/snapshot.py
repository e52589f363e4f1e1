"""Snapshots: the contents of a container, an array or an object, to detect later changes.

Containers are compared item by item, NumPy arrays byte by byte, Tensors, Variables and objects by
identity: reads from an object have guards of their own.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from eagerflow.capture.guards.categories import category, is_data, is_tool
from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.handlers import raised_here
from eagerflow.variable import Variable

ARRAY_BYTES = 1 << 20  # larger arrays are not compared in every call
MAX_VALUES = 20_000  # in one container, with all that it contains
# How much of a value is read: its parts; also contents of containers and arrays among them; also
# its attributes; also those of the objects that it holds. Each includes the previous ones.
PARTS, NESTED, ATTRIBUTES, ALL = range(4)


class TooLarge(Exception):  # noqa: N818 - never seen by a user
    """A value has more parts or bytes than can be compared in every call."""


class Snapshot:
    """The contents of a container, an array or the attributes of an object at one time.

    ``kind`` is ``container``, ``array``, ``object``, or ``tree``: the attributes of a layer or
    model, among which only layers, weights and containers of them matter.
    """

    __slots__ = ("_inner", "_keys", "_plain", "_types", "_values", "kind", "parts", "value")

    def __init__(self, kind: str, value: Any, parts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.value = value  # kept alive, so that its id stays unique
        self.parts = parts
        self._values: list[Any] = []
        self._inner: list[Snapshot] = []
        if kind == "array":
            return
        self._keys = [key for key, _ in parts]
        self._values = [part for _, part in parts]
        if kind == "tree":
            self._plain = [key for key in value if key not in set(self._keys)]
            self._types = [type(value[key]) for key in self._plain]
        else:
            self._inner = [part for part in self._values if isinstance(part, Snapshot)]
            self._values = [p.value if isinstance(p, Snapshot) else p for p in self._values]

    @property
    def immutable(self) -> bool:
        """Whether nothing in it can change: a tuple of immutable values."""
        return not self._inner and type(self.value) in (tuple, frozenset)

    def item(self, key: Any) -> Any:
        """The item at a key at that time, ABSENT if there was none."""
        return item_of(dict(self.parts) if isinstance(self.value, dict) else self._values, key)

    def matches(self, value: Any) -> bool:
        """Whether ``value`` has the same parts now."""
        if self.kind == "array":
            return self.parts == _bytes(value)
        if self._is_identical(value) and all(inner.matches(inner.value) for inner in self._inner):
            return True
        return self.difference(value) is None

    def contains_any(self, identities: set[int]) -> bool:
        """Whether a part is one of the objects with these ``id``."""
        return any(id(part) in identities for part in self._values) or any(
            inner.contains_any(identities) for inner in self._inner
        )

    def _is_identical(self, value: Any) -> bool:
        """Whether the parts are the same objects, without a Python step for each."""
        cls = type(value)
        if value is not self.value:
            return False
        if cls is tuple or cls is frozenset:
            return True
        if self.kind == "tree":
            return (
                len(value) == len(self._keys) + len(self._plain)
                and all(map(operator.is_, map(value.get, self._keys), self._values))
                and all(map(operator.is_, map(type, map(value.get, self._plain)), self._types))
            )
        if self.kind == "object":
            value = getattr(value, "__dict__", ())
        elif not isinstance(value, list | dict):
            return False
        try:
            if len(value) != len(self._values):
                return False
            if cls is list:
                return all(map(operator.is_, value, self._values))
            return all(map(operator.is_, value, self._keys)) and all(
                map(operator.is_, value.values(), self._values)
            )
        except raised_here(RuntimeError, AttributeError):  # it changed meanwhile, or is not a dict
            return False

    def rows(self) -> Iterable[tuple[str, tuple[Any, ...]]]:
        """Rows of the ledger's checks that together say that all parts are the same objects.

        Raises TypeError for values that need ``matches``: arrays, objects.
        """
        value, cls = self.value, type(self.value)
        if self.kind == "tree":
            yield "size", (value, len(self._keys) + len(self._plain))
            for key, part in self.parts:
                yield "item", (value, key, part)
            for key, kind in zip(self._plain, self._types, strict=True):
                yield "item type", (value, key, kind)
        elif self.kind == "container" and cls is list:
            yield "size", (value, len(self._values))
            yield "elements", (value, self._values)
        elif self.kind == "container" and cls is dict:
            yield "size", (value, len(self._values))
            yield "elements", (value, self._keys)
            yield "values", (value, self._values)
        elif self.kind == "container" and cls is set:
            yield "size", (value, len(self._values))
            yield "elements", (value, self._values)
        elif cls is not tuple and cls is not frozenset:
            raise TypeError(f"no rows for {cls.__name__}")
        for inner in self._inner:
            yield from inner.rows()

    def difference(
        self, value: Any, name: str = "", same: Callable[[Any, Any], bool] = same
    ) -> tuple[str, Any, Any] | None:
        """The first part that differs: its name, its old and its new value."""
        if self.kind == "array":
            return None if self.parts == _bytes(value) else (name, self.value, value)
        if value is not self.value and type(value) is not type(self.value):
            return name, self.value, value
        try:
            now = tuple(elements(value, self.kind))
        except raised_here(RuntimeError, AttributeError):  # it changed during iteration
            return name, self.value, value
        if len(now) != len(self.parts):
            return f"the length of {name or 'it'}", len(self.parts), len(now)
        for (key, was), (key_now, is_now) in zip(self.parts, now, strict=True):
            if key is not key_now and not same(key, key_now):
                return f"the keys of {name or 'it'}", key, key_now
            if isinstance(was, Snapshot):
                found = was.difference(is_now, _name_of_part(name, self.kind, key), same)
                if found:
                    return found
            elif not same(was, is_now):
                return _name_of_part(name, self.kind, key), was, is_now
        return None

    def __repr__(self) -> str:
        return f"Snapshot({self.kind}, {len(self.parts)} parts)"


def _name_of_part(name: str, kind: str, key: Any) -> str:
    return f"{name}.{key}" if kind == "object" else name if key is None else name_of_item(name, key)


def name_of_item(name: str, key: Any) -> str:
    """The display name of an item; Variables as keys by name, not by their numbers."""
    return f"{name}[{key.name if isinstance(key, Variable) else repr(key)}]"


# The parts of values ----------------------------------------------------------------------------

_ARRAYS = (np.ndarray, np.void)
_MAPPINGS = (dict, types.MappingProxyType)
_SETS = (set, frozenset)


def _bytes(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, _ARRAYS):
        return ()
    return value.dtype, value.shape, value.flags.num, value.tobytes()


def _objects(array: Any) -> Iterable[tuple[Any, Any]]:
    """The contents of an array or row of objects; and its form."""
    yield "its form", (array.dtype, array.shape, array.flags.num)
    parts = array.flat if isinstance(array, np.ndarray) else array.item()
    yield from enumerate(parts)


def elements(value: Any, kind: str = "container") -> Iterable[tuple[Any, Any]]:
    """Pairs of a key and a part; a set gives its parts in the order of its iteration."""
    if kind == "object":
        return attributes_of(value).items()
    if isinstance(value, _ARRAYS):
        return _objects(value)
    if kind == "tree":
        return [(key, part) for key, part in value.items() if category(part) != "plain"]
    if isinstance(value, _MAPPINGS):
        return value.items()
    if isinstance(value, _SETS):
        return zip(itertools.repeat(None), value)
    return enumerate(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes in an object's dict and slots; runs no code of it."""
    found = dict(getattr(value, "__dict__", None) or {})
    for cls in type(value).__mro__:
        for name, slot in vars(cls).items():
            if type(slot) is types.MemberDescriptorType and cls.__module__ != "builtins":
                try:
                    found.setdefault(name, slot.__get__(value, cls))
                except raised_here(AttributeError):
                    continue
    return found


def item_of(container: Any, key: Any) -> Any:
    """An item of a container, ABSENT if missing; ``__missing__`` is not called."""
    if isinstance(container, dict):
        return dict.get(container, key, ABSENT)
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        return ABSENT


# Taking snapshots -------------------------------------------------------------------------------


def snapshot_of(
    value: Any,
    reach: int,
    refuse: Callable[[str, Any], None],
    visit: Callable[[Any], object] = id,
) -> Snapshot:
    """The current contents of ``value``, up to ``reach``: ``PARTS``, ``NESTED`` ...

    Among objects inside an object, ``ATTRIBUTES`` only includes data such as dataclasses.
    ``refuse`` is called with the category and the value of incomparable parts, ``visit`` with
    every part that has parts of its own.
    Raises TooLarge.
    """
    found = _Traversal(reach, refuse, visit).part(value, 0)
    return found if isinstance(found, Snapshot) else Snapshot("object", value, ())


def snapshot_of_tree(attributes: dict[str, Any]) -> Snapshot:
    """The contents of a dict of attributes without plain values, which are no layers or weights."""
    return Snapshot("tree", attributes, tuple(elements(attributes, "tree")))


class _Traversal:
    """A traversal of a value and its parts, to take a snapshot of them."""

    def __init__(self, reach: int, refuse: Any, visit: Any) -> None:
        self.reach = reach
        self.refuse = refuse
        self.visit = visit
        self.values_left = MAX_VALUES
        self.active: set[int] = set()

    def part(self, part: Any, depth: int) -> Any:
        """The contents of one part; the part itself if it is compared by itself."""
        kind = category(part)
        if kind in ("plain", "tensor"):
            return part
        self.visit(part)
        if kind == "code" or (depth and self.reach == PARTS):
            return part
        if kind in ("container", "array"):
            return self.inside(part, kind, depth)
        if kind == "object":
            inside = depth == 0 or self.reach == ALL or is_data(type(part))
            own = self.reach >= ATTRIBUTES and inside and not is_tool(part)
            return self.inside(part, "object", depth) if own else part
        self.refuse(kind, part)
        return part

    def inside(self, part: Any, kind: str, depth: int) -> Any:
        """The contents of a container, an array or an object."""
        if id(part) in self.active:  # a container that holds itself
            return part
        if kind == "array" and not part.dtype.hasobject:
            if part.nbytes > ARRAY_BYTES:
                raise TooLarge(f"an array of {part.nbytes:,} bytes")
            return Snapshot("array", part, _bytes(part))
        self.active.add(id(part))
        parts = []
        for key, inner in list(elements(part, kind)):
            self.values_left -= 1
            if self.values_left < 0:
                raise TooLarge(f"more than {MAX_VALUES:,} values")
            parts.append((key, self.part(inner, depth + 1)))
        self.active.remove(id(part))
        return Snapshot("container" if kind == "array" else kind, part, tuple(parts))
