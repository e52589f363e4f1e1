"""cond and switch: one of several branches, chosen by a value.

The op ``cond`` takes ``pred`` and the operands; its attributes ``true_graph`` and ``false_graph``
are graphs from the operands to the results. ``switch`` takes ``index`` and the operands; its
attribute ``branches`` is a tuple of such graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from eagerflow.capture.control.bodies import (
    Body,
    as_graph,
    call,
    control_op,
    cost_of,
    fresh,
    replay,
    results_of,
    run,
)
from eagerflow.capture.control.derived import (
    Writing,
    batched,
    by_example,
    gradients,
    home,
    moved,
    of_active,
    wanted,
)
from eagerflow.capture.control.functions import (
    Outside,
    Traced,
    all_or_nothing,
    assign,
    runs_plainly,
)
from eagerflow.capture.control.nests import Form, Results, callable_of, place_of, scalar
from eagerflow.debugging import nans_are_watched
from eagerflow.devices import Device
from eagerflow.dispatch import own_recorder
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, is_inexact
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.graph.walk import bodies_of
from eagerflow.masks import opened
from eagerflow.op import Cost, Missing
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.elementwise.comparison import equal, logical_not
from eagerflow.ops.elementwise.selection import clip, where
from eagerflow.ops.family import ANY, op_of
from eagerflow.ops.reductions.sums import any as any_of
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.visitors import secluded

Graphs = tuple[Graph, ...]


# Rules of both ops --------------------------------------------------------------------------------


def _named(attributes: dict[str, Any]) -> dict[str, Graph]:
    """The graphs by their names in errors, in the order in which they are chosen."""
    if "branches" not in attributes:
        return attributes
    branches = attributes["branches"]
    if not isinstance(branches, tuple) or not branches:
        raise DTypeError(
            "there are no branches",
            argument="branches",
            received=summary(branches),
            expected="a tuple of at least one graph",
        )
    return {f"branches[{i}]": graph for i, graph in enumerate(branches)}


def _again(
    attributes: dict[str, Any], graphs: Iterable[Graph], chooser: Any, *operands: Any
) -> Any:
    """The op again, with other graphs and operands."""
    if "branches" in attributes:
        return call(SWITCH, chooser, *operands, branches=tuple(graphs))
    return call(COND, chooser, *operands, **dict(zip(attributes, graphs, strict=True)))


def _infer(chooser: Any, *operands: Any, **attributes: Any) -> tuple[TensorSpec, ...]:
    several = "branches" in attributes
    kind = "integer" if several else "bool"
    facts = {
        "argument": "index" if several else "pred",
        "received": summary(chooser),
        "expected": f"one {kind}",
    }
    if chooser.dtype not in (INTEGERS if several else BOOL):
        raise DTypeError("it is not an integer" if several else "it is not a bool", **facts)
    if chooser.shape != ():
        raise ShapeError("it has axes", hint="ef.vmap for many of them", **facts)
    graphs = _named(attributes)
    found = {
        name: results_of(as_graph(graph, name), operands, lambda i: f"operands[{i}]")
        for name, graph in graphs.items()
    }
    first = next(iter(graphs))
    for name, own in found.items():
        if own != found[first]:
            raise ShapeError(
                f"{name} and {first} give different results",
                argument=name,
                received=", ".join([summary(x) for x in graphs[name].outputs]),
                expected=", ".join([summary(x) for x in graphs[first].outputs]),
            )
    return tuple(found[first])


def _cost(chooser: Any, *operands: Any, **attributes: Any) -> Cost:
    """The cost of the most expensive branch."""
    costs = [cost_of(graph, operands) for graph in bodies_of(attributes)]
    known = [c for c in costs if all(isinstance(part, int) for part in c)]
    return max(known, default=costs[0])


def _vjp(g: Any, y: Any, chooser: Any, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
    """The same op, with the gradients of its branches."""
    graphs = bodies_of(attributes)
    needed = tuple([wanted(x) for x in operands])
    nothing = (False,) * len(operands)
    device = home(operands)
    reached = [gradients(graph, needed, nothing, device)[1] for graph in graphs]
    forced = tuple(map(any, zip(*reached, strict=True)))
    if not any(forced):
        return (None,) * (1 + len(operands))
    back = [gradients(graph, needed, forced, device)[0] for graph in graphs]
    gs = [part for part in g if is_inexact(part.dtype)]
    found = iter(_again(attributes, back, chooser, *operands, *gs))
    return (None, *(next(found) if has else None for has in forced))


def _jvp(tangents: Any, y: Any, chooser: Any, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
    graphs = bodies_of(attributes)
    moving = tuple(t is not None for t in tangents[1:])
    device = home(operands)
    nothing = (False,) * len(graphs[0].outputs)
    pushed = [moved(graph, moving, nothing, device).pushed for graph in graphs]
    forced = tuple(any(t is not None for t in column) for column in zip(*pushed, strict=True))
    if not any(forced):
        return (None,) * len(forced)
    both = []
    for graph in graphs:
        t = moved(graph, moving, forced, device)
        given = [v for v in t.moved if v is not None]
        out = [v for v in t.pushed if v is not None]
        both.append(Body(t.name, [*t.inputs, *given], t.nodes, out))
    known = [t for t in tangents[1:] if t is not None]
    found = iter(_again(attributes, both, chooser, *operands, *known))
    return tuple(next(found) if has else None for has in forced)


def _batch(args: Any, flags: Any, size: Any, **attributes: Any) -> tuple[list[Tensor], list[bool]]:
    """One branch for a shared condition; for a condition per example, all branches are run."""
    graphs = bodies_of(attributes)
    chooser, operands = args[0], args[1:]
    device = home(operands) or home(args)
    nothing = (False,) * len(graphs[0].outputs)
    found = [batched(graph, flags[1:], nothing, size, device)[1] for graph in graphs]
    forced = tuple(map(any, zip(*found, strict=True)))
    whole = (True,) * len(forced)
    if not flags[0]:
        bodies = [batched(graph, flags[1:], forced, size, device)[0] for graph in graphs]
        return list(_again(attributes, bodies, chooser, *operands)), list(forced)
    bodies = [batched(graph, flags[1:], whole, size, device)[0] for graph in graphs]
    taken = _takers(chooser, len(graphs))
    columns = [
        replay(body, operands)
        if is_total(body) and not nans_are_watched()
        else _for_takers(body, active, operands, flags[1:], size, device)
        for body, active in zip(bodies, taken, strict=True)
    ]
    outs = []
    for parts in zip(*columns, strict=True):
        found = parts[-1]
        for active, part in zip(taken[:-1], parts[:-1], strict=True):
            found = where(by_example(active, part), part, found)
        outs.append(found)
    return outs, list(whole)


def _takers(chooser: Tensor, count: int) -> list[Tensor]:
    """For each branch, the mask of examples that take it, in the order of branches."""
    if chooser.dtype in BOOL:
        return [chooser, logical_not(chooser)]
    at = clip(chooser, 0, count - 1)
    return [equal(at, i) for i in range(count)]


def _for_takers(
    body: Graph,
    active: Tensor,
    operands: Sequence[Tensor],
    flags: Sequence[bool],
    size: Any,
    device: Device | None,
) -> Sequence[Tensor]:
    """The results of a branch for the examples that take it; skipped if there are none."""
    writing = Writing(body.name, device)
    with writing.trace:
        takers = writing.new((size,), "bool", "takers")
        given = writing.inputs(body.inputs)
        outs = replay(body, of_active(takers, given, flags, size))
    run_it = writing.body([takers, *given], outs)
    other = Writing(f"{body.name}_unused", device)
    with other.trace:
        unread = [other.new((size,), "bool", "takers"), *other.inputs(body.inputs)]
        nothing = [zeros(v.shape, v.dtype) for v in body.outputs]
    skip_it = other.body(unread, nothing)
    found: Sequence[Tensor] = call(
        COND, any_of(active), active, *operands, true_graph=run_it, false_graph=skip_it
    )
    return found


_OF_ANY_VALUES = frozenset({"elementwise", "shape", "creation", "reduction"})


@kept
def is_total(graph: Graph) -> bool:
    """Whether a graph can be run on any values: no loops, and no ops that reject values."""
    return all(
        node.op.family in _OF_ANY_VALUES
        and not node.op.fails
        and (node.op.family != "elementwise" or all(_is_total(x) for x in node.outputs))
        for node in graph.nodes
    )


def _is_total(value: Value) -> bool:
    return is_inexact(value.dtype) or value.dtype in BOOL  # integer division by 0 raises


def _nested(w: Any, index: Any, operands: Any, branches: tuple[Graph, ...]) -> Any:
    """ONNX's If for the first branch, with a nested one for the others."""
    first, *others = branches
    if not others:
        return tuple(w.inline(first, operands))
    one = w.constant(1, index.dtype)
    inner = w.within()
    rest = _nested(inner, inner.Sub(index, one), operands, tuple(others))
    return w.If(
        w.Less(index, one, dtype=bool),
        then_branch=w.branch(first, operands),
        else_branch=inner.graph("others", [], rest),
        dtypes=[v.dtype for v in w.results],
    )


