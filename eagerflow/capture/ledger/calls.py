"""What calls read: which of their arguments is looked at, and what they give.

Python functions of the user's are watched while they run, so a call of one reads nothing by
itself. Code that is not watched (C functions, the standard library, NumPy, eagerflow's ops) may
look at all of its arguments; the built-ins that are common in models are known more exactly.
"""

from __future__ import annotations

import builtins
import datetime
import enum
import functools
import itertools
import os
import random
import secrets
import time
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any

import numpy as np

from eagerflow.capture.ledger.instructions import Expression
from eagerflow.capture.ledger.lookup import CORE, LAYERS, USER, Found, functions_in, origins
from eagerflow.capture.ledger.remembering import Remembered, category
from eagerflow.capture.ledger.sameness import ABSENT

Reading = Any  # imports this module

__all__ = ["call", "environment", "is_key", "item_of", "method_of", "restored"]

# Containers -------------------------------------------------------------------------------------


def is_key(value: Any) -> bool:
    """Whether a value can be the key of a fact about an item."""
    kind = category(value)
    plain = kind == "plain" or isinstance(value, enum.Enum)
    return (plain and type(value) is not slice) or kind == "code" or (
        kind == "container" and type(value) is tuple and all(map(is_key, value))
    )  # fmt: skip


def item_of(container: Any, key: Any) -> Any:
    """An item of a container, ABSENT if it is not there; no code of the user's runs."""
    if isinstance(container, dict):
        return dict.get(container, key, ABSENT)
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        return ABSENT


def restored(held: Remembered) -> Any:
    """A container with what was remembered of one, to look into."""
    if isinstance(held.value, dict):
        return dict(held.parts)
    return [part for _, part in held.parts]


def method_of(value: Any, *names: str) -> FunctionType | None:
    """The first of these special methods that a class defines in Python."""
    for name in names:
        method = getattr(type(value), name, None)
        if type(method) is FunctionType:
            return method
    return None


def environment(value: Any, keys: list[Found], reading: Reading) -> list[Found] | None:
    """An item of ``os.environ``; None if ``value`` is something else."""
    if value is not os.environ:
        return None
    return [found for key in keys for found in _variable(reading, key.value)]


def _variable(reading: Reading, name: Any) -> list[Found]:
    value = os.environ.get(name, ABSENT)
    noted = reading.note("environment", str(name), "environment", os.environ, name, value)
    return [] if value is ABSENT else reading.found(value, noted, str(name))


# Calls ------------------------------------------------------------------------------------------


def call(reading: Reading, expression: Expression) -> list[Found]:
    """Read what a call reads, and give what is known of its result."""
    callee, *parts = expression.parts
    if callee.kind == "unknown":  # not a call of the user's: iteration and the like
        return []
    functions = reading.find(callee)
    if not functions:
        if callee.kind != "function" and not (reading.open and not reading.late):
            for part in parts:
                reading.each(part, lambda found: reading.use(found, True))
        reading.open = reading.open or callee.kind == "function"
        return reading._later(expression.offset, "a result") if reading.late else []
    found: list[Found] = []
    for function in functions:
        found += called(reading, expression, function, parts)
    return found


