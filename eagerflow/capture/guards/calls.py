"""Calls: which of their arguments are read, and known facts about their results.

User functions in Python are watched while they run, so calling one reads nothing by
itself. Unwatched code (C functions, the standard library, NumPy, eagerflow's ops) may
read all of its arguments, and the state given by ``callables``; built-ins that are common in
models are known exactly (``_EXACT``).
"""

from __future__ import annotations

import builtins
import decimal
import functools
import gc
import importlib.util
import itertools
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, MethodWrapperType
from typing import Any, NamedTuple

import numpy as np

from eagerflow.capture.guards.bytecode import Expression
from eagerflow.capture.guards.callables import (
    BOUND_IN_C,
    EFFECT,
    MODULE_OR_NONE,
    PURE,
    RANDOM,
    REPEATED,
    SEEDED,
    THREADS,
    TRACER,
    TRACES,
    UNKNOWN,
    is_deep,
    listed,
    makes_text,
    reads_arguments,
    what_it_reads,
)
from eagerflow.capture.guards.categories import category, is_key, named
from eagerflow.capture.guards.lookup import (
    CORE,
    FOREIGN,
    Found,
    functions_in,
    is_watched,
    method_of,
    origins,
    value_of_cell,
)
from eagerflow.capture.guards.snapshot import ALL, ATTRIBUTES, NESTED, elements
from eagerflow.capture.updates import COPYING

Evaluator = Any  # imports this module


class Call(NamedTuple):
    """A call of one function.

    Where the expression has ``*`` or ``**``, or a ``functools.partial`` keywords, the arguments
    are perhaps not in their places: then ``in_order`` is False.
    """

    evaluator: Evaluator
    expression: Expression
    function: Found
    arguments: list[Expression]
    in_order: bool = True

    def each(self, do: Callable[[Found], None], deep: bool = False) -> None:
        """``do`` with every value passed, ``deep`` also within new lists."""
        for argument in self.arguments:
            self.evaluator.each(argument, do, deep)

    def values(self, index: int) -> list[Found]:
        """The possible values of an argument; empty if it is omitted."""
        given = self.arguments[index : index + 1]
        return self.evaluator.evaluate(given[0]) if given else []

    def known_values(self) -> list[Found] | None:
        """The argument values, one by one; None if unknown."""
        values = [self.evaluator.evaluate(argument) for argument in self.arguments]
        known = self.in_order and not self.expression.name and all(len(v) == 1 for v in values)
        return [found for (found,) in values] if known else None

    def pass_on(self) -> None:
        """Pass the arguments on to a function that is watched, or that calls them."""
        self.each(lambda found: pass_on(self.evaluator, found))

    def deferred_result(self) -> list[Found]:
        """The result of the function, known once the line has run."""
        name = f"{self.function.name}(...)"
        return self.evaluator.deferred_result(self.expression.offset, name)

    def has_no_parts(self) -> None:
        """Mark the result as having no parts to read."""
        self.evaluator.without_parts.add(self.expression)

    def is_iterator(self) -> None:
        """Mark the result as an iterator over elements of the arguments, which have guards."""
        self.evaluator.iterators.add(self.expression)


# Records the reads of a call, and returns its possible results.
Reads = Callable[[Call], list[Found] | None]


def call(evaluator: Evaluator, expression: Expression) -> list[Found]:
    """Record the reads of a call, and return its known results."""
    callee, *arguments = expression.parts
    if callee.kind == "unknown":  # not a call in user code: iteration and the like
        return []
    in_order, own = True, expression
    if expression.kind == "spread":
        arguments, in_order = _unpacked(evaluator, arguments)
        # Facts about this call's result must not apply to the original expression.
        own = Expression("spread", (), expression.parts, expression.offset, expression.line)
    functions = evaluator.evaluate(callee)
    if not functions:
        return _call_of_unknown(evaluator, expression, arguments)
    found: list[Found] = []
    for function in functions:
        found += _read(Call(evaluator, own, function, arguments, in_order))
    return found


