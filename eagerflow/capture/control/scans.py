"""scan: a body over the rows of tensors, one after the other.

The op ``scan`` takes carries, sequences and captured values as its operands. Its attribute
``body`` is a graph from carries, one slice of each sequence and the captured values to carries
and ys; ``carries`` and ``sequences`` are counts; ``length`` is the number of steps, which may
be left out where there are sequences; ``reverse`` goes from the last row to the first; and
``compiled`` says that a tape records it, so that it is computed as a whole. It returns the
carries after the last step, and the ys of all steps along a first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.capture.control.bodies import (
    Body,
    as_graph,
    call,
    control_op,
    cost_of,
    fitted,
    for_each,
    fresh,
    results_of,
    run,
)
from eagerflow.capture.control.derived import (
    Halves,
    batched,
    halves,
    home,
    interleaved,
    moved,
    wanted,
)
from eagerflow.capture.control.functions import (
    Outside,
    Traced,
    all_or_nothing,
    assign,
    runs_plainly,
)
from eagerflow.capture.control.nests import Form, Results, callable_of, place_of
from eagerflow.devices import current_device
from eagerflow.dims import Dim
from eagerflow.dispatch import check, own_recorder
from eagerflow.display import summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import CaptureError, EagerflowError, ShapeError
from eagerflow.graph.cache import Slot
from eagerflow.graph.graph import Graph
from eagerflow.handlers import raised_here
from eagerflow.masks import opened
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import Size
from eagerflow.ops.creation.filled import zeros, zeros_like
from eagerflow.ops.family import ANY, op_of
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.reshaping import permute_dims
from eagerflow.plan import compiled_scans
from eagerflow.recorder import recorder_state
from eagerflow.spec import TensorSpec
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.visitors import secluded

_HALVES: Slot[Halves] = Slot()
"""By body with residuals: itself and the body of the backward scan."""


# Checks -------------------------------------------------------------------------------------------


def count_of(value: Any, name: str) -> Any:
    """A count of at least 0, possibly symbolic; ShapeError for anything else."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ShapeError(
            f"{value!r} is {'negative' if type(value) is int else 'not an integer'}",
            argument=name,
            received=summary(value),
            expected="an integer of at least 0",
        )
    return value


def _steps(xs: Sequence[Any], length: Any, argument: Callable[[int], str]) -> Any:
    """The number of steps; ShapeError where sequences and ``length`` do not agree on one."""
    for i, x in enumerate(xs):
        if not x.shape:
            raise ShapeError(
                "it has no axis to scan over",
                argument=argument(i),
                received=summary(x),
                expected="tensors with a first axis",
            )
        if length is None:
            length = x.shape[0]
        if x.shape[0] != length:
            raise ShapeError(
                f"its length is {x.shape[0]}, and that of the scan {length}",
                argument=argument(i),
                received=", ".join([summary(x) for x in xs]),
                expected=f"a first axis of {length}, like the first of them or length",
            )
    if length is None:
        raise ShapeError(
            "without sequences the length is needed",
            argument="length",
            expected="length=n, or tensors to scan over",
        )
    return count_of(length, "length")


def same_carries(graph: Graph, outs: Sequence[Any], count: int, what: str) -> None:
    """Reject a body whose resulting carries do not match its inputs."""
    before, after = graph.inputs[:count], outs[:count]
    if [(v.shape, v.dtype) for v in before] != [(s.shape, s.dtype) for s in after]:
        raise ShapeError(
            f"the body's result does not match its input: the {what}",
            argument="body",
            received=", ".join([summary(x) for x in after]) or "nothing",
            expected=", ".join([summary(x) for x in before]),
        )


def _row(x: Any) -> TensorSpec:
    return TensorSpec(x.shape[1:], x.dtype, None, x.device)


