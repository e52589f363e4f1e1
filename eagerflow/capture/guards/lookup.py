"""Lookup: attributes and functions, without running the user's code; and whose code a file is."""

from __future__ import annotations

import enum
import functools
import os
import sysconfig
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eagerflow import dispatch
from eagerflow.capture.guards.categories import LIBRARIES
from eagerflow.capture.guards.equality import ABSENT, same
from eagerflow.handlers import raised_here

if TYPE_CHECKING:
    from eagerflow.capture.guards.bytecode import Action
    from eagerflow.capture.guards.line_reads import Program

USER, LAYERS, CORE, FOREIGN = 0, 1, 2, 3
_PACKAGE = os.path.dirname(os.path.abspath(dispatch.__file__)) + os.sep
_OWN_LAYERS = os.path.join(_PACKAGE, "nn") + os.sep
_SITE = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_NUMPY = os.path.dirname(np.__file__) + os.sep


class Found(NamedTuple):
    """A value, whether it is from outside of the trace, and its name as the user wrote it."""

    value: Any
    external: bool
    name: str


class Run:
    """One call of a watched function, while it runs."""

    def __init__(self, frame: Any, program: Program, cells: dict[str, tuple[Any, ...]]) -> None:
        self.code: CodeType = frame.f_code
        self.file = self.code.co_filename
        self.globals = frame.f_globals
        self.builtins = frame.f_builtins
        self.program = program
        self.cells = cells  # of the variables from outside
        self.trusted = origins[self.file] == LAYERS  # eagerflow's own layers
        self.root = False  # the function that is traced itself
        self.quiet = False  # its lines need not be evaluated
        self.failed = False
        self.deferred: tuple[Action, ...] = ()  # what is evaluated once the line has run
        self.assignments: list[tuple[Any, Any]] = []  # what the line assigns
        self.returned: dict[int, list[Any]] = {}  # results of calls in this line, by offset
        self.other: Any = None  # the local trace function of another tool, such as a debugger
        self.hidden = False  # that one wants no events of lines


class _Origins(dict[str, int]):
    """Whose code a file holds: ``USER``, ``LAYERS`` (eagerflow.nn), ``CORE`` or ``FOREIGN``."""

    def __missing__(self, file: str) -> int:
        self[file] = found = _origin(file)
        return found


def _origin(file: str) -> int:
    if file.startswith("<eagerflow "):  # programs that were made here
        return CORE
    if file.startswith(_PACKAGE):
        return LAYERS if file.startswith(_OWN_LAYERS) else CORE
    if file.startswith(("<frozen", "<__array_function__", _NUMPY)):
        return FOREIGN
    if any(f"{site}{name}{os.sep}" in file for site in _SITE for name in LIBRARIES):
        return FOREIGN
    if file.startswith(_STANDARD) and not any(part in file for part in _SITE):
        return FOREIGN
    return USER


origins = _Origins()


def is_watched(f: FunctionType) -> bool:
    """Whether a function is the user's, or of eagerflow's layers."""
    return origins[f.__code__.co_filename] in (USER, LAYERS)


# What is known of an attribute: its value, that it is missing, that Python code computes it, or
# that C code makes a fresh value each time.
VALUE, MISSING, COMPUTED, FRESH = "value", "missing", "computed", "fresh"
_HARMLESS = (FunctionType, BuiltinFunctionType, staticmethod, classmethod, MemberDescriptorType)


def _raw(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return ABSENT


def plain_attribute(value: Any, name: str) -> Any:
    """What ``object.__getattribute__``, or of a class ``type``'s, finds under a name."""
    return (type if isinstance(value, type) else object).__getattribute__(value, name)


def has_own_lookup(cls: type) -> bool:
    """Whether Python code gives the attributes of a class's objects: its ``__getattribute__``."""
    return type(cls.__getattribute__) is FunctionType


def lookup_attribute(value: Any, name: str, plain: bool = False) -> tuple[str, Any]:
    """What is known of an attribute, and its value or descriptor; no code of the user's runs.

    ``plain`` leaves out what the class does in ``__getattribute__`` and ``__getattr__``.
    """
    if isinstance(value, ModuleType):
        found = vars(value).get(name, ABSENT)
        if found is ABSENT and str(getattr(value, "__file__", "")).startswith(_PACKAGE):
            found = getattr(value, name, ABSENT)  # eagerflow's own load it now, as the line would
        return (MISSING if found is ABSENT else VALUE), found
    if isinstance(value, enum.EnumMeta):
        found = getattr(value, name, ABSENT)
        return (MISSING if found is ABSENT else VALUE), found
    cls = type(value)
    if has_own_lookup(cls) and not plain:
        return COMPUTED, cls.__getattribute__
    raw = _raw(cls, name)
    if isinstance(value, type):
        if type(raw) is property:
            return COMPUTED, raw
        raw = _raw(value, name)
        if type(raw) is not property and computes(raw):
            return COMPUTED, raw
    elif type(raw) is property or (
        computes(raw) and (hasattr(type(raw), "__set__") or name not in own_names(value))
    ):
        return COMPUTED, raw
    getter: Any = plain_attribute if plain else cls.__getattribute__
    try:
        found = getter(value, name)
    except raised_here(AttributeError):
        return MISSING, None if plain else getattr(cls, "__getattr__", None)
    if type(found) in (BuiltinFunctionType, MethodWrapperType):
        return (VALUE if isinstance(found.__self__, ModuleType | None) else FRESH), found
    if type(raw) in _HARMLESS or not hasattr(type(raw), "__get__"):
        return VALUE, found
    return (VALUE if same(found, getter(value, name)) else FRESH), found


def computes(raw: Any) -> bool:
    """Whether a descriptor runs Python code when it is asked for its value."""
    return type(getattr(type(raw), "__get__", None)) is FunctionType


def method_of(value: Any, *names: str) -> FunctionType | None:
    """The first of these special methods that a class defines in Python."""
    for name in names:
        method = getattr(type(value), name, None)
        if type(method) is FunctionType:
            return method
    return None


def own_names(value: Any) -> Any:
    """The attributes in the dict of an object, if it has one."""
    held = getattr(value, "__dict__", ())
    return held if isinstance(held, dict | MappingProxyType) else ()


def value_of_cell(cell: Any, _: Any = None) -> Any:
    """The value of a variable of an enclosing function, ABSENT if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not assigned yet
        return ABSENT


def functions_in(value: Any, depth: int = 3) -> list[FunctionType]:
    """The Python functions that run when ``value`` is called, or that it was made around."""
    if type(value) is FunctionType:
        found, parts = [value], []
        if origins[value.__code__.co_filename] != USER:
            parts = [value_of_cell(cell) for cell in value.__closure__ or ()]
        parts.append(getattr(value, "__wrapped__", None))
    elif not depth or value is None or value is ABSENT:
        return []
    else:
        found, parts = [], _functions_of(value)
    depth = 2 if isinstance(value, type) else depth
    return found + [f for part in parts for f in functions_in(part, depth - 1)] if depth else found


def _functions_of(value: Any) -> list[Any]:
    """What is called when ``value``, which is not a function, is called."""
    if type(value) is MethodType or isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if isinstance(value, type):
        return [_raw(value, name) for name in ("__new__", "__init__", "__call__")]
    return [_raw(type(value), "__call__"), getattr(value, "__wrapped__", None)]
