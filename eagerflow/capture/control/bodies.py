"""Bodies: graph attributes of control-flow ops, and functions that run them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar

from eagerflow.batching import Batching
from eagerflow.capture.trace import Trace
from eagerflow.devices import device
from eagerflow.dims import Dim
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from eagerflow.graph.cache import kept
from eagerflow.graph.costs import stated_cost
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.run import interpret
from eagerflow.graph.sizes import Sizes, bind, has_names, with_sizes
from eagerflow.graph.walk import all_values, bodies_of, nodes_within
from eagerflow.op import Cost, Op, ops, plain
from eagerflow.ops.attributes import HINTS, tuple_of
from eagerflow.ops.family import define
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.recorder import recorder_state, with_recorder
from eagerflow.scopes import scope
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, new_tensor

T = TypeVar("T")
P = ParamSpec("P")

HINTS["Graph"] = (lambda x: isinstance(x, Graph), "a graph")
HINTS["Graphs"] = (tuple_of(HINTS["Graph"][0]), "a tuple of graphs")


@plain
class Body(Graph):
    """A graph inside an op: pure, closed, and equal to any other with the same computation.

    Names and lines do not count. Passes that look for equal nodes treat two loops as one even if
    their bodies were traced separately, and results cached for a body hold for its equals.
    """

    def __init__(self, name: str, inputs: Any, nodes: Iterable[Node], outputs: Any) -> None:
        # An output may be given twice, or be an input: names of values do not identify outputs.
        names = [f"output_{i}" for i in range(len(outputs))]
        super().__init__(name, Values(inputs), nodes, Values(outputs, names))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Body) and _facts(self) == _facts(other))

    def __hash__(self) -> int:
        return _hash(self)

    def __reduce__(self) -> Any:
        return _rebuilt, (self.name, *_parts(self))


class Inner(Trace):
    """The trace of a body. Values refer to their trace, so it must not refer to outer traces."""

    def closed(self) -> None:
        super().closed()
        self.outer = None

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        if hasattr(sink, "node"):
            super().emit(name, sink, tensors)
            return
        error = CaptureError(
            f"values of {self.name!r} are only available through its results",
            op=name,
            hint="return the value from the function of the loop or branch, and write it outside",
        )
        self.explain(error)
        raise error


plain(Graph)  # passes may handle bodies of any class


# Equality and pickling ----------------------------------------------------------------------------

_EXACT = frozenset({str, type(None), bool, int})  # equal only if they mean the same


def _parts(graph: Graph) -> tuple[Any, ...]:
    """A graph as plain data, with numbers in place of Values."""
    numbers = {v: i for i, v in enumerate((*graph.inputs, *graph.constants))}
    inputs = tuple((v.name, v.shape, v.dtype) for v in graph.inputs)
    constants = tuple((v.name, v.constant) for v in graph.constants)
    rows = []
    for node in graph.nodes:
        given = tuple((True, numbers[x]) if type(x) is Value else (False, x) for x in node.inputs)
        made = tuple((v.name, v.shape, v.dtype, v.device) for v in node.outputs)
        numbers.update(zip(node.outputs, count(len(numbers)), strict=False))
        rows.append(
            (node.op.name, given, node.attributes, node.name, node.source, node.device, made)
        )
    return inputs, constants, tuple(rows), tuple(numbers[v] for v in graph.outputs)


@kept
def _facts(graph: Graph) -> Any:
    """The content that decides equality of bodies, in comparable and hashable form."""
    inputs, constants, rows, outputs = _parts(graph)
    return (
        tuple(spec[1:] for spec in inputs),
        tuple((t.dtype, t.shape, with_recorder(None, t.numpy).tobytes()) for _, t in constants),
        tuple(
            (op, exact(given), exact(tuple(attributes.values())), pin)
            for op, given, attributes, _, _, pin, _ in rows
        ),
        outputs,
    )


@kept
def _hash(graph: Graph) -> int:
    return hash(_facts(graph))


@kept
def _places(graph: Graph) -> tuple[Any, ...]:
    return tuple(node.source for node in graph.nodes)


def exact(item: Any) -> Any:
    """A key that two attributes or numbers share only if they are equivalent in every way."""
    cls = type(item)
    if cls in _EXACT:
        return cls, item
    if isinstance(item, float | complex):
        return cls, repr(item)  # shows the sign of 0
    if cls is tuple:
        return tuple([exact(part) for part in item])
    if cls is slice:
        return slice, exact(item.start), exact(item.stop), exact(item.step)
    return cls, item  # bodies of loops and branches compare by content


def _rebuilt(name: str, inputs: Any, constants: Any, rows: Any, outputs: Any) -> Body:
    values = [Value(*spec) for spec in inputs]
    own = len(values)
    values += [Value(label, t.shape, t.dtype, constant=t) for label, t in constants]
    nodes = []
    for op, given, attributes, label, source, pin, made in rows:
        args = tuple(values[x] if is_value else x for is_value, x in given)
        node = Node(ops[op], args, attributes, label, source, pin)
        node.outputs = tuple(
            Value(n, shape, dtype, None, node, i, device=at)
            for i, (n, shape, dtype, at) in enumerate(made)
        )
        nodes.append(node)
        values += node.outputs
    return Body(name, values[:own], nodes, [values[i] for i in outputs])


_made: OrderedDict[Any, Any] = OrderedDict()
MAX_MADE = 512


def made_once(f: Callable[Concatenate[Graph, P], T]) -> Callable[Concatenate[Graph, P], T]:
    """Cache the results of a function of a graph for all equal graphs from the same lines.

    A loop that runs repeatedly under a tape is traced each time; its gradient graphs are built
    only the first time. The other arguments are positional and hashable.
    """

    @wraps(f)
    def found(graph: Graph, *args: Any) -> Any:
        key = (f, *(str(x) if isinstance(x, Dim) else x for x in args))
        if key in graph.cache:
            return graph.cache[key]
        known = key, _facts(graph), _places(graph)
        result = _made.get(known)
        if result is None:
            result = _made[known] = f(graph, *args)  # type: ignore[call-arg]
            if len(_made) > MAX_MADE:
                _made.pop(next(iter(_made)), None)
        graph.cache[key] = result
        return result

    return found  # type: ignore[return-value]


_latest: OrderedDict[Any, Body] = OrderedDict()
"""The most recent body traced at a source location, for inputs of some shapes and dtypes."""


def as_before(name: str, inputs: list[Value], nodes: Sequence[Node], outputs: list[Value]) -> Body:
    """The body with these parts: the last one traced here, if all parts are the same.

    A loop in eager code is traced repeatedly; reusing its body keeps results cached for it.
    """
    places = (nodes[0].origin, nodes[-1].origin) if nodes else ()
    key = name, places, len(nodes), tuple([(v.shape, v.dtype) for v in inputs])
    before = _latest.get(key)
    if before is not None and _is_copy(before, inputs, nodes, outputs):
        return before
    made = _latest[key] = Body(name, inputs, nodes, outputs)
    if len(_latest) > MAX_MADE:
        _latest.pop(next(iter(_latest)), None)
    return made


def forget() -> None:
    """Drop all cached bodies and derived results; needed by tests that change their makers."""
    _latest.clear()
    _made.clear()


def _is_copy(body: Body, inputs: list[Value], nodes: Sequence[Node], outputs: list[Value]) -> bool:
    """Whether a body consists of parts like these, with their names and lines."""
    if len(body.inputs) != len(inputs) or len(body.nodes) != len(nodes):
        return False
    own: dict[Any, Any] = dict(zip(inputs, body.inputs, strict=True))
    if any(v.name != w.name for v, w in own.items()):
        return False
    for node, other in zip(nodes, body.nodes, strict=True):
        if (
            node.op is not other.op
            or node.name != other.name
            or node.origin != other.origin
            or node.device != other.device
            or len(node.outputs) != len(other.outputs)
            or not same_inputs(node.inputs, other.inputs, own)
        ):
            return False
        given, known = node.attributes, other.attributes
        if given and exact(tuple(given.values())) != exact(tuple(known.values())):
            return False
        for v, w in zip(node.outputs, other.outputs, strict=True):
            if v.shape != w.shape or v.dtype != w.dtype or v.device != w.device:
                return False
            own[v] = w
    return [own.get(v) for v in outputs] == list(body.outputs)


def same_inputs(given: tuple[Any, ...], known: tuple[Any, ...], own: dict[Any, Any]) -> bool:
    """Whether the inputs of two nodes correspond; ``own`` maps values to the known graph's."""
    if len(given) != len(known):
        return False
    for x, y in zip(given, known, strict=True):
        if type(x) is Value:
            if x.constant is None:
                if own.get(x) is not y:
                    return False
            elif type(y) is not Value or x.constant is not y.constant:
                return False
        elif exact(x) != exact(y):
            return False
    return True


