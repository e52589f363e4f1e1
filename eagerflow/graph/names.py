"""Names in graphs: values by their names, and unused names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from eagerflow.errors import SessionError
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Value
from eagerflow.graph.walk import all_values

_SHOWN = 8  # number of names in an error
_HINTS = 3


def tuple_of(names: Sequence[str]) -> str:
    """The names as a tuple in program text."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


class FreeNames:
    """Used names, and new ones: ``base``, ``base_1``, ``base_2`` ..."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._numbers = dict.fromkeys(taken, 0)  # the last number tried for each name

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def take(self, base: str) -> str:
        """``base``, or the first unused one of ``base_1``, ``base_2`` ..., which becomes used."""
        numbers = self._numbers
        number = numbers.get(base)
        if number is None:
            numbers[base] = 0
            return base
        name = base
        while name in numbers:
            number += 1
            name = f"{base}_{number}"
        numbers[base] = number
        numbers[name] = 0
        return name


@kept
def values_by_name(graph: Graph, inputs_first: bool = False) -> dict[str, Value]:
    """All values of a graph by name; inputs and outputs by the names that they have there.

    If an input and an output share a name, it is the output's, or with ``inputs_first`` the
    input's. ``<variable>/assign`` is the value assigned to a Variable.
    """
    ends = (graph.inputs, graph.outputs) if inputs_first else (graph.outputs, graph.inputs)
    found: dict[str, Value] = {}
    for values in ends:
        for name, value in zip(values.names, values, strict=True):
            found.setdefault(name, value)
    for cell in graph.cells:
        found.setdefault(cell.name, cell.value)
        if cell.assigned is not None:
            found.setdefault(f"{cell.name}/assign", cell.assigned)
    for value in all_values(graph):
        found.setdefault(value.name, value)
    return found


def find_value(graph: Graph, name: Any, inputs_first: bool = False) -> Value:
    """The value of this name; SessionError, with similar names, if there is none."""
    known = values_by_name(graph, inputs_first)
    found = known.get(str(name))
    if found is not None:
        return found
    several = [n for n in (f"{name}:{i}" for i in range(_HINTS)) if n in known]
    inside = [n for n in known if n.endswith(f"/{name}")][:_HINTS]
    close = several or inside or get_close_matches(str(name), known, _HINTS)
    ends = [*graph.inputs.names, *graph.outputs.names]
    raise SessionError(
        f"there is no value {name!r} in {graph.name}",
        expected="a name of " + ", ".join(ends[:_SHOWN]),
        hint=f"did you mean {' or '.join(map(repr, close))}?"
        if close
        else "print(graph) lists all names",
    )


@graph_method
def value(self: Graph, name: str | Value) -> Value:
    """See ``Graph.value``."""
    if type(name) is not Value:
        return find_value(self, name)
    if values_by_name(self).get(name.name) is name or any(v is name for v in all_values(self)):
        return name
    raise SessionError(f"{name.name} is a value of another graph than {self.name}")
