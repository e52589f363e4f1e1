"""Derived data of a graph, cached on the graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from eagerflow.graph.graph import Graph

T = TypeVar("T")
P = ParamSpec("P")


def kept(
    function: Callable[Concatenate[Graph, P], T],
) -> Callable[Concatenate[Graph, P], T]:
    """Cache the results of a function of a graph on the graph, by the other arguments.

    These are positional and hashable.

    >>> @kept
    ... def count(graph):
    ...     print("counting")
    ...     return len(graph.nodes)
    >>> graph = ef.capture.trace(lambda x: ef.exp(x), ef.TensorSpec((3,), "float32"))
    >>> count(graph), count(graph)
    counting
    (1, 1)
    """

    @wraps(function)
    def found(graph: Graph, *args: Any) -> Any:
        key = (function, *args) if args else function
        try:
            return graph.cache[key]
        except KeyError:
            pass
        result = graph.cache[key] = function(graph, *args)  # type: ignore[call-arg]
        return result

    return found  # type: ignore[return-value]


class Slot(Generic[T]):
    """A value that one module stores on some graphs.

    >>> title: Slot[str] = Slot()
    >>> graph = ef.capture.trace(lambda x: ef.exp(x), ef.TensorSpec((3,), "float32"))
    >>> title.set(graph, "growth"), title.of(graph)
    (None, 'growth')
    """

    def of(self, graph: Graph) -> T | None:
        """The value stored on a graph; None if there is none."""
        return graph.cache.get(self)

    def set(self, graph: Graph, value: T) -> None:
        """Store a value on a graph."""
        graph.cache[self] = value
