"""Taps: values that come out of a run besides its result, each for a sink that waits for it.

Code that is traced hands values to a sink (``Recorder.emit``). They become outputs of the graph,
behind those that the function returns and outside of their nest, so that graphs stay plain data and
need nothing else for them. Only a function that runs its own graph calls the sinks with what came
out, once the run has succeeded and the Variables have their new values.

A sink that has an attribute ``every`` does nothing unless its last value, a step, is a multiple of
that. Where inputs tell the steps of all sinks, the graph without taps is run until one is due: what
has to come out as a result costs memory and time in each run.
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
    """Values that a function has handed out, and the sinks that are to have them."""

    sink: Callable[..., Any]
    values: tuple[Value, ...]


class Taps:
    """What the code of one trace has handed out, in its order."""

    def __init__(self) -> None:
        self._taps: list[Tap] = []
        self._names: dict[Value, str] = {}

    def note(self, sink: Callable[..., Any], values: Mapping[str, Value]) -> None:
        """Hand out values under these names; one that has been handed out keeps its first name."""
        self._taps.append(Tap(sink, tuple(values.values())))
        for name, value in values.items():
            self._names.setdefault(value, name)

    def added(self, outputs: Values) -> Values:
        """The outputs, and behind them all values that were handed out, each once."""
        if not self._names:
            return outputs
        free = FreeNames(outputs.names).take
        return Values(
            [*outputs, *self._names],
            [*outputs.names, *[free(name) for name in self._names.values()]],
        )

    def nest(self, graph: Graph) -> Callable[[Sequence[Any]], Any]:
        """What makes the result of all that a run of the graph gives, once the sinks have theirs.

        It is ``graph.nest`` itself where nothing was handed out.
        """
        if not self._taps:
            return graph.nest
        first = len(graph.outputs) - len(self._names)
        places = {value: first + i for i, value in enumerate(self._names)}
        rows = [(tap.sink, tuple(places[v] for v in tap.values)) for tap in self._taps]
        return partial(_told, graph, rows)

    def idle(self, graph: Graph, numerics: str) -> Idle | None:
        """What is run while no sink has anything to do; None where that cannot be told before."""
        places = {value: i for i, value in enumerate(graph.inputs)}
        steps = {(places.get(tap.values[-1]), getattr(tap.sink, "every", 1)) for tap in self._taps}
        if not steps or any(place is None or every == 1 for place, every in steps):
            return None
        return Idle(without_taps(graph), numerics, steps)


class Idle:
    """The graph without taps, for runs in which no sink has anything to do.

    ``steps`` has the input that is a step, and of which number it is a multiple when a sink is due.
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
        """Of the graph, made when it is first needed."""
        return replay_of(self._graph, self._numerics)

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether no sink is due with these inputs."""
        for place, every in self._steps:
            step = inputs[place]
            if not int(step._array if type(step) is Tensor else step) % every:
                return False
        return True


def without_taps(graph: Graph) -> Graph:
    """The graph of the result alone, and of what is assigned; nothing is computed for others."""
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
        with_recorder(None, _tell, rows, outputs)
    else:
        _tell(rows, outputs)
    return graph.nest(outputs)


def _tell(rows: _Rows, outputs: Sequence[Any]) -> None:
    for sink, places in rows:
        sink(*[outputs[i] for i in places])
