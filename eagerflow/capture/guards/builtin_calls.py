"""Exact calls: built-in functions whose reading is known exactly."""

from __future__ import annotations

import decimal
import functools
import importlib.util
import operator
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from eagerflow.capture.guards.callables import is_looker
from eagerflow.capture.guards.calls import Exact, exact, opaque, pass_on, variable
from eagerflow.capture.guards.line_reads import Expression
from eagerflow.capture.guards.lookup import Found
from eagerflow.capture.guards.snapshot import ALL, category

Reading = Any  # imports this module

__all__: list[str] = []


def _attribute(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    if function.value is hasattr:
        reading.settled.add(expression)
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
    reading.settled.add(expression)
    for part in parts:
        reading.each(part, reading.length)
    return []


def _nothing(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    reading.settled.add(expression)
    return []


def _identity(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """It is asked which object this is."""
    reading.settled.add(expression)
    for part in parts:
        reading.each(part, reading.identity)
    return []


def _instance(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """Whether an object or a class belongs to a class, which may ask others, or be asked."""
    reading.settled.add(expression)
    if len(parts) == 2:
        reading.belongs(*parts, function.value)
    return []


def _callable(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    reading.settled.add(expression)
    for part in parts:
        reading.classes(part)
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
    for owner in owners:
        reading.classed(owner)
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
    if parts and not pairs:  # of an object that the trace makes: what its class has
        pairs = [(c.value, c.value) for c in reading.find(parts[0])]
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
    names = [key for key in reading.find(parts[0]) if isinstance(key.value, str | bytes)]
    environ = os.environ if function.value is os.getenv else os.environb
    if not names:
        reading.tell(function.name, function.value)
    return [v for key in names for v in variable(reading, key.value, environ)]


def _find_module(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    for name in reading.find(parts[0]):
        reading.importable(str(name.value))
    return []


def _decimals(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    reading.decimals()
    return []


def _import(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    """A module that is imported by a call."""
    given = [[str(found.value) for found in reading.find(part)] for part in parts]
    if not 0 < len(given) < 3 or not all(given):
        return opaque(reading, expression, function, parts)
    names = given[0]
    if len(given) == 2:  # and the package from which it is counted
        names = [importlib.util.resolve_name(name, given[1][0]) for name in names]
    if function.value is __import__:
        names = [name.partition(".")[0] for name in names]
    return [found for name in names for found in reading.find(Expression("module", name))]


def _generator(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    if not parts:
        reading.refuse("random", f"{function.name}()", function.value)
    return []


def _reduce(
    reading: Reading, expression: Expression, function: Found, parts: list[Expression]
) -> list[Found]:
    deep = any(is_looker(found.value) for part in parts for found in reading.find(part))
    for part in parts:
        reading.each(part, lambda found: pass_on(reading, found))
        reading.each(part, (lambda f: reading.use(f, ALL)) if deep else reading.iterate, deep)
    return []


def _rows() -> Iterable[tuple[Iterable[Any], Exact]]:
    yield [getattr, hasattr, object.__getattribute__], _attribute
    yield [setattr, delattr], _set_attribute
    yield [len], _length
    yield [print, locals, breakpoint], _nothing
    yield [id, operator.is_, operator.is_not], _identity
    yield [isinstance, issubclass], _instance
    yield [callable], _callable
    yield [iter], _iterate
    yield [type], _type
    yield [super], _super
    yield [globals], _globals
    yield [vars], _variables
    yield [os.getenv, *([os.getenvb] if os.supports_bytes_environ else [])], _getenv
    yield [importlib.util.find_spec], _find_module
    yield [decimal.getcontext], _decimals
    yield [importlib.import_module, __import__], _import
    yield [np.random.default_rng], _generator
    yield [functools.reduce], _reduce


exact.update({f: special for functions, special in _rows() for f in functions})
