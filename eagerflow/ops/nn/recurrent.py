"""Recurrent networks over whole sequences: one op each for a plain cell, an LSTM and a GRU.

In place of an LSTM or a GRU a tape records an op whose last result is the gate values. With these
the gradient through the steps is one op (see ``recurrent_gradients``); other gradients are products
over time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow import primitives
from eagerflow.dtypes import BOOL, FLOATS
from eagerflow.op import Into
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn import recurrent_facts as facts
from eagerflow.ops.nn.recurrence import by_rows, rows, shifted
from eagerflow.ops.nn.recurrent_gradients import gru_gradient, lstm_gradient, simple_rnn_gradient
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives.recurrent_cells import CELLS, Cell
from eagerflow.spec import Array, Namespace

__all__ = ["gru", "lstm", "simple_rnn"]

Call = Callable[..., Any]


# Gradients ---------------------------------------------------------------------------------------


def _of_inputs(cell: Cell, x: Any) -> Any:
    """Of the values of gates, side by side, those that the inputs have a part in."""
    return x[..., : cell.gates * (x.shape[-1] // cell.values)] if cell.apart else x


def _of_output(cell: Cell, x: Any, *before: Any, part: Call = lambda x: x) -> Any:
    """``part`` of the gates that depend on the previous output, after those ``before``."""
    if not cell.apart:
        return part(x)
    units = x.shape[-1] // cell.values
    pieces = x[..., : (cell.gates - cell.apart) * units], x[..., cell.gates * units :]
    return concat([*before, *(part(piece) for piece in pieces)], axis=-1)


def _rule(cell: Cell, back: Call) -> Call:
    """The rule of an op that also returns the values for its gradient; ``back`` is the gradient."""

    def vjp(
        g: Any,
        y: Any,
        x: Any,
        kernel: Any,
        recurrent_kernel: Any,
        bias: Any,
        *rest: Any,
        reverse: bool,
    ) -> tuple[Any, ...]:
        *starts, mask = rest
        states, (of_h, *others) = (y, g) if type(y) is tuple else ((y,), (g,))
        given = (recurrent_kernel, *states[cell.states - 1 :])
        given += (zeros_like(states[0]) if of_h is None else of_h, *others)
        given += (starts[-1], mask) if cell.beside else (mask,)
        of_values, of_rows, *of_starts = back(*given, reverse=reverse)
        of_a, flat = _of_inputs(cell, of_values), rows(of_values)
        start = None if starts[0] is None else starts[0][..., None, :]
        before = transposed(rows(shifted(states[0], start, reverse, -2)))
        if starts[0] is not None:
            first = slice(-1, None) if reverse else slice(None, 1)
            onward = total(_of_output(cell, of_values[..., first, :]), axis=-2)
            of_starts[0] = of_starts[0] + matmul(onward, transposed(recurrent_kernel))
        return (
            by_rows(of_a, transposed(kernel)),
            matmul(transposed(rows(x)), _of_inputs(cell, flat)),
            _of_output(cell, flat, part=lambda part: matmul(before, part)),
            None if bias is None else _of_bias(cell, total(of_rows, axis=-2)),
            *(None if s is None else part for s, part in zip(starts, of_starts, strict=True)),
            None,
        )

    rule: Any = in_float32(vjp)
    rule.takes_none = True  # for unused results
    return rule  # type: ignore[no-any-return]


def _of_bias(cell: Cell, of_values: Any) -> Any:
    if not cell.apart:
        return of_values
    found = _of_output(cell, of_values, _of_inputs(cell, of_values))
    return reshape(found, (*of_values.shape[:-1], 2, found.shape[-1] // 2))


def _rule_with(cell: Cell, keeping: Call) -> Call:
    """The rule of an op that keeps nothing, by the op that does: it recomputes everything."""

    def vjp(g: Any, y: Any, *args: Any, **attributes: Any) -> Any:
        found = keeping(*args, **attributes)
        given = (*g, None) if type(g) is tuple else (g, None)
        return keeping.op.vjp(given, found, *args, **attributes)  # type: ignore[attr-defined]

    vjp.takes_none = True  # type: ignore[attr-defined]
    return vjp


def _into(name: str) -> Callable[..., Into | None]:
    """The fact ``into``: machine code writes the results, if it supports the network."""
    last = 4 + CELLS[name].states  # the index of the first result among the arguments

    def native(*arrays: Any, reverse: bool) -> Any:
        x, kernel, recurrent_kernel, bias, *starts, mask = arrays[: last + 1]
        given = x, kernel, recurrent_kernel, bias, starts, mask, reverse
        return primitives.compiled_recurrence.forward_call(name, *given, arrays[last + 1 :])

    def into(x: Any, kernel: Any, recurrent_kernel: Any, *rest: Any, reverse: bool) -> Into | None:
        compiled = primitives.compiled_recurrence
        if len(x.shape) != 3:
            return None
        if not compiled.takes(name, x.dtype, compiled.size_of(x, recurrent_kernel)):
            return None
        return Into(None, partial(native, reverse=reverse), "fd?")

    return into


def _network(name: str, *, back: Call | None = None, keeping: Any = None) -> Call:
    """The decorator of an op over the steps of a cell.

    Either ``back`` is the op of the backward steps, and the gate values that it needs are a result;
    or ``keeping`` is an op with these properties.
    """
    cell = CELLS[name]
    keep = keeping is None and cell.beside is not None
    floats = 4 + cell.states
    saved = " ".join(facts.STATES[: cell.states])
    rule = _rule_with(cell, keeping) if back is None else _rule(cell, back)
    return define(
        "contraction",
        dtypes=(*(FLOATS,) * floats, BOOL),
        together=tuple(range(floats)),
        infer=facts.spec(cell, keep),
        outputs=cell.states + keep,
        vjp=rule,
        saves=f"x kernel recurrent_kernel bias {saved} mask" + (" y" if keeping is None else ""),
        recorded=keeping and keeping.op,
        batch=facts.batching((1, 2, 3), cell.states + keep),
        split=facts.splitting((1, 2, 3), 0),
        into=_into(name),
        cost=lambda *specs, reverse: facts.cost(*specs),
        onnx="body" if keep else lambda w, *given, reverse: w.recurrent(name, given, reverse),
        ulp=256,
    )


# The ops ------------------------------------------------------------------------------------------


@_network("simple_rnn", back=simple_rnn_gradient)
def simple_rnn(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Array:
    """The outputs of a plain recurrent network: h = tanh(x @ kernel + bias + h @ recurrent_kernel).

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, units), ``recurrent_kernel`` (..., units, units) and ``bias`` (..., units). ``h`` is
    the initial state, shape (..., batch, units), by default zeros. ``mask``, bools of shape (...,
    batch, steps), keeps the state where it is False. With ``reverse`` the last step is first. The
    result has shape (..., batch, steps, units), each state with its step. Raises ShapeError where
    shapes do not fit.

    >>> ef.simple_rnn(ef.zeros((1, 2, 1)), ef.ones((1, 1)), ef.ones((1, 1)), ef.ones(1))
    Tensor([[[0.7616],
             [0.9427]]], shape=(1, 2, 1), float32, cpu:0)
    """
    given = x, kernel, recurrent_kernel, bias, (h,), mask, reverse
    return primitives.recurrence.forward(xp, "simple_rnn", *given)[0]


@_network("lstm", back=lstm_gradient)
def lstm_training(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    c: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The results of lstm, and the values of its gates after their activations.

    The arguments are those of lstm. The gates have shape (..., batch, steps, 4 * units), also
    where the mask holds the states. Raises ShapeError where shapes do not fit.

    >>> from eagerflow.ops.nn.recurrent import lstm_training
    >>> lstm_training(ef.zeros((1, 1, 1)), ef.ones((1, 4)), ef.zeros((1, 4)))[2].reshape((4,))
    Tensor([0.5, 0.5, 0. , 0.5], float32, cpu:0)
    """
    given = x, kernel, recurrent_kernel, bias, (h, c), mask, reverse
    return primitives.recurrence.forward(xp, "lstm", *given, keep=True)


