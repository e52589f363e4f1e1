"""Categories of values and classes, which decide how they are guarded."""

from __future__ import annotations

import array
import builtins
import collections
import concurrent.futures
import contextvars
import ctypes
import enum
import functools
import io
import operator
import re
import struct
import sys
import threading
import types
import weakref
import zoneinfo
from typing import Any

import numpy as np

from eagerflow.handlers import raised_here
from eagerflow.tensor import Operators, Tensor


def named(names: dict[Any, str]) -> tuple[Any, ...]:
    """Functions or classes by their names in modules or classes.

    >>> import math
    >>> named({math: "sin cos"})
    (<built-in function sin>, <built-in function cos>)
    """
    return tuple(
        operator.attrgetter(name)(owner) for owner, row in names.items() for name in row.split()
    )


PLAIN = frozenset(
    named(
        {
            builtins: "bool bytes complex float int range slice str",
            types: "EllipsisType NoneType NotImplementedType",
        }
    )
)
"""Built-in types without mutable contents."""

CONTAINERS = named(
    {
        array: "array",
        builtins: "bytearray dict frozenset list set tuple",
        collections: "deque",
        types: "MappingProxyType",
    }
)
_CODE = (
    *named(
        {
            builtins: "classmethod property staticmethod type",
            functools: "partial",
            np: "ufunc",
            types: """
                BuiltinFunctionType ClassMethodDescriptorType CodeType FunctionType GenericAlias
                GetSetDescriptorType MemberDescriptorType MethodDescriptorType MethodType
                MethodWrapperType ModuleType WrapperDescriptorType""",
        }
    ),
    type(functools.lru_cache(len)),
    type(vars(collections.namedtuple("Named", "field"))["field"]),
)
# Written in C and without a value, but nothing that can be read from them changes.
_STEADY = (
    *named(
        {
            builtins: "super",
            contextvars: "ContextVar Token",
            operator: "attrgetter itemgetter methodcaller",
            re: "Pattern",
            struct: "Struct",
            threading: "local",
            types: "CellType UnionType",
            weakref: "ProxyType ref",
            zoneinfo: "ZoneInfo",
        }
    ),
    type(threading.Lock()),
    type(threading.RLock()),
)
_MEMORY = ctypes.c_int.__mro__[2:3]  # the base of all ctypes types
_RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_ARRAY_PROTOCOLS = frozenset(("__array__", "__dlpack__", "__array_interface__", "__array_struct__"))
_kinds: dict[type, str] = {}  # of classes that last as long as the process
_kinds_of_others: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()

CANNOT = {
    "iterator": (
        "it is used up by the first call, and a later one could not take from it",
        "pass its result as an argument, or keep a list and index it",
    ),
    "file": (
        "its contents can change without notice",
        "read it before, and pass the value as an argument",
    ),
    "random": (
        "the numbers it returns would be the same in every call",
        "ef.random, whose state is a Variable, or draw outside and pass the numbers",
    ),
    "foreign": (
        "arrays of other libraries change without notice",
        "make it an ef.tensor, which can be read and be an argument",
    ),
    "memory": (
        "C code can change its contents without notice",
        "read it before, and pass the value as an argument",
    ),
    "thread": (
        "code in another thread is not watched",
        "call it directly, or run it before and pass the result as an argument",
    ),
    "tracer": (
        "reads are not seen while another function traces",
        "set trace functions outside of captured functions",
    ),
    "alias": (
        "a later call may have one object where this one has two",
        "compare their contents, or pass a bool for it",
    ),
    "deleted": (
        "the function deletes it, and replayed calls would not",
        "set it to None, or delete it outside",
    ),
    "opaque": (
        "it cannot be compared: it has neither attributes nor a value",
        "pass the parts needed as arguments",
    ),
}
"""Why values of a category cannot be relied on, and an alternative."""


def category(value: Any) -> str:
    """The category of a value in the ledger.

    ``plain``, ``container``, ``array``, ``tensor`` (all that belongs to eagerflow), ``code``
    (functions, classes, modules), ``object`` (anything with attributes), or one of ``CANNOT``.
    """
    cls = type(value)
    kind = _kinds.get(cls) or _kinds_of_others.get(cls)
    if kind is None:
        lasts = not is_class_statement(cls) or top_package(cls) == "eagerflow"
        kinds: Any = _kinds if lasts else _kinds_of_others
        kind = kinds[cls] = _category(cls)
    if kind == "object" and not _ARRAY_PROTOCOLS.isdisjoint(_held(value)):
        return "foreign"  # a single object with attributes that NumPy reads
    return kind


