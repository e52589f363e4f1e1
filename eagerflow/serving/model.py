"""A version of a model: a graph that was loaded, tried, and answers requests by name."""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from eagerflow.capture.saving import examples
from eagerflow.capture.saving.formats import read
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.plan.replay import replay_of
from eagerflow.recorder import with_recorder
from eagerflow.serving.numbers import array_of
from eagerflow.serving.signature import Signature
from eagerflow.tensor import Tensor

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
        self.seconds = 0.0
        """The median time of a run of one row, from when it was tried."""
        self.numerics = numerics
        self.serial = next(_SERIAL)
        """A number that no other graph that is served has, also of the same version."""
        self._replay = replay_of(graph, numerics)

    @classmethod
    def load(cls, name: str, number: int, path: str | os.PathLike[str]) -> ModelVersion:
        """The version in a file: a saved graph or model, or an ONNX model."""
        made = cls(name, number, read(path))
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
        return self._replay.checked(found)

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

        Raises ArgumentError, ShapeError or DTypeError for what does not fit the signature.
        """
        places = self.signature.outputs_of(outputs)
        found = with_recorder(None, self.compute, self.arrays(given), places)
        names = list(self.signature.outputs)
        return dict(zip([names[i] for i in places], found, strict=True))

    def try_out(self, rows: Iterable[int] = (1,)) -> None:
        """Run the examples of the file, make plans for these numbers of rows, time the first.

        What is timed has zeros for values, and 1 for sizes that are free beside the rows. Raises
        SessionError for an example that gives another result than it should.
        """
        examples.check(self.graph, self.numerics)
        every = self.signature.outputs_of(None)
        for position, count in enumerate(rows):
            inputs = [
                as_tensor(np.zeros([self._size(n, count) for n in spec.shape], spec.dtype))
                for spec in self.signature.inputs.values()
            ]
            times = []
            for _ in range(_TRIALS if position == 0 else 1):
                begin = time.perf_counter()
                self.compute(inputs, every)
                times.append(time.perf_counter() - begin)
            if position == 0:
                self.seconds = median(times)

    def _size(self, size: Any, rows: int) -> int:
        if not isinstance(size, Dim):
            return int(size)
        known = defaultdict(lambda: 1, {self.signature.batch or "": rows})
        return size.evaluate(known)

    def release(self) -> None:
        """Give back the memory of its plans."""
        for plan in list(self._replay.plans.items.values()):
            plan.release()

    def __repr__(self) -> str:
        return f"<ModelVersion {self.name!r} {self.number}>"