# Properties of bodies -----------------------------------------------------------------------------


def as_graph(value: Any, argument: str) -> Graph:
    """``value`` as a graph without Variables; DTypeError for anything else."""
    if not isinstance(value, Graph) or value.cells:
        raise DTypeError(
            "it is not a graph without Variables",
            argument=argument,
            received=summary(value),
            expected="a graph, as ef.cond, ef.switch, ef.while_loop and ef.scan make it",
        )
    return value


@kept
def draws(graph: Graph) -> bool:
    """Whether a graph, or a graph nested in it, draws random numbers."""
    return any(node.op.family == "random" for node in nodes_within(graph))


def cost_of(graph: Graph, given: Sequence[Any]) -> Cost:
    """The cost of one run of a graph for inputs like these."""
    graph = with_sizes(graph, sizes_of(graph, given, str))
    costs = [stated_cost(node) for node in graph.nodes]
    return Cost(sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs))


def unused(graph: Graph, likes: Sequence[Any]) -> list[Value]:
    """Values of these shapes and dtypes for inputs that a graph does not read."""
    free = FreeNames(v.name for v in all_values(graph))
    return [Value(free.take("unused"), tuple(x.shape), x.dtype) for x in likes]


def with_inputs(graph: Graph, inputs: Sequence[Value]) -> Body:
    """The same graph, with these inputs."""
    return Body(graph.name, inputs, graph.nodes, graph.outputs)