def _call_of_unknown(
    evaluator: Evaluator, expression: Expression, arguments: list[Expression]
) -> list[Found]:
    """A call of a value made by the trace, or known once the line has run."""
    callee = expression.parts[0]
    if callee.kind != "function" and not (evaluator.pending and not evaluator.has_run):
        deep = callee.kind == "attribute" and callee.name in ("format", "format_map")
        for argument in arguments:
            evaluator.each(argument, lambda f: evaluator.use(f, ALL if deep else ATTRIBUTES), deep)
            if deep:
                evaluator.text(argument)
    evaluator.pending = evaluator.pending or callee.kind == "function"
    if not evaluator.has_run:
        return []
    return evaluator.deferred_result(expression.offset, "a result")


def _read(call: Call) -> list[Found]:
    """Record the reads of a call of this function."""
    f = call.function.value
    if isinstance(f, _NAMED) and f.__name__ in COPYING:
        call.each(call.evaluator.copy)
    if isinstance(f, MethodType):
        return _read_method(call)
    if isinstance(f, functools.partial):
        return _read_partial(call)
    if isinstance(f, weakref.ref):
        return _read_reference(call)
    exact = listed(f, _EXACT) if call.in_order else None
    if exact is not None:
        return exact(call) or []
    if isinstance(f, _CACHED):
        return _read_cached(call)
    if isinstance(f, FunctionType):
        return _read_function(call)
    if isinstance(f, BOUND_IN_C) and not isinstance(f.__self__, MODULE_OR_NONE):
        return _read_builtin_method(call)
    if isinstance(f, type):
        return _read_class(call)
    own = method_of(f, "__call__")
    if own is not None:
        call.evaluator.guards.class_lookup(f, "__call__")
        method = call.function._replace(value=MethodType(own, f))
        return _read_method(call._replace(function=method))
    return _read_unwatched(call)


# Arguments --------------------------------------------------------------------------------------


def _unpacked(evaluator: Evaluator, parts: Iterable[Expression]) -> tuple[list[Expression], bool]:
    """The arguments of a call with ``*`` and ``**``, and whether all positions are known."""
    positional, *named = parts
    result: list[Expression] = []
    in_order = not named
    for part in named:
        evaluator.each(part, evaluator.iterate)
    for part in _positions(positional):
        if part.kind != "star":
            result.append(part)
            continue
        (inner,) = part.parts
        evaluator.each(inner, evaluator.iterate)
        values = evaluator.evaluate(inner)
        if len(values) == 1 and type(values[0].value) in (list, tuple):
            value, external, name = values[0]
            result += _given(
                Found(v, external or evaluator.monitor.is_external(v), f"{name}[{i}]")
                for i, v in enumerate(value)
            )
        else:
            in_order = False
            result.append(inner)
    return [*result, *named], in_order


def _given(values: Iterable[Found]) -> list[Expression]:
    return [Expression("given", found) for found in values]


def _positions(expression: Expression) -> Iterator[Expression]:
    """The arguments in a tuple of them; a ``star`` holds more of them."""
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


# Python functions and wrappers ------------------------------------------------------------------


def _read_partial(call: Call) -> list[Found]:
    evaluator, old = call.evaluator, call.expression
    f, external, name = call.function
    evaluator.monitor.register(f, external)
    if external:
        for part in ("func", "args", "keywords"):  # replaced by __setstate__
            for found in evaluator.guards.read("attribute", f"{name}.{part}", "attribute", f, part):
                evaluator.use(found)
    held = _given(Found(v, external, f"{name}.args") for v in f.args)
    named = _given(Found(v, external, f"{name}.keywords") for v in f.keywords.values())
    # Facts about the inner call's result must not apply to this expression.
    inner = Expression(old.kind, old.name, old.parts, old.offset, old.line)
    function = Found(f.func, external, name)
    arguments = [*held, *call.arguments, *named]
    return _read(Call(evaluator, inner, function, arguments, call.in_order and not named))


