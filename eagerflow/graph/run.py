"""Running a graph op by op, so that any recorder can watch it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from eagerflow.convert import as_tensor
from eagerflow.devices import device
from eagerflow.dispatch import compute
from eagerflow.errors import EagerflowError
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.sizes import Sizes, is_symbolic, with_sizes
from eagerflow.guard import ScopeGuard
from eagerflow.recorder import Recorder, recorder_state, with_recorder
from eagerflow.tensor import Tensor


class _Program(NamedTuple):
    """A graph prepared for interpretation: values have numbers, entries first."""

    steps: list[tuple[Any, ...]]
    constants: list[Tensor]
    results: list[int]
    total: int


def _on(place: str, f: Callable[..., Any], *args: Any, **attributes: Any) -> Any:
    with device(place):
        return f(*args, **attributes)


@kept
def _program(graph: Graph) -> _Program:
    constants = graph.constants
    numbers = {v: i for i, v in enumerate((*graph.all_inputs(), *constants))}
    steps = []
    for node in graph.nodes:
        # A negative number stands for a scalar, or for an omitted argument.
        args = [(numbers[x], None) if type(x) is Value else (-1, x) for x in node.inputs]
        numbers.update(zip(node.outputs, count(len(numbers)), strict=False))
        f = node.op.call if node.device is None else partial(_on, node.device, node.op.call)
        named = is_symbolic(tuple(node.attributes.values()))
        steps.append((f, args, node.attributes, named, [numbers[v] for v in node.outputs], node))
    known = [as_tensor(v.constant) for v in constants]
    results = [numbers[v] for v in graph.all_outputs()]
    return _Program(steps, known, results, len(numbers))


def interpret(
    graph: Graph, given: Sequence[Any], call: Callable[[Node, list[Any]], Any] | None = None
) -> list[Tensor]:
    """The values of ``graph.all_outputs()`` for values of ``graph.all_inputs()``.

    Each node is an ordinary op call, on the device that it is pinned to, so tapes, traces
    and vmap see it; ``call(node, args)`` replaces that call. Nothing is assigned, and an
    output may be one of ``given`` itself. Errors name the user's file and line of the node.
    """
    recorder = recorder_state()[1]
    if recorder is None:
        return _run(_program(graph), given, call, None)
    with _Following(recorder):
        return _run(_program(graph), given, call, recorder)


def compute_nodes(graph: Graph, given: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
    """The same by the kernels of ops, which no recorder sees, for sizes of named dimensions."""
    return with_recorder(None, _run, _program(graph), given, None, None, sizes)


def _run(
    program: _Program,
    given: Sequence[Any],
    call: Any,
    recorder: Recorder | None,
    sizes: Sizes | None = None,
) -> list[Tensor]:
    steps, constants, results, total = program
    values: list[Any] = [*given, *constants]
    values += [None] * (total - len(values))
    for f, args, attributes, named, made, node in steps:
        if recorder is not None:
            recorder.follow(node.origin)
        operands = [values[i] if i >= 0 else x for i, x in args]
        try:
            if named and sizes is not None:
                attributes = {key: with_sizes(x, sizes) for key, x in attributes.items()}
            if call is not None:
                out = call(node, operands)
            elif sizes is None or not attributes or node.device is not None:
                out = f(*operands, **attributes)
            else:  # the same, without looking at arguments that are in canonical form
                out = compute(node.op, tuple(operands), attributes)
        except EagerflowError as error:
            error.at = error.at or node.place or None
            raise
        if type(out) is tuple:
            for i, y in zip(made, out, strict=True):
                values[i] = y
        else:
            values[made[0]] = out
    return [values[i] for i in results]


class _Following(ScopeGuard):
    """A context that gives a recorder the source lines of op calls."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def release(self) -> None:
        """Let the recorder find the lines of calls itself again."""
        self._recorder.follow(None)


def evaluate(graph: Graph, given: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs of a graph, and the values assigned to Variables; see ``interpret``."""
    found = interpret(graph, given)
    count = len(graph.outputs)
    return found[:count], found[count:]
