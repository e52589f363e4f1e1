"""while_loop and fori_loop: a body again and again, while a condition holds or a number of times.

The op ``while_loop`` takes the state and captured values as its operands. Its attributes ``cond``
and ``body`` are graphs of all operands: one gives a bool without axes, the other the new state;
``states`` is the size of the state, and ``maximum_iterations`` an upper bound or None. It gives
the last state. ``fori_loop`` is a ``scan``, or a ``while_loop`` if its bounds are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.capture.control.bodies import (
    Body,
    as_graph,
    call,
    control_op,
    cost_of,
    for_each,
    fresh,
    made_once,
    replay,
    results_of,
    run,
    unused,
    with_inputs,
)
from eagerflow.capture.control.branches import COND
from eagerflow.capture.control.derived import (
    Writing,
    batched,
    by_example,
    home,
    interleaved,
    moved,
    of_active,
)
from eagerflow.capture.control.functions import (
    Outside,
    Traced,
    all_or_nothing,
    assign,
    runs_plainly,
)
from eagerflow.capture.control.nests import Form, callable_of, place_of, scalar
from eagerflow.capture.control.scans import count_of, grown, over, same_carries, scan_vjp
from eagerflow.convert import as_tensor
from eagerflow.devices import Device
from eagerflow.dims import Dim
from eagerflow.dispatch import own_recorder
from eagerflow.display import summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import DTypeError, EagerflowError, GradientError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.masks import opened
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import Size
from eagerflow.ops.elementwise.arithmetic import add
from eagerflow.ops.elementwise.comparison import less, logical_and
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import ANY, op_of
from eagerflow.ops.reductions.sums import any as any_of
from eagerflow.recorder import with_recorder
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.visitors import secluded

# Rules --------------------------------------------------------------------------------------------


def _spec(
    *operands: Any, cond: Any, body: Any, states: Any, maximum_iterations: Any = None
) -> tuple[TensorSpec, ...]:
    test, step = as_graph(cond, "cond"), as_graph(body, "body")
    if maximum_iterations is not None:
        count_of(maximum_iterations, "maximum_iterations")
    flag = results_of(test, operands, lambda i: f"operands[{i}]")
    if [(s.shape, s.dtype.kind) for s in flag] != [((), "b")]:
        raise DTypeError(
            "its result is not a single bool without axes",
            argument="cond",
            received=", ".join([summary(x) for x in flag]) or "nothing",
            expected="bool()",
        )
    outs = results_of(step, operands, lambda i: f"operands[{i}]")
    if count_of(states, "states") is not len(outs) and states != len(outs):
        same_carries(step, step.outputs, len(operands), "state")
        raise ShapeError(
            f"the body gives {len(outs)} values",
            argument="states",
            received=str(states),
            expected=str(len(outs)),
        )
    same_carries(step, step.outputs, states, "state")
    return tuple(outs)


def _cost(*operands: Any, cond: Graph, body: Graph, states: int, maximum_iterations: Any) -> Cost:
    """The cost of all possible iterations; of one if their number is not known."""
    often = 1 if maximum_iterations is None else maximum_iterations
    test, step = cost_of(cond, operands), cost_of(body, operands)
    return Cost((test.flops + step.flops) * often, (test.bytes + step.bytes) * often)


@made_once
def _bounded(body: Graph, cond: Graph, states: int, device: Device | None) -> Body:
    """The body of a scan that runs a loop, and does nothing once the loop has ended."""
    writing = Writing(body.name, device)
    with writing.trace:
        going = writing.new((), "bool", "going")
        given = writing.inputs(body.inputs)
        goes = logical_and(going, replay(cond, given)[0])
        stay = unused(body, body.inputs)
        last = Body("stay", stay, [], stay[:states])
        after = call(COND, goes, *given, true_graph=body, false_graph=last)
    return writing.body([going, *given], [goes, *after])


def _vjp(
    g: Any, y: Any, *operands: Any, cond: Graph, body: Graph, states: int, maximum_iterations: Any
) -> tuple[Any, ...]:
    if maximum_iterations is None:
        raise GradientError(
            "the gradient needs to know how often the body may run",
            op="while_loop",
            argument="maximum_iterations",
            received="maximum_iterations=None",
            expected="an upper bound, since the values of each iteration are kept",
            hint="ef.while_loop(cond, body, init, maximum_iterations=n), or ef.fori_loop with "
            "bounds that are Python integers, or ef.scan; ef.jvp works without",
        )
    if all(type(x._array) is x._kind.array_type for x in operands):
        # Where values are known, the iteration count is too; further steps would only add zeros.
        _, maximum_iterations = with_recorder(
            None, _iterated, cond, body, operands, states, maximum_iterations
        )
    whole = _bounded(body, cond, states, home(operands))
    going = as_tensor(True, device=operands[0].device)
    parts = scan_vjp(
        (going, *g),
        y,
        going,
        *operands,
        body=whole,
        carries=1 + states,
        sequences=0,
        length=maximum_iterations,
        reverse=False,
    )
    return parts[1:]


def _jvp(
    tangents: Any, y: Any, *operands: Any, cond: Graph, body: Graph, states: int, **more: Any
) -> tuple[Any, ...]:
    state = [is_inexact(x.dtype) for x in operands[:states]]
    moving = (*state, *(t is not None for t in tangents[states:]))
    t = moved(body, moving, tuple(state), home(operands))
    inputs, given, _ = interleaved(t, operands, tangents, (states, len(operands)))
    asked = dict(zip(t.inputs, cond.inputs, strict=True))
    spare = iter(unused(cond, [v for v in t.moved if v is not None]))
    pushed = [v for v in t.pushed if v is not None]
    outs = call(
        WHILE,
        *given,
        cond=with_inputs(cond, [asked[v] if v in asked else next(spare) for v in inputs]),
        body=Body(t.name, inputs, t.nodes, [*t.outputs, *pushed]),
        states=states + len(pushed),
        **more,
    )
    found = iter(outs[states:])
    return tuple(None if v is None else next(found) for v in t.pushed)


def _batch(
    args: Any, flags: Any, size: Any, cond: Graph, body: Graph, states: int, **more: Any
) -> tuple[list[Tensor], list[bool]]:
    """One loop for all examples, run until all have ended; finished ones keep their state."""
    device = home(args)

    def depends(now: tuple[bool, ...]) -> Sequence[bool]:
        test = batched(cond, now, (False,), size, device)[1]
        if test[0]:  # each example ends by itself, so all of its state is its own
            return (True,) * states
        return batched(body, now, now[:states], size, device)[1]

    found = tuple(grown(flags, states, depends))
    given = [for_each(x, a, b, size) for x, a, b in zip(args, flags, found, strict=True)]
    test, own = batched(cond, found, (False,), size, device)
    step = batched(body, found, found[:states], size, device)[0]
    if not own[0]:
        outs = call(WHILE, *given, cond=test, body=step, states=states, **more)
        return list(outs), list(found[:states])
    going = replay(test, given)[0]
    some, each = _masked(step, test, states, found, size, device)
    outs = call(WHILE, going, *given, cond=some, body=each, states=1 + states, **more)
    return list(outs[1:]), list(found[:states])


@made_once
def _masked(
    step: Graph,
    test: Graph,
    states: int,
    flags: tuple[bool, ...],
    size: Any,
    device: Device | None,
) -> tuple[Body, Body]:
    """Condition and body of a batched loop; the first state is a mask of active examples."""
    asking = Writing(test.name, device)
    with asking.trace:
        going = asking.new((size,), "bool", "going")
        some = asking.body([going, *asking.inputs(test.inputs)], [any_of(going)])
    writing = Writing(step.name, device)
    with writing.trace:
        going = writing.new((size,), "bool", "going")
        given = writing.inputs(step.inputs)
        made = replay(step, of_active(going, given, flags, size))
        after = [where(by_example(going, x), new, x) for new, x in zip(made, given, strict=False)]
        goes = logical_and(going, replay(test, [*after, *given[states:]])[0])
    return some, writing.body([going, *given], [goes, *after])


# The op -------------------------------------------------------------------------------------------


def _loop_operator(
    w: Any, *operands: Any, cond: Graph, body: Graph, states: int, maximum_iterations: Any
) -> Any:
    most = None if maximum_iterations is None else w.constant(maximum_iterations, "int64")
    (begins,) = w.inline(cond, operands)
    inner, rest = w.within(), operands[states:]
    count, going = inner.new("iteration", "int64", ()), inner.new("going", "bool", ())
    state = inner.inputs(body.inputs[:states])
    after = inner.inline(body, (*state, *rest))
    goes = inner.inline(cond, (*after, *rest))
    graph = inner.graph(body.name, [count, going, *state], [*goes, *after])
    return w.Loop(most, begins, *operands[:states], body=graph, dtypes=[v.dtype for v in w.results])


@control_op(
    name="while_loop",
    dtypes=ANY,
    saves="operands",
    infer=_spec,
    vjp=_vjp,
    jvp=_jvp,
    batch=_batch,
    cost=_cost,
    split=Missing("each iteration needs the one before"),
    onnx=_loop_operator,
)
def _while_loop(
    xp: Any,
    /,
    *operands: Any,
    cond: Graph,
    body: Graph,
    states: int,
    maximum_iterations: Size = None,
) -> Any:
    """A graph run repeatedly on its own results, while a condition graph gives True.

    ``operands`` are the state and captured values; ``cond`` and ``body`` are graphs of them all,
    which give a bool and the new state. ``states`` is the number of tensors in the state. Users
    call ``ef.while_loop``. Raises ShapeError and DTypeError for operands that do not fit.
    """
    return fresh(_iterated(cond, body, operands, states, maximum_iterations)[0])


def _iterated(
    cond: Graph, body: Graph, operands: Sequence[Tensor], states: int, most: Any
) -> tuple[list[Tensor], int]:
    """The last state, and the number of iterations."""
    state, rest = list(operands[:states]), operands[states:]
    count = 0
    while (most is None or count < most) and bool(run(cond, (*state, *rest))[0]):
        state = run(body, (*state, *rest))
        count += 1
    return state, count


WHILE = op_of(_while_loop)


# For users ----------------------------------------------------------------------------------------


def while_loop(cond: Any, body: Any, init: Any, maximum_iterations: Any = None) -> Any:
    """The first of ``init``, ``body(init)``, ``body(body(init))`` ... for which ``cond`` is false.

    ``init`` is a tensor or a nest of them. ``cond`` and ``body`` get the whole nest as one
    argument; ``cond`` returns a bool or a bool tensor without axes, ``body`` a nest of the same
    structure, shapes and dtypes, where Python numbers take on the dtype wanted. Both may use
    and assign values and Variables from their enclosing scope.
    ``maximum_iterations`` is an upper bound, required by gradients, which keep the values of each
    iteration; in captured code they cost as much as that many. ``jvp`` needs no bound.

    Eagerly the functions are called each time; in captured code, under a tape, in ``vmap`` and
    in ``jvp`` they become graphs once. Raises CaptureError, ShapeError or DTypeError with the
    leaf and the line of ``body`` where the state changes its form, DTypeError or ShapeError for
    a result that is no bool, and GradientError for a gradient without a bound.

    >>> ef.while_loop(lambda n: n < 100, lambda n: n * 3, ef.tensor(1))
    Tensor(243, int64, cpu:0)
    """
    callable_of(cond, "while_loop", "cond", "state", 1)
    callable_of(body, "while_loop", "body", "state", 1)
    if maximum_iterations is not None:
        _checked(lambda: count_of(maximum_iterations, "maximum_iterations"), "while_loop")
    at, place = place_of(cond), place_of(body)
    form = Form(opened(init), "while_loop", "init")

    def test(result: Any) -> list[Tensor]:
        return [scalar(result, "while_loop", "the result of cond", "bool", at)]

    def step(result: Any) -> list[Tensor]:
        return form.match(result, "the state", place)

    if runs_plainly():
        own = own_recorder(form.tensors)
        if own is not None:
            return secluded(own, while_loop, cond, body, init, maximum_iterations)
        return form.nest(all_or_nothing(_plainly, cond, body, form, test, step, maximum_iterations))
    n = len(form.tensors)
    given = form.labels, form.tensors, lambda symbols: (form.nest(symbols[:n]),)
    asking = Traced(cond, "while_loop_cond", *given, test)
    if asking.assigned:
        # An assignment in the condition is part of an iteration as well.
        return while_loop(
            lambda pair: pair[0],
            lambda pair: (lambda state: (cond(state), state))(form.nest(step(body(pair[1])))),
            (test(cond(form.nest(form.tensors)))[0], form.nest(form.tensors)),
            maximum_iterations,
        )[1]
    doing = Traced(body, "while_loop_body", *given, step)
    outside = Outside(doing, asking)
    if not doing.outputs and not outside.assigned:
        raise ShapeError(
            "the loop has no state, so nothing could end it",
            op="while_loop",
            argument="init",
            received=summary(init),
            expected="at least one tensor",
        )
    outs = call(
        WHILE,
        *form.tensors,
        *outside.state,
        *outside.captured,
        cond=asking.body(outside, assigns=False),
        body=doing.body(outside),
        states=n + len(outside.assigned),
        maximum_iterations=maximum_iterations,
    )
    assign(outside.assigned, outs[n:])
    return form.nest(outs[:n])


def _plainly(
    cond: Any,
    body: Any,
    form: Form,
    test: Callable[[Any], list[Tensor]],
    step: Callable[[Any], list[Tensor]],
    most: int | None,
) -> Sequence[Tensor]:
    """The last state, by calling the functions themselves."""
    state: Sequence[Tensor] = form.tensors
    count = 0
    while (most is None or count < most) and bool(test(cond(form.nest(state)))[0]):
        state = step(body(form.nest(state)))
        count += 1
    return state


def _checked(check: Callable[[], Any], op: str) -> Any:
    try:
        return check()
    except EagerflowError as error:
        error.op = op
        raise


def fori_loop(lo: Any, hi: Any, body: Any, init: Any) -> Any:
    """The state after ``state = body(i, state)`` for ``i`` from ``lo`` to below ``hi``.

    ``lo`` and ``hi`` are integers, integer tensors without axes, or symbolic sizes; ``init`` is a
    tensor or a nest of them, and ``i`` an int64 tensor. All else is as for ``while_loop``, with
    its errors. Gradients need bounds that are known while capturing.

    >>> ef.fori_loop(1, 5, lambda i, product: product * i, ef.tensor(1))
    Tensor(24, int64, cpu:0)
    """
    callable_of(body, "fori_loop", "body", "i, state", 2)
    form = Form(opened(init), "fori_loop", "init")
    place = place_of(body)
    start, stop = _bound(lo, "lo"), _bound(hi, "hi")

    def step(i: Any, state: Any) -> Any:
        return form.nest(form.match(body(i, state), "the state", place))

    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        first, last = as_tensor(start, "int64"), as_tensor(stop, "int64")
        return while_loop(
            lambda pair: less(pair[0], last),
            lambda pair: (add(pair[0], 1), step(pair[0], pair[1])),
            (first, form.nest(form.tensors)),
        )[1]
    length = stop - start
    if isinstance(length, int):
        length = max(length, 0)
    first = as_tensor(start, "int64")
    return over(
        "fori_loop",
        lambda pair, _: ((add(pair[0], 1), step(*pair)), None),
        body,
        (first, form.nest(form.tensors)),
        None,
        length,
        False,
    )[0][1]


def _bound(value: Any, name: str) -> Any:
    """A bound as a number or a symbolic size, or as a tensor if its value is not known."""
    if isinstance(value, Dim):
        return value
    tensor = scalar(value, "fori_loop", name, "integer")
    known = type(tensor._array) is tensor._kind.array_type
    return int(tensor) if known else tensor