# Sizes --------------------------------------------------------------------------------------------


def sizes_of(graph: Graph, given: Sequence[Any], argument: Callable[[int], str]) -> Sizes:
    """Values of named sizes for these inputs of a graph; ShapeError or DTypeError for misfits."""
    sizes = Sizes()
    if len(given) != len(graph.inputs):
        raise ArgumentError(
            f"{len(given)} values for a graph of {len(graph.inputs)} inputs",
            argument=argument(0),
            received=", ".join([summary(x) for x in given]),
            expected=", ".join(summary(v) for v in graph.inputs),
        )
    for i, (value, x) in enumerate(zip(graph.inputs, given, strict=True)):
        same = value.dtype == x.dtype
        if not same or not bind(sizes, value.shape, tuple(x.shape)):
            raise (ShapeError if same else DTypeError)(
                f"its {'shape' if same else 'dtype'} is not that of the graph's input {value.name}",
                argument=argument(i),
                received=summary(x),
                expected=str(TensorSpec(value.shape, value.dtype)),
            )
    return sizes


def results_of(
    graph: Graph, given: Sequence[Any], argument: Callable[[int], str]
) -> list[TensorSpec]:
    """The specs of a graph's outputs for inputs like these; raises errors for misfits."""
    sizes = sizes_of(graph, given, argument)
    place = next((x.device for x in given), None)
    shapes = [with_sizes(v.shape, sizes) for v in graph.outputs]
    return [
        TensorSpec(shape, v.dtype, None, place)
        for shape, v in zip(shapes, graph.outputs, strict=True)
    ]


def fitted(graph: Graph, tensors: Sequence[Any]) -> Graph:
    """A graph with named dimensions for the sizes of these inputs."""
    found: Graph = with_sizes(graph, sizes_of(graph, tensors, lambda i: f"input {i}"))
    return found


# Running ------------------------------------------------------------------------------------------


def run(graph: Graph, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph for Tensors; an output may be one of ``tensors`` itself."""
    return interpret(fitted(graph, tensors) if has_names(graph) else graph, tensors)


def fresh(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The same values as new Tensors, so that a tape distinguishes results from arguments."""
    return tuple(new_tensor(t._array, t._kind) for t in tensors)


def replay(graph: Graph, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, in its named scopes, under the current recorders."""
    graph = fitted(graph, tensors) if has_names(graph) else graph
    return interpret(graph, tensors, _call_in_scope)


def _call_in_scope(node: Node, args: list[Any]) -> Any:
    pinned = nullcontext() if node.device is None else device(node.device)
    named = scope(node.scope) if node.scope else nullcontext()
    with pinned, named:
        return call(node.op, *args, **node.attributes)


# Calls --------------------------------------------------------------------------------------------

BATCHED: dict[str, Callable[..., tuple[list[Tensor], list[bool]]]] = {}
"""By op: the batching rule that also returns which results have an axis of examples."""


def control_op(*, name: str, batch: Callable[..., Any], **facts: Any) -> Callable[[Any], Any]:
    """The decorator that registers an op with graph attributes, with a rule as in ``BATCHED``."""
    BATCHED[name] = batch

    def joined(args: Any, flags: Any, size: Any, **attributes: Any) -> tuple[Tensor, ...]:
        """All results with an axis of examples, added where missing."""
        outs, own = batch(args, flags, size, **attributes)
        return tuple([for_each(y, has, True, size) for y, has in zip(outs, own, strict=True)])

    # There are as many results as the graphs give.
    return define("control", name=name, on_tensors=True, outputs=0, batch=joined, **facts)


def for_each(x: Any, has: bool, needs: bool, size: Any) -> Any:
    """A value with an axis of examples, added if needed and missing."""
    return broadcast_to(x, (size, *x.shape)) if needs and not has else x


def call(op: Op, *args: Any, **attributes: Any) -> Any:
    """Call an op; under ``vmap``, results of control flow shared by all examples stay shared.

    A loop may therefore advance the state of a random generator, which must not differ between
    examples, and draw numbers for each of them.
    """
    level = recorder_state()[1]
    rule = BATCHED.get(op.name) if isinstance(level, Batching) else None
    if rule is None:
        return op.call(*args, **attributes)
    assert isinstance(level, Batching)
    batched = tuple(level.holds(x) for x in args)
    if not any(batched) and not any(draws(x) for x in bodies_of(attributes)):
        return with_recorder(level.outer, call, op, *args, **attributes)
    whole = tuple(x._array.tensor if b else x for x, b in zip(args, batched, strict=True))
    outs, flags = with_recorder(level.outer, rule, whole, batched, level.size, **attributes)
    return tuple(level.wrap(y) if flag else y for y, flag in zip(outs, flags, strict=True))
