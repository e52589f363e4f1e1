"""The traversal of a model: each node becomes a call of its operator's function on Tensors."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, EagerflowError, FileFormatError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.onnx.reading.attributes import Schema, attributes_of, schema_of
from eagerflow.onnx.reading.calls import (
    OPERATORS,
    Call,
    NotKnown,
    Operator,
    Refused,
    SizeVector,
    is_known,
)
from eagerflow.onnx.reading.folding import Budget, TooLarge, as_plain
from eagerflow.onnx.reading.model import OLDEST, Model, domain_of, graphs_in
from eagerflow.onnx.reading.older import form_of
from eagerflow.onnx.reading.origins import origin_of
from eagerflow.onnx.reading.scopes import Scope, body_of, resolved
from eagerflow.onnx.reading.tensors import fail
from eagerflow.onnx.reading.unsupported import Problem, label_of
from eagerflow.recorder import recorder_state, with_recorder
from eagerflow.scopes import scope

MAX_STEPS = 50_000
"""The limit of visited nodes and bodies, besides the file's own: of loops and functions."""

_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)

BROKEN: Any = object()
"""Placeholder of a node's outputs if the node could not be imported."""


class Broken(Exception):  # noqa: N818 - what went wrong is written down already
    """A body returns a value that could not be imported."""


class Needs(NamedTuple):
    """The required knowledge at run time: values of inputs by name, and shapes."""

    names: set[str]
    shapes: list[bool]


