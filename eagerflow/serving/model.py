"""A version of a model: a graph that was loaded, tried, and answers requests by name."""

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
_TRIALS = 5  # runs that are timed when a version is loaded


class ModelVersion:
    """One version of a model: its graph, made ready to answer requests.

    ``graph`` is the graph to serve; it must not assign Variables, since requests may come in any
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
        """The shortest time of a run of one row, from when it was tried; 0 before."""
        self.numerics = numerics
        self.serial = next(_SERIAL)
        """A number that no other graph that is served has, also of the same version."""
        self._replay = replay_of(graph, numerics)
        state = graph.state
        pairs = {} if state is None else state.pairs
        self.state_inputs = [graph.inputs.names.index(name) for name in pairs]
        """The places of the state among the graph's inputs."""
        self.state_outputs = [graph.outputs.names.index(name) for name in pairs.values()]
        """The places among the graph's outputs of what the state is next."""
        self.beginning = [] if state is None else beginnings(graph, state)
        """What the state of a sequence begins with, in the order of ``state_inputs``."""
        self.given_inputs = [i for i, n in enumerate(graph.inputs.names) if n not in pairs]
        """The places of the other inputs, which requests give."""

    @classmethod
    def load(
        cls, name: str, number: int, path: str | os.PathLike[str], numerics: str = "fast"
    ) -> ModelVersion:
        """The version in a file: a saved graph or model, or an ONNX model."""
        made = cls(name, number, read(path), numerics)
        made.path = Path(path)
        return made

    def signatures(self) -> dict[str, ModelVersion]:
        """What the signatures of the file compute, as versions that share its weights."""
        return {
            name: ModelVersion(self.name, self.number, self.graph.signature(name), self.numerics)
            for name in self.graph.signatures
        }

    def arrays(self, given: Row) -> list[Tensor]:
        """A tensor for each input, in order; the errors name the input and what it expects.

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
        """Arrays as tensors that share their memory, if all plainly are rows of what is expected.

        None for all others, which may fit too: of another order in memory, say, or read-only.
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
        """The graph's inputs, of those that requests give and of the state."""
        if not state:
            return list(given)
        found = dict(zip(self.given_inputs, given, strict=True))
        found |= zip(self.state_inputs, state, strict=True)
        return [found[i] for i in range(len(found))]

    def named(self, given: Row) -> dict[str, Any]:
        """The arrays that ``arrays`` makes, by the inputs' names."""
        found = [tensor.numpy() for tensor in self.arrays(given)]
        return dict(zip(self.signature.inputs, found, strict=True))

    def compute(self, inputs: Sequence[Any], outputs: Iterable[int]) -> list[Any]:
        """The outputs of these places, as NumPy arrays, for what ``arrays`` gave."""
        found = self._replay.run(inputs)
        return [found[i].numpy() for i in outputs]

    def run(self, given: Row, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """The outputs by name, or those of these names, for an array for each input.

        State is what it begins with. Raises ArgumentError, ShapeError or DTypeError for what does
        not fit the signature.
        """
        places = self.signature.outputs_of(outputs)
        found = with_recorder(None, self.compute, self.arrays(given), places)
        names = self.signature.all_outputs
        return dict(zip([names[i] for i in places], found, strict=True))

    def try_out(self, sizes: Iterable[Mapping[str, int]] = ({},)) -> None:
        """Run the examples of the file, make plans for these free sizes, time the first.

        What is timed has zeros for values, and 1 for sizes that are not said. Raises SessionError
        for an example that gives another result than it should.
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
        """Zeros for what requests give, and state as it begins, of these sizes."""
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
        """Give back the memory of its plans."""
        for plan in list(self._replay.plans.items.values()):
            plan.release()

    @property
    def state_bytes(self) -> int:
        """How much memory the state of one sequence takes."""
        return sum(x.nbytes for x in self.beginning)

    def __repr__(self) -> str:
        return f"<ModelVersion {self.name!r} {self.number}>"


def _row_types(signature: Signature) -> list[tuple[Any, tuple[int, ...]]] | None:
    """The dtype and the shape of a row of each input, where requests give rows of known shapes."""
    specs = signature.inputs.values()
    if signature.batch is None or signature.state is not None:
        return None
    if any(isinstance(size, Dim) for spec in specs for size in spec.shape[1:]):
        return None
    return [(spec.dtype, tuple(spec.shape[1:])) for spec in specs]


def beginnings(graph: Graph, state: State) -> list[Any]:
    """An array for each input of state: what the file says, or zeros, as one row."""
    inputs = dict(zip(graph.inputs.names, graph.inputs, strict=True))
    found = []
    for name in state.pairs:
        value, given = inputs[name], state.initial.get(name)
        shape = row_shape(value)
        array = np.zeros(shape, value.dtype) if given is None else given.numpy()
        found.append(array.reshape(shape if shape == value.shape else (1, *shape)))
    return found


def repeated(array: Any, rows: int) -> Any:
    """One row as several; an array without rows is what it is."""
    return array if rows == 1 else np.ascontiguousarray(np.repeat(array, rows, axis=0))
