"""Nodes grouped by their scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from eagerflow.graph.ir import Node, Value
from eagerflow.graph.walk import bodies_of


def child(node: Node, scope: str) -> str | None:
    """The direct child of this scope that contains a node."""
    own = node.scope
    if own == scope or not own.startswith(f"{scope}/" if scope else ""):
        return None
    start = len(scope) + 1 if scope else 0
    return own[: start + len(own[start:].split("/", 1)[0])]


def runs(nodes: Iterable[Node], scope: str) -> Iterator[tuple[str | None, list[Node]]]:
    """Consecutive nodes of one child of this scope, or of the scope itself: None."""
    scopes = [(child(node, scope), node) for node in nodes]
    for inner, run in groupby(scopes, key=itemgetter(0)):
        yield inner, [node for _, node in run]


def only_scope(nodes: Sequence[Node], scope: str) -> str | None:
    """The child of this scope that contains all nodes."""
    found = {child(node, scope) for node in nodes}
    return found.pop() if len(found) == 1 else None


def needed_outside(nodes: Sequence[Node], wanted: Iterable[Value], scope: str) -> set[Value]:
    """Values that are read outside of the run of nodes that computes them."""
    home: dict[Value, int] = {}
    found = set(wanted)
    for number, (_, run) in enumerate(runs(nodes, scope)):
        home |= dict.fromkeys(made(run), number)
        found |= {v for node in run for v in node.values() if home.get(v, number) != number}
    return found


def made(nodes: Iterable[Node]) -> list[Value]:
    """The results of nodes."""
    return [v for node in nodes for v in node.outputs]


def read(nodes: Iterable[Node]) -> list[Value]:
    """The operands of nodes."""
    return [v for node in nodes for v in node.values()]


def together(node: Node, user: Node) -> bool:
    """Whether a node and its user are of one line and scope, so that they form one expression."""
    one = node.place == user.place and node.scope == user.scope
    return one and not bodies_of(user.attributes)


def common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The common prefix of all paths."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    found = 0
    while found < min(len(first), len(last)) - 1 and first[found] == last[found]:
        found += 1
    return first[:found]
