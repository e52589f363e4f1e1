"""Taps: values of a run that are passed to sinks besides its result.

Traced code passes values to a sink (``Recorder.emit``). They become outputs of the graph,
after those that the function returns and outside of their nest, so that graphs stay plain data and
need no other support. Only a function that runs its own graph calls the sinks with these
outputs, once the run has succeeded and the Variables have their new values.

A sink with an attribute ``every`` ignores values unless the last one, a step, is a multiple of
that. If inputs give the steps of all sinks, the graph without taps is run until one is due:
additional outputs cost memory and time in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import needed, returned
from eagerflow.plan.replay import Replay, replay_of
from eagerflow.recorder import recording, with_recorder
from eagerflow.tensor import Tensor


class Tap(NamedTuple):
    """Values passed to a sink."""

    sink: Callable[..., Any]
    values: tuple[Value, ...]


class Taps:
    """The taps of one trace, in order."""

    def __init__(self) -> None:
        self._taps: list[Tap] = []
        self._names: dict[Value, str] = {}

    def note(self, sink: Callable[..., Any], values: Mapping[str, Value]) -> None:
        """Add values under these names; a value added before keeps its first name."""
        self._taps.append(Tap(sink, tuple(values.values())))
        for name, value in values.items():
            self._names.setdefault(value, name)

    def added(self, outputs: Values) -> Values:
        """The outputs, followed by all tapped values, each once."""
        if not self._names:
            return outputs
        free = FreeNames(outputs.names).take
        return Values(
            [*outputs, *self._names],
            [*outputs.names, *[free(name) for name in self._names.values()]],
        )

    def nest(self, graph: Graph) -> Callable[[Sequence[Any]], Any]:
        """A function from the outputs of a run to its result; it calls the sinks first.

        It is ``graph.nest`` itself if there are no taps.
        """
        if not self._taps:
            return graph.nest
        first = len(graph.outputs) - len(self._names)
        places = {value: first + i for i, value in enumerate(self._names)}
        rows = [(tap.sink, tuple(places[v] for v in tap.values)) for tap in self._taps]
        return partial(_told, graph, rows)

    def idle(self, graph: Graph, numerics: str) -> Idle | None:
        """The graph to run while no sink is due; None if that is not known in advance."""
        places = {value: i for i, value in enumerate(graph.inputs)}
        steps = {(places.get(tap.values[-1]), getattr(tap.sink, "every", 1)) for tap in self._taps}
        if not steps or any(place is None or every == 1 for place, every in steps):
            return None
        return Idle(without_taps(graph), numerics, steps)


class Idle:
    """The graph without taps, for runs in which no sink is due.

    ``steps`` has pairs of an input that is a step, and the interval at which a sink is due.
    """

    def __init__(self, graph: Graph, numerics: str, steps: Iterable[tuple[Any, int]]) -> None:
        self.nest = graph.nest
        self._steps = [
            (place, every)
            for place, every in steps
            if not any(p == place and n < every and every % n == 0 for p, n in steps)
        ]
        self._graph, self._numerics = graph, numerics

    @property
    def replay(self) -> Replay:
        """A replay of the graph, made at first use."""
        return replay_of(self._graph, self._numerics)

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether no sink is due for these inputs."""
        for place, every in self._steps:
            step = inputs[place]
            if not int(step._array if type(step) is Tensor else step) % every:
                return False
        return True


def without_taps(graph: Graph) -> Graph:
    """The graph of the function's result and of assigned values, without other outputs."""
    results = returned(graph)
    if len(results) == len(graph.outputs):
        return graph
    wanted = [*results, *(c.assigned for c in graph.cells if c.assigned is not None)]
    return Graph(
        graph.name,
        graph.inputs,
        needed(graph.nodes, wanted),
        results,
        graph.cells,
        graph.argument_structure,
        graph.structure,
        graph.results,
    )


_Rows = Sequence[tuple[Callable[..., Any], tuple[int, ...]]]


def _told(graph: Graph, rows: _Rows, outputs: Sequence[Any]) -> Any:
    if recording():
        with_recorder(None, tell, rows, outputs)
    else:
        tell(rows, outputs)
    return graph.nest(outputs)


def tell(rows: _Rows, outputs: Sequence[Any]) -> None:
    """Give each sink its values."""
    for sink, places in rows:
        sink(*[outputs[i] for i in places])
