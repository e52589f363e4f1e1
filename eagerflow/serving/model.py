"""A version of a model: a graph that is loaded, tried, and computes requests by name."""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eagerflow.capture.saving import examples
from eagerflow.capture.saving.formats import read
from eagerflow.convert import as_tensor
from eagerflow.devices import current_device
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.graph.state import State, row_shape
from eagerflow.plan.replay import replay_of
from eagerflow.recorder import with_recorder
from eagerflow.serving.numbers import array_of
from eagerflow.serving.signature import Signature
from eagerflow.tensor import Tensor, new_tensor

__all__ = ["ModelVersion", "Row"]

Row = Mapping[str, Any]
"""An array for each input, by name."""

_SERIAL = itertools.count()
_TRIALS = 5  # timed runs when a version is loaded


class ModelVersion:
    """One version of a model: its graph, prepared for requests.

    ``graph`` is the graph to serve; it must not assign Variables, since requests may arrive in any
    order. ``numerics`` is as for ``ef.function``. Raises ArgumentError for graphs that assign.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("batch", 2), "float32"))
    >>> version = ef.serving.ModelVersion("squash", 1, graph)
    >>> version.run({"x": [[0.0, 1.0]]})
    {'output': array([[0.       , 0.7615942]], dtype=float32)}
    """

    def __init__(self, name: str, number: int, graph: Graph, numerics: str = "fast") -> None:
        assigned = [cell.name for cell in graph.cells if cell.assigned is not None]
        if assigned:
            raise ArgumentError(
                f"the graph assigns the Variable {assigned[0]!r}: a model that is served does not "
                "change between requests",
                op="serve",
                argument=name,
                hint="graph.prune(graph.outputs.names) keeps the outputs alone",
            )
        self.name = name
        self.number = number
        self.graph = graph
        self.signature = Signature(graph)
        self.path: Path | None = None
        self._row_types = _row_types(self.signature)
        self.seconds = 0.0
        """The shortest time of a run of one row, measured by ``try_out``; 0 before."""
        self.numerics = numerics
        self.serial = next(_SERIAL)
        """A number unique among served graphs, also of the same version."""
        self._replay = replay_of(graph, numerics)
        state = graph.state
        pairs = {} if state is None else state.pairs
        self.state_inputs = [graph.inputs.names.index(name) for name in pairs]
        """The positions of the state among the graph's inputs."""
        self.state_outputs = [graph.outputs.names.index(name) for name in pairs.values()]
        """The positions of the next state among the graph's outputs."""
        self.beginning = [] if state is None else beginnings(graph, state)
        """The initial state of a sequence, in the order of ``state_inputs``."""
        self.given_inputs = [i for i, n in enumerate(graph.inputs.names) if n not in pairs]
        """The positions of the other inputs, which come from requests."""

    @classmethod
    def load(
        cls, name: str, number: int, path: str | os.PathLike[str], numerics: str = "fast"
    ) -> ModelVersion:
        """Load the version in a file: a saved graph or model, or an ONNX model."""
        made = cls(name, number, read(path), numerics)
        made.path = Path(path)
        return made

    def signatures(self) -> dict[str, ModelVersion]:
        """The signatures of the file, as versions that share its weights."""
        return {
            name: ModelVersion(self.name, self.number, self.graph.signature(name), self.numerics)
            for name in self.graph.signatures
        }

    def arrays(self, given: Row) -> list[Tensor]:
        """A tensor for each input, in order; the errors name the input and the expected spec.

        ``given`` are arrays of the inputs' dtypes, or nested lists of Python numbers.
        """
        specs = self.signature.inputs.values()
        found = [
            x if type(x) is np.ndarray else array_of(x, spec.dtype, str(spec.name), self.name)
            for x, spec in zip(self.signature.ordered(given), specs, strict=True)
        ]
        fitting = self._as_rows(found)
        if fitting is not None:
            return fitting
        return self._replay.checked(self.inputs_of(found, self.beginning))

    def _as_rows(self, arrays: Sequence[Any]) -> list[Tensor] | None:
        """Arrays as tensors that share their memory, if all are obviously rows of the inputs'
        specs.

        None for others, which may still fit: of another memory order, for example, or read-only.
        """
        if self._row_types is None:
            return None
        rows, device = len(arrays[0]) if arrays[0].ndim else 0, current_device()
        made = []
        for array, (dtype, shape) in zip(arrays, self._row_types, strict=True):
            fits = array.dtype == dtype and array.flags.carray and array.shape == (rows, *shape)
            kind = device.kind(dtype)
            if not fits or not rows or type(array) is not kind.array_type:
                return None
            made.append(new_tensor(array, kind))
        return made

    def inputs_of(self, given: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        """The graph's inputs, from those of the request and the state."""
        if not state:
            return list(given)
        found = dict(zip(self.given_inputs, given, strict=True))
        found |= zip(self.state_inputs, state, strict=True)
        return [found[i] for i in range(len(found))]

    def named(self, given: Row) -> dict[str, Any]:
        """The arrays that ``arrays`` makes, by input name."""
        found = [tensor.numpy() for tensor in self.arrays(given)]
        return dict(zip(self.signature.inputs, found, strict=True))

    def compute(self, inputs: Sequence[Any], outputs: Iterable[int]) -> list[Any]:
        """The outputs at these positions, as NumPy arrays, for inputs from ``arrays``."""
        found = self._replay.run(inputs)
        return [found[i].numpy() for i in outputs]

    def run(self, given: Row, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """The outputs by name (all, or those requested) for an array for each input.

        State has its initial value. Raises ArgumentError, ShapeError or DTypeError for inputs that
        do not fit the signature.
        """
        places = self.signature.outputs_of(outputs)
        found = with_recorder(None, self.compute, self.arrays(given), places)
        names = self.signature.all_outputs
        return dict(zip([names[i] for i in places], found, strict=True))

    def try_out(self, sizes: Iterable[Mapping[str, int]] = ({},)) -> None:
        """Run the examples of the file, make plans for these free sizes, and time the first.

        The timed run has zeros for values, and 1 for sizes that are not given. Raises SessionError
        for an example with a wrong result.
        """
        examples.check(self.graph, self.numerics)
        every = [*self.signature.outputs_of(None), *self.state_outputs]
        for position, known in enumerate(sizes):
            inputs = self.inputs_of(*self._trial(known))
            times = []
            for _ in range(_TRIALS if position == 0 else 1):
                begin = time.perf_counter()
                self.compute(inputs, every)
                times.append(time.perf_counter() - begin)
            if position == 0:
                self.seconds = min(times)

    def _trial(self, known: Mapping[str, int]) -> tuple[list[Any], list[Any]]:
        """Zeros for the inputs of requests, and the initial state, with these sizes."""
        sizes = defaultdict(lambda: 1, known)
        zeros = [
            as_tensor(
                np.zeros([n.evaluate(sizes) if isinstance(n, Dim) else n for n in s.shape], s.dtype)
            )
            for s in self.signature.inputs.values()
        ]
        rows = sizes[self.signature.batch or ""]
        return zeros, [as_tensor(repeated(x, rows)) for x in self.beginning]

    def release(self) -> None:
        """Release the memory of its plans."""
        for plan in list(self._replay.plans.items.values()):
            plan.release()

    @property
    def state_bytes(self) -> int:
        """The bytes of the state of one sequence."""
        return sum(x.nbytes for x in self.beginning)

    def __repr__(self) -> str:
        return f"<ModelVersion {self.name!r} {self.number}>"


def _row_types(signature: Signature) -> list[tuple[Any, tuple[int, ...]]] | None:
    """The dtype and row shape of each input, if requests consist of rows of known shapes."""
    specs = signature.inputs.values()
    if signature.batch is None or signature.state is not None:
        return None
    if any(isinstance(size, Dim) for spec in specs for size in spec.shape[1:]):
        return None
    return [(spec.dtype, tuple(spec.shape[1:])) for spec in specs]


def beginnings(graph: Graph, state: State) -> list[Any]:
    """The initial array of each state input: from the file, or zeros, as one row."""
    inputs = dict(zip(graph.inputs.names, graph.inputs, strict=True))
    found = []
    for name in state.pairs:
        value, given = inputs[name], state.initial.get(name)
        shape = row_shape(value)
        array = np.zeros(shape, value.dtype) if given is None else given.numpy()
        found.append(array.reshape(shape if shape == value.shape else (1, *shape)))
    return found


def repeated(array: Any, rows: int) -> Any:
    """Repeat a single row; an array without rows is returned as it is."""
    return array if rows == 1 else np.ascontiguousarray(np.repeat(array, rows, axis=0))
