"""Models with shapes that depend on the values of inputs, as a single op.

The op ``specialized`` takes the model's inputs. When it runs, it reads the values of those in
``by_value``, imports the model for these values and for the shapes of all inputs, and runs the
resulting graph. A bounded number of such graphs is cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from eagerflow.capture.control.bodies import fresh
from eagerflow.capture.trace import Trace
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import STANDARD
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Values
from eagerflow.graph.run import interpret
from eagerflow.graph.sizes import LATE
from eagerflow.onnx.reading.calls import Refused
from eagerflow.onnx.reading.model import Model, dtype_and_shape
from eagerflow.onnx.reading.unsupported import BIND, Problem, refusal
from eagerflow.onnx.reading.walk import Facts, Imported, imported
from eagerflow.op import Cost, Missing, plain
from eagerflow.ops.attributes import HINTS, tuple_of
from eagerflow.ops.family import FLOAT8, define, op_of
from eagerflow.recorder import with_recorder
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

MAX_KEPT = 16
"""The number of cached graphs for different values."""
_REASON = Missing("the graph is known when it runs")


@plain
class Source:
    """A model that is imported when values are known; ``inputs`` are the names of the operands."""

    not_saved = "a graph cannot be saved where shapes depend on the values of inputs"
    hint = BIND

    def __init__(self, model: Model, facts: Facts, inputs: list[str]) -> None:
        self.inputs = inputs
        self._model, self._facts = model, facts
        self._known: OrderedDict[Any, Graph] = OrderedDict()
        self._names: set[str] = set()

    def graph(self, operands: Mapping[str, Tensor], by_value: tuple[str, ...]) -> Graph:
        """The graph for the values of some inputs and the shapes of all."""
        self._names.update(by_value)
        while True:
            names = sorted(self._names)
            arrays = {name: operands[name].numpy() for name in names}
            key = (
                tuple((name, array.tobytes()) for name, array in arrays.items()),
                tuple(x.shape for x in operands.values()),
            )
            found = self._known.get(key)
            if found is None:
                bound = {name: as_tensor(array) for name, array in arrays.items()}
                facts = Facts(
                    {**self._facts.values, **bound}, {n: x.shape for n, x in operands.items()}
                )
                made = imported(self._model, facts, {})
                if made.graph is None:
                    self._ask_for(made, set(names))
                    continue
                found = self._known[key] = made.graph
                if len(self._known) > MAX_KEPT:
                    self._known.popitem(last=False)
            return found

    def _ask_for(self, made: Imported, known: set[str]) -> None:
        """Specialize on more inputs from now on."""
        more = made.needs.names - known
        if not more or not more.issubset(self.inputs):
            what = ", ".join(sorted(more)) or "what the graph computes"
            raise ArgumentError(f"a shape follows from {what}", op="import_onnx")
        self._names.update(more)


HINTS["Source"] = lambda x: isinstance(x, Source), "a model"
HINTS["Names"] = tuple_of(lambda x: type(x) is str), "names"


def _infer(*operands: Any, source: Any, by_value: Any, shapes: Any, dtypes: Any) -> Any:
    return tuple(TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))


@define(
    "control",
    name="specialized",
    on_tensors=True,
    outputs=0,
    dtypes=STANDARD | FLOAT8,
    infer=_infer,
    vjp=_REASON,
    batch=_REASON,
    split=_REASON,
    cost=lambda *operands, **attributes: Cost(0, 0),
    onnx=_REASON,
)
def _specialized(
    xp: Any,
    /,
    *operands: Any,
    source: Source,
    by_value: Names,  # type: ignore[name-defined]  # noqa: F821 - see HINTS
    shapes: tuple[Any, ...],
    dtypes: tuple[Any, ...],
) -> Any:
    """The outputs of an ONNX model with a graph that depends on its inputs' values.

    ``source`` is the model, ``by_value`` names the inputs to specialize on, and ``shapes`` and
    ``dtypes`` are those of the outputs in the model. Made by ``import_onnx``. Raises ShapeError if
    the outputs have other shapes, and the errors of an import.
    """
    given = [x if type(x) is Tensor else as_tensor(x) for x in operands]
    named = dict(zip(source.inputs, given, strict=True))
    return with_recorder(None, _run, source, named, by_value, shapes, dtypes, operands)


def _run(
    source: Source, named: dict[str, Tensor], by_value: Any, shapes: Any, dtypes: Any, operands: Any
) -> Any:
    graph = source.graph(named, by_value)
    found = interpret(graph, [named[name] for name in graph.inputs.names])
    for name, x, shape, dtype in zip(graph.outputs.names, found, shapes, dtypes, strict=True):
        known = [
            isinstance(size, Dim) or size == own for size, own in zip(shape, x.shape, strict=False)
        ]
        if len(shape) != x.ndim or not all(known) or x.dtype != dtype:
            raise ShapeError(
                f"the output {name!r} differs from its declaration in the model",
                op="specialized",
                received=f"{x.dtype.name}{x.shape}",
                expected=str(TensorSpec(shape, dtype)),
            )
    if all(type(x) is Tensor for x in operands):
        return fresh(found)
    return tuple(x._array for x in found)


SPECIALIZED = op_of(_specialized)
LATE.add(SPECIALIZED.name)


def specialized_graph(model: Model, facts: Facts, found: Imported) -> Graph:
    """A graph of one node that reads the values of the inputs in ``found``."""
    names = found.needs.names
    strange = names - found.inputs.keys()
    if strange:
        raise refusal([Problem("input", "", min(strange), "a shape depends on its random numbers")])
    trace = Trace(model.graph.name or "model")
    symbols = {name: trace.input(spec, name) for name, spec in found.inputs.items()}
    shapes, dtypes = _declared(model, found)
    source = Source(model, facts, list(symbols))
    with trace:
        results = SPECIALIZED.call(
            *symbols.values(),
            source=source,
            by_value=tuple(sorted(names)),
            shapes=shapes,
            dtypes=dtypes,
        )
        labels = [info.name for info in model.graph.output]
        named = dict(zip(labels, results, strict=True))
    return trace.finish(Values([t._array for t in symbols.values()]), named)


def _declared(model: Model, found: Imported) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shapes and dtypes of the outputs according to the model."""
    shapes, dtypes = [], []
    problems = []
    for info in model.graph.output:
        try:
            dtype, shape = dtype_and_shape(info, found.size)
            if shape is None:
                raise Refused("its rank is not known")
        except Refused as reason:
            text = f"{reason.reason}, and shapes follow from the values of inputs"
            problems.append(Problem("output", "", info.name, text))
            continue
        shapes.append(shape)
        dtypes.append(dtype)
    if problems:
        raise refusal(problems)
    return tuple(shapes), tuple(dtypes)
