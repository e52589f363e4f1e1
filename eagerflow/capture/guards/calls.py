"""What calls read: which of their arguments is looked at, and what they give.

Python functions of the user's are watched while they run, so a call of one reads nothing by
itself. Code that is not watched (C functions, the standard library, NumPy, eagerflow's ops) may
look at all of its arguments, and at what ``callables`` says; the built-ins that are common in
models are known more exactly (``exact_calls``).
"""

from __future__ import annotations

import abc
import decimal
import enum
import functools
import gc
import itertools
import os
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any

from eagerflow.capture.guards.callables import (
    ASKED,
    EFFECT,
    PURE,
    RANDOM,
    SEEDED,
    THREADS,
    TRACER,
    TRACES,
    UNKNOWN,
    is_deep,
    is_looker,
    makes_text,
    what_it_reads,
)
from eagerflow.capture.guards.equality import ABSENT
from eagerflow.capture.guards.ledger import in_cell
from eagerflow.capture.guards.line_reads import Expression
from eagerflow.capture.guards.lookup import (
    CORE,
    FOREIGN,
    LAYERS,
    USER,
    Found,
    functions_in,
    origins,
)
from eagerflow.capture.guards.snapshot import ALL, Remembered, category

Reading = Any  # imports this module

__all__ = [
    "call",
    "closed",
    "environment",
    "exact",
    "is_key",
    "item_of",
    "method_of",
    "opaque",
    "pass_on",
    "restored",
    "variable",
]

# Containers -------------------------------------------------------------------------------------


def is_key(value: Any) -> bool:
    """Whether a value can be the key of a fact about an item."""
    kind = category(value)
    plain = kind == "plain" or isinstance(value, enum.Enum)
    return (
        (plain and type(value) is not slice)
        or kind == "code"
        or (kind == "container" and type(value) is tuple and all(map(is_key, value)))
    )


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
    return [found for key in keys for found in variable(reading, key.value)]


def variable(reading: Reading, name: Any, environ: Any = os.environ) -> list[Found]:
    """A variable of the environment."""
    value = environ.get(name, ABSENT)
    noted = reading.note("environment", str(name), "environment", environ, name, value)
    return [] if value is ABSENT else reading.found(value, noted, str(name))


# Calls ------------------------------------------------------------------------------------------


def call(reading: Reading, expression: Expression) -> list[Found]:
    """Read what a call reads, and give what is known of its result."""
    callee, *parts = expression.parts
    if callee.kind == "unknown":  # not a call of the user's: iteration and the like
        return []
    functions = reading.find(callee)
    if not functions:
        if expression.kind == "spread":
            parts = _spread(reading, parts)[0]
        if callee.kind != "function" and not (reading.open and not reading.late):
            deep = callee.kind == "attribute" and callee.name in ("format", "format_map")
            for part in parts:
                reading.each(part, lambda found: reading.use(found, ALL if deep else True), deep)
                if deep:
                    reading.text(part)
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
    if expression.kind == "spread":
        parts, whole = _spread(reading, parts)
        kind = "call" if whole else "spread"
        expression = Expression(kind, (), expression.parts, expression.offset, expression.line)
    return _called(reading, expression, function, parts)


