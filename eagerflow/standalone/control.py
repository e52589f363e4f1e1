"""Branches and loops as Python statements, with their bodies below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.standalone.expressions import (
    ATOM,
    Expression,
    Variable,
    call,
    identifier,
    listed,
    literal,
    method,
    text,
)
from eagerflow.standalone.forms import form
from eagerflow.standalone.layout import Line, assignment
from eagerflow.standalone.writer import Writer

MAX_ROW = 80  # characters of a simultaneous assignment


def _plain(w: Writer, xs: Sequence[Expression]) -> list[Expression]:
    """Expressions that a body may use repeatedly, without recomputation."""
    return [w.named(x) for x in xs]


def _set(
    targets: Sequence[Variable], values: Sequence[Expression], new: Sequence[Variable] = ()
) -> list[Line]:
    """Lines that assign variables simultaneously, as a value may read another target."""
    pairs = [(t, x) for t, x in zip(targets, values, strict=True) if x.pieces != (t,)]
    if not pairs:
        return []
    left, right = zip(*pairs, strict=True)
    if sum(x.width for x in right) <= MAX_ROW or len(pairs) == 1:
        return [assignment(left, text(*listed(right)), new)]
    kept = [Variable(t.base) for t in left]
    lines = [assignment([t], x, [t]) for t, x in zip(kept, right, strict=True)]
    return [*lines, assignment(left, text(*listed(kept)), new)]


def _lines(block: list[Line]) -> list[Line]:
    return block or [Line(("pass",))]


def _head(*parts: Any) -> tuple[Any, ...]:
    return text(*parts, ":").pieces


def _branches(
    w: Writer, node: Node, tests: Sequence[Any], graphs: Sequence[Graph], given: Sequence[Any]
) -> list[Expression]:
    """A branch for each test, and a last one without a test."""
    made = [w.variable(v) for v in node.outputs]
    given = _plain(w, given)
    for i, (test, graph) in enumerate(zip([*tests, None], graphs, strict=True)):
        lines, found = w.block(graph, given)
        lines += _set(made, found, made if i == 0 else ())
        head = ["else"] if test is None else ["elif " if i else "if ", test]
        w.write(Line(_head(*head), (), "", _lines(lines)))
    return [text(x) for x in made]


@form("cond")
def _cond(w: Writer, node: Node, test: Expression, *given: Expression) -> list[Expression]:
    graphs = node.attributes["true_graph"], node.attributes["false_graph"]
    return _branches(w, node, [test], graphs, given)


@form("switch")
def _switch(w: Writer, node: Node, index: Expression, *given: Expression) -> list[Expression]:
    graphs = node.attributes["branches"]
    if len(graphs) == 1:
        return w.inline(graphs[0], _plain(w, given))
    number = w.assign(call("np.clip", index, "0", str(len(graphs) - 1)), "branch")
    tests = [text(number, f" == {i}") for i in range(len(graphs) - 1)]
    return _branches(w, node, tests, graphs, given)


@form("while_loop")
def _while_loop(w: Writer, node: Node, *given: Expression) -> list[Expression]:
    more = node.attributes
    count, body = more["states"], more["body"]
    state = _state(w, body, node, count)
    rest = _plain(w, given[count:])
    now = [*[text(x) for x in state], *rest]
    if _counts(node):
        return _counted(w, node, state, given, now)
    for line in _set(state, given[:count], state):
        w.write(line)
    tests, (test,) = w.block(more["cond"], now)
    lines, found = w.block(body, now)
    lines += _set(state, found)
    most = more["maximum_iterations"]
    if tests or most is not None:
        head = ["while True"] if most is None else ["for _ in ", call("range", w.size(most))]
        stop = Line(_head("if not ", *test.at(ATOM)), (), "", [Line(("break",))])
        lines = [*tests, stop, *lines]
    else:
        head = ["while ", test]
    w.write(Line(_head(*head), (), "", _lines(lines)))
    return [text(x) for x in state]


def _state(w: Writer, body: Graph, node: Node, count: int) -> list[Variable]:
    """Variables for the state that is passed between iterations."""
    found = []
    for value, made in zip(body.inputs[:count], node.outputs[:count], strict=True):
        counter = not value.shape and value.dtype.kind == "i"
        usual = "i" if counter else "carry"
        found.append(Variable(w.wanted_names.get(made, usual)))
    return found


def _counts(node: Node) -> bool:
    """Whether the first state of a loop only counts from a number up to a limit."""
    more = node.attributes
    cond, body, count = more["cond"], more["body"], more["states"]
    if more["maximum_iterations"] is not None or len(cond.nodes) != 1:
        return False
    test, i, end = cond.nodes[0], cond.inputs[0], cond.nodes[0].inputs[-1]
    step = body.outputs[0].node
    return (
        test.op.name == "less"
        and test.inputs[0] is i
        and (not isinstance(end, Value) or end not in cond.inputs[:count])
        and not i.shape
        and i.dtype == "int64"
        and step is not None
        and step.op.name == "add"
        and step.inputs[0] is body.inputs[0]
        and step.inputs[1] == 1
    )


def _counted(
    w: Writer, node: Node, state: list[Variable], given: Sequence[Expression], now: list[Any]
) -> list[Expression]:
    """A loop in which the first state is a counter."""
    more = node.attributes
    cond, body, count = more["cond"], more["body"], more["states"]
    w.known.update(zip(cond.inputs, now, strict=True))
    start, end = given[0], w.term(cond.nodes[0].inputs[1])
    if not end.is_plain:
        end = w.named(end, "end")
    for line in _set(state[1:], given[1:count], state[1:]):
        w.write(line)
    lines, found = w.block(body, now)
    lines += _set(state[1:], found[1:])
    zero = isinstance(node.inputs[0], Value) and _is_zero(node.inputs[0])
    steps = call("np.arange", *([] if zero else [start]), end)
    w.write(Line(_head("for ", state[0], " in ", steps), (state[0],), "", _lines(lines)))
    last = call("np.maximum", start, end)
    return [last, *[text(x) for x in state[1:]]]


def _is_zero(value: Value) -> bool:
    return value.constant is not None and not value.constant.numpy().any()


def _row_lists(w: Writer, node: Node, count: int) -> list[Variable]:
    """Lists of the iterations' results."""
    pairs = zip(node.attributes["body"].outputs[count:], node.outputs[count:], strict=True)
    return [
        Variable(w.wanted_names.get(made) or identifier(w.variable(inner).base + "s"))
        for inner, made in pairs
    ]