@_network("gru", back=gru_gradient)
def gru_training(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The result of gru, and the values of its gates after their activations.

    The arguments are those of gru. The gates have shape (..., batch, steps, 4 * units), also where
    the mask holds the state; the last ones are the products of the output before in the new
    content, with their bias. Raises ShapeError where shapes do not fit.

    >>> from eagerflow.ops.nn.recurrent import gru_training
    >>> gru_training(ef.zeros((1, 1, 1)), ef.ones((1, 3)), ef.zeros((1, 3)))[1].reshape((4,))
    Tensor([0.5, 0.5, 0. , 0. ], float32, cpu:0)
    """
    given = x, kernel, recurrent_kernel, bias, (h,), mask, reverse
    return primitives.recurrence.forward(xp, "gru", *given, keep=True)


@_network("lstm", keeping=lstm_training)
def lstm(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    c: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The outputs h and the cell states c of a long short-term memory, after each step.

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, 4 * units), ``recurrent_kernel`` (..., units, 4 * units) and ``bias`` (..., 4 *
    units): the input gate, the forget gate, the new content and the output gate in this order.
    ``h`` and ``c`` are the initial states, shape (..., batch, units), by default zeros. ``mask``,
    bools of shape (..., batch, steps), keeps the states where it is False. With ``reverse`` the
    last step is first. Both results have shape (..., batch, steps, units), each state with its
    step. Raises ShapeError where shapes do not fit. Source: Hochreiter and Schmidhuber, "Long
    short-term memory", 1997.

    >>> h, c = ef.lstm(ef.ones((1, 2, 1)), ef.ones((1, 4)), ef.zeros((1, 4)))
    >>> h
    Tensor([[[0.3696],
             [0.5453]]], shape=(1, 2, 1), float32, cpu:0)
    """
    given = x, kernel, recurrent_kernel, bias, (h, c), mask, reverse
    return primitives.recurrence.forward(xp, "lstm", *given)


@_network("gru", keeping=gru_training)
def gru(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Array:
    """The outputs of gated recurrent units, with the reset gate applied after the product with h.

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, 3 * units), ``recurrent_kernel`` (..., units, 3 * units) and ``bias`` (..., 2, 3 *
    units), one row for each product: the update gate, the reset gate and the new content in this
    order. ``h`` is the initial state, shape (..., batch, units), by default zeros. ``mask``, bools
    of shape (..., batch, steps), keeps the state where it is False. With ``reverse`` the last step
    is first. The result has shape (..., batch, steps, units), each state with its step. Raises
    ShapeError where shapes do not fit. Source: Cho and others, "Learning phrase representations",
    arXiv:1406.1078, in the form of its first version.

    >>> ef.gru(ef.ones((1, 2, 1)), ef.ones((1, 3)), ef.zeros((1, 3)))
    Tensor([[[0.2048],
             [0.3546]]], shape=(1, 2, 1), float32, cpu:0)
    """
    given = x, kernel, recurrent_kernel, bias, (h,), mask, reverse
    return primitives.recurrence.forward(xp, "gru", *given)[0]