class _Scan(NamedTuple):
    """The attributes of a scan, with properties of its operands derived from them."""

    body: Graph
    carries: int
    sequences: int
    length: Any = None
    reverse: bool = False
    compiled: bool = False

    def parts(self, operands: Sequence[Any]) -> tuple[Sequence[Any], ...]:
        """Carries, sequences and captured values."""
        first, last = self.carries, self.carries + self.sequences
        return operands[:first], operands[first:last], operands[last:]

    def steps(self, operands: Sequence[Any]) -> Any:
        """The number of steps; all sequences must agree on it."""
        first = self.carries
        return _steps(self.parts(operands)[1], self.length, lambda i: f"operands[{first + i}]")

    def once(self, operands: Sequence[Any]) -> list[Any]:
        """The operands of one step, with specs of the rows."""
        carries, xs, captured = self.parts(operands)
        return [*carries, *[_row(x) for x in xs], *captured]

    def __call__(self, operands: Sequence[Any]) -> Any:
        return call(SCAN, *operands, **self._asdict())


def _spec(*operands: Any, **attributes: Any) -> tuple[TensorSpec, ...]:
    scan = _Scan(**attributes)
    graph, carries = as_graph(scan.body, "body"), scan.carries
    left = len(operands)
    for value, name in ((carries, "carries"), (scan.sequences, "sequences")):
        if count_of(value, name) is not value or isinstance(value, Dim) or value > left:
            raise ShapeError(
                f"there are {len(operands)} operands",
                argument=name,
                received=str(value),
                expected="as many as the body takes",
            )
        left -= value
    steps = scan.steps(operands)
    outs = results_of(graph, scan.once(operands), lambda i: f"operands[{i}]")
    same_carries(graph, graph.outputs, carries, "carries")
    return (*outs[:carries], *(s.like((steps, *s.shape)) for s in outs[carries:]))


def _cost(*operands: Any, **attributes: Any) -> Cost:
    scan = _Scan(**attributes)
    steps, once = scan.steps(operands), cost_of(scan.body, scan.once(operands))
    return Cost(once.flops * steps, once.bytes * steps)


# Gradients, tangents, batches ---------------------------------------------------------------------


def recorded(*operands: Any, **attributes: Any) -> Any:
    """The results of a scan; if a tape sees it first, residuals for its gradient are kept.

    Such a scan is computed as a whole, in eager and in captured code.
    """
    half, scan = None, _Scan(**attributes)
    taped = isinstance(recorder_state()[1], GradientTape)
    if taped and all(x.device is current_device() for x in operands):
        scan = scan._replace(compiled=True)
    if taped and any(wanted(x) for x in operands):
        needed = tuple([wanted(x) for x in operands[scan.carries :]])
        try:
            rows = (True,) * (len(scan.body.outputs) - scan.carries)
            half = halves(scan.body, scan.carries, scan.sequences, needed, rows, home(operands))
        except raised_here(EagerflowError):  # no gradient: a later request raises the reason
            half = None
    if half is None or not half.residuals:
        return scan(operands)
    _HALVES.set(half.forward, half)
    outs = scan._replace(body=half.forward)(operands)
    return outs[: len(outs) - half.residuals]


