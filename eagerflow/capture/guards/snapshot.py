"""What values are to the ledger, and how it remembers them to notice a change later.

Plain values (numbers, strings, dtypes, dates ...) are compared by type and state, containers of
them item by item, NumPy arrays byte by byte, Tensors and Variables by identity, and objects by
identity too: what was read from them is remembered by itself.
"""

from __future__ import annotations

import array
import collections
import concurrent.futures
import contextvars
import ctypes
import functools
import io
import itertools
import operator
import re
import struct
import sys
import threading
import types
import weakref
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from eagerflow.capture.guards.equality import PLAIN, by_value, same
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "ALL",
    "ARRAY_BYTES",
    "CANNOT",
    "CONTAINERS",
    "Remembered",
    "TooLarge",
    "attributes_of",
    "category",
    "elements",
    "is_symbolic",
    "is_tool",
    "name_of_code",
    "remember",
    "remember_tree",
]

ARRAY_BYTES = 1 << 20  # larger arrays are not compared in every call
ITEMS = 20_000  # values in one container, with all that it contains


CONTAINERS = (
    list,
    dict,
    set,
    frozenset,
    tuple,
    collections.deque,
    bytearray,
    array.array,
    types.MappingProxyType,
)
_CODE: tuple[type, ...] = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type(vars(collections.namedtuple("Named", "field"))["field"]),
    types.CodeType,
    types.GenericAlias,
    functools.partial,
    staticmethod,
    classmethod,
    property,
    np.ufunc,
    type(functools.lru_cache(len)),
)
# Written in C and without value, but nothing that a function reads from them can change.
_STEADY: tuple[type, ...] = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    re.Pattern,
    weakref.ref,
    weakref.ProxyType,
    contextvars.ContextVar,
    contextvars.Token,
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    types.UnionType,
    types.CellType,
    super,
    struct.Struct,
    zoneinfo.ZoneInfo,
)
_MEMORY = ctypes.c_int.__mro__[2:3]  # what all types of ctypes are made from
_RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_kinds: dict[type, str] = {}

CANNOT = {
    "iterator": (
        "it is used up by the first call, and a later one could not take from it",
        "pass what it gives as an argument, or keep a list and index it",
    ),
    "file": (
        "what it holds can change without a sign",
        "read it before, and pass what you read as an argument",
    ),
    "random": (
        "the numbers that it gives would be the same in every call",
        "ef.random, whose state is a Variable, or draw outside and pass the numbers",
    ),
    "foreign": (
        "arrays of other libraries change without a sign",
        "make it an ef.tensor or an ef.Variable, or pass it as an argument",
    ),
    "memory": (
        "C code can change what it holds without a sign",
        "read it before, and pass what you read as an argument",
    ),
    "thread": (
        "what runs in another thread is not watched",
        "call it directly, or run it before and pass the result as an argument",
    ),
    "tracer": (
        "while another function traces, what is read is not seen",
        "set trace functions outside of captured functions",
    ),
    "opaque": (
        "it cannot be compared: it has neither attributes nor a value",
        "pass what you need of it as an argument",
    ),
}
"""Why values of a category cannot be relied on, and what to do instead."""


def category(value: Any) -> str:
    """What a value is to the ledger.

    ``plain``, ``container``, ``array``, ``tensor`` (all that belongs to eagerflow), ``code``
    (functions, classes, modules), ``object`` (anything with attributes), or one of ``CANNOT``.
    """
    kind = _kinds.get(type(value))
    if kind is None:
        kind = _kinds[type(value)] = _category(type(value))
    return kind