def _read_reference(call: Call) -> list[Found]:
    """A weak reference: whether its object is alive."""
    value, name = call.function.value(), f"{call.function.name}()"
    guards = call.evaluator.guards
    guarded = guards.add("call", name, "alive", call.function.value, None, value is not None)
    call.evaluator.monitor.weakly_referenced.add(id(value))
    return guards.found(value, guarded, name)


_NAMED = (FunctionType, MethodType, BuiltinFunctionType, type(np.copy))
_CACHED = type(functools.lru_cache(len))


def _cache_of(f: Any) -> dict[Any, Any]:
    """The dict of cached results of ``functools.lru_cache``."""
    own = getattr(f, "__dict__", None)
    found = [p for p in gc.get_referents(f) if type(p) is dict and p is not own]
    return found[-1]  # earlier ones are results that are dicts


def _cache_entries(call: Call) -> tuple[dict[Any, Any], tuple[Any, ...] | None]:
    """The cache entries a call may return; one, and the arguments, if these are known."""
    f = call.function.value
    cache = _cache_of(f)
    known = call.known_values()
    given = None if known is None else tuple(found.value for found in known)
    if given is not None and not f.cache_parameters()["typed"] and all(is_key(x) for x in given):
        key = given[0] if len(given) == 1 and type(given[0]) in (int, str) else given
        return ({key: cache[key]}, given) if key in cache else ({}, None)
    return dict(cache), None


def _read_cached(call: Call) -> list[Found]:
    """Results computed before the trace are not recomputed, so their reads are not seen."""
    f, external, name = call.function
    guards = call.evaluator.guards
    call.evaluator.monitor.register(f, external)
    entries, given = _cache_entries(call)
    for key, entry in entries.items():
        guards.add("item", f"the result of {name} in its cache", "item", _cache_of(f), key, entry)
    call.pass_on()
    if given is not None:  # the call itself will find it too
        return [Found(f(*given), True, f"{name}(...)")]
    if entries and call.in_order:
        guards.unwatched(name, f)
    return call.deferred_result()


def _read_function(call: Call) -> list[Found]:
    f, external, name = call.function
    call.evaluator.monitor.register(f, external)
    if is_watched(f):
        call.pass_on()
        return call.deferred_result()
    if origins[f.__code__.co_filename] == CORE:
        call.has_no_parts()
        return _read_unwatched(call, NESTED)
    read_closure(call.evaluator, f, name)
    return _read_unwatched(call)


def read_closure(evaluator: Evaluator, f: FunctionType, name: str, depth: int = 2) -> None:
    """Values in the closure of a standard library function, such as singledispatch."""
    if origins[f.__code__.co_filename] != FOREIGN:
        return
    for cell in f.__closure__ or ():
        held = value_of_cell(cell)
        if type(held) is dict:
            evaluator.use(Found(held, True, name))
            evaluator.subclass_registry()  # classes are looked up in it
        elif isinstance(held, FunctionType) and depth:
            read_closure(evaluator, held, name, depth - 1)


def pass_on(evaluator: Evaluator, found: Found) -> None:
    """An argument of a watched function: a function among them may be called there."""
    if category(found.value) == "code":
        evaluator.monitor.register(found.value, found.external)
        if isinstance(found.value, BuiltinFunctionType):
            _what_else_it_reads(evaluator, found)
        if isinstance(found.value, _CACHED):
            _read_cached(Call(evaluator, Expression("spread"), found, [], False))