def _called(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """The same, where the arguments of a ``call`` are in their places and of a ``spread`` not."""
    f, known, name = function
    if isinstance(f, MethodType):
        return _called_method(reading, expression, function, parts)
    if isinstance(f, functools.partial):
        return _called_partial(reading, expression, function, parts)
    if isinstance(f, weakref.ref):
        value = f()
        noted = reading.note("call", f"{name}()", "alive", f, None, value is not None)
        reading.watch.fleeting.add(id(value))
        return reading.found(value, noted, f"{name}()")
    special = _exact(f) if expression.kind == "call" else None
    if special is not None:
        return special(reading, expression, function, parts)
    if isinstance(f, _CACHED):
        return _called_cached(reading, expression, function, parts)
    receiver = getattr(f, "__self__", None)
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
    return opaque(reading, expression, function, parts)


Exact = Callable[[Reading, Expression, Found, list[Expression]], list[Found]]
exact: dict[Any, Exact] = {}
"""How calls of built-ins are read that are known exactly; filled by ``exact_calls``."""


def _exact(f: Any) -> Exact | None:
    try:
        return exact.get(f)
    except TypeError:  # an object that cannot be hashed
        return None


def _spread(reading: Reading, parts: list[Expression]) -> tuple[list[Expression], bool]:
    """The arguments of a call with ``*`` and ``**``, and whether all are in their places."""
    positional, *named = parts
    result: list[Expression] = []
    whole = not named
    for part in named:
        reading.each(part, reading.iterate)
    for part in _positions(positional):
        if part.kind != "star":
            result.append(part)
            continue
        (inner,) = part.parts
        reading.each(inner, reading.iterate)
        values = reading.find(inner)
        if len(values) == 1 and type(values[0].value) in (list, tuple):
            value, known, name = values[0]
            items = [
                Found(v, known or reading.watch.knows(v), f"{name}[{i}]")
                for i, v in enumerate(value)
            ]
            result += [Expression("given", found) for found in items]
        else:
            whole = False
            result.append(inner)
    return [*result, *named], whole


def _positions(expression: Expression) -> Iterator[Expression]:
    """The arguments in a tuple of them; a ``star`` is what holds more of them."""
    parts = expression.parts
    if expression.kind != "built" or expression.name == "grown":
        yield Expression("star", parts=(expression,))
    elif len(parts) == 2 and parts[0].kind == "built" and _is_star(parts[1]):
        yield from _positions(parts[0])
        yield Expression("star", parts=parts[1].parts[1:])
    else:
        yield from parts


def _is_star(part: Expression) -> bool:
    return part.kind == "call" and part.parts[0].kind == "unknown"


def _called_partial(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    f, known, name = function
    inner = Found(reading.watch.partial(f, known), known, name)
    if known:
        reading.use(Found(f.args, True, f"{name}.args"))
        reading.use(Found(f.keywords, True, f"{name}.keywords"))
    held = [Expression("given", Found(v, known, f"{name}.args")) for v in f.args]
    held_by_name = [
        Expression("given", Found(v, known, f"{name}.keywords")) for v in f.keywords.values()
    ]
    kind = "spread" if held_by_name else expression.kind
    whole = Expression(kind, expression.name, expression.parts, expression.offset, expression.line)
    return _called(reading, whole, inner, [*held, *parts, *held_by_name])


# Functions with a cache -------------------------------------------------------------------------

_CACHED = type(functools.lru_cache(len))


def _cache_of(f: Any) -> dict[Any, Any]:
    """The dict in which ``functools.lru_cache`` keeps what it has computed."""
    own = getattr(f, "__dict__", None)
    return next((p for p in gc.get_referents(f) if type(p) is dict and p is not own), {})


def _entries(
    reading: Reading, f: Any, expression: Expression, parts: list[Expression]
) -> tuple[dict[Any, Any], tuple[Any, ...] | None]:
    """The entries of its cache that a call may get; one, and the arguments, if they are known."""
    cache = _cache_of(f)
    values = [reading.find(part) for part in parts]
    if (
        expression.kind == "call"
        and not expression.name
        and not f.cache_parameters()["typed"]
        and all(len(found) == 1 and is_key(found[0].value) for found in values)
    ):
        given = tuple(found[0].value for found in values)
        key = given[0] if len(given) == 1 and type(given[0]) in (int, str) else given
        return ({key: cache[key]}, given) if key in cache else ({}, None)
    return dict(cache), None


def _called_cached(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """What was computed before the trace is not computed again, so nobody sees what it reads."""
    f, known, name = function
    reading.watch.register(f, known)
    entries, given = _entries(reading, f, expression, parts)
    for key, entry in entries.items():
        label = f"the result of {name} in its cache"
        reading.note("item", label, "item", _cache_of(f), key, entry)
    for part in parts:
        reading.each(part, lambda found: pass_on(reading, found))
    if given is not None:  # the call itself will find it as well
        return [Found(f(*given), True, f"{name}(...)")]
    if entries and expression.kind == "call":
        reading.tell(name, f)
    return reading._later(expression.offset, f"{name}(...)")


def _called_function(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    f, known, name = function
    reading.watch.register(f, known)
    origin = origins[f.__code__.co_filename]
    if origin in (USER, LAYERS):
        for part in parts:
            reading.each(part, lambda found: pass_on(reading, found))
        return reading._later(expression.offset, f"{name}(...)")
    if origin == CORE:
        reading.settled.add(expression)
    else:
        closed(reading, f, name)
    return opaque(reading, expression, function, parts, origin != CORE)


def closed(reading: Reading, f: FunctionType, name: str, depth: int = 2) -> None:
    """What a function of the standard library keeps in its closure, as singledispatch does."""
    if origins[f.__code__.co_filename] != FOREIGN:
        return
    for cell in f.__closure__ or ():
        held = in_cell(cell)
        if type(held) is dict:
            reading.use(Found(held, True, name))
            reading.ask("abc.get_cache_token", abc.get_cache_token)  # classes are looked up in it
        elif isinstance(held, FunctionType) and depth:
            closed(reading, held, name, depth - 1)


def pass_on(reading: Reading, found: Found) -> None:
    """An argument of a watched function: a function among them may be called there."""
    if category(found.value) == "code":
        reading.watch.register(found.value, found.known)
        if isinstance(found.value, BuiltinFunctionType):
            refuse_some(reading, found)
        if isinstance(found.value, _CACHED):
            _called_cached(reading, Expression("spread"), found, [])


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
        return [v for key in reading.find(parts[0]) for v in variable(reading, key.value)]
    owner = Found(receiver, known or reading.watch.knows(receiver), _owner_name(name))
    if not isinstance(inner, FunctionType):
        reading.use(owner, True)
        parts = [Expression("given", owner), *parts]
        return _called(reading, expression, Found(inner, known, name), parts)
    if origins[inner.__code__.co_filename] in (USER, LAYERS, CORE):
        return _called_function(reading, expression, Found(inner, known, name), parts)
    if what_it_reads(f) == ASKED:
        return _asked(reading, expression, function, parts)
    if what_it_reads(f) != EFFECT:
        reading.use(owner, True)
    return _called_function(reading, expression, Found(inner, known, name), parts)


def _called_class(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    cls, known, name = function
    reading.watch.register(cls, known)
    if cls in _WALKERS:
        reading.walked.add(expression)
        deep = _looks(reading, parts)
        for part in parts:
            reading.each(part, (lambda f: reading.use(f, ALL)) if deep else reading.iterate, deep)
            reading.each(part, lambda found: pass_on(reading, found))
        return []
    if issubclass(cls, decimal.Decimal):
        reading.decimals()
    if issubclass(cls, threading.Thread):
        reading.refuse_call("thread", name)
    reading.of_class(cls)
    if _is_own(cls):
        for part in parts:
            reading.each(part, lambda found: pass_on(reading, found))
        return reading._later(expression.offset, f"{name}(...)")
    if cls in SEEDED and not parts:
        reading.refuse("random", f"{name}()", cls)
    return opaque(reading, expression, function, parts)


_WALKERS: tuple[type, ...] = (
    list,
    tuple,
    set,
    frozenset,
    dict,
    enumerate,
    zip,
    reversed,
    map,
    filter,
    itertools.chain,
    itertools.islice,
    itertools.repeat,
    itertools.cycle,
    itertools.starmap,
)


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


def refuse_some(reading: Reading, function: Found) -> str:
    """What a function reads; it is refused if nobody can be sure of that."""
    what = what_it_reads(function.value)
    if what == RANDOM:
        reading.refuse("random", f"{function.name}()", function.value)
    elif what == THREADS:
        reading.refuse_call("thread", function.name)
    elif what == TRACER and TRACES:
        reading.refuse_call("tracer", function.name)
    elif what == UNKNOWN:
        reading.tell(function.name, function.value)
    return what


def opaque(
    reading: Reading,
    expression: Expression,
    function: Found,
    parts: list[Expression],
    objects: bool = True,
) -> list[Found]:
    """A call of code that is not watched."""
    f, known, _ = function
    reading.watch.register(f, known)
    what = PURE if not objects else refuse_some(reading, function)
    if what == EFFECT:
        return []
    if what == ASKED:
        return _asked(reading, expression, function, parts)
    depth: bool | str = ALL if objects and (is_deep(f) or _looks(reading, parts)) else objects
    for part in parts:
        reading.each(part, lambda found: reading.use(found, depth), depth == ALL)
        if makes_text(f):
            reading.text(part)
    return []


def _looks(reading: Reading, parts: list[Expression]) -> bool:
    """Whether C code among the arguments will look into the others."""
    return any(is_looker(found.value) for part in parts for found in reading.find(part)) or any(
        is_looker(cls) for part in parts for cls in reading.made_of(part)
    )


def _asked(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """A call that is made again at each check, if its arguments are known."""
    f, _, name = function
    values = [reading.find(part) for part in parts]
    if expression.kind == "call" and not expression.name and all(len(v) == 1 for v in values):
        given = [found[0] for found in values]
        for found in given:
            reading.watch.know(found.value) if found.known else None
        return reading.ask(name, f, *(found.value for found in given))
    reading.tell(name, f)
    return []


# Methods written in C ---------------------------------------------------------------------------

_SHALLOW = {"items", "values", "keys", "copy", "__iter__", "__reversed__", "elements"}
_KEYED = {"get", "__getitem__"}
_TAKING = {"pop", "popitem", "popleft", "remove", "setdefault", "sort"}
_CHANGING = _TAKING | {
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "insert",
    "clear",
    "update",
    "add",
    "discard",
    "reverse",
    "rotate",
    "difference_update",
    "intersection_update",
    "symmetric_difference_update",
    "__setitem__",
    "__delitem__",
    "subtract",
    "move_to_end",
}
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
        return reading.variable(f"{name}()", receiver) or [
            found for part in parts for found in reading.find(part)
        ]
    special = _exact(getattr(type(receiver), method, None))
    if special is not None and isinstance(f, MethodWrapperType) and expression.kind == "call":
        return special(reading, expression, function, [Expression("given", owner), *parts])
    if kind == "container":
        if method in _PLAIN_RESULTS:
            reading.settled.add(expression)
        if method in _SHALLOW:
            reading.walked.add(expression)
        return _called_on_container(reading, method, owner, parts)
    if kind == "file" and method in _FILE_WRITES:
        return []
    if isinstance(receiver, type) or what_it_reads(f) != PURE:
        return opaque(reading, expression, function, parts)
    if not reading.run.trusted or kind != "iterator":
        reading.use(owner, True)
    return opaque(reading, expression, function, parts)


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