@form("scan")
def _scan(w: Writer, node: Node, *given: Expression) -> list[Expression]:
    more = node.attributes
    count, body = more["carries"], more["body"]
    ends = count + more["sequences"]
    length = node.inputs[count].shape[0] if more["sequences"] else more["length"]
    state = _state(w, body, node, count)
    for line in _set(state, given[:count], state):
        w.write(line)
    rows = _row_lists(w, node, count)
    for row in rows:
        w.write(assignment([row], text("[]"), [row]))
    parts = [Variable("row") for _ in body.inputs[count:ends]]
    rest = _plain(w, given[ends:])
    lines, found = w.block(body, [*[text(x) for x in state], *[text(x) for x in parts], *rest])
    lines += [
        Line(method(text(row), "append", x).pieces)
        for row, x in zip(rows, found[count:], strict=True)
    ]
    lines += _set(state, found[:count])
    head = _steps(w, parts, given[count:ends], length, more["reverse"])
    w.write(Line(head, tuple(parts), "", _lines(lines)))
    joined = [
        _rows(w, row, value, more["reverse"], length)
        for row, value in zip(rows, node.outputs[count:], strict=True)
    ]
    return [*[text(x) for x in state], *joined]


def _steps(
    w: Writer, parts: list[Variable], given: Sequence[Expression], length: Any, reverse: bool
) -> tuple[Any, ...]:
    if not parts:
        return _head("for _ in ", call("range", w.size(length)))
    back = "[::-1]" if reverse else ""
    rows = [text(*x.at(ATOM), back) for x in given]
    over = rows[0] if len(rows) == 1 else call("zip", *rows, strict=text("True"))
    return _head("for ", *listed([text(x) for x in parts]), " in ", over)


def _rows(w: Writer, row: Variable, value: Value, reverse: bool, length: Any) -> Expression:
    if length == 0:
        return call("np.zeros", w.sizes(value.shape), literal(value.dtype))
    return call("np.stack", text(row, "[::-1]" if reverse else ""))
