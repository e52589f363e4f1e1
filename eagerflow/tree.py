"""Nested arguments: flatten to a list of leaves, rebuild from one.

A nest is any combination of lists, tuples, dicts, objects of classes made from these, such as
named tuples and ``defaultdict``, of dataclasses and attrs classes with tensors inside, and of
registered classes; everything else, ``None`` included, is a leaf. Dicts keep their own order of
keys, and objects their attributes, when they are rebuilt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import BuiltinFunctionType, MemberDescriptorType
from typing import Any, NamedTuple

from eagerflow.fields import fields_of, held_fields
from eagerflow.handlers import suppress


class Structure(NamedTuple):
    """The shape of a nest without its leaves; ``None`` as ``container`` marks a leaf."""

    container: type | None
    keys: tuple[Any, ...]
    children: tuple[Structure, ...]
    state: tuple[_Attribute, ...] = ()
    """The attributes of an object that are not among its keys."""


class _Attribute:
    """An attribute by name; plain values compare by type and value, others by identity."""

    __slots__ = ("key", "name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value
        self.key = (name, type(value), repr(value) if type(value) in _PLAIN else id(value))

    def __eq__(self, other: object) -> bool:
        return type(other) is _Attribute and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class _Rule(NamedTuple):
    split: Callable[[Any], tuple[tuple[Any, ...], Iterable[Any]]]
    join: Callable[[tuple[Any, ...], list[Any]], Any]


def _mapping_rule(cls: type) -> _Rule:
    return _Rule(
        lambda nest: (tuple(nest), nest.values()),
        lambda keys, items: cls(zip(keys, items, strict=True)),
    )


_LEAF = Structure(None, (), ())
_PLAIN = {bool, int, float, complex, str, bytes, type(None)}
_BASES: tuple[type, ...] = (list, tuple, OrderedDict, dict)
_rules: dict[type, _Rule] = {
    list: _Rule(lambda nest: ((), nest), lambda keys, items: items),
    tuple: _Rule(lambda nest: ((), nest), lambda keys, items: tuple(items)),
    dict: _mapping_rule(dict),
    OrderedDict: _mapping_rule(OrderedDict),
}


def register(
    cls: type,
    split: Callable[[Any], tuple[tuple[Any, ...], Iterable[Any]]],
    join: Callable[[tuple[Any, ...], list[Any]], Any],
) -> None:
    """Register ``cls`` as a container: ``split`` returns keys and children, ``join`` rebuilds.

    The keys of the children come first; others needed by ``join`` may follow.
    """
    _rules[cls] = _Rule(split, join)


LEAVES: set[type] = set()
"""Common classes with objects that are leaves."""


def _rule(nest: Any) -> _Rule | None:
    cls: Any = type(nest)
    rule = _rules.get(cls)
    if rule is not None or cls in _PLAIN:
        return rule
    if issubclass(cls, _BASES) and not hasattr(cls, "n_fields"):
        rule = _rules[_base(cls)]  # except types of the system, such as time.struct_time
        if hasattr(cls, "_fields"):
            return _Rule(lambda n: (cls._fields, n), rule.join)
    elif fields_of(cls) and (held := held_fields(nest)) is not None:
        rule = _Rule(lambda _: (tuple(held), held.values()), _rules[dict].join)
    # Only classes in _rules are rebuilt by their rules, others by _remade.
    return rule


def _base(cls: type) -> type:
    return next(base for base in _BASES if issubclass(cls, base))


def _state(nest: Any) -> tuple[_Attribute, ...]:
    """The attributes of an object, without the fields of a dataclass."""
    found = dict(getattr(nest, "__dict__", ()))
    cls: Any = type(nest)
    for name, slot in _slots(cls):
        with suppress(AttributeError):  # it is not set
            found.setdefault(name, slot.__get__(nest))
    return tuple([_Attribute(name, x) for name, x in found.items() if name not in fields_of(cls)])


@lru_cache(256)
def _slots(cls: type) -> list[tuple[str, Any]]:
    slots = [pair for c in cls.__mro__ for pair in vars(c).items()]
    return [(name, slot) for name, slot in slots if type(slot) is MemberDescriptorType]


def _remade(structure: Structure, items: list[Any]) -> Any:
    """An object of a class without a rule of its own; runs none of its code."""
    cls: Any = structure.container
    base: Any = next((base for base in _BASES if issubclass(cls, base)), object)
    makers = (vars(c).get("__new__") for c in cls.__mro__)
    make: Any = next(new for new in makers if type(new) is BuiltinFunctionType)
    nest = make(cls, items) if base is tuple else make(cls)
    if base is object:
        for name, item in zip(structure.keys, items, strict=True):
            object.__setattr__(nest, name, item)
    elif base is list:
        base.extend(nest, items)
    elif base is not tuple:
        for key, item in zip(structure.keys, items, strict=True):
            base.__setitem__(nest, key, item)
    for attribute in structure.state:
        object.__setattr__(nest, attribute.name, attribute.value)
    return nest


def flatten(nest: Any, whole: type | None = None) -> tuple[list[Any], Structure]:
    """Leaves of ``nest`` from left to right, and the structure that rebuilds it.

    Objects of the class ``whole`` are leaves, although the class is registered.
    """
    if nest.__class__ in LEAVES:
        return [nest], _LEAF
    leaves: list[Any] = []
    return leaves, _flatten(nest, leaves, whole)


def _flatten(nest: Any, leaves: list[Any], whole: type | None) -> Structure:
    rule = None if nest.__class__ in LEAVES or type(nest) is whole else _rule(nest)
    if rule is None:
        leaves.append(nest)
        return _LEAF
    cls = type(nest)
    keys, items = rule.split(nest)
    children = tuple([_flatten(item, leaves, whole) for item in items])
    return Structure(cls, keys, children, () if cls in _rules else _state(nest))


def children(nest: Any) -> list[Any] | None:
    """The parts of a nest, None for a leaf."""
    rule = None if nest.__class__ in LEAVES else _rule(nest)
    return None if rule is None else list(rule.split(nest)[1])


def flatten_up_to(structure: Structure, nest: Any) -> list[Any]:
    """The parts of ``nest`` at the leaves of ``structure``; ValueError if it has another."""
    if structure.container is None:
        return [nest]
    rule = _rule(nest)
    keys, items = rule.split(nest) if rule and type(nest) is structure.container else ((), ())
    parts = list(items)
    if keys != structure.keys or len(parts) != len(structure.children):
        raise ValueError(f"{type(nest).__name__} in place of {structure.container.__name__}")
    return [
        leaf
        for child, part in zip(structure.children, parts, strict=True)
        for leaf in flatten_up_to(child, part)
    ]


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The nest with this structure and these leaves."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    cls = structure.container
    if cls is None:
        return next(leaves)
    items = [_unflatten(child, leaves) for child in structure.children]
    return _rules[cls].join(structure.keys, items) if cls in _rules else _remade(structure, items)


def instances(nest: Any, kinds: tuple[type, ...]) -> list[Any]:
    """The objects of these classes in lists, tuples and dicts, each once; not their contents.

    >>> ef.tree.instances([{"a": 1.5, "b": 2}, (2, "c")], (int, float))
    [1.5, 2]
    """
    found: dict[int, Any] = {}
    entered: dict[int, Any] = {}
    waiting: list[Any] = [nest]
    while waiting:
        value = waiting.pop()
        if type(value) in _PLAIN and type(value) not in kinds:
            continue  # most are leaves
        if isinstance(value, kinds):
            found.setdefault(id(value), value)
        elif isinstance(value, _BASES) and id(value) not in entered:
            entered[id(value)] = value
            parts: Any = value.values() if isinstance(value, dict) else value
            waiting += list(parts)[::-1]
    return list(found.values())


def map_leaves(f: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """``f`` of the leaves of all nests, position by position, in the first one's structure."""
    leaves, structure = flatten(nest)
    columns = [flatten(other)[0] for other in others]
    return unflatten(structure, [f(*row) for row in zip(leaves, *columns, strict=True)])


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """A readable name for each leaf, such as ``['encoder'][0]``."""
    if structure.container is None:
        return [prefix]
    keys = structure.keys[: len(structure.children)] or range(len(structure.children))
    named = hasattr(structure.container, "_fields") or bool(fields_of(structure.container))
    return [
        path
        for key, child in zip(keys, structure.children, strict=True)
        for path in paths(child, prefix + (f"[{key!r}]" if not named else f".{key}" if key else ""))
    ]