def scan_vjp(g: Any, y: Any, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
    """A scan that keeps the residuals of each step, and a scan in the other direction."""
    parts: list[Any] = [None] * len(operands)
    scan = _Scan(**attributes)
    scan = scan._replace(length=scan.steps(operands))
    body, carries, sequences = scan[:3]
    needed = tuple([wanted(x) for x in operands[carries:]])
    _, xs, captured = scan.parts(operands)
    half, residuals = _kept(g, y, body, needed)
    if half is None:
        # Rows that the target does not depend on need no gradient.
        rows = tuple(part is not None for part in g[carries:])
        half = halves(body, carries, sequences, needed, rows, home(operands))
        if half.residuals and (half.carries or half.slices or half.captured):
            found = scan._replace(body=half.forward)(operands)
            residuals = found[len(found) - half.residuals :]
    if not half.carries and not half.slices and not half.captured:
        return tuple(parts)
    starts = [zeros_like(operands[i]) if g[i] is None else g[i] for i in half.carries]
    starts += [zeros_like(captured[i]) for i in half.captured]
    along = [g[carries + i] for i in half.ys]
    along = [
        zeros_like(y[carries + i]) if a is None else a for a, i in zip(along, half.ys, strict=True)
    ]
    along += [*residuals, *(xs[i] for i in half.read_slices)]
    around = [captured[i] for i in half.read_captured]
    back_scan = _Scan(
        half.backward, len(starts), len(along), scan.length, not scan.reverse, scan.compiled
    )
    back = iter(recorded(*starts, *along, *around, **back_scan._asdict()))
    for i in half.carries:
        parts[i] = next(back)
    for i in half.captured:
        parts[carries + sequences + i] = next(back)
    for i in half.slices:
        parts[carries + i] = next(back)
    return tuple(parts)


scan_vjp.takes_none = True  # type: ignore[attr-defined]  # for unused results


def _kept(g: Any, y: Any, body: Graph, needed: tuple[bool, ...]) -> tuple[Halves | None, Any]:
    """The halves of a scan that kept its residuals, and the residuals; None if it did not.

    Gradients of the residuals, as in higher-order gradients, need the whole body.
    """
    half = _HALVES.of(body)
    if half is None or half.needed != needed:
        return None, ()
    if any(part is not None for part in g[len(g) - half.residuals :]):
        return None, ()
    return half, y[len(y) - half.residuals :]


def _jvp(tangents: Any, y: Any, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
    scan = _Scan(**attributes)
    body, carries, sequences = scan[:3]
    state = [is_inexact(x.dtype) for x in operands[:carries]]
    moving = (*state, *(t is not None for t in tangents[carries:]))
    forced = (*state, *(False,) * (len(body.outputs) - carries))
    t = moved(body, moving, forced, home(operands))
    ends = carries, carries + sequences, len(operands)
    inputs, given, counts = interleaved(t, operands, tangents, ends)
    pushed = [v for v in t.pushed[:carries] if v is not None]
    later = [v for v in t.pushed[carries:] if v is not None]
    both = Body(t.name, inputs, t.nodes, [*t.outputs[:carries], *pushed, *later])
    more = scan.steps(operands), scan.reverse, scan.compiled
    outs = _Scan(both, counts[0], counts[1], *more)(given)
    found = iter(outs[carries:])
    return tuple(None if v is None else next(found) for v in t.pushed)


def _swap(x: Any) -> Any:
    """The first two axes exchanged: examples and steps."""
    return permute_dims(x, (1, 0, *range(2, len(x.shape))))


def grown(
    flags: list[bool], state: int, make: Callable[[tuple[bool, ...]], Sequence[bool]]
) -> list[bool]:
    """``flags``, extended to the state that the body makes depend on the examples.

    ``make`` returns the flags of the body's results for given flags of its operands.
    """
    flags = list(flags)
    while True:
        found = make(tuple(flags))
        after = [a or b for a, b in zip(flags[:state], found[:state], strict=True)]
        if after == flags[:state]:
            return flags
        flags[:state] = after


def _batch(
    args: Any, batched_args: Any, size: Any, **attributes: Any
) -> tuple[list[Tensor], list[bool]]:
    scan = _Scan(**attributes)
    body, carries, sequences = scan[:3]
    device = home(args)
    ys = (False,) * (len(body.outputs) - carries)
    flags = grown(
        batched_args,
        carries,
        lambda now: batched(body, now, (*now[:carries], *ys), size, device)[1],
    )
    whole, out = batched(body, tuple(flags), (*flags[:carries], *ys), size, device)
    given = [for_each(x, a, b, size) for x, a, b in zip(args, batched_args, flags, strict=True)]
    for i in range(carries, carries + sequences):
        given[i] = _swap(given[i]) if flags[i] else given[i]
    outs = scan._replace(body=whole, length=scan.steps(given))(given)
    rows = [_swap(y) if flag else y for y, flag in zip(outs[carries:], out[carries:], strict=True)]
    return [*outs[:carries], *rows], list(out)


# The op -------------------------------------------------------------------------------------------


def _scan_operator(
    w: Any,
    *operands: Any,
    body: Graph,
    carries: int,
    sequences: int,
    length: Any,
    reverse: bool,
    compiled: bool,
) -> Any:
    along, rest = operands[carries : carries + sequences], operands[carries + sequences :]
    if (along[0].shape[0] if along else length) == 0:  # not supported by runtimes
        return (*operands[:carries], *(w.filled(0, v.shape, v.dtype) for v in w.results[carries:]))
    inner = w.within()
    own = inner.inputs(body.inputs[: carries + sequences])
    made = inner.inline(body, (*own, *rest))
    if not sequences:  # some sequence must define the length
        zero, one = (w.constant(n, "int64") for n in (0, 1))
        along = (w.Range(zero, w.number(length), one),)
        own.append(inner.new("row", "int64", ()))
    rows = len(body.outputs) - carries
    return w.Scan(
        *operands[:carries],
        *along,
        body=inner.graph(body.name, own, made),
        num_scan_inputs=len(along),
        scan_input_directions=[int(reverse)] * len(along),
        scan_output_directions=[int(reverse)] * rows or None,
        dtypes=[v.dtype for v in w.results],
    )


@control_op(
    name="scan",
    dtypes=ANY,
    trusted=True,  # the kernel checks operands itself if unknown
    saves="operands y",
    infer=_spec,
    vjp=scan_vjp,
    jvp=_jvp,
    batch=_batch,
    cost=_cost,
    split=Missing("each step needs the one before"),
    onnx=_scan_operator,
)
def _scan(
    xp: Any,
    /,
    *operands: Any,
    body: Graph,
    carries: int,
    sequences: int,
    length: Size = None,
    reverse: bool = False,
    compiled: bool = False,
) -> Any:
    """A graph run for each row of sequences, with carries passed from step to step.

    ``operands`` are carries, sequences and captured values; ``body`` is a graph of carries, one
    slice of each sequence and the captured values, which gives carries and ys. ``carries`` and
    ``sequences`` are counts, ``length`` that of the steps; ``compiled`` says that it is computed
    as a whole, in machine code where there is some. Users call ``ef.scan``. Raises ShapeError and
    DTypeError for operands that do not match the inputs of the body.
    """
    scan = _Scan(body, carries, sequences, length, reverse, compiled)
    plan = compiled_scans.known(operands, scan._asdict())
    if plan is None:
        check(SCAN, operands, scan._asdict())
        sized = fitted(body, scan.once(operands))
        steps = scan.steps(operands)
        plan = compiled_scans.plan_of(SCAN, operands, scan._asdict(), sized, steps)
    if plan is not None:
        try:
            return compiled_scans.results(plan, body, operands)
        except raised_here(EagerflowError):  # the loop below shows which step failed
            pass
    return _one_by_one(scan, scan.steps(operands), operands)


def _one_by_one(scan: _Scan, steps: int, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a scan, computed by running the body for each step."""
    body, carries, reverse = scan.body, scan.carries, scan.reverse
    state, xs, rest = scan.parts(operands)
    rows: list[list[Tensor]] = [[] for _ in body.outputs[carries:]]
    order = range(steps)
    for i in reversed(order) if reverse else order:
        parts = [new_tensor(x._array[i, ...], x._kind) for x in xs]
        outs = run(body, (*state, *parts, *rest))
        state = outs[:carries]
        for row, y in zip(rows, outs[carries:], strict=True):
            row.append(y)
    if steps:
        ys = [stack(row[::-1] if reverse else row) for row in rows]
        return fresh([*state, *ys])
    specs = _spec(*operands, **scan._asdict())
    place = operands[0].device if operands else current_device()
    ys = [zeros(s.shape, s.dtype, device=str(place)) for s in specs[carries:]]
    return fresh([*state, *ys])


SCAN = op_of(_scan)


# For users ----------------------------------------------------------------------------------------


def scan(f: Any, init: Any, xs: Any = None, length: Any = None, reverse: bool = False) -> Any:
    """The last carry, and all ys, of ``carry, y = f(carry, x)`` for each row ``x`` of ``xs``.

    ``init`` is the first carry and ``xs`` the tensors to iterate along their first axes, each a
    tensor or a nest of them; ``xs`` may be None if ``length``, the number of steps, is given.
    ``reverse`` goes from the last row to the first; the ys keep the order of the rows. The carry
    keeps its structure, shapes and dtypes, where Python numbers take on the dtype wanted.
    ``f`` may use and assign values and Variables from its enclosing scope.

    Eagerly ``f`` is called for each row. In captured code, under a tape, in ``vmap`` and in
    ``jvp`` it becomes a graph once, and gradients pass through all steps; those by captured values
    are summed. Raises ShapeError for rows that do not agree, and CaptureError,
    ShapeError or DTypeError with the leaf and the line of ``f`` where the carry changes.

    >>> ef.scan(lambda total, x: (total + x, total), 0.0, ef.tensor([1.0, 2.0, 3.0]))
    (Tensor(6., float32, cpu:0), Tensor([0., 1., 3.], float32, cpu:0))
    """
    callable_of(f, "scan", "f", "carry, x", 2)
    return over("scan", f, f, init, xs, length, reverse)


def over(op: str, step: Any, f: Any, init: Any, xs: Any, length: Any, reverse: bool) -> Any:
    """A scan with ``step``, which calls the user's ``f``, for the public function ``op``."""
    at = place_of(f)
    carry, rows = Form(opened(init), op, "init"), Form(xs, op, "xs")
    labels = rows.labels
    try:
        steps = _steps(rows.tensors, length, lambda i: labels[i])
    except ShapeError as error:
        error.op = op
        raise
    ys = Results(op, "that in the first step")

    def finish(result: Any) -> list[Any]:
        """The carry and ys of one step, which must match those of the first."""
        if type(result) is not tuple or len(result) != 2:
            raise CaptureError(
                "it does not return a pair",
                op=op,
                argument="f",
                at=at,
                received=summary(result),
                expected="return carry, y (y may be None)",
            )
        return [*carry.match(result[0], "the carry", at), *ys.take(result[1], "y", at)]

    plainly = runs_plainly()
    own = own_recorder((*carry.tensors, *rows.tensors)) if plainly else None
    if own is not None:
        return secluded(own, over, op, step, f, init, xs, length, reverse)
    if plainly and steps:
        outs = all_or_nothing(_plainly, step, carry, rows, range(steps), reverse, finish)
        return carry.nest(outs[: len(carry.tensors)]), ys.form.nest(outs[len(carry.tensors) :])
    traced = Traced(
        step,
        f"{op}_body",
        [*carry.labels, *labels],
        [*carry.tensors, *[_row(x) for x in rows.tensors]],
        lambda symbols: (carry.nest(symbols), rows.nest(symbols[len(carry.tensors) :])),
        finish,
    )
    return _as_op(traced, carry, rows, ys.form, steps, reverse)


def _plainly(
    step: Any, carry: Form, rows: Form, order: range, reverse: bool, finish: Callable[[Any], Any]
) -> list[Tensor]:
    """The last carry and the stacked ys, by calling ``step`` for each row."""
    state = carry.tensors
    columns: list[Any] = []
    for i in reversed(order) if reverse else order:
        outs = finish(step(carry.nest(state), rows.nest([x[i] for x in rows.tensors])))
        state = outs[: len(state)]
        columns.append(outs[len(state) :])
    if reverse:
        columns.reverse()
    return [*state, *(stack(list(column)) for column in zip(*columns, strict=True))]


def _as_op(
    traced: Traced, carry: Form, rows: Form, ys: Form, steps: Any, reverse: bool
) -> tuple[Any, Any]:
    """The scan of a traced body, with assigned Variables among the carries."""
    outside = Outside(traced)
    count, own = len(carry.tensors), len(outside.assigned)
    body = traced.body(outside, count)
    if not body.outputs:
        return carry.nest([]), ys.nest([])
    found = recorded(
        *carry.tensors,
        *outside.state,
        *rows.tensors,
        *outside.captured,
        body=body,
        carries=count + own,
        sequences=len(rows.tensors),
        length=steps,
        reverse=bool(reverse),
    )
    assign(outside.assigned, found[count : count + own])
    return carry.nest(found[:count]), ys.nest(found[count + own :])
