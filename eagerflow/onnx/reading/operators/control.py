"""If, Loop and Scan: unrolled if conditions and counts are known, otherwise ops with graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import ops
from eagerflow.capture import control
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.onnx.reading.calls import (
    Call,
    NotKnown,
    SizeVector,
    is_known,
    known,
    operator,
    origins,
    size,
)
from eagerflow.onnx.reading.folding import as_plain
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

UNROLLED = 16
"""Loops with at most so many iterations are unrolled."""
MAX_UNROLLED = 1024
"""So are those with bodies that cannot be graphs, as shapes change, up to this."""


class _Dynamic(Exception):  # noqa: N818 - the loop is written in another way then
    """The condition of a loop depends on its computations."""


@operator("If", takes_sizes=True)
def if_(call: Call, cond: Any) -> tuple[Any, ...]:
    """One of two graphs, selected by a condition."""
    then, other = call.graph("then_branch"), call.graph("else_branch")
    if is_known(cond):
        return tuple((then if known(cond).reshape(()) else other)())
    try:
        found = control.cond(_flag(cond), lambda: as_plain(then()), lambda: as_plain(other()))
    except (CaptureError, DTypeError, ShapeError) as error:
        if getattr(error, "unlike", ()):
            raise
        raise NotKnown(origins([cond])) from error
    return tuple(found)


# Loop ---------------------------------------------------------------------------------------------


@operator("Loop", takes_sizes=True)
def loop(call: Call, most: Any = None, cond: Any = None, *state: Any) -> tuple[Any, ...]:
    """A loop with an iteration count and a condition."""
    body = call.graph("body")
    rows = body.output_count - 1 - len(state)
    if rows < 0:
        call.refuse("the body gives fewer values than the loop carries")
    count = _count(most)
    goes = cond is None or is_known(cond)
    if goes and not isinstance(count, Tensor):
        going = cond is None or bool(known(cond).reshape(()))
        count = count if going else 0
        try:
            return _counted(body, count, list(state), rows)
        except _Dynamic:
            pass
    return _while(body, count, cond, [as_plain(x) for x in state], rows)


def _flag(cond: Any) -> Any:
    """A condition without axes."""
    return ops.reshape(cond, ()) if cond.ndim else cond


def _count(most: Any) -> Any:
    """The largest number of iterations: a size, None for no bound, or a Tensor if unknown."""
    if most is None:
        return None
    if isinstance(most, SizeVector):
        return size(most)
    return max(int(known(most).reshape(()).item()), 0) if is_known(most) else most


def _counted(body: Any, count: Any, state: list[Any], rows: int) -> tuple[Any, ...]:
    """A loop with a known count, which can only end earlier at a known iteration."""
    few = count is None or (isinstance(count, int) and 0 < count <= UNROLLED)
    if few or (count and is_known([*state, *body.outer_values()]) and isinstance(count, int)):
        return _unrolled(body, count, state, rows)
    if any(isinstance(x, list) or x is None for x in state):
        return _unrolled(body, count, state, rows)

    def step(carry: Any, i: Any) -> Any:
        goes, *found = body(i, as_tensor(True), *carry)
        if not is_known(goes) or not known(goes).reshape(()):
            raise _Dynamic
        found = as_plain(found)
        return found[: len(carry)], found[len(carry) :]

    steps = _numbers(count)
    return _scanned(step, as_plain(state), steps, lambda: _unrolled(body, count, state, rows), body)


def _numbers(count: Any) -> Any:
    if isinstance(count, Dim):
        return ops.cumulative_sum(ops.ones((count,), dtype="int64")) - 1
    return ops.arange(count, dtype="int64")


def _scanned(
    step: Callable[..., Any], carry: Any, xs: Any, again: Callable[[], Any], body: Any
) -> tuple[Any, ...]:
    """A scan; if its body cannot be a single graph, ``again`` unrolls the iterations."""
    leaves = [*(xs if isinstance(xs, list) else [xs]), *carry, *body.outer_values()]
    count = (xs[0] if isinstance(xs, list) else xs).shape[0]
    try:
        last, ys = control.scan(step, carry, xs)
    except NotKnown as need:
        if need.names or need.of_shapes:
            raise
        if not isinstance(count, int) or not 0 < count <= MAX_UNROLLED:
            raise NotKnown(origins(leaves)) from need
        return tuple(again())
    except (CaptureError, DTypeError, ShapeError) as error:
        if getattr(error, "unlike", ()) or not isinstance(count, int):
            raise
        if not 0 < count <= MAX_UNROLLED:
            raise
        return tuple(again())
    return (*last, *ys)


def _unrolled(body: Any, count: int | None, state: list[Any], rows: int) -> tuple[Any, ...]:
    """The unrolled iterations, as long as the condition is known to hold."""
    found: list[list[Any]] = [[] for _ in range(rows)]
    number = 0
    while count is None or number < count:
        goes, *values = body(as_tensor(number, dtype="int64"), as_tensor(True), *state)
        if not is_known(goes):
            raise _Dynamic
        state = values[: len(state)]
        for row, x in zip(found, values[len(state) :], strict=True):
            row.append(as_plain(x))
        number += 1
        if not known(goes).reshape(()):
            break
    return (*state, *(ops.stack(*row) for row in found))


def _while(body: Any, count: Any, cond: Any, state: list[Any], rows: int) -> tuple[Any, ...]:
    """A loop with an unknown end; it cannot return a row for each iteration."""
    around = body.outer_values()
    if rows or any(isinstance(x, list) or x is None for x in state):
        raise NotKnown(origins([count, cond, *state, *around]))
    going = as_tensor(True) if cond is None else _flag(cond)
    bound = (
        None if count is None else as_plain(SizeVector(count)) if isinstance(count, Dim) else count
    )

    def goes_on(now: Any) -> Any:
        return now[1] if bound is None else ops.logical_and(now[1], now[0] < bound)

    def step(now: Any) -> Any:
        number, goes, values = now
        after, *found = as_plain(body(number, goes, *values))
        return number + 1, _flag(after), found

    if bound is not None and isinstance(bound, Tensor):
        bound = _flag(bound)
    most = count if isinstance(count, int) else None
    try:
        first = as_tensor(0, dtype="int64"), going, state
        return tuple(control.while_loop(goes_on, step, first, most)[2])
    except NotKnown as need:
        if need.names or need.of_shapes:
            raise
        raise NotKnown(origins([count, cond, *state, *around])) from need
    except (CaptureError, DTypeError, ShapeError) as error:
        if getattr(error, "unlike", ()):
            raise
        raise NotKnown(origins([count, cond, *state, *around])) from error


# Scan ---------------------------------------------------------------------------------------------


@operator("Scan", takes_sizes=True)
def scan(
    call: Call,
    *given: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    directions: Any = None,
) -> tuple[Any, ...]:
    """A graph applied to slices of tensors, with a carried state."""
    body = call.graph("body")
    if call.version < 9:
        return _batches(call, body, given, num_scan_inputs, directions)
    values = [as_plain(x) for x in given]
    at = len(values) - num_scan_inputs
    if at < 0 or num_scan_inputs < 1:
        call.refuse(f"{num_scan_inputs} of {len(values)} inputs to go along")
    state, xs = values[:at], values[at:]
    axes, ways = scan_input_axes or (0,) * len(xs), scan_input_directions or (0,) * len(xs)
    rows = [_along(x, axis, way) for x, axis, way in zip(xs, axes, ways, strict=True)]
    found = _over_rows(body, state, rows)
    ys = found[at:]
    out_axes = scan_output_axes or (0,) * len(ys)
    out_ways = scan_output_directions or (0,) * len(ys)
    back = [
        ops.moveaxis(ops.flip(y, axis=0) if way else y, 0, normalize_axis(axis, y.ndim))
        for y, axis, way in zip(ys, out_axes, out_ways, strict=True)
    ]
    return (*found[:at], *back)


def _along(x: Tensor, axis: int, way: int) -> Any:
    """The slices along an axis in the order of the scan."""
    rows = ops.moveaxis(x, normalize_axis(axis, x.ndim), 0)
    return ops.flip(rows, axis=0) if way else rows


def _over_rows(body: Any, state: list[Any], rows: list[Any]) -> tuple[Any, ...]:
    n = len(state)

    def step(carry: Any, slices: Any) -> Any:
        found = as_plain(body(*carry, *slices))
        return found[:n], found[n:]

    def again() -> tuple[Any, ...]:
        carry, out = list(state), []
        for i in range(rows[0].shape[0]):
            found = as_plain(body(*carry, *(x[i] for x in rows)))
            carry = found[:n]
            out.append(found[n:])
        return (*carry, *(ops.stack(*column) for column in zip(*out, strict=True)))

    count = rows[0].shape[0]
    if is_known([*state, *rows, *body.outer_values()]) and 0 < count <= MAX_UNROLLED:
        return again()
    return _scanned(step, state, rows, again, body)


def _batches(
    call: Call, body: Any, given: tuple[Any, ...], count: int, directions: Any
) -> tuple[Any, ...]:
    """Version 8: a scan for each example of a batch."""
    lengths, *values = given
    if lengths is not None:
        call.refuse("sequence_lens")
    values = [as_plain(x) for x in values]
    at = len(values) - count
    ways = directions or (0,) * count
    if not isinstance(values[0].shape[0], int):
        raise NotKnown((), of_shapes=True)
    found = []
    for i in range(values[0].shape[0]):
        own = [x[i] for x in values]
        rows = [_along(x, 0, way) for x, way in zip(own[at:], ways, strict=True)]
        found.append(_over_rows(body, own[:at], rows))
    return tuple(ops.stack(*column) for column in zip(*found, strict=True))
