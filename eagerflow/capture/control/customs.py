"""Custom gradients in graphs: a node that states how gradients pass.

The computation of a function with a custom gradient is traced like everything else, and followed
by the op ``custom_gradient``: it takes the function's arguments, its results, and other operands
of the backward pass, and returns the results unchanged. Its attribute ``backward`` is a graph of
all operands and of the results' gradients; it returns gradients by the arguments for which
``reached``, a tuple of bools, is True. ``arguments`` and ``results`` are counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.capture.control.bodies import (
    Body,
    Inner,
    as_graph,
    call,
    control_op,
    for_each,
    fresh,
    replay,
    results_of,
)
from eagerflow.capture.control.derived import batched, home
from eagerflow.capture.trace import Trace
from eagerflow.display import summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import DTypeError, EagerflowError, GradientError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.handlers import raised_here
from eagerflow.op import Cost, Missing
from eagerflow.ops.family import ANY, op_of
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor


def customized(
    self: Trace, name: str, args: tuple[Any, ...], results: tuple[Tensor, ...], rule: Any
) -> tuple[Tensor, ...]:
    """The results of a traced function, followed by a node that holds its gradient as a graph.

    A rule that cannot be traced is an error only when that gradient is requested.
    """
    if getattr(rule, "takes_none", False):  # the gradient of a called graph: already known
        return results
    tensors = [x for x in args if isinstance(x, Tensor)]
    if not tensors or not any(is_inexact(x.dtype) for x in results):
        return results
    backward, reached, around, reason = _traced_rule(rule, results, args, name)
    outs: tuple[Tensor, ...] = CUSTOM.call(
        *tensors,
        *results,
        *around,
        backward=backward,
        reached=reached,
        arguments=len(tensors),
        results=len(results),
        reason=reason,
    )
    return outs


def _traced_rule(
    rule: Callable[[Any], Any],
    results: Sequence[Tensor],
    args: tuple[Any, ...],
    name: str,
) -> tuple[Graph | None, tuple[bool, ...], list[Tensor], str | None]:
    """A backward rule as a graph, the arguments it gives gradients by, and its operands."""
    recorder = Inner(f"{name}_gradient", lifts=True)
    gs = []
    for i, y in enumerate(results):
        value = Value(recorder.unique(f"gradient_{i}"), tuple(y.shape), y.dtype, recorder)
        gs.append(recorder.symbol(value, y.device))
    tensors = [x for x in args if isinstance(x, Tensor)]
    given = [recorder.value_of(x) for x in (*tensors, *results)]
    nothing = (False,) * len(tensors)
    try:
        with recorder:
            parts = zip(rule(gs), args, strict=True)
            found = [p for p, x in parts if isinstance(x, Tensor)]
    except raised_here(Exception) as error:  # any error of user code
        words = error.problem if isinstance(error, EagerflowError) else str(error)
        return None, nothing, [], f"{type(error).__name__}: {words}"
    outs = [p for p in found if p is not None]
    graph = recorder.finish(Values([g._array for g in gs]), tuple(outs))
    own = set(given)
    around = [(t, v) for t, v in recorder.captured.values() if v not in own]
    around += [(cell.variable.value, cell.value) for cell in graph.cells]
    entries = list(dict.fromkeys(given))
    if len(entries) < len(given):  # a result is an argument, or given twice
        seen: set[Value] = set()
        for i, value in enumerate(given):
            if value in seen:
                given[i] = Value(recorder.unique("same"), value.shape, value.dtype)
            seen.add(value)
    inputs = [*given, *(v for _, v in around), *graph.inputs]
    body = Body(recorder.name, inputs, graph.nodes, graph.outputs)
    recorder.captured.clear()
    recorder.cells.clear()
    return body, tuple(p is not None for p in found), [t for t, _ in around], None


# The op -------------------------------------------------------------------------------------------


def _spec(
    *operands: Any, backward: Any, reached: Any, arguments: Any, results: Any, reason: Any = None
) -> tuple[TensorSpec, ...]:
    ys = operands[arguments : arguments + results] if _counts(operands, arguments, results) else ()
    if backward is not None:
        graph = as_graph(backward, "backward")
        found = results_of(
            graph, [*operands, *ys], lambda i: f"operands[{min(i, len(operands) - 1)}]"
        )
        wanted = (
            [x for x, has in zip(operands[:arguments], reached, strict=True) if has]
            if isinstance(reached, tuple) and len(reached) == arguments
            else None
        )
        if wanted is None or [(s.shape, s.dtype) for s in found] != [
            (x.shape, x.dtype) for x in wanted
        ]:
            raise ShapeError(
                "the gradients are not those of the arguments that are reached",
                argument="reached",
                received=", ".join([summary(x) for x in found]) or "nothing",
                expected=", ".join([summary(x) for x in wanted or operands[:arguments]]),
            )
    return tuple(TensorSpec(y.shape, y.dtype, None, y.device) for y in ys)


def _counts(operands: Any, arguments: Any, results: Any) -> bool:
    for value, name in ((arguments, "arguments"), (results, "results")):
        if type(value) is not int or not 0 <= value <= len(operands):
            raise DTypeError(
                f"{value!r} is not a number of operands",
                argument=name,
                received=summary(value),
                expected=f"an integer from 0 to {len(operands)}",
            )
    if arguments + results > len(operands):
        raise ShapeError(
            f"there are {len(operands)} operands",
            argument="results",
            received=f"{arguments} arguments and {results} results",
            expected=f"no more than {len(operands)} in all",
        )
    return True


def _vjp(
    g: Any, y: Any, *operands: Any, backward: Graph | None, reached: Any, reason: Any, **_: Any
) -> tuple[Any, ...]:
    if backward is None:
        raise GradientError(
            "the gradient that was given to it cannot be captured",
            op="custom_gradient",
            argument="backward",
            received=reason,
            expected="a rule written with ops",
            hint="ef ops in place of NumPy and Python in the rule of ef.custom_gradient",
        )
    found = iter(replay(backward, [*operands, *g]))
    parts = [next(found) if has else None for has in reached]
    return (*parts, *(None,) * (len(operands) - len(parts)))


_vjp.stated = "its gradient is given by its graph"  # type: ignore[attr-defined]


def _batch(
    args: Any,
    flags: Any,
    size: Any,
    backward: Graph | None,
    arguments: int,
    results: int,
    **more: Any,
) -> tuple[list[Tensor], list[bool]]:
    """The node of a batch: each example has arguments and results of its own."""
    count = arguments + results
    whole = [
        for_each(x, flag, i < count, size)
        for i, (x, flag) in enumerate(zip(args, flags, strict=True))
    ]
    if backward is not None:
        now = (*(True,) * count, *flags[count:], *(True,) * results)
        every = (True,) * len(backward.outputs)
        backward = batched(backward, now, every, size, home(args))[0]
    outs = call(CUSTOM, *whole, backward=backward, arguments=arguments, results=results, **more)
    return list(outs), [True] * results


@control_op(
    name="custom_gradient",
    dtypes=ANY,
    saves="operands",
    infer=_spec,
    vjp=_vjp,
    batch=_batch,
    cost=lambda *operands, **facts: Cost(0, 0),
    split=Missing("its gradient may need whole operands"),
    onnx=lambda w, *operands, arguments, results, **_: operands[arguments : arguments + results],
)
def _custom_gradient(
    xp: Any,
    /,
    *operands: Any,
    backward: Graph | None,
    reached: tuple[bool, ...],
    arguments: int,
    results: int,
    reason: str | None = None,
) -> Any:
    """The identity, with a gradient given by a graph.

    ``operands`` are the ``arguments`` of a function, its ``results``, and further inputs of
    ``backward``, a graph of them and of the results' gradients that gives the gradients by the
    arguments marked in ``reached``. Made of ``ef.custom_gradient`` in captured code. Raises
    ShapeError and DTypeError for operands that do not match the graph.
    """
    ys = operands[arguments : arguments + results]
    return fresh(ys) if all(type(y) is Tensor for y in ys) else tuple(ys)


CUSTOM = op_of(_custom_gradient)
Trace.customized = customized  # type: ignore[method-assign,assignment]
