"""Linear recurrences: the tangents of recurrent networks, forward and backward.

The state of one step is a few blocks of one width, of which the first is the output h. A step is

    s[t] = x[t] + held[t] s[t - 1] + gates[t] (h[t - 1] @ kernel)

where ``held`` and ``gates`` hold a number for each element of each pair of blocks. It is linear in
``x``, and the op computes its transpose as well; each is the gradient of the other. That is how
gradients of ``lstm``, ``gru`` and ``simple_rnn`` have gradients of any order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Split
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Batch, batch_first, define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives.recurrence import over_steps
from eagerflow.spec import Array, Namespace, TensorSpec

__all__: list[str] = []


def shifted(states: Any, start: Any, reverse: bool, axis: int) -> Any:
    """The state before each step along ``axis``; that before the first is ``start``, or zeros."""
    after = (slice(None),) * (-1 - axis)
    first = zeros_like(states[(..., slice(None, 1), *after)])  # the first step is not included
    first = first if start is None else first + start
    kept = states[(..., slice(1, None) if reverse else slice(None, -1), *after)]
    return concat((kept, first) if reverse else (first, kept), axis=axis)


def rows(x: Any) -> Any:
    """Examples and steps of (..., batch, steps, width) in one axis."""
    return reshape(x, (*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1]))


def by_rows(x: Any, matrix: Any) -> Any:
    """The product of (..., batch, steps, width) and matrices (..., width, size)."""
    if matrix.ndim == 2:
        return matmul(x, matrix)
    return reshape(matmul(rows(x), matrix), (*x.shape[:-1], matrix.shape[-1]))


def by_blocks(slopes: Any, adjoint: Any) -> Any:
    """The gradient of the blocks from that of the products with ``slopes``, in one axis."""
    found = total(multiply(slopes, adjoint[..., :, None, :]), axis=-3)
    return reshape(found, (*found.shape[:-2], found.shape[-2] * found.shape[-1]))


def _check(
    x: TensorSpec, held: TensorSpec, gates: TensorSpec, kernel: TensorSpec, **attributes: Any
) -> TensorSpec:
    for value, rank, name in ((x, 4, "x"), (held, 5, "held"), (gates, 5, "gates")):
        if value.ndim < rank:
            raise ShapeError(f"{value.ndim} axes given", argument=name, expected=f"at least {rank}")
    blocks, units = x.shape[-2:]
    lead, count = x.shape[:-4], gates.shape[-2]
    wanted = {
        "held": (held, (*x.shape[:-2], blocks, blocks, units)),
        "gates": (gates, (*x.shape[:-2], blocks, count, units)),
        "kernel": (kernel, (*lead, units, count * units)),
    }
    for name, (value, shape) in wanted.items():
        if value.shape != shape:
            raise ShapeError(
                f"{name} has shape {value.shape}", argument=name, expected=f"shape {shape}"
            )
    return x


def _vjp(
    g: Any, y: Any, x: Any, held: Any, gates: Any, kernel: Any, reverse: bool, transposed: bool
) -> tuple[Any, ...]:
    other = block_recurrence(g, held, gates, kernel, reverse=reverse, transposed=not transposed)
    states, adjoint = (other, y) if transposed else (y, other)
    return (other, *factor_gradients(states, adjoint, gates, kernel, reverse))


def factor_gradients(
    states: Any, adjoint: Any, gates: Any, kernel: Any, reverse: bool
) -> tuple[Any, Any, Any]:
    """The gradients with respect to held, gates and kernel, from states and transposed states."""
    before = shifted(states, None, reverse, -3)
    outer = adjoint[..., :, None, :]
    outputs = rows(before[..., 0, :])
    products = reshape(matmul(outputs, kernel), (*gates.shape[:-3], *gates.shape[-2:]))
    return (
        multiply(outer, before[..., None, :, :]),
        multiply(outer, products[..., None, :, :]),
        matmul(transposed(outputs), rows(by_blocks(gates, adjoint))),
    )


def _batch(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
    if batched[3] or args[3].ndim > 2:
        return call(*batch_first(args, batched, size), **attributes)
    return call_merged(call, args, batched, size, (0, 0, 0, None), (0,), **attributes)


def _split(x: TensorSpec, *rest: Any, **attributes: Any) -> list[Split]:
    lead = [Split((i,) * 4, i) for i in range(x.ndim - 4)]
    return [*lead, Split((x.ndim - 4,) * 3 + (None,), x.ndim - 4)]


def _cost(x: TensorSpec, held: TensorSpec, gates: TensorSpec, *rest: Any, **more: Any) -> Cost:
    flops = 2 * (held.size + gates.size) + 2 * gates.size // x.shape[-2] * x.shape[-1]
    return Cost(flops, (2 * x.size + held.size + gates.size) * x.dtype.itemsize)


def _step(xp: Namespace, kernel: Any, states: Any, rows: list[Any]) -> tuple[Any, Any]:
    """A step from the blocks before, ``states``, by ``rows``: x, held and gates."""
    (state,), (x, held, gates) = states, rows
    products = (*gates.shape[:-3], *gates.shape[-2:])
    onward = xp.reshape(state[..., 0, :] @ kernel, products)
    state = xp.sum(held * state[..., None, :, :], axis=-2)
    state = state + xp.sum(gates * onward[..., None, :, :], axis=-2) + x
    return (state,), (state,)


def _transposed_step(xp: Namespace, kernel: Any, states: Any, rows: list[Any]) -> tuple[Any, Any]:
    (state,), (x, held, gates) = states, rows
    outer = state[..., :, None, :]
    by_gates = xp.sum(gates * outer, axis=-3)
    flat = (*by_gates.shape[:-2], by_gates.shape[-2] * by_gates.shape[-1])
    onward = xp.reshape(by_gates, flat) @ xp.matrix_transpose(kernel)
    state = xp.sum(held * outer, axis=-3)
    output = state[..., :1, :] + onward[..., None, :]
    state = xp.concat((output, state[..., 1:, :]), axis=-2) + x
    return (state,), (state,)


@define(
    "contraction",
    dtypes=FLOATS,
    infer=_check,
    vjp=in_float32(_vjp),
    saves="y held gates kernel",
    batch=Batch(_batch),
    split=_split,
    cost=_cost,
    ulp=64,
)
def block_recurrence(
    xp: Namespace,
    x: Array,
    held: Array,
    gates: Array,
    kernel: Array,
    /,
    *,
    reverse: bool = False,
    transposed: bool = False,
) -> Array:
    """All states of a linear recurrence that begins with zeros, or its transpose applied to ``x``.

    ``x`` has shape (..., batch, steps, blocks, units), ``held`` (..., batch, steps, blocks,
    blocks, units), ``gates`` (..., batch, steps, blocks, gates, units) and ``kernel`` (..., units,
    gates * units), all real. ``reverse`` begins with the last step. Raises ShapeError where
    shapes do not fit.

    >>> from eagerflow.ops.nn.recurrence import block_recurrence
    >>> x, half = ef.ones((1, 3, 1, 1)), ef.full((1, 3, 1, 1, 1), 0.5)
    >>> block_recurrence(x, half, ef.zeros((1, 3, 1, 1, 1)), ef.ones((1, 1)))[0, :, 0, 0]
    Tensor([1.  , 1.5 , 1.75], float32, cpu:0)
    """
    if 0 in x.shape or x.shape[-3] == 1:
        return x + 0
    axis, ascending = x.ndim - 3, reverse == transposed
    parts = slice(1, None), slice(None, -1), slice(0, 1), slice(-1, None)
    own, other, first = parts[:3] if ascending else (parts[1], parts[0], parts[3])
    along = (slice(None),) * axis
    start, later = x[(*along, first)], x[(*along, own)]
    columns = later, *(a[(*along, other if transposed else own)] for a in (held, gates))
    step = partial(_transposed_step if transposed else _step, xp, kernel)
    begin = (xp.squeeze(start, axis=axis),)
    _, (found,) = over_steps(xp, step, begin, columns, axis, not ascending)
    return xp.concat((start, found) if ascending else (found, start), axis=axis)
