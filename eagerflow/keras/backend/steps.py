"""Steps of a trainer as graphs: traced once for each batch signature, then replayed.

Unlike in ``ef.function``, values that Python code read during the trace are not guarded: as with
the other backends, ``compile`` declares a changed step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.capture.trace import Trace, located, paths, plain_name, spec_input
from eagerflow.devices import current_device
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.keras.backend.tensors import convert_to_tensor
from eagerflow.plan.replay import Replay, replay_of
from eagerflow.recorder import recording
from eagerflow.runtime.collector import young

__all__ = ["CapturedStep"]


class CapturedStep:
    """A function of one nest of arrays, called through its graph for each signature.

    It may read and assign variables. Under recorders, such as a tape, it runs eagerly.
    """

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        self.function = function
        self.name = name
        self._replays: dict[Any, tuple[Replay, Callable[[Any], Any]]] = {}

    def __call__(self, data: Any) -> Any:
        """The function's result, with the same updates of variables."""
        if recording():
            return self.function(data)
        leaves, structure = tree.flatten(data)
        leaves = [x if x is None or type(x) in _ARRAYS else convert_to_tensor(x) for x in leaves]
        _padded(leaves, structure)
        forms = [None if x is None else (x.shape, x.dtype) for x in leaves]
        key = structure, current_device(), *forms
        found = self._replays.get(key)
        if found is None:
            recorder, graph = self._traced(leaves, structure)
            found = self._replays[key] = replay_of(graph), recorder.taps.nest(graph)
        replay, nest = found
        return nest(replay.run([x for x in leaves if x is not None]))

    @property
    def graphs(self) -> list[Graph]:
        """The graphs so far."""
        return [replay.graph for replay, _ in self._replays.values()]

    def _traced(self, leaves: list[Any], structure: tree.Structure) -> tuple[Trace, Graph]:
        recorder, graph = self._run(leaves, structure)
        if recorder.made:  # missing values were created by the trace
            recorder, graph = self._run(leaves, structure)
        if recorder.made:
            raise CaptureError(
                "the step creates persistent state at every call",
                op=self.name,
                received=recorder.made[0],
                at=recorder.made_at[0],
                hint="create variables in build() or __init__()",
            )
        return recorder, graph

    def _run(self, leaves: list[Any], structure: tree.Structure) -> tuple[Trace, Graph]:
        recorder = Trace(self.name, free=FreeSizes(), placed=True)
        inputs: list[Value] = []
        labels = paths([("data", tree.unflatten(structure, leaves))])
        given = [
            x
            if x is None
            else spec_input(recorder, ef.TensorSpec(x.shape, x.dtype), plain_name(path), inputs)
            for x, path in zip(leaves, labels, strict=True)
        ]
        with young(), recorder, located():
            result = self.function(tree.unflatten(structure, given))
            result = tree.map_leaves(_plain, result)
        return recorder, recorder.finish(Values(inputs), result)


_ARRAYS = frozenset({ef.Tensor, np.ndarray})


def _padded(leaves: list[Any], structure: tree.Structure) -> None:
    """Pad the values of sparse tensors by up to an eighth, with zeros at the last position.

    Batches differ in their number of values, and each number would need its own graph.
    """
    for i in _stored(structure):
        values, places = leaves[i : i + 2]
        n = values.shape[0]
        more = -n % (1 << max(n.bit_length() - 4, 0))
        if more:
            zeros = ef.zeros((more, *values.shape[1:]), dtype=values.dtype)
            leaves[i] = ef.concat([values, zeros])
            leaves[i + 1] = ef.concat([places, ef.broadcast_to(places[-1:], (more,))])


@lru_cache(1024)
def _stored(structure: tree.Structure) -> list[int]:
    """Which arrays of a nest are values of sparse tensors; their indices follow."""
    return [i for i, cls in enumerate(_parents(structure)) if cls is ef.IndexedSlices][::2]


def _parents(structure: tree.Structure) -> Iterator[type | None]:
    """The container class of each array."""
    for child in structure.children:
        if child.container is None:
            yield structure.container
        else:
            yield from _parents(child)


def _plain(x: Any) -> Any:
    """A result as a graph output: tensors for variables."""
    return convert_to_tensor(x) if hasattr(x, "value") and hasattr(x, "assign") else x