def _category(cls: type) -> str:
    if issubclass(cls, np.ndarray | np.void):  # of a structured scalar the fields can change
        return "opaque" if issubclass(cls, np.ma.MaskedArray) else "array"
    if cls in PLAIN or issubclass(cls, np.generic | np.dtype):
        return "plain"
    if issubclass(cls, CONTAINERS):
        return "container"
    if issubclass(cls, Operators):
        return "tensor"
    if issubclass(cls, _CODE):
        return "code"
    if issubclass(cls, io.IOBase):
        return "file"
    if issubclass(cls, _RANDOM) or (cls.__module__ == "random" and hasattr(cls, "getstate")):
        return "random"
    if hasattr(cls, "__next__") and not issubclass(cls, weakref.ProxyType):
        return "iterator"
    if cls.__module__.split(".")[0] == "eagerflow" and not cls.__module__.startswith(_LAYERS):
        return "tensor"
    if hasattr(cls, "__array__") or hasattr(cls, "__dlpack__"):
        return "foreign"
    if cls is object or issubclass(cls, _STEADY):
        return "object"
    if cls is memoryview:
        return "opaque"
    if issubclass(cls, _MEMORY):
        return "memory"
    # bool(...) of an offset: below zero where Python itself manages the dict of attributes.
    attributes = bool(cls.__dictoffset__) or any("__slots__" in vars(c) for c in cls.__mro__)
    if by_value(cls, attributes):
        return "plain"
    return "object" if attributes else "opaque"


_LAYERS = "eagerflow.nn"


def is_symbolic(value: Any) -> bool:
    """Whether a value stands for one that is not known while tracing."""
    return type(value) is Tensor and type(value._array) is not value._kind.array_type


def is_tool(value: Any) -> bool:
    """Whether an object only serves to log, to lock, to refer or to start work: it is no data."""
    cls = type(value)
    root = cls.__module__.partition(".")[0]
    if root == "logging" or isinstance(value, (*_STEADY, concurrent.futures.Executor)):
        return True
    return root == "threading" and cls.__name__ != "Event"


def name_of_code(f: Any) -> str:
    """How messages call a function, class or object that is called."""
    return getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__


# Containers and arrays --------------------------------------------------------------------------


class TooLarge(Exception):  # noqa: N818 - never seen by a user
    """A value has more parts or bytes than can be compared in every call."""