def _read_method(call: Call) -> list[Found]:
    evaluator, expression, (f, external, name), arguments, in_order = call
    receiver, inner = f.__self__, f.__func__
    if external:
        evaluator.monitor.mark_external(receiver)
    if category(receiver) == "random":
        if external or evaluator.monitor.is_external(receiver):
            evaluator.guards.refuse("random", name, receiver)
        return []
    if receiver is os.environ and inner.__name__ == "get" and arguments:
        found = call.values(0)
        return [v for key in found for v in evaluator.guards.environment_variable(key.value)]
    function = Found(inner, external, name)
    if not isinstance(inner, FunctionType):
        owner = _owner(call, receiver)
        evaluator.use(owner, ATTRIBUTES)
        arguments = [*_given([owner]), *arguments]
        return _read(Call(evaluator, expression, function, arguments, in_order))
    if origins[inner.__code__.co_filename] == FOREIGN:
        what = what_it_reads(f)
        if what == REPEATED:
            return _repeat(call)
        if what != EFFECT:
            evaluator.use(_owner(call, receiver), ATTRIBUTES)
    return _read_function(Call(evaluator, expression, function, arguments, in_order))


def _owner(call: Call, receiver: Any) -> Found:
    """The object that a method belongs to."""
    _, external, name = call.function
    known = external or call.evaluator.monitor.is_external(receiver)
    return Found(receiver, known, name.rpartition(".")[0] or name)


# Classes ----------------------------------------------------------------------------------------

_ITERATING = named(
    {
        builtins: "dict enumerate filter frozenset list map reversed set tuple zip",
        itertools: "chain cycle islice repeat starmap",
    }
)
_watched_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _read_class(call: Call) -> list[Found]:
    evaluator = call.evaluator
    cls, external, name = call.function
    evaluator.monitor.register(cls, external)
    if cls in _ITERATING:
        call.is_iterator()
        return _iterate_and_call(call)
    if issubclass(cls, decimal.Decimal):
        evaluator.guards.decimal_context()
    if issubclass(cls, threading.Thread):
        evaluator.guards.refuse("thread", f"{name}()")
    evaluator.guards.class_state(cls)
    evaluator.guards.class_lookup(cls, "__call__")
    if _has_watched_functions(cls):
        call.pass_on()
        return call.deferred_result()
    if cls in SEEDED and not call.arguments:
        evaluator.guards.refuse("random", f"{name}()", cls)
    return _read_unwatched(call)


def _iterate_and_call(call: Call) -> list[Found]:
    """Functions among the arguments are called with elements of the others."""
    evaluator = call.evaluator
    if _passes_reader(call):
        call.each(lambda found: evaluator.use(found, ALL), True)
    else:
        call.each(evaluator.iterate)
    _pass_identity(call)
    call.pass_on()
    return []


def _pass_identity(call: Call) -> None:
    """Functions among the arguments may check the identity or class of the others."""
    passed = [found.value for part in call.arguments for found in call.evaluator.evaluate(part)]
    if any(f is known for f in passed for known in _IDENTITIES):
        call.each(call.evaluator.which_parts, True)
    if any(f is type for f in passed):
        call.each(call.evaluator.numbers, True)


def _has_watched_functions(cls: type) -> bool:
    """Whether a class has user functions, or functions of eagerflow's layers."""
    known = _watched_classes.get(cls)
    if known is None:
        known = _watched_classes[cls] = any(
            is_watched(f)
            for base in cls.__mro__
            for v in vars(base).values()
            if isinstance(v, FunctionType | staticmethod | classmethod | property)
            for f in functions_in(v)
        )
    return known


# Unwatched code ---------------------------------------------------------------------------------


def _what_else_it_reads(evaluator: Evaluator, function: Found) -> str:
    """The state that a function reads besides its arguments; rejects or reports unsafe ones."""
    f, _, name = function
    guards = evaluator.guards
    what = what_it_reads(f)
    if what == RANDOM:
        guards.refuse("random", f"{name}()", f)
    elif what == THREADS:
        guards.refuse("thread", f"{name}()")
    elif what == TRACER and TRACES:
        guards.refuse("tracer", f"{name}()")
    elif what == UNKNOWN:
        guards.unwatched(name, f)
    return what