class Importer:
    """Traverses the graphs of a model under a trace; collects nodes that cannot be imported."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self.model = model
        self.budget = budget
        self.problems: dict[str, Problem] = {}
        self.needs = Needs(set(), [])
        self.steps = MAX_STEPS + 10 * len(model.graph.node)

    def outputs(self, scope_: Scope, graph: Any) -> list[Any]:
        """Run the nodes of a graph; the values of its outputs, possibly BROKEN."""
        for number, node in enumerate(graph.node):
            self._node(node, scope_, number)
        return [scope_.find(info.name, "an output of the graph") for info in graph.output]

    def step(self, label: str) -> None:
        """Count one more node or body; FileFormatError if a small file expands to too many."""
        self.steps -= 1
        if self.steps < 0:
            fail("the loops and functions of the model are too long to be unrolled", received=label)

    # One node ---------------------------------------------------------------------------------

    def _node(self, node: Any, around: Scope, number: int) -> None:
        label = label_of(node)
        self.step(label)
        given = [around.find(name, label) if name else None for name in node.input]
        while given and given[-1] is None:
            given.pop()
        recorder = recorder_state()[1]
        origin = origin_of(node, number, self.model.label, self.model.is_ours)
        if recorder is not None:
            recorder.follow(origin.place)  # type: ignore[arg-type]
        try:
            if any(x is BROKEN for x in given):
                raise Broken
            with scope(origin.scope) if origin.scope else nullcontext():
                found = self._called(node, around, given)
        except NotKnown as need:
            found = self._needed(need, node, around)
        except Broken:
            found = BROKEN
        except Refused as refusal:
            self._refused(node, refusal.reason)
            found = BROKEN
        around.bind(node, found, BROKEN)

    def _called(self, node: Any, around: Scope, given: list[Any]) -> Any:
        """The results of the node; errors in it become the reason of its refusal."""
        try:
            return self._results(node, around, given)
        except (NotKnown, Refused, Broken, FileFormatError):
            raise
        except EagerflowError as error:
            pair = {str(size) for size in getattr(error, "unlike", ())}
            if isinstance(error, ShapeError) and len(pair) == 2 and pair <= around.sizes:
                raise  # two names of one size: the traversal is restarted
            if isinstance(error, CaptureError | ShapeError) and any(_is_symbolic(x) for x in given):
                raise NotKnown((), of_shapes=True) from error
            raise Refused(_reason(error)) from error
        except raised_here(RecursionError) as error:
            raise Refused("it is nested too deeply") from error
        except raised_here(*_FAILURES) as error:
            raise Refused(_reason(error)) from error

    def _needed(self, need: NotKnown, node: Any, around: Scope) -> Any:
        """A value is needed: known to the holder of the body, or requested from the caller."""
        if around.is_body:
            raise need
        if not need.names and not need.of_shapes:
            self._refused(node, "a shape depends on the result of a loop")
        self.needs.names.update(need.names)
        if need.of_shapes:
            self.needs.shapes.append(True)
        return BROKEN

    def _refused(self, node: Any, reason: str) -> None:
        problem = Problem(node.op_type, domain_of(node.domain), label_of(node), reason)
        self.problems[f"{problem.node} {problem.reason}"] = problem

    # Its operator -----------------------------------------------------------------------------

    def _results(self, node: Any, around: Scope, given: list[Any]) -> tuple[Any, ...]:
        domain = domain_of(node.domain)
        own = self.model.functions.get((domain, node.op_type, node.overload))
        node = resolved(node, around)
        if own is not None:
            return self._function(own, node, around, given)
        version = around.opsets.get(domain)
        if version is None:
            fail(f"the domain {domain or 'ai.onnx'!r} is not imported", received=label_of(node))
        schema = schema_of(domain, node.op_type, version)
        form = None
        if not domain and version < OLDEST:
            form = form_of(node.op_type, schema, version)
        found = OPERATORS.get((domain, node.op_type))
        if schema is None:
            raise Refused(f"there is no such operator in opset {version} of {domain or 'ai.onnx'}")
        _check_count(node, schema)
        if found is None:
            body = body_of(schema, node, version, given)
            if body is None:
                raise Refused("the operator is not supported")
            return self._function(body, node, around, given)
        graphs = {name: Subgraph(self, graph, around) for name, graph in graphs_in(node).items()}
        attributes = attributes_of(node, schema, self.model.folder)
        if form is not None:
            given, attributes = form(given, attributes)
        call = Call(node, version, graphs)
        return self._listed(call, self._apply(found, call, given, attributes))

    def _apply(self, found: Operator, call: Call, given: list[Any], attributes: Any) -> Any:
        if not found.takes_sizes:
            given = [as_plain(x) for x in given]
        if found.pure and not graphs_in(call.node) and all(is_known(x) for x in given):
            try:
                return with_recorder(self.budget, found.function, call, *given, **attributes)
            except TooLarge:
                pass
        return found.function(call, *given, **attributes)

    def _listed(self, call: Call, result: Any) -> tuple[Any, ...]:
        """The results as a tuple, checked to contain all used outputs."""
        results = result if type(result) is tuple else (result,)
        found = tuple(
            as_tensor(x) if isinstance(x, np.ndarray | np.generic) else x for x in results
        )
        for i, is_wanted in enumerate(call.outputs):
            if is_wanted and i >= len(found):
                call.refuse(f"its output {i + 1}")
        return found

    def _function(self, body: Any, node: Any, around: Scope, given: list[Any]) -> tuple[Any, ...]:
        """The nodes of a function, for these inputs and the attributes of the calling node."""
        inner = around.of_function(body, node)
        if len(given) > len(body.input):
            raise Refused(f"the function takes {len(body.input)} inputs")
        for i, name in enumerate(body.input):
            inner.values[name] = given[i] if i < len(given) else None
        for number, step in enumerate(body.node):
            self._node(step, inner, number)
        found = tuple(
            inner.find(name, "an output of the function") if wanted else inner.get(name)
            for name, wanted in zip(body.output, node.output, strict=False)
        )
        if any(x is BROKEN for x in found):
            raise Broken
        if len(node.output) > len(found):
            raise Refused(f"the function gives {len(found)} outputs")
        return found


class Subgraph:
    """A graph inside a node, as a function from its inputs to a list of its outputs."""

    def __init__(self, importer: Importer, graph: Any, around: Scope) -> None:
        self._importer, self._graph, self._around = importer, graph, around
        self.inputs = [info.name for info in graph.input]

    def __call__(self, *given: Any) -> list[Any]:
        """The values of the outputs for these inputs, and for the values around the node."""
        if len(given) != len(self.inputs):
            raise Refused(f"a body of {len(self.inputs)} inputs is given {len(given)}")
        self._importer.step(self._graph.name)
        inner = self._around.inside()
        add_initializers(self._importer.model, self._graph, inner)
        inner.values.update(zip(self.inputs, given, strict=True))
        found = self._importer.outputs(inner, self._graph)
        if any(x is BROKEN for x in found):
            raise Broken
        return found

    @property
    def output_count(self) -> int:
        """The number of outputs."""
        return len(self._graph.output)

    def outer_values(self) -> list[Any]:
        """The values that it captures from outside."""
        names: set[str] = set()
        _collect(self._graph, names)
        known_here = (self._around.get(name) for name in names)
        return [x for x in known_here if x is not None and x is not BROKEN]


def _collect(graph: Any, names: set[str]) -> None:
    """All names that are read by nodes of a graph, including nested ones."""
    names.update(info.name for info in graph.output)
    for node in graph.node:
        names.update(node.input)
        for inner in graphs_in(node).values():
            _collect(inner, names)


def add_initializers(model: Model, graph: Any, into: Scope, note: Any = None) -> None:
    """Bind the names of a graph's initializers to their values; ``note`` is called for each."""
    for proto in (*graph.initializer, *graph.sparse_initializer):
        name = proto.values.name if hasattr(proto, "indices") else proto.name
        if not name or name in into.values:
            fail(f"there are two values named {name!r}" if name else "an initializer has no name")
        try:
            tensor = into.values[name] = as_tensor(model.array(proto))
        except Refused as refusal:
            into.values[name] = BROKEN
            if note is None:
                raise
            note(name, None, refusal.reason)
            continue
        if note is not None:
            note(name, tensor, "")


def _check_count(node: Any, schema: Schema) -> None:
    least, most = schema.inputs
    count = len(node.input)
    if not least <= count <= most:
        raise Refused(f"it has {count} inputs")
    outputs = schema.proto.max_output
    if len(node.output) > outputs:
        raise Refused(f"it has {len(node.output)} outputs")


def _is_symbolic(x: Any) -> bool:
    if isinstance(x, list):
        return any(_is_symbolic(size) for size in x)
    return isinstance(x, SizeVector) or any(
        isinstance(size, Dim) for size in getattr(x, "shape", ())
    )


def _reason(error: BaseException) -> str:
    """The problem of an error, as the reason of a node's refusal."""
    return str(getattr(error, "problem", "")) or f"{type(error).__name__}: {error}"