def called(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """Read what a call of this function reads."""
    f, known, name = function
    receiver = getattr(f, "__self__", None)
    if isinstance(f, MethodType):
        return _called_method(reading, expression, function, parts)
    if isinstance(f, functools.partial):
        inner = reading.watch.partial(f, known)
        if known:
            reading.use(Found(f.args, True, f"{name}.args"))
            reading.use(Found(f.keywords, True, f"{name}.keywords"))
        return called(reading, expression, Found(inner, known, name), parts)
    if isinstance(f, weakref.ref):
        value = f()
        noted = reading.note("call", f"{name}()", "reference", f, None, value)
        return reading.found(value, noted, f"{name}()")
    special = _special(f)
    if special is not None and expression.kind == "call":
        if special in (_length, _nothing) or f is hasattr:
            reading.settled.add(expression)
        return special(reading, expression, function, parts)
    if isinstance(f, BuiltinFunctionType | MethodWrapperType) and not isinstance(
        receiver, types.ModuleType | None
    ):
        return _called_on(reading, expression, function, parts)
    if isinstance(f, FunctionType):
        return _called_function(reading, expression, function, parts)
    if isinstance(f, type):
        return _called_class(reading, expression, function, parts)
    own = method_of(f, "__call__")
    if own is not None:
        method = Found(MethodType(own, f), known, name)
        return _called_method(reading, expression, method, parts)
    if isinstance(f, _CACHED):
        reading.watch.register(f, known)
        return reading._later(expression.offset, f"{name}(...)")
    return _opaque(reading, function, parts)


_CACHED = type(functools.lru_cache(len))


def _called_function(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    f, known, name = function
    reading.watch.register(f, known)
    origin = origins[f.__code__.co_filename]
    if origin in (USER, LAYERS):
        for part in parts:
            reading.each(part, lambda found: _pass_on(reading, found))
        return reading._later(expression.offset, f"{name}(...)")
    if origin == CORE:
        reading.settled.add(expression)
    return _opaque(reading, function, parts, objects=origin != CORE)


def _pass_on(reading: Reading, found: Found) -> None:
    """An argument of a watched function: a function among them may be called there."""
    if category(found.value) == "code":
        reading.watch.register(found.value, found.known)


def _called_method(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    f, known, name = function
    receiver, inner = f.__self__, f.__func__
    if known:
        reading.watch.know(receiver)
    if category(receiver) == "random":
        if known or reading.watch.knows(receiver):
            reading.refuse("random", name, receiver)
        return []
    if receiver is os.environ and inner.__name__ == "get" and parts:
        return [v for key in reading.find(parts[0]) for v in _variable(reading, key.value)]
    if not isinstance(inner, FunctionType):
        plain = Found(inner, known, name)
        reading.use(Found(receiver, known, name), True)
        return called(reading, expression, plain, parts)
    if origins[inner.__code__.co_filename] not in (USER, LAYERS, CORE):
        reading.use(Found(receiver, known, name.rpartition(".")[0] or name), True)
    return _called_function(reading, expression, Found(inner, known, name), parts)


def _called_class(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    cls, known, name = function
    reading.watch.register(cls, known)
    if cls in _WALKERS:
        reading.walked.add(expression)
        for part in parts:
            reading.each(part, reading.iterate)
            reading.each(part, lambda found: _pass_on(reading, found))
        return []
    if _is_own(cls):
        for part in parts:
            reading.each(part, lambda found: _pass_on(reading, found))
        return reading._later(expression.offset, f"{name}(...)")
    if cls in _SEEDED and not parts:
        reading.refuse("random", f"{name}()", cls)
    return _opaque(reading, function, parts)


def _is_own(cls: type) -> bool:
    """Whether a class has functions of the user's, or of eagerflow's layers."""
    known = _own_classes.get(cls)
    if known is None:
        known = _own_classes[cls] = any(
            origins[f.__code__.co_filename] in (USER, LAYERS)
            for base in cls.__mro__
            for v in vars(base).values()
            if isinstance(v, FunctionType | staticmethod | classmethod | property)
            for f in functions_in(v)
        )
    return known


_own_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _opaque(
    reading: Reading, function: Found, parts: list[Expression], objects: bool = True
) -> list[Found]:
    """A call of code that is not watched."""
    f, known, name = function
    reading.watch.register(f, known)
    if _is_clock(f):
        reading.note("call", f"{name}()", "never", f, None, "not compared")
    for part in parts:
        reading.each(part, lambda found: reading.use(found, objects))
    return []


# Methods written in C ---------------------------------------------------------------------------

_SHALLOW = {"items", "values", "keys", "copy", "__iter__", "__reversed__", "elements"}
_KEYED = {"get", "__getitem__"}
_TAKING = {"pop", "popitem", "popleft", "remove", "setdefault", "sort"}
_CHANGING = _TAKING | {
    "append", "appendleft", "extend", "extendleft", "insert", "clear", "update", "add", "discard",
    "reverse", "rotate", "difference_update", "intersection_update",
    "symmetric_difference_update", "__setitem__", "__delitem__", "subtract", "move_to_end",
}  # fmt: skip
_PLAIN_RESULTS = _KEYED | {"__len__", "__contains__", "count", "index"} | (_CHANGING - _TAKING)
_FILE_WRITES = {"write", "writelines", "flush", "close", "fileno", "isatty", "writable"}


def _called_on(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """A method in C of an object."""
    f, known, name = function
    method, receiver = f.__name__, f.__self__
    kind = category(receiver)
    owner = Found(receiver, known or reading.watch.knows(receiver), _owner_name(name))
    if isinstance(receiver, ContextVar) and method == "get":
        value = receiver.get(ABSENT)
        noted = reading.note("call", f"{name}()", "context", receiver, None, value)
        return [] if value is ABSENT else reading.found(value, noted, f"{name}()")
    if kind == "container":
        if method in _PLAIN_RESULTS:
            reading.settled.add(expression)
        if method in _SHALLOW:
            reading.walked.add(expression)
        return _called_on_container(reading, method, owner, parts)
    if kind == "file" and method in _FILE_WRITES:
        return []
    if isinstance(receiver, type):
        return _opaque(reading, function, parts)
    if not reading.run.trusted or kind != "iterator":
        reading.use(owner, True)
    for part in parts:
        reading.each(part, lambda found: reading.use(found, True))
    return []


def _owner_name(name: str) -> str:
    return name.rpartition(".")[0] or name


def _called_on_container(
    reading: Reading, method: str, owner: Found, parts: list[Expression]
) -> list[Found]:
    result: list[Found] = []
    if method in _KEYED and parts:
        result = reading.item(owner, reading.find(parts[0]), direct=True)
        parts = parts[1:]
        if not result:
            result = [found for part in parts for found in reading.find(part)]
    elif method == "__len__":
        reading.length(owner)
    elif method in _SHALLOW:
        reading.iterate(owner)
    elif method not in _CHANGING or method in _TAKING:
        reading.iterate(owner)
        if method not in _TAKING:
            reading.use(owner)
        elif owner.known:
            result = reading._parts(owner)
    if method in _CHANGING:
        reading.mutate(owner)
    for part in parts:
        if method not in ("append", "appendleft", "insert", "__setitem__", "setdefault"):
            reading.each(part, reading.iterate)
    return result


# Built-ins that are known exactly ---------------------------------------------------------------

_WALKERS: tuple[type, ...] = (
    list, tuple, set, frozenset, dict, enumerate, zip, reversed, map, filter, itertools.chain,
    itertools.islice, itertools.repeat, itertools.cycle, itertools.starmap,
)  # fmt: skip
_SEEDED = (random.Random, np.random.RandomState, random.SystemRandom)
_CLOCKS = {
    open, input, os.getpid, os.getcwd, os.times, os.listdir, os.stat, os.path.exists,
    os.path.getmtime, datetime.datetime.now, datetime.datetime.today, datetime.datetime.utcnow,
    datetime.date.today, *(f for f in vars(time).values() if isinstance(f, BuiltinFunctionType)),
}  # fmt: skip
_ENTROPY = {
    os.urandom, uuid.uuid1, uuid.uuid4, secrets.token_bytes, secrets.token_hex,
    secrets.token_urlsafe, secrets.randbelow, secrets.choice, secrets.randbits,
}  # fmt: skip

_Special = Callable[[Reading, Expression, Found, list[Expression]], list[Found]]


def _is_clock(f: Any) -> bool:
    try:
        return f in _CLOCKS
    except TypeError:  # an object that cannot be hashed
        return False


def _special(f: Any) -> _Special | None:
    try:
        return _SPECIAL.get(f)
    except TypeError:
        return None


def _attribute(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    names = [n.value for n in reading.find(parts[1])] if len(parts) > 1 else []
    result: list[Found] = []
    for owner in reading.owners(parts[0]):
        for name in names:
            if isinstance(name, str):
                result += reading.attribute(owner, name, expression.offset)
        if not names and (reading.late or not reading.unknown.intersection(parts)):
            reading.use(owner, True)
    if not result and len(parts) > 2:
        result = reading.find(parts[2])
    return [] if function.value is hasattr else result


def _set_attribute(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    return []


def _length(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    for part in parts:
        reading.each(part, reading.length)
    return []


def _nothing(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    return []


def _iterate(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    reading.walked.add(expression)
    for part in parts:
        reading.each(part, reading.iterate)
    return []


def _type(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    if len(parts) != 1:
        return []
    owners = reading.find(parts[0])
    return [Found(type(o.value), True, f"type({o.name})") for o in owners]


def _super(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    run, found = reading.run, []
    if parts:
        pairs = [(c.value, o.value) for c in reading.find(parts[0]) for o in reading.find(parts[1])]
    else:
        name = run.code.co_varnames[0] if run.code.co_argcount else ""
        classes = reading.find(Expression("deref", "__class__"))
        pairs = [(c.value, reading.values.get(name)) for c in classes]
    for cls, own in pairs:
        try:
            found.append(Found(super(cls, own), True, "super()"))
        except TypeError:
            continue
    return found


def _globals(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    return [Found(reading.run.globals, True, "globals()")]


def _variables(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    result = []
    for owner in reading.owners(parts[0]) if parts else ():
        held = getattr(owner.value, "__dict__", None)
        if held is not None and category(owner.value) in ("object", "code"):
            known = owner.known or category(owner.value) == "code"
            if reading.run.trusted:
                reading.watch.trees.add(id(held))
            result += reading.found(held, known, f"vars({owner.name})")
    return result


def _getenv(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    return [v for key in reading.find(parts[0]) for v in _variable(reading, key.value)]


def _random(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    reading.refuse("random", f"{function.name}()", function.value)
    return []


def _generator(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    return [] if parts else _random(reading, expression, function, parts)


def _reduce(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    for part in parts:
        reading.each(part, lambda found: _pass_on(reading, found))
        reading.each(part, reading.iterate)
    return []


def _table(rows: Iterable[tuple[Iterable[Any], _Special]]) -> dict[Any, _Special]:
    return {f: special for functions, special in rows for f in functions}


_SPECIAL: dict[Any, _Special] = _table(
    [
        ([getattr, hasattr], _attribute),
        ([setattr, delattr], _set_attribute),
        ([len], _length),
        ([isinstance, issubclass, id, callable, print, locals, builtins.breakpoint], _nothing),
        ([iter], _iterate),
        ([type], _type),
        ([super], _super),
        ([globals], _globals),
        ([vars], _variables),
        ([os.getenv], _getenv),
        (_ENTROPY, _random),
        ([np.random.default_rng], _generator),
        ([functools.reduce], _reduce),
    ]
)