_SHARED: dict[str, Any] = {
    "together": (1,),
    "infer": _infer,
    "vjp": _vjp,
    "jvp": _jvp,
    "batch": _batch,
    "cost": _cost,
    "split": Missing("a branch needs its whole operands"),
}


# The ops ------------------------------------------------------------------------------------------


@control_op(
    name="cond",
    dtypes=(BOOL, ANY),
    saves="pred operands",
    onnx=lambda w, pred, *operands, true_graph, false_graph: w.If(
        pred,
        then_branch=w.branch(true_graph, operands),
        else_branch=w.branch(false_graph, operands),
        dtypes=[v.dtype for v in w.results],
    ),
    **_SHARED,
)
def _cond(xp: Any, pred: Any, /, *operands: Any, true_graph: Graph, false_graph: Graph) -> Any:
    """The results of one of two graphs.

    ``pred`` is a 0-d bool tensor; ``true_graph`` and ``false_graph`` are graphs of the
    ``operands`` with results of the same shapes and dtypes. Users call ``ef.cond``. Raises
    ShapeError and DTypeError for operands that do not match the inputs of the graphs.
    """
    return fresh(run(true_graph if bool(pred) else false_graph, operands))


@control_op(
    name="switch",
    dtypes=(INTEGERS, ANY),
    saves="index operands",
    onnx=lambda w, index, *operands, branches: _nested(w, w.computable(index), operands, branches),
    **_SHARED,
)
def _switch(xp: Any, index: Any, /, *operands: Any, branches: Graphs) -> Any:
    """The results of one of several graphs.

    ``index`` is a 0-d integer tensor, clamped to the range; ``branches`` is a tuple of
    graphs of the ``operands`` with results of the same shapes and dtypes. Users call
    ``ef.switch``. Raises ShapeError and DTypeError for operands that do not match the graphs.
    """
    return fresh(run(branches[_within(index, len(branches))], operands))


