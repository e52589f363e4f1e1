"""cond and switch: one of several branches, chosen by a value.

The op ``cond`` takes ``pred`` and the operands; its attributes ``true_graph`` and ``false_graph``
are graphs from the operands to the results. ``switch`` takes ``index`` and the operands; its
attribute ``branches`` is a tuple of such graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.capture.control.bodies import (
    BATCHED,
    Body,
    as_graph,
    call,
    cost_of,
    fresh,
    replay,
    results_of,
    run,
)
from eagerflow.capture.control.derived import batched, gradients, home, moved, wanted
from eagerflow.capture.control.functions import (
    Outside,
    Traced,
    all_or_nothing,
    assign,
    runs_plainly,
)
from eagerflow.capture.control.nests import Form, callable_of, place_of, scalar
from eagerflow.capture.control.samples import ANY, branch_errors, branch_samples, reference_run
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, is_inexact
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.op import Cost, Missing
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.selection import clip, where
from eagerflow.ops.family import define, op_of
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

Graphs = tuple[Graph, ...]
Again = Callable[..., Any]
"""Calls the op once more: ``again(chooser, operands, graphs)``."""


# Rules that both ops share ------------------------------------------------------------------------


def _check_chooser(spec: Any, name: str, dtypes: Any, kind: str) -> None:
    if spec.dtype not in dtypes:
        raise DTypeError(
            f"it is no {kind}", argument=name, received=summary(spec), expected=f"one {kind}"
        )
    if spec.shape != ():
        raise ShapeError(
            "it has axes",
            argument=name,
            received=summary(spec),
            expected=f"one {kind}",
            hint="ef.vmap for many of them",
        )


def _infer(graphs: Graphs, names: Sequence[str], operands: Any) -> tuple[TensorSpec, ...]:
    found = [
        results_of(as_graph(graph, name), operands, lambda i: f"operands[{i}]")
        for graph, name in zip(graphs, names, strict=True)
    ]
    for graph, name, own in zip(graphs, names, found, strict=True):
        if own != found[0]:
            raise ShapeError(
                f"{name} and {names[0]} give different results",
                argument=name,
                received=", ".join(map(summary, graph.outputs)),
                expected=", ".join(map(summary, graphs[0].outputs)),
            )
    return tuple(found[0])


def _cost(graphs: Graphs, operands: Any) -> Cost:
    """That of the dearest branch."""
    costs = [cost_of(graph, operands) for graph in graphs]
    known = [c for c in costs if all(isinstance(part, int) for part in c)]
    return max(known, default=costs[0])


def _vjp(again: Again, g: Any, graphs: Graphs, chooser: Any, operands: Any) -> tuple[Any, ...]:
    """The op once more, over the gradients of its branches."""
    needed = tuple(map(wanted, operands))
    nothing = (False,) * len(operands)
    device = home(operands)
    reached = [gradients(graph, needed, nothing, device)[1] for graph in graphs]
    forced = tuple(map(any, zip(*reached, strict=True)))
    if not any(forced):
        return (None,) * (1 + len(operands))
    back = tuple(gradients(graph, needed, forced, device)[0] for graph in graphs)
    gs = [part for part in g if is_inexact(part.dtype)]
    found = iter(again(chooser, (*operands, *gs), back))
    return (None, *(next(found) if has else None for has in forced))


def _jvp(again: Again, tangents: Any, graphs: Graphs, chooser: Any, operands: Any) -> Any:
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
    found = iter(
        again(chooser, (*operands, *(t for t in tangents[1:] if t is not None)), tuple(both))
    )
    return tuple(next(found) if has else None for has in forced)


def _batch(
    again: Again, choose: Callable[..., Any], args: Any, flags: Any, size: Any, graphs: Graphs
) -> tuple[list[Tensor], list[bool]]:
    """All examples take the branch; where they choose for themselves, all branches are run."""
    chooser, operands = args[0], args[1:]
    device = home(operands) or home(args)
    nothing = (False,) * len(graphs[0].outputs)
    found = [batched(graph, flags[1:], nothing, size, device)[1] for graph in graphs]
    forced = tuple(map(any, zip(*found, strict=True)))
    whole = (True,) * len(forced)
    if not flags[0]:
        bodies = tuple(batched(graph, flags[1:], forced, size, device)[0] for graph in graphs)
        return list(again(chooser, operands, bodies)), list(forced)
    columns = [
        replay(batched(graph, flags[1:], whole, size, device)[0], operands) for graph in graphs
    ]
    rank = [len(v.shape) for v in graphs[0].outputs]
    outs = [
        choose(lambda test, n=n: reshape(test, (size, *(1,) * n)), chooser, parts)
        for n, parts in zip(rank, zip(*columns, strict=True), strict=True)
    ]
    return outs, list(whole)


def joined(found: tuple[list[Tensor], list[bool]], size: Any) -> tuple[Tensor, ...]:
    """All results with an axis of examples, which some have."""
    return tuple(
        y if flag else broadcast_to(y, (size, *y.shape)) for y, flag in zip(*found, strict=True)
    )


def _where(test: Callable[[Any], Any], pred: Any, parts: Any) -> Tensor:
    false, true = parts
    return where(test(pred), true, false)  # type: ignore[no-any-return]


def _case(test: Callable[[Any], Any], index: Any, parts: Any) -> Tensor:
    at = clip(index, 0, len(parts) - 1)
    chosen = parts[0]
    for i, part in enumerate(parts[1:], 1):
        chosen = where(test(equal(at, i)), part, chosen)
    return chosen  # type: ignore[no-any-return]


# cond ---------------------------------------------------------------------------------------------


def _cond_again(pred: Any, operands: Any, graphs: Graphs) -> Any:
    return call(COND, pred, *operands, true_graph=graphs[1], false_graph=graphs[0])


def _cond_spec(pred: Any, *operands: Any, true_graph: Any, false_graph: Any) -> Any:
    _check_chooser(pred, "pred", BOOL, "bool")
    return _infer((true_graph, false_graph), ("true_graph", "false_graph"), operands)


def _cond_batch(args: Any, flags: Any, size: Any, true_graph: Graph, false_graph: Graph) -> Any:
    return _batch(_cond_again, _where, args, flags, size, (false_graph, true_graph))


def _cond_reference(pred: Any, *operands: Any, true_graph: Graph, false_graph: Graph) -> Any:
    return tuple(reference_run((false_graph, true_graph)[int(pred)], operands))


@define(
    "control",
    name="cond",
    on_tensors=True,
    outputs=0,  # as many as the branches give
    dtypes=(BOOL, ANY),
    together=(1,),
    saves="pred operands",
    infer=_cond_spec,
    vjp=lambda g, y, pred, *operands, true_graph, false_graph: _vjp(
        _cond_again, g, (false_graph, true_graph), pred, operands
    ),
    jvp=lambda tangents, y, pred, *operands, true_graph, false_graph: _jvp(
        _cond_again, tangents, (false_graph, true_graph), pred, operands
    ),
    batch=lambda args, flags, size, **graphs: joined(
        _cond_batch(args, flags, size, **graphs), size
    ),
    cost=lambda pred, *operands, true_graph, false_graph: _cost(
        (true_graph, false_graph), operands
    ),
    split=Missing("a branch needs its whole operands"),
    onnx=Missing("exported as If with the graphs of its branches"),
    samples=branch_samples("cond"),
    errors=branch_errors("cond"),
    reference=_cond_reference,
)
def _cond(xp: Any, pred: Any, /, *operands: Any, true_graph: Graph, false_graph: Graph) -> Any:
    """The results of one of two graphs.

    ``pred`` is a bool tensor without axes; ``true_graph`` and ``false_graph`` are graphs of the
    ``operands`` with results of the same shapes and dtypes. Users call ``ef.cond``. Raises
    ShapeError and DTypeError for operands that are not what the graphs take.
    """
    return fresh(run(true_graph if bool(pred) else false_graph, operands))


COND = op_of(_cond)
BATCHED["cond"] = _cond_batch


# switch -------------------------------------------------------------------------------------------


def _switch_again(index: Any, operands: Any, graphs: Graphs) -> Any:
    return call(SWITCH, index, *operands, branches=graphs)


def _switch_spec(index: Any, *operands: Any, branches: Any) -> Any:
    _check_chooser(index, "index", INTEGERS, "integer")
    if not isinstance(branches, tuple) or not branches:
        raise DTypeError(
            "there are no branches",
            argument="branches",
            received=summary(branches),
            expected="a tuple of at least one graph",
        )
    return _infer(branches, [f"branches[{i}]" for i in range(len(branches))], operands)


def _switch_batch(args: Any, flags: Any, size: Any, branches: Graphs) -> Any:
    return _batch(_switch_again, _case, args, flags, size, branches)


@define(
    "control",
    name="switch",
    on_tensors=True,
    outputs=0,  # as many as the branches give
    dtypes=(INTEGERS, ANY),
    together=(1,),
    saves="index operands",
    infer=_switch_spec,
    vjp=lambda g, y, index, *operands, branches: _vjp(_switch_again, g, branches, index, operands),
    jvp=lambda tangents, y, index, *operands, branches: _jvp(
        _switch_again, tangents, branches, index, operands
    ),
    batch=lambda args, flags, size, branches: joined(
        _switch_batch(args, flags, size, branches), size
    ),
    cost=lambda index, *operands, branches: _cost(branches, operands),
    split=Missing("a branch needs its whole operands"),
    onnx=Missing("exported as nested If"),
    samples=branch_samples("switch"),
    errors=branch_errors("switch"),
    reference=lambda index, *operands, branches: tuple(
        reference_run(branches[int(np.clip(int(index), 0, len(branches) - 1))], operands)
    ),
)
def _switch(xp: Any, index: Any, /, *operands: Any, branches: Graphs) -> Any:
    """The results of one of several graphs.

    ``index`` is an integer tensor without axes, brought into range; ``branches`` is a tuple of
    graphs of the ``operands`` with results of the same shapes and dtypes. Users call
    ``ef.switch``. Raises ShapeError and DTypeError for operands that the graphs do not take.
    """
    return fresh(run(branches[_within(index, len(branches))], operands))


SWITCH = op_of(_switch)
BATCHED["switch"] = _switch_batch


def _within(index: Any, count: int) -> int:
    return min(max(int(index), 0), count - 1)


# For users ----------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
    """``true_fn(*operands)`` or ``false_fn(*operands)``, as ``pred`` says.

    ``pred`` is a bool or a bool tensor without axes, ``operands`` are tensors or nests of them;
    what else the functions use, they take from around them, Variables included, and they may
    assign Variables. Eagerly only one of them runs; in captured code, under a tape, in ``vmap``
    and in ``jvp`` both become graphs, and must return the same structure, shapes and dtypes.
    Gradients pass through the branch taken. Raises DTypeError and ShapeError for another
    ``pred``, and CaptureError, ShapeError or DTypeError where the branches differ.

    >>> ef.cond(True, lambda x: x * 2.0, lambda x: -x, ef.tensor(3.0))
    Tensor(6., float32, cpu:0)
    """
    flag = scalar(pred, "cond", "pred", "bool")
    functions = {"true_fn": true_fn, "false_fn": false_fn}
    return _choose(
        "cond",
        functions,
        operands,
        lambda: int(not bool(flag)),
        lambda given, graphs: _cond_again(flag, given, graphs[::-1]),
    )


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """``branches[index](*operands)``; an index out of range means the first or last branch.

    ``index`` is an integer or an integer tensor without axes, ``branches`` a list or tuple of
    functions, and all else is as for ``cond``. Raises DTypeError without branches, for another
    ``index``, and the errors of ``cond`` where the branches differ.

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
        functions,
        operands,
        lambda: _within(at, len(branches)),
        lambda given, graphs: _switch_again(at, given, graphs),
    )


