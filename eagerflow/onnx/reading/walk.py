"""One import of a model: from knowledge of its inputs to a graph, or to missing knowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.capture.passes import optimized
from eagerflow.capture.trace import plain_name
from eagerflow.convert import as_tensor
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Values
from eagerflow.graph.walk import needed
from eagerflow.onnx.reading import operators as operators  # registers them
from eagerflow.onnx.reading.attributes import schema_of
from eagerflow.onnx.reading.calls import OPERATORS, Refused
from eagerflow.onnx.reading.folding import Budget, ImportTrace, as_plain
from eagerflow.onnx.reading.importer import BROKEN, Importer, Needs, add_initializers
from eagerflow.onnx.reading.model import Model, domain_of, dtype_and_shape, graphs_in
from eagerflow.onnx.reading.scopes import Scope
from eagerflow.onnx.reading.tensors import fail
from eagerflow.onnx.reading.unsupported import Problem, label_of, refusal
from eagerflow.runtime.collector import young
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable


class Facts(NamedTuple):
    """The knowledge of the inputs: the values of some, and the shapes of some."""

    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[Any, ...]]


class Imported(NamedTuple):
    """A graph, or the missing knowledge of its inputs; and the types of all inputs.

    ``size`` returns the size for a name in the file.
    """

    graph: Graph | None
    needs: Needs
    inputs: dict[str, TensorSpec]
    size: Callable[[str], Any]


class Walk:
    """One import of a model: its inputs, initializers and nodes under a trace."""

    def __init__(
        self, model: Model, facts: Facts, variables: Mapping[str, Variable], free: FreeSizes
    ) -> None:
        self.model, self.facts, self.variables = model, facts, variables
        budget = Budget(model.size)
        self.trace = ImportTrace(model.graph.name or "model", free, budget)
        self.importer = Importer(model, budget)
        self.around = Scope(model.opsets, free.names)
        self.inputs: dict[str, TensorSpec] = {}
        self._sizes: dict[str, Any] = {}

    def run(self) -> Imported:
        """The graph, or the missing knowledge; ArgumentError with all unsupported nodes."""
        graph = self.model.graph
        for problem in unsupported(self.model):
            self._note(problem)
        self._initializers()
        with self.trace:
            for name, variable in self.variables.items():
                self.around.values[name] = variable.value
            symbols = [t for t in (self._input(x) for x in graph.input) if t is not None]
            found = self.importer.outputs(self.around, graph)
            results = {} if self._failed() else self._named(found)
        if self.importer.problems:
            raise refusal(self.importer.problems.values())
        if self._failed():
            return Imported(None, self.importer.needs, self.inputs, self._size)
        self._forget_unused(results.values())
        made = self.trace.finish(Values([t._array for t in symbols]), results)
        made = optimized(made, only=("no_ops", "dead_code"))  # such as transposes that cancel
        return Imported(made, self.importer.needs, self.inputs, self._size)

    def _forget_unused(self, results: Iterable[Tensor]) -> None:
        """Remove nodes that no output needs, such as sizes that became numbers."""
        trace = self.trace
        goals = [trace.value_of(x) for x in results]
        goals += [c.assigned for c in trace.cells.values() if c.assigned is not None]
        trace.nodes = needed(trace.nodes, goals)

    def _failed(self) -> bool:
        needs = self.importer.needs
        return bool(self.importer.problems or needs.names or needs.shapes)

    def _note(self, problem: Problem) -> None:
        self.importer.problems[f"{problem.node} {problem.reason}"] = problem

    # Beginnings -------------------------------------------------------------------------------

    def _initializers(self) -> None:
        def note(name: str, tensor: Tensor | None, reason: str) -> None:
            if tensor is None:
                self._note(Problem("initializer", "", name, reason))
            else:
                self.trace.label(tensor, name)

        add_initializers(self.model, self.model.graph, self.around, note)

    def _input(self, info: Any) -> Tensor | None:
        """The Tensor of an input; None for one with a known value."""
        name = info.name
        if name in self.around.values and name not in self.inputs:
            return None  # an initializer, which older files list among the inputs
        if not name or name in self.inputs:
            fail(f"there are two inputs named {name!r}" if name else "an input has no name")
        if name in self.facts.values:
            self.around.values[name] = _as_value(self.facts.values[name])
            return None
        try:
            dtype, shape = dtype_and_shape(info, self._size)
            if name in self.facts.shapes:
                shape = self.facts.shapes[name]
            if shape is None:
                raise Refused("its rank is not known")
        except Refused as refusal_:
            self._note(Problem("input", "", name, refusal_.reason))
            self.around.values[name] = BROKEN
            return None
        spec = self.inputs[name] = TensorSpec(shape, dtype)
        self.around.values[name] = tensor = self.trace.input(spec, name)
        return tensor

    def _size(self, name: str) -> Any:
        """The size for a name in the file: an existing one of this name, or a similar one."""
        found = self._sizes.get(name)
        if found is None:
            label = plain_name(name)
            label = label if label.isidentifier() else f"size_{label}"
            while label in {str(size) for size in self._sizes.values()}:
                label += "_"
            found = self._sizes[name] = self.trace.free.size(label)
        return found

    # Ends -------------------------------------------------------------------------------------

    def _named(self, found: list[Any]) -> dict[str, Tensor]:
        """The outputs by name; elements of a sequence are numbered."""
        results: dict[str, Tensor] = {}
        for info, x in zip(self.model.graph.output, found, strict=True):
            if info.name in results:
                fail(f"there are two outputs named {info.name!r}")
            if x is None:
                self._note(Problem("output", "", info.name, "an optional that is empty"))
            elif isinstance(x, list):
                for i, part in enumerate(x):
                    results[f"{info.name}[{i}]"] = as_plain(part)
            else:
                results[info.name] = as_plain(x)
        return results


def _as_value(x: Any) -> Any:
    """A value bound by the caller: a tensor, a list of them, or None."""
    if isinstance(x, list | tuple) and any(hasattr(part, "shape") for part in x):
        return [_as_value(part) for part in x]
    if isinstance(x, list | tuple) and not x:
        return []
    return None if x is None else as_tensor(x)


def unsupported(model: Model) -> Iterator[Problem]:
    """The nodes, also in bodies and functions, with unknown operators."""
    waiting: list[tuple[Any, dict[str, int]]] = [(model.graph, model.opsets)]
    waiting += [(function, model.opsets) for function in model.functions.values()]
    while waiting:
        graph, opsets = waiting.pop(0)
        for node in graph.node:
            waiting += [(inner, opsets) for inner in graphs_in(node).values()]
            domain = domain_of(node.domain)
            key = domain, node.op_type
            if key in OPERATORS or (*key, node.overload) in model.functions:
                continue
            schema = schema_of(*key, opsets.get(domain, 1))
            body = schema is not None and (
                schema.proto.has_function or schema.proto.has_context_dependent_function
            )
            if not body:
                yield Problem(node.op_type, domain, label_of(node), "the operator is not supported")


def imported(model: Model, facts: Facts, variables: Mapping[str, Variable]) -> Imported:
    """Import a model with given knowledge; sizes that are equal under two names become one."""

    def walk(free: FreeSizes) -> Imported:
        return Walk(model, facts, variables, free).run()

    with young():
        return FreeSizes().traced(walk)