COND, SWITCH = op_of(_cond), op_of(_switch)


def _within(index: Any, count: int) -> int:
    return min(max(int(index), 0), count - 1)


# For users ----------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
    """``true_fn(*operands)`` or ``false_fn(*operands)``, depending on ``pred``.

    ``pred`` is a bool or a 0-d bool tensor, ``operands`` are tensors or nests of them. The
    functions may use other values and Variables from their enclosing scope, and may
    assign Variables. Eagerly only one of them runs; in captured code, under a tape, in ``vmap``
    and in ``jvp`` both become graphs, and must return the same structure, shapes and dtypes.
    Gradients pass through the branch taken. Raises DTypeError and ShapeError for an invalid
    ``pred``, and CaptureError, ShapeError or DTypeError where the branches differ.

    >>> ef.cond(True, lambda x: x * 2.0, lambda x: -x, ef.tensor(3.0))
    Tensor(6., float32, cpu:0)
    """
    flag = scalar(pred, "cond", "pred", "bool")
    functions = {"true_fn": true_fn, "false_fn": false_fn}
    return _choose(
        "cond",
        flag,
        functions,
        operands,
        lambda: int(not bool(flag)),
        lambda given, graphs: call(COND, flag, *given, true_graph=graphs[0], false_graph=graphs[1]),
    )


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """``branches[index](*operands)``; an index out of range selects the first or last branch.

    ``index`` is an integer or a 0-d integer tensor, ``branches`` a list or tuple of
    functions; everything else is as for ``cond``. Raises DTypeError without branches or for an
    invalid ``index``, and the errors of ``cond`` where the branches differ.

    >>> double, negate = lambda x: x * 2.0, lambda x: -x
    >>> ef.switch(7, [double, negate], ef.tensor(3.0))
    Tensor(-3., float32, cpu:0)
    """
    at = scalar(index, "switch", "index", "integer")
    if not isinstance(branches, list | tuple) or not branches:
        raise DTypeError(
            "there are no branches",
            op="switch",
            argument="branches",
            received=summary(branches),
            expected="a list of at least one function",
        )
    functions = {f"branches[{i}]": f for i, f in enumerate(branches)}
    return _choose(
        "switch",
        at,
        functions,
        operands,
        lambda: _within(at, len(branches)),
        lambda given, graphs: call(SWITCH, at, *given, branches=graphs),
    )


def _choose(
    op: str,
    chooser: Tensor,
    functions: dict[str, Any],
    operands: tuple[Any, ...],
    chosen: Callable[[], int],
    again: Callable[[list[Tensor], Graphs], Any],
) -> Any:
    """One of several functions: called directly without recorders, else traced with the others."""
    takes = ", ".join(f"operands[{i}]" for i in range(len(operands)))
    for name, f in functions.items():
        callable_of(f, op, name, takes, len(operands))
    given = Form(opened(operands), op, "operands")
    if runs_plainly():
        own = own_recorder((chooser, *given.tensors))
        if own is not None:
            return secluded(own, _choose, op, chooser, functions, operands, chosen, again)
        name, f = list(functions.items())[chosen()]
        return all_or_nothing(_one, f, given, op, f"the result of {name}")
    results = Results(op, f"that of {next(iter(functions))}")
    traced = []
    for name, f in functions.items():
        finish = partial(results.take, what=f"the result of {name}", at=place_of(f))
        traced.append(Traced(f, f"{op}_{name}", given.labels, given.tensors, given.nest, finish))
    form = results.form
    outside = Outside(*traced)
    graphs = tuple(t.body(outside) for t in traced)
    count = len(form.tensors)
    if not graphs[0].outputs:
        return form.nest([])
    outs = again([*given.tensors, *outside.state, *outside.captured], graphs)
    assign(outside.assigned, outs[count:])
    return form.nest(outs[:count])


def _one(f: Any, given: Form, op: str, what: str) -> Any:
    """The result of a branch, as tensors."""
    result = Form(opened(f(*given.nest(given.tensors))), op, what, place_of(f))
    return result.nest(result.tensors)