def _read_unwatched(call: Call, reach: int = ATTRIBUTES) -> list[Found]:
    """A call of unwatched code, which reads its arguments up to ``reach``."""
    f, external, _ = call.function
    evaluator = call.evaluator
    evaluator.monitor.register(f, external)
    what = PURE if reach == NESTED else _what_else_it_reads(evaluator, call.function)
    if what == EFFECT:
        return []
    if what == REPEATED:
        return _repeat(call)
    if reach == ATTRIBUTES and (is_deep(f) or _passes_reader(call)):
        reach = ALL
    _pass_identity(call)
    for argument in call.arguments:
        for found in evaluator.evaluate(argument) if not evaluator.run.trusted else ():
            if category(found.value) in ("container", "object"):
                evaluator.changed(found)
        evaluator.each(argument, lambda found: evaluator.use(found, reach), reach == ALL)
        if makes_text(f):
            evaluator.text(argument)
    return []


def _passes_reader(call: Call) -> bool:
    """Whether C code among the arguments will read the others."""
    evaluator, arguments = call.evaluator, call.arguments
    values = (found.value for part in arguments for found in evaluator.evaluate(part))
    classes = (cls for part in arguments for cls in evaluator.constructed_classes(part))
    return any(reads_arguments(x) for x in values) or any(reads_arguments(x) for x in classes)


def _repeat(call: Call) -> list[Found]:
    """A call that is repeated at each check, if its arguments are known."""
    f, _, name = call.function
    evaluator = call.evaluator
    given = call.known_values()
    if given is None:
        evaluator.guards.unwatched(name, f)
        return []
    for found in given:
        if found.external:
            evaluator.monitor.mark_external(found.value)
    return evaluator.guards.call(name, f, *(found.value for found in given))


# Methods written in C ---------------------------------------------------------------------------

_ITERATING_METHODS = frozenset("__iter__ __reversed__ copy elements items keys values".split())
_KEYED_METHODS = frozenset("__getitem__ get".split())
_STORING_METHODS = frozenset("__setitem__ append appendleft insert setdefault".split())
_TAKING_METHODS = frozenset("pop popitem popleft remove setdefault sort".split())
_CHANGING_METHODS = _TAKING_METHODS | frozenset(
    """
    __delitem__ __setitem__ add append appendleft clear difference_update discard extend extendleft
    insert intersection_update move_to_end reverse rotate subtract symmetric_difference_update
    update
    """.split()
)
_METHODS_WITHOUT_PARTS = (
    _KEYED_METHODS
    | frozenset("__contains__ __len__ count index".split())
    | (_CHANGING_METHODS - _TAKING_METHODS)
)
_FILE_METHODS = frozenset("close fileno flush isatty writable write writelines".split())


def _read_builtin_method(call: Call) -> list[Found]:
    """A method in C of an object."""
    evaluator = call.evaluator
    f, _, name = call.function
    method, receiver = f.__name__, f.__self__
    kind = category(receiver)
    owner = _owner(call, receiver)
    if isinstance(receiver, ContextVar) and method == "get":
        return evaluator.guards.context_variable(f"{name}()", receiver) or [
            found for part in call.arguments for found in evaluator.evaluate(part)
        ]
    if method == "__getattribute__":  # bypasses the class's own, as from super()
        return _getattr(call._replace(arguments=[*_given([owner]), *call.arguments]))
    exact = listed(getattr(type(receiver), method, None), _EXACT)
    if exact is not None and isinstance(f, MethodWrapperType) and call.in_order:
        return exact(call._replace(arguments=[*_given([owner]), *call.arguments])) or []
    if kind == "container":
        if method in _METHODS_WITHOUT_PARTS:
            call.has_no_parts()
        if method in _ITERATING_METHODS:
            call.is_iterator()
        return _read_container_method(call, method, owner)
    if kind == "iterator" and method in ("__next__", "send", "throw"):
        if not evaluator.run.trusted:
            evaluator.use(owner, ATTRIBUTES)
        return _next_of(call, [owner])
    if kind == "file" and method in _FILE_METHODS:
        return []
    known = not isinstance(receiver, type) and what_it_reads(f) == PURE
    if known and not (evaluator.run.trusted and kind == "iterator"):
        evaluator.use(owner, ATTRIBUTES)
    return _read_unwatched(call)