class Remembered:
    """What a container, an array or the attributes of an object held at one time."""

    __slots__ = ("_inner", "_keys", "_plain", "_types", "_values", "kind", "parts", "value")

    def __init__(self, kind: str, value: Any, parts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.value = value  # kept alive, so that its identity means something
        self.parts = parts
        self._values: list[Any] = []
        self._inner: list[Remembered] = []
        if kind == "tree":
            self._values = [part for _, part in parts]
            self._keys = [key for key, _ in parts]
            self._plain = [key for key in value if key not in set(self._keys)]
            self._types = [type(value[key]) for key in self._plain]
        elif kind != "array":
            rows = [part for _, part in parts]
            self._inner = [part for part in rows if isinstance(part, Remembered)]
            self._values = [part.value if isinstance(part, Remembered) else part for part in rows]
            self._keys = [key for key, _ in parts]

    @property
    def fixed(self) -> bool:
        """Whether nothing in it can change: a tuple of values that do not."""
        return not self._inner and type(self.value) in (tuple, frozenset)

    def holds(self, value: Any) -> bool:
        """Whether ``value`` has the same parts now."""
        if self.kind == "array":
            return self.parts == _bytes(value)
        if self._holds_the_same(value) and all(inner.holds(inner.value) for inner in self._inner):
            return True
        return self.difference(value) is None

    def has_one_of(self, identities: set[int]) -> bool:
        """Whether a part is one of these objects."""
        return any(id(part) in identities for part in self._values) or any(
            inner.has_one_of(identities) for inner in self._inner
        )

    def _holds_the_same(self, value: Any) -> bool:
        """Whether the parts are the very same objects, without a step of Python for each."""
        cls = type(value)
        if value is not self.value or self.kind == "array":
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
        except (RuntimeError, AttributeError):  # it changes meanwhile, or is no dict
            return False

    def difference(
        self, value: Any, name: str = "", same: Callable[[Any, Any], bool] = same
    ) -> tuple[str, Any, Any] | None:
        """The first part that differs: its name, what it was and what it is."""
        if self.kind == "array":
            return None if self.parts == _bytes(value) else (name, self.value, value)
        if value is not self.value and type(value) is not type(self.value):
            return name, self.value, value
        try:
            now = tuple(elements(value, self.kind))
        except (RuntimeError, AttributeError):  # it changes while it is walked over
            return name, self.value, value
        if len(now) != len(self.parts):
            return f"the length of {name or 'it'}", len(self.parts), len(now)
        for (key, was), (key_now, is_now) in zip(self.parts, now, strict=True):
            if key is not key_now and not same(key, key_now):
                return f"the keys of {name or 'it'}", key, key_now
            if isinstance(was, Remembered):
                found = was.difference(is_now, _part(name, self.kind, key), same)
                if found:
                    return found
            elif not same(was, is_now):
                return _part(name, self.kind, key), was, is_now
        return None

    def __repr__(self) -> str:
        return f"Remembered({self.kind}, {len(self.parts)} parts)"


class Rows:
    """The parts of many lists and dicts side by side, compared without a step of Python each."""

    def __init__(self) -> None:
        self.lists: list[Any] = []
        self.dicts: list[Any] = []
        self.trees: list[Any] = []
        self.sizes: tuple[list[int], list[int], list[int]] = [], [], []
        self.items: list[Any] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.known: tuple[list[Any], list[Any], list[Any]] = (
            [],
            [],
            [],
        )  # of trees: where, key, what
        self.plain: tuple[list[Any], list[Any], list[Any]] = [], [], []  # and where, key, type

    @property
    def empty(self) -> bool:
        """Whether there are none."""
        return not (self.lists or self.dicts or self.trees)

    def take(self, part: Remembered) -> bool:
        """Add what was remembered, and all inside; whether that can be compared in this way."""
        value, cls = part.value, type(part.value)
        if part.kind == "tree":
            self.trees.append(value)
            self.sizes[2].append(len(part._keys) + len(part._plain))
            for column, new in zip(
                (*self.known, *self.plain),
                (
                    [value] * len(part._keys),
                    part._keys,
                    part._values,
                    [value] * len(part._plain),
                    part._plain,
                    part._types,
                ),
                strict=True,
            ):
                column.extend(new)
        elif part.kind == "container" and cls is list:
            self.lists.append(value)
            self.sizes[0].append(len(part._values))
            self.items.extend(part._values)
        elif part.kind == "container" and cls is dict:
            self.dicts.append(value)
            self.sizes[1].append(len(part._values))
            self.keys.extend(part._keys)
            self.values.extend(part._values)
        elif cls is not tuple:
            return False
        taken = [self.take(inner) for inner in part._inner]
        return all(taken)

    def hold(self) -> bool:
        """Whether all parts are the very same objects."""
        same, join, sizes = operator.is_, itertools.chain.from_iterable, self.sizes
        where, keys, whats = self.known
        places, names, types_ = self.plain
        return (
            all(map(operator.eq, map(len, self.lists), sizes[0]))
            and all(map(same, join(self.lists), self.items))
            and all(map(operator.eq, map(len, self.dicts), sizes[1]))
            and all(map(same, join(self.dicts), self.keys))
            and all(map(same, join(map(dict.values, self.dicts)), self.values))
            and all(map(operator.eq, map(len, self.trees), sizes[2]))
            and all(map(same, map(dict.get, where, keys), whats))
            and all(map(same, map(type, map(dict.get, places, names)), types_))
        )


def in_rows(wholes: Iterable[tuple[Remembered, Any]]) -> tuple[Rows, list[Any]]:
    """Rows of all that can be compared in them, and for the rest how it is compared with what."""
    rows, rest = Rows(), []
    for part, holder in wholes:
        if part.value is not holder or not rows.take(part):
            rest.append((part.holds, holder))
    return rows, rest


def _part(name: str, kind: str, key: Any) -> str:
    return f"{name}.{key}" if kind == "object" else name if key is None else f"{name}[{key!r}]"


_ARRAYS = (np.ndarray, np.void)


def _bytes(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, _ARRAYS):
        return ()
    return value.dtype, value.shape, value.flags.num, value.tobytes()


def _objects(array: Any) -> Iterable[tuple[Any, Any]]:
    """What an array of objects, or a row with some, holds; and its form."""
    yield "its form", (array.dtype, array.shape, array.flags.num)
    parts = array.flat if isinstance(array, np.ndarray) else array.item()
    yield from enumerate(parts)


def elements(value: Any, kind: str = "container") -> Iterable[tuple[Any, Any]]:
    """Pairs of a key and a part; a set gives its parts in the order of its walk."""
    if kind == "object":
        return attributes_of(value).items()
    if isinstance(value, _ARRAYS):
        return _objects(value)
    if kind == "tree":
        return [(key, part) for key, part in value.items() if category(part) != "plain"]
    if isinstance(value, dict | types.MappingProxyType):
        return value.items()
    if isinstance(value, set | frozenset):
        return zip(itertools.repeat(None), value)
    return enumerate(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes that an object holds itself, with those in slots; no code of it runs."""
    found = dict(getattr(value, "__dict__", None) or {})
    for cls in type(value).__mro__:
        for name, slot in vars(cls).items():
            if type(slot) is types.MemberDescriptorType and cls.__module__ != "builtins":
                try:
                    found.setdefault(name, slot.__get__(value, cls))
                except AttributeError:
                    continue
    return found


def remember(
    value: Any,
    deep: bool,
    refuse: Callable[[str, Any], None],
    objects: bool | str = False,
    know: Callable[[Any], object] = id,
) -> Remembered:
    """What ``value`` holds now; with ``deep`` also what its parts hold.

    ``objects`` remembers the attributes of an object too, ``ALL`` those of objects that it holds
    as well; without it only data such as dataclasses are looked into there. ``refuse`` is called
    with the category and the value of what cannot be compared, ``know`` with every part that has
    parts of its own.
    Raises TooLarge.
    """
    result = _Walk(deep, refuse, objects, know).step(value, 0)
    return result if isinstance(result, Remembered) else Remembered("object", value, ())


ALL = "all"


class _Walk:
    """A walk over a value and its parts."""

    def __init__(self, deep: bool, refuse: Any, objects: bool | str, know: Any) -> None:
        self.deep = deep
        self.refuse = refuse
        self.objects = objects
        self.know = know
        self.left = ITEMS
        self.active: set[int] = set()

    def step(self, part: Any, depth: int) -> Any:
        """What one part holds; itself if it is compared by itself."""
        kind = category(part)
        if kind in ("plain", "tensor"):
            return part
        self.know(part)
        if kind == "code" or not (self.deep or depth == 0):
            return part
        if kind in ("container", "array"):
            return self.inside(part, kind, depth)
        if kind == "object":
            inner = depth == 0 or self.objects == ALL or _is_data(type(part))
            own = self.objects and inner and not is_tool(part)
            return self.inside(part, "object", depth) if own else part
        self.refuse(kind, part)
        return part

    def inside(self, part: Any, kind: str, depth: int) -> Any:
        """What a container, an array or an object holds."""
        if id(part) in self.active:  # a container that holds itself
            return part
        if kind == "array" and not part.dtype.hasobject:
            if part.nbytes > ARRAY_BYTES:
                raise TooLarge(f"an array of {part.nbytes:,} bytes")
            return Remembered("array", part, _bytes(part))
        self.active.add(id(part))
        parts = []
        for key, inner in list(elements(part, kind)):
            self.left -= 1
            if self.left < 0:
                raise TooLarge(f"more than {ITEMS:,} values")
            parts.append((key, self.step(inner, depth + 1)))
        self.active.remove(id(part))
        return Remembered("container" if kind == "array" else kind, part, tuple(parts))


def remember_tree(attributes: dict[str, Any]) -> Remembered:
    """What a dict of attributes holds apart from plain values, which are no layers or weights."""
    return Remembered("tree", attributes, tuple(elements(attributes, "tree")))


def _is_data(cls: type) -> bool:
    """Whether objects of a class are read by code that looks at all of their attributes."""
    root = cls.__module__.split(".")[0]
    return hasattr(cls, "__dataclass_fields__") or root in sys.stdlib_module_names