def _held(value: Any) -> Any:
    """The names of an object's own attributes; runs no user code."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except raised_here(AttributeError):
        return ()
    return found if isinstance(found, dict | types.MappingProxyType) else ()


def _category(cls: type) -> str:
    if issubclass(cls, np.ndarray | np.void):  # fields of a structured scalar can change
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
    if top_package(cls) == "eagerflow" and not cls.__module__.startswith("eagerflow.nn"):
        return "tensor"
    if any(top_package(base) in FRAMEWORKS for base in cls.__mro__):
        return "tensor"
    if any(hasattr(cls, name) for name in _ARRAY_PROTOCOLS):
        return "foreign"
    if cls is object or issubclass(cls, _STEADY):
        return "object"
    if cls is memoryview:
        return "opaque"
    if issubclass(cls, _MEMORY):
        return "memory"
    if is_value_class(cls):
        return "plain"
    return "object" if _has_attributes(cls) else "opaque"


SETTINGS_OF_VARIABLES = frozenset({"aggregation", "constraint", "name", "trainable"})
"""Attributes of Variables that a function may read and that can change."""


def is_key(value: Any) -> bool:
    """Whether a value can be the key of a guard about an item."""
    kind = category(value)
    plain = kind == "plain" or isinstance(value, enum.Enum)
    return (
        (plain and type(value) is not slice)
        or kind == "code"
        or (kind == "container" and type(value) is tuple and all(is_key(x) for x in value))
    )


def is_symbolic(value: Any) -> bool:
    """Whether a value is a placeholder for one that is not known while tracing."""
    return type(value) is Tensor and type(value._array) is not value._kind.array_type


def is_tool(value: Any) -> bool:
    """Whether an object only serves logging, locking, referencing or starting work: no data."""
    cls = type(value)
    package = top_package(cls)
    if package == "logging" or isinstance(value, (*_STEADY, concurrent.futures.Executor)):
        return True
    return package == "threading" and cls.__name__ != "Event"


# Classes ----------------------------------------------------------------------------------------

_VALUE_MODULES = frozenset(
    """
    _decimal _pydatetime _pydecimal datetime decimal fractions ipaddress pathlib pathlib._local
    statistics uuid zoneinfo
    """.split()
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
LIBRARIES = {"cupy", "llvmlite"}
"""Installed packages whose code is not watched."""
FRAMEWORKS: set[str] = set()
"""Those among them with objects that hold Variables: compared by identity, as our own are."""
_OTHER_PACKAGES = {*sys.stdlib_module_names, "eagerflow", "ml_dtypes", "numpy"}
_user_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def top_package(definition: Any) -> str:
    """The name of the top-level package in a class's or function's ``__module__``."""
    return str(definition.__module__).partition(".")[0]


def is_standard(cls: type) -> bool:
    """Whether a class is from Python's standard library."""
    return top_package(cls) in sys.stdlib_module_names


def is_class_statement(cls: type) -> bool:
    """Whether a class was made by a class statement, and can be changed."""
    return bool(cls.__flags__ & _HEAP_TYPE)


def is_user_class(cls: type) -> bool:
    """Whether a class is mutable and not from Python, NumPy or eagerflow."""
    if not cls.__flags__ & _HEAP_TYPE:  # false for most values, so checked first
        return False
    known = _user_classes.get(cls)
    if known is None:
        known = _user_classes[cls] = top_package(cls) not in _OTHER_PACKAGES
    return known


def is_own_class(cls: type) -> bool:
    """Whether a class is from eagerflow, or has a base that is."""
    return any(top_package(base) == "eagerflow" for base in cls.__mro__)


def has_methods_in_python(cls: type) -> bool:
    """Whether the methods of a class are Python code outside of the standard library."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    in_python = file is None or file.endswith(".py")
    return is_class_statement(cls) and in_python and not is_standard(cls)


def is_data(cls: type) -> bool:
    """Whether generic code reads all attributes of objects of a class."""
    return hasattr(cls, "__dataclass_fields__") or is_standard(cls)


def keeps_parts_inside(cls: type) -> bool:
    """Whether objects of a class keep their contents in a container among their attributes."""
    return cls.__module__ in ("weakref", "_weakrefset", "collections")


def is_value_class(cls: type) -> bool:
    """Whether objects of a class are values without mutable parts: dates, paths ...

    They are hashed by value, and have no other attributes unless the class is known to be safe.
    """
    hashed = cls.__hash__ not in (object.__hash__, None) and cls.__eq__ is not object.__eq__
    return hashed and (cls.__module__ in _VALUE_MODULES or not _has_attributes(cls))


def _has_attributes(cls: type) -> bool:
    # bool(...) of an offset: negative if Python itself manages the dict of attributes.
    return bool(cls.__dictoffset__) or any("__slots__" in vars(base) for base in cls.__mro__)
