"""Nested arguments: flatten to a list of leaves, rebuild from one.

A nest is any combination of lists, tuples, named tuples, dicts and registered classes;
everything else, ``None`` included, is a leaf. Dicts keep their own order of keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = ["Structure", "flatten", "flatten_up_to", "map_leaves", "paths", "register", "unflatten"]


class Structure(NamedTuple):
    """The shape of a nest without its leaves; ``None`` as ``container`` marks a leaf."""

    container: type | None
    keys: tuple[Any, ...]
    children: tuple[Structure, ...]


class _Rule(NamedTuple):
    split: Callable[[Any], tuple[tuple[Any, ...], Iterable[Any]]]
    join: Callable[[tuple[Any, ...], list[Any]], Any]


_LEAF = Structure(None, (), ())
_rules: dict[type, _Rule] = {
    list: _Rule(lambda nest: ((), nest), lambda keys, items: items),
    tuple: _Rule(lambda nest: ((), nest), lambda keys, items: tuple(items)),
    dict: _Rule(
        lambda nest: (tuple(nest), nest.values()),
        lambda keys, items: dict(zip(keys, items, strict=True)),
    ),
    OrderedDict: _Rule(
        lambda nest: (tuple(nest), nest.values()),
        lambda keys, items: OrderedDict(zip(keys, items, strict=True)),
    ),
}


def register(
    cls: type,
    split: Callable[[Any], tuple[tuple[Any, ...], Iterable[Any]]],
    join: Callable[[tuple[Any, ...], list[Any]], Any],
) -> None:
    """Make ``cls`` a container: ``split`` gives keys and children, ``join`` rebuilds."""
    _rules[cls] = _Rule(split, join)


def _rule(nest: Any) -> _Rule | None:
    cls = type(nest)
    rule = _rules.get(cls)
    if rule is None and not issubclass(cls, (tuple, dict)):
        return None
    if rule is None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _Rule(lambda n: (cls._fields, n), lambda keys, items: cls(*items))
    if rule is None and issubclass(cls, dict):
        return _rules[dict]
    return rule


def flatten(nest: Any) -> tuple[list[Any], Structure]:
    """Leaves of ``nest`` from left to right, and the structure that rebuilds it."""
    leaves: list[Any] = []
    return leaves, _flatten(nest, leaves)


def _flatten(nest: Any, leaves: list[Any]) -> Structure:
    rule = _rule(nest)
    if rule is None:
        leaves.append(nest)
        return _LEAF
    keys, items = rule.split(nest)
    return Structure(type(nest), keys, tuple(_flatten(item, leaves) for item in items))


def flatten_up_to(structure: Structure, nest: Any) -> list[Any]:
    """The parts of ``nest`` at the leaves of ``structure``; ValueError where it has another."""
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
    if cls in _rules:
        return _rules[cls].join(structure.keys, items)
    if issubclass(cls, tuple):
        return cls(*items)
    return _rules[dict].join(structure.keys, items)


def map_leaves(f: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """``f`` of the leaves of all nests, position by position, in the first one's structure."""
    leaves, structure = flatten(nest)
    columns = [flatten(other)[0] for other in others]
    return unflatten(structure, [f(*row) for row in zip(leaves, *columns, strict=True)])


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """A readable name for each leaf, such as ``['encoder'][0]``."""
    if structure.container is None:
        return [prefix]
    keys = structure.keys or range(len(structure.children))
    fields = hasattr(structure.container, "_fields")
    return [
        path
        for key, child in zip(keys, structure.children, strict=True)
        for path in paths(child, prefix + (f".{key}" if fields else f"[{key!r}]"))
    ]
