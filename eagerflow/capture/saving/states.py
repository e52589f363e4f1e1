"""The state of a graph in its file: pairs of inputs and outputs, and initial values.

A text beside the graph's names them; initial values are stored as tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.capture.saving.decoding import Entry, Rows
from eagerflow.capture.saving.encoding import Encoder, dumps
from eagerflow.devices import current_device
from eagerflow.files.container import Container, fail, shape_as
from eagerflow.graph.graph import Graph
from eagerflow.graph.state import State, declared

_FIELDS = {"decoder", "initial", "pairs"}


def encode(state: State, encoder: Encoder) -> str:
    """The text of a state; its tensors are stored with the encoder's others."""
    initial = [
        [name, encoder.new_tensor(tensor, f"state/{name}")]
        for name, tensor in state.initial.items()
    ]
    decoder = None if state.decoder is None else state.decoder._asdict()
    pairs = [list(pair) for pair in state.pairs.items()]
    return dumps({"pairs": pairs, "initial": initial, "decoder": decoder})


class StateText:
    """The state in a file's text, checked against the graph and the file."""

    def __init__(self, text: str, graph: Graph, container: Container) -> None:
        rows = Rows("state", text, 0, len(text))
        told = rows.read(0)[0] if len(rows) == 1 else None
        if type(told) is not dict or set(told) != _FIELDS:
            fail("the state has other fields", expected=", ".join(sorted(_FIELDS)))
        pairs, initial = (_named(told[field], field) for field in ("pairs", "initial"))
        if not initial.keys() <= pairs.keys():
            fail("the state has an initial value for an unknown input")
        if told["decoder"] is not None and type(told["decoder"]) is not dict:
            fail("the decoder is no object")
        self._graph = graph
        self._pairs = pairs
        self._decoder = told["decoder"]
        declared(graph, pairs, self._decoder)
        self._entries = {}
        values = dict(zip(graph.inputs.names, graph.inputs, strict=True))
        for name, tensor in initial.items():
            place, dtype = container.places.get(tensor), values[name].dtype
            if place is None:
                fail("there is no such tensor for an initial value of the state")
            shape = shape_as(place, dtype)
            self._entries[name] = Entry(tensor, shape, dtype, current_device())
        self.tensors = [entry.tensor for entry in self._entries.values()]
        if len(set(self.tensors)) < len(self.tensors):
            fail("two values of state are one tensor")

    def read(self, tensor: Callable[[Entry], Any]) -> State:
        """The state, with tensors read by ``tensor``."""
        begin = {name: (tensor(entry),) for name, entry in self._entries.items()}
        pairs = {name: (output, *begin.get(name, ())) for name, output in self._pairs.items()}
        return declared(self._graph, pairs, self._decoder)


def _named(told: Any, field: str) -> dict[str, str]:
    """Pairs of texts, with distinct first texts."""
    fits = type(told) is list and all(type(x) is list and len(x) == 2 for x in told)
    if not fits or not all(type(text) is str for pair in told for text in pair):
        fail(f"the {field} of the state are no pairs of texts")
    found = dict(told)
    if len(found) < len(told):
        fail(f"one of the {field} of the state comes twice")
    return found