def _read_container_method(call: Call, method: str, owner: Found) -> list[Found]:
    evaluator, arguments = call.evaluator, call.arguments
    result: list[Found] = []
    if method in _KEYED_METHODS and arguments:
        result = evaluator.item(owner, evaluator.evaluate(arguments[0]), direct=True)
        arguments = arguments[1:]
        if not result:
            result = [found for part in arguments for found in evaluator.evaluate(part)]
    elif method == "__len__":
        evaluator.length(owner)
    elif method in _ITERATING_METHODS:
        evaluator.iterate(owner)
    elif method not in _CHANGING_METHODS or method in _TAKING_METHODS:
        evaluator.iterate(owner)
        if method not in _TAKING_METHODS:
            evaluator.use(owner)
        else:
            result = evaluator.parts(owner)
    if method in _CHANGING_METHODS:
        evaluator.changed(owner)
        evaluator.guards.before_change(owner, True)
    if method not in _STORING_METHODS:
        for argument in arguments:
            evaluator.each(argument, evaluator.iterate)
    return result


# Built-ins that are known exactly ---------------------------------------------------------------


def _getattr(call: Call) -> list[Found]:
    evaluator, only_asks = call.evaluator, call.function.value is hasattr
    plain = call.function.value not in (getattr, hasattr)
    if only_asks:
        call.has_no_parts()
    names = [n.value for n in call.values(1)]
    result: list[Found] = []
    for owner in evaluator.owners(call.arguments[0]):
        for name in names:
            if isinstance(name, str):
                result += evaluator.attribute(owner, name, call.expression.offset, plain)
        if not names and (
            evaluator.has_run or not evaluator.pending_expressions.intersection(call.arguments)
        ):
            evaluator.use(owner, ATTRIBUTES)
    result = result or call.values(2)
    return [] if only_asks else result


def _next(call: Call) -> list[Found]:
    return _next_of(call, call.values(0))


def _next_of(call: Call, owners: list[Found]) -> list[Found]:
    """The next element: one of those inside of an iterator in C; else known when it is made."""
    _read_unwatched(call)
    found = call.deferred_result()
    for owner in owners:
        found += _inside(call, owner.value)
    return found


def _inside(call: Call, iterator: Any, depth: int = 4) -> list[Found]:
    """The elements of the containers that an iterator written in C refers to."""
    found: list[Found] = []
    if category(iterator) != "iterator" or isinstance(iterator, GeneratorType) or not depth:
        return found
    for part in gc.get_referents(iterator):
        found += _inside(call, part, depth - 1)
        if category(part) == "container":
            name, known = call.function.name, call.evaluator.monitor.is_external
            found += [Found(x, known(x), f"{name}(...)") for _, x in elements(part)]
    return found


def _set(call: Call) -> None:
    """An attribute is set or deleted."""
    call.has_no_parts()
    for found in call.evaluator.evaluate(call.arguments[0]) if call.arguments else ():
        call.evaluator.changed(found._replace(external=True))


def _each(do: str, mark: Callable[[Call], None]) -> Reads:
    """Apply this method of the evaluator to each value passed."""

    def reads(call: Call) -> None:
        mark(call)
        call.each(getattr(call.evaluator, do))

    return reads


_OF_ONE = (id, object.__hash__, object.__repr__)
_OF_TWO = (operator.is_, operator.is_not, object.__eq__)
_REFERENCES = (weakref.ref, weakref.proxy, weakref.finalize)
_IDENTITIES = (*_OF_ONE, *_OF_TWO, *_REFERENCES)


def _identity(call: Call) -> None:
    """The identity of a value: ``id``, or a comparison by ``is``."""
    call.has_no_parts()
    if call.function.value in _OF_ONE:
        call.each(call.evaluator.which)
    elif len(call.arguments) == 2:
        call.evaluator.aliases(*call.arguments)
    call.each(call.evaluator.identity)


