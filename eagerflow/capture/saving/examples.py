"""Examples in the file of a graph: inputs with their expected outputs.

They are stored as tensors; a text beside the graph's names them. A program that loads a graph
on another machine, or in another version, can run them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import finfo

from eagerflow.capture.saving.decoding import Entry, Rows
from eagerflow.capture.saving.encoding import Encoder, dumps
from eagerflow.convert import as_tensor
from eagerflow.devices import current_device
from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError, SessionError
from eagerflow.files.container import Container, fail, shape_as
from eagerflow.graph.graph import Example, Graph
from eagerflow.graph.sizes import bind
from eagerflow.plan.replay import replay_of
from eagerflow.tensor import Tensor

MAX_EXAMPLES = 100
FIELDS = ("inputs", "outputs")


def made(graph: Graph, given: Iterable[Any]) -> tuple[Example, ...]:
    """Examples for these inputs, each a mapping of names to arrays, with the graph's outputs.

    Raises ArgumentError, ShapeError or DTypeError for inputs that do not fit the graph.
    """
    if any(cell.assigned is not None for cell in graph.cells):
        raise ArgumentError(
            "a graph that assigns Variables gives different results each time",
            op="save",
            argument="examples",
            hint="graph.prune(graph.outputs.names) keeps only the outputs",
        )
    return tuple([x if isinstance(x, Example) else _made(graph, x) for x in given])


def _made(graph: Graph, given: Any) -> Example:
    names = graph.inputs.names
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ArgumentError(
            "an example is a mapping with an array for each input",
            op="save",
            argument="examples",
            received=", ".join(map(str, given)) if isinstance(given, Mapping) else repr(given)[:80],
            expected=", ".join(names) or "no inputs",
        )
    replay = replay_of(graph, "exact")
    inputs = [as_tensor(x, copy=True) for x in replay.checked([given[name] for name in names])]
    outputs = replay.run(inputs)
    return Example(_named(names, inputs), _named(graph.outputs.names, outputs))


def _named(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return dict(zip(names, tensors, strict=True))


def check(graph: Graph, numerics: str = "fast") -> None:
    """Run the examples stored with a graph; SessionError for the first with a different result.

    Integers and bools must be equal, other numbers equal within the square root of their
    dtype's precision, relative to the largest output.

    >>> from tempfile import TemporaryDirectory
    >>> from eagerflow.capture.saving import examples
    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("n",), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     graph.save(f"{folder}/model.ef", examples=[{"x": [0.0, 1.0]}])
    ...     loaded = ef.capture.load(f"{folder}/model.ef")
    >>> loaded.examples
    (Example(inputs={'x': Tensor([0., 1.], float32, cpu:0)}, outputs={'output': ...}),)
    >>> examples.check(loaded)
    """
    replay = replay_of(graph, numerics)
    for number, example in enumerate(graph.examples):
        found = replay.run(replay.checked([example.inputs[n] for n in graph.inputs.names]))
        for name, tensor in zip(graph.outputs.names, found, strict=True):
            _compare(graph.name, number, name, tensor.numpy(), example.outputs[name].numpy())


def _compare(graph: str, number: int, name: str, found: Any, wanted: Any) -> None:
    same = found.shape == wanted.shape
    if same and is_inexact(wanted.dtype):
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        a, b = found.astype(wide), wanted.astype(wide)
        finite = np.isfinite(b)
        scale = float(np.abs(b[finite]).max(initial=0.0))
        bound = scale * 2.0 ** (-_bits(wanted.dtype) / 2)
        same = bool((np.abs(a[finite] - b[finite]) <= bound).all())
        same = same and np.array_equal(a[~finite], b[~finite], equal_nan=True)
    elif same:
        same = np.array_equal(found, wanted)
    if not same:
        raise SessionError(
            f"example {number} of the file does not give the result it was saved with",
            op=graph,
            argument=name,
            received=f"{found.dtype.name}{found.shape}: {_short(found)}",
            expected=f"{wanted.dtype.name}{wanted.shape}: {_short(wanted)}",
        )


def _bits(dtype: Any) -> int:
    """The bits of precision of a dtype."""
    return int(finfo(np.dtype(dtype.type(0).real.dtype) if dtype.kind == "c" else dtype).nmant)


def _short(array: Any) -> str:
    return ", ".join(f"{x:.6g}" for x in array.reshape(-1)[:4].tolist()) + (
        " ..." if array.size > 4 else ""
    )


# In files ----------------------------------------------------------------------------------------


def encode(examples: Sequence[Example], encoder: Encoder) -> str:
    """The text that names the tensors of examples, which are stored with the encoder's others."""
    if len(examples) > MAX_EXAMPLES:
        fail(f"{len(examples)} examples are too many for a file", expected=f"{MAX_EXAMPLES}")
    rows = []
    for number, example in enumerate(examples):
        fields = {}
        for field in FIELDS:
            named = getattr(example, field)
            fields[field] = [
                [name, encoder.new_tensor(tensor, f"example/{number}/{name}")]
                for name, tensor in named.items()
            ]
        rows.append(dumps(fields))
    return "[\n" + ",\n".join(rows) + "\n]"


class ExampleRows:
    """The examples in a file's text, checked against the graph and the file."""

    def __init__(self, text: str, graph: Graph, container: Container) -> None:
        self._graph = graph
        self._container = container
        if not text.startswith("[\n") or not text.endswith("\n]") or len(text) < 5:
            fail("the examples are not a list")
        rows = Rows("examples", text, 2, len(text) - 2)
        if len(rows) > MAX_EXAMPLES:
            fail("the file has too many examples", expected=f"at most {MAX_EXAMPLES}")
        self._rows = [self._row(rows, number) for number in range(len(rows))]
        self.tensors = [entry.tensor for row in self._rows for part in row for _, entry in part]
        if len(set(self.tensors)) < len(self.tensors):
            fail("two values of examples are one tensor")

    def _row(self, rows: Rows, number: int) -> list[list[tuple[str, Entry]]]:
        row, _ = rows.read(number)
        if type(row) is not dict or tuple(row) != FIELDS:
            rows.fail(number, "it has other fields", expected=" and ".join(FIELDS))
        sizes: dict[str, Any] = {}
        found = []
        for field, values in zip(FIELDS, (self._graph.inputs, self._graph.outputs), strict=True):
            pairs = row[field]
            if type(pairs) is not list or len(pairs) != len(values):
                rows.fail(number, f"it has other {field} than the graph")
            part = []
            for pair, name, value in zip(pairs, values.names, values, strict=True):
                if type(pair) is not list or [type(x) for x in pair] != [str, str]:
                    rows.fail(number, f"one of its {field} is no pair of texts")
                if pair[0] != name:
                    rows.fail(number, f"it has other {field} than the graph")
                place = self._container.places.get(pair[1])
                shape = () if place is None else shape_as(place, value.dtype)
                if place is None or not bind(sizes, value.shape, shape):
                    rows.fail(number, f"there is no such tensor for {field} of the graph")
                part.append((name, Entry(pair[1], shape, value.dtype, current_device())))
            found.append(part)
        return found

    def read(self, tensor: Callable[[Entry], Any]) -> tuple[Example, ...]:
        """The examples, with tensors read by ``tensor``."""
        return tuple(
            Example(*({name: tensor(entry) for name, entry in part} for part in row))
            for row in self._rows
        )