def _choose(
    op: str,
    functions: dict[str, Any],
    operands: tuple[Any, ...],
    chosen: Callable[[], int],
    again: Callable[[list[Tensor], Graphs], Any],
) -> Any:
    """One of several functions: called while nobody watches, else all of them as graphs."""
    takes = ", ".join(f"operands[{i}]" for i in range(len(operands)))
    for name, f in functions.items():
        callable_of(f, op, name, takes, len(operands))
    given = Form(operands, op, "operands")
    if runs_plainly():
        name, f = list(functions.items())[chosen()]
        return all_or_nothing(_one, f, given, op, f"the result of {name}")
    forms: list[Form] = []
    traced = []
    for name, f in functions.items():

        def finish(result: Any, name: str = name, f: Any = f) -> list[Tensor]:
            return _same_results(forms, result, op, name, f, functions)

        traced.append(Traced(f, f"{op}_{name}", given.labels, given.tensors, given.nest, finish))
    outside = Outside(*traced)
    graphs = tuple(t.body([*outside.assigned, *outside.others], outside.assigned) for t in traced)
    count = len(forms[0].tensors)
    if not graphs[0].outputs:
        return forms[0].nest([])
    outs = again([*given.tensors, *outside.state, *outside.captured], graphs)
    assign(outside.assigned, outs[count:])
    return forms[0].nest(outs[:count])


def _one(f: Any, given: Form, op: str, what: str) -> Any:
    """What a branch returns, as tensors."""
    result = Form(f(*given.nest(given.tensors)), op, what, place_of(f))
    return result.nest(result.tensors)


def _same_results(
    forms: list[Form], result: Any, op: str, name: str, f: Any, functions: dict[str, Any]
) -> list[Tensor]:
    """The tensors that a branch returns, which have to be like those of the first one."""
    if forms:
        first = next(iter(functions))
        return forms[0].match(
            result, f"the result of {name}", place_of(f), False, f"that of {first}"
        )
    forms.append(Form(result, op, f"the result of {name}", place_of(f)))
    return forms[0].take()