def _reference(call: Call) -> list[Found]:
    """A weak reference or a proxy, unique for each object."""
    call.each(call.evaluator.which)
    is_class = isinstance(call.function.value, type)
    return _read_class(call) if is_class else _read_unwatched(call)


def _isinstance(call: Call) -> None:
    """Whether an object or a class belongs to a class; either may define hooks for it."""
    call.has_no_parts()
    if len(call.arguments) == 2:
        value, classes = call.arguments
        call.evaluator.instance_check(value, classes, call.function.value)


def _callable(call: Call) -> None:
    call.has_no_parts()
    for argument in call.arguments:
        call.evaluator.classes(argument)


def _type(call: Call) -> list[Found]:
    if len(call.arguments) != 1:
        return []
    owners = call.values(0)
    for owner in owners:
        call.evaluator.guards.class_of(owner)
        call.evaluator.number(owner)
    return [Found(type(o.value), True, f"type({o.name})") for o in owners]


def _super(call: Call) -> list[Found]:
    classes, objects = ([found.value for found in call.values(i)] for i in range(2))
    return call.evaluator.supers(classes, objects)


def _vars(call: Call) -> list[Found]:
    evaluator = call.evaluator
    result: list[Found] = []
    for owner in evaluator.owners(call.arguments[0]) if call.arguments else ():
        held, kind = getattr(owner.value, "__dict__", None), category(owner.value)
        if held is not None and kind in ("object", "code"):
            if evaluator.run.trusted:
                evaluator.monitor.trees.add(id(held))
            external = owner.external or kind == "code"
            result += evaluator.guards.found(held, external, f"vars({owner.name})")
    return result


def _getenv(call: Call) -> list[Found]:
    f, _, name = call.function
    guards = call.evaluator.guards
    keys = [key.value for key in call.values(0) if isinstance(key.value, str | bytes)]
    environ = os.environ if f is os.getenv else os.environb
    if not keys:
        guards.unwatched(name, f)
    return [found for key in keys for found in guards.environment_variable(key, environ)]


def _find_spec(call: Call) -> None:
    for name in call.values(0):
        call.evaluator.guards.importable(str(name.value))


def _import(call: Call) -> list[Found]:
    """A module that is imported by a call."""
    given = [[str(f.value) for f in call.values(i)] for i in range(len(call.arguments))]
    if not 0 < len(given) < 3 or not all(given):
        return _read_unwatched(call)
    names = given[0]
    if len(given) == 2:  # and the package that relative names refer to
        names = [importlib.util.resolve_name(name, given[1][0]) for name in names]
    if call.function.value is __import__:
        names = [name.partition(".")[0] for name in names]
    modules = (call.evaluator.evaluate(Expression("module", name)) for name in names)
    return [found for values in modules for found in values]


def _default_rng(call: Call) -> None:
    if not call.arguments:
        call.evaluator.guards.refuse("random", f"{call.function.name}()", call.function.value)


_BUILT_INS: dict[Reads, list[Any]] = {
    Call.has_no_parts: [breakpoint, locals, print],
    _set: [delattr, setattr],
    _next: [next],
    _getattr: [getattr, hasattr, object.__getattribute__, type.__getattribute__],
    _each("length", Call.has_no_parts): [len],
    _identity: [*_OF_ONE, *_OF_TWO],
    _reference: list(_REFERENCES),
    _isinstance: [isinstance, issubclass],
    _callable: [callable],
    _each("iterate", Call.is_iterator): [iter],
    _type: [type],
    _super: [super],
    lambda call: [Found(call.evaluator.run.globals, True, "globals()")]: [globals],
    _vars: [vars],
    _getenv: [os.getenv, *([os.getenvb] if os.supports_bytes_environ else [])],
    _find_spec: [importlib.util.find_spec],
    lambda call: call.evaluator.guards.decimal_context(): [decimal.getcontext],
    _import: [importlib.import_module, __import__],
    _default_rng: [np.random.default_rng],
    _iterate_and_call: [functools.reduce],
}
_EXACT = {f: reads for reads, functions in _BUILT_INS.items() for f in functions}
