"""Varying sizes: which sizes differ between calls, so that one graph serves them all.

The second call that differs from an earlier one in sizes alone is traced with names for these
sizes; of the steps of ``fit`` the third, so that the shorter last batch has a graph of its own.
Sizes of 0 and 1 have graphs of their own, since ops treat them differently, and so has every call
for which the named graph is not valid or cannot be traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.dims import Dim
from eagerflow.errors import ShapeError
from eagerflow.graph.costs import names_of
from eagerflow.graph.graph import Graph
from eagerflow.graph.names import FreeNames
from eagerflow.graph.sizes import bind, is_symbolic
from eagerflow.graph.walk import nodes_within
from eagerflow.tree import Structure

MIN_SIZE = 2  # of a size that is free by itself
MAX_SHAPES = 16  # kept, the first and the latest
MAX_FAILURES = 3  # of traces with named sizes, from which on calls have graphs of their own
MAX_SIDES = 8  # graphs for one set of names, which differ in their answers

Shapes = tuple[tuple[int, ...], ...]
Pattern = tuple[tuple[Any, ...], ...]
"""The shapes of arguments, with a text for each free size."""


class Varying:
    """The shapes in calls that differ in nothing else, and the patterns found among them."""

    used = True

    def __init__(self, structure: Structure, many: int) -> None:
        self.structure = structure
        self._many = many  # calls that differ, from which on sizes are free
        self.shapes: list[Shapes] = []
        self.patterns: list[Pattern] = []
        self._failures = 0

    def release(self) -> None:
        """Nothing is held for speed."""

    def pattern(self, shapes: Shapes, labels: Sequence[str]) -> Pattern | None:
        """The names of sizes with which a call is captured; None if they are all numbers."""
        if shapes not in self.shapes:
            if len(self.shapes) == MAX_SHAPES:
                del self.shapes[1]
            self.shapes.append(shapes)
        for pattern in self.patterns:
            if _binds(pattern, shapes):
                return pattern
        if self._failures >= MAX_FAILURES:
            return None
        alike = [other for other in self.shapes if _vary_freely(other, shapes)]
        if len(alike) < self._many:
            return None
        found = _named(alike, labels)
        self.patterns.append(found)
        return found

    def refuse(self, pattern: Pattern) -> None:
        """Give a pattern up: a function cannot be traced with it."""
        self.patterns.remove(pattern)
        self._failures += 1


def _vary_freely(one: Shapes, two: Shapes) -> bool:
    """Whether sizes that differ are large enough in both."""
    pairs = zip(one, two, strict=True)
    return all(m == n or min(m, n) >= MIN_SIZE for a, b in pairs for m, n in zip(a, b, strict=True))


def _named(alike: list[Shapes], labels: Sequence[str]) -> Pattern:
    """Shapes with one name for all sizes that have always been equal."""
    names: dict[tuple[int, ...], str] = {}
    free = FreeNames().take  # labels may be equal: those of a[0] and a_0
    found = []
    for label, shapes in zip(labels, zip(*alike, strict=True), strict=True):
        own: list[Any] = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if len(set(sizes)) > 1 and sizes not in names:
                names[sizes] = free(f"{label}_dim{axis}")
            own.append(names.get(sizes, sizes[0]))
        found.append(tuple(own))
    return tuple(found)


def _binds(pattern: Pattern, shapes: Shapes) -> bool:
    known: dict[str, int] = {}
    for own, shape in zip(pattern, shapes, strict=True):
        for name, size in zip(own, shape, strict=True):
            if type(name) is str:
                if size < MIN_SIZE or known.setdefault(name, size) != size:
                    return False
            elif name != size:
                return False
    return True


class ValidSizes:
    """The sizes for which a graph with free sizes is valid."""

    def __init__(self, graph: Graph, free: FreeSizes) -> None:
        self._free = free
        self._inputs = [(i, v.shape) for i, v in enumerate(graph.inputs) if is_symbolic(v.shape)]
        self._sizes = set(_sizes_in(graph)) if free.automatic else set()

    @property
    def is_restricted(self) -> bool:
        """Whether there are sizes for which it is not valid."""
        return bool(self._free.automatic or self._free.answers)

    def fit(self, inputs: Sequence[Any]) -> bool | None:
        """Whether the graph is valid for inputs that its shapes fit; None if no such graph is.

        A size computed in the graph must be at least two, like those of the inputs.
        """
        known: dict[str, int] = {}
        try:
            for i, shape in self._inputs:
                if not bind(known, shape, getattr(inputs[i], "shape", ())):
                    return None
            if not self._free.hold(known):
                return False
            return None if any(s.evaluate(known) < MIN_SIZE for s in self._sizes) else True
        except ShapeError:  # a name without a size, or a division by 0
            return None


def _sizes_in(graph: Graph) -> Iterator[Dim]:
    """The sizes of a graph's values that depend on its inputs' sizes."""
    given = names_of(tuple(v.shape for v in graph.inputs))
    for node in nodes_within(graph):
        for value in node.outputs:
            for size in value.shape:
                if type(size) is Dim and names_of(size) <= given:
                    yield size
