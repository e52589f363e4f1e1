"""Gradients of recurrent networks by the values of their gates: one op for each cell.

It runs backwards through the steps. Gradients of weights and inputs are products over time of its
results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow import primitives
from eagerflow.dtypes import BOOL, FLOATS
from eagerflow.op import Cost, Into
from eagerflow.ops.family import define
from eagerflow.ops.nn import recurrent_facts as facts
from eagerflow.ops.nn.recurrent_slopes import Given, gradient_rule
from eagerflow.primitives.recurrent_cells import CELLS, Cell
from eagerflow.spec import Array, Namespace, TensorSpec

__all__: list[str] = []


def _spec(cell: Cell) -> Callable[..., Any]:
    names = ("g", "g_c")[: cell.states]

    def infer(
        recurrent_kernel: TensorSpec, state: TensorSpec, *rest: Any, reverse: bool = False
    ) -> Any:
        count = cell.beside
        wanted = (cell.states + 4 if count else 2) - len(rest)
        given = Given.of(cell, (*rest, *(None,) * wanted))
        facts.check_ranks(recurrent_kernel=(recurrent_kernel, 2), state=(state, 3))
        *lead, batch, steps, units = state.shape
        wide = cell.values * units
        own = {name: (x, state.shape) for name, x in zip(names, given.g, strict=True)}
        facts.check_shapes(
            (),
            recurrent_kernel=(recurrent_kernel, (*lead, units, cell.gates * units)),
            gates=(given.values, (*lead, batch, steps, wide)),
            **own,
            g_gates=(given.g_values, (*lead, batch, steps, wide)),
            start=(given.start, (*lead, batch, units)),
            mask=(given.mask, (*lead, batch, steps)),
        )
        starts = [state.like((*lead, batch, units))] * cell.states
        shapes = (*lead, batch, steps, wide), (*lead, batch, wide)
        return (*[state.like(x) for x in shapes], *starts)

    return infer


def _cost(recurrent_kernel: TensorSpec, state: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
    wide = recurrent_kernel.shape[-1]
    examples = state.size // state.shape[-1] if state.shape[-1] else 0
    size = 2 * examples * wide + 3 * state.size + recurrent_kernel.size
    return Cost(2 * state.size * wide + 20 * examples * wide, size * state.dtype.itemsize)


def _into(name: str) -> Callable[..., Into | None]:
    """The fact ``into``: machine code writes the results, if it supports the network."""
    cell = CELLS[name]

    def native(kernel: Any, state: Any, *rest: Any, reverse: bool) -> Any:
        many = len(rest) - cell.states - 2
        own, made = Given.of(cell, rest[:many]), rest[many:]
        given = kernel, state, own.values, own.g, own.start, own.mask, reverse
        return primitives.compiled_recurrence.gradient_call(name, *given, made)

    def into(kernel: Any, state: Any, *rest: Any, reverse: bool) -> Into | None:
        compiled = primitives.compiled_recurrence
        if len(state.shape) != 3 or Given.of(cell, rest).g_values is not None:
            return None
        if not compiled.takes(name, state.dtype, compiled.size_of_gradient(state)):
            return None
        return Into(None, partial(native, reverse=reverse), "fd?")

    return into


def _gradient(name: str) -> Callable[..., Any]:
    """The decorator of the gradient of a cell's op."""
    cell = CELLS[name]
    floats = cell.states + 5 if cell.beside else 3
    known = "gates" if cell.beside else ""
    more = [f"g_{n}" for n in ("c", "gates")[2 - cell.states :]] if cell.beside else []
    start = f"{facts.STATES[cell.states - 1]}_start" if cell.beside else ""
    return define(
        "contraction",
        dtypes=(*(FLOATS,) * floats, BOOL),
        together=tuple(range(floats)),
        infer=_spec(cell),
        outputs=cell.states + 2,
        vjp=gradient_rule(name),
        saves=" ".join(
            ["recurrent_kernel", facts.STATES[cell.states - 1], known, "g", *more, start, "mask"]
        ),
        batch=facts.batching((0,), cell.states + 2),
        split=facts.splitting((0,), 1),
        into=_into(name),
        cost=_cost,
        ulp=256,
    )


# The ops -----------------------------------------------------------------------------------------


@_gradient("simple_rnn")
def simple_rnn_gradient(
    xp: Namespace,
    recurrent_kernel: Array,
    h: Array,
    g: Array,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The gradient of simple_rnn with respect to its tanh's argument, from that of its result
    ``h``.

    The arguments have the shapes that they have there, and ``g`` has that of ``h``. The results
    are (..., batch, steps, units); its sum over the steps, (..., batch, units); and the gradient
    by the state before the first step, as far as it does not pass through the tanh. Raises
    ShapeError where shapes do not fit.

    >>> from eagerflow.ops.nn.recurrent_gradients import simple_rnn_gradient
    >>> h = ef.full((1, 2, 1), 0.5)
    >>> simple_rnn_gradient(ef.ones((1, 1)), h, ef.ones((1, 2, 1)))[0].reshape((2,))
    Tensor([1.3125, 0.75  ], float32, cpu:0)
    """
    found: Any = primitives.recurrence.gradient(
        xp, "simple_rnn", recurrent_kernel, h, None, (g,), None, None, mask, reverse
    )
    return found


@_gradient("lstm")
def lstm_gradient(
    xp: Namespace,
    recurrent_kernel: Array,
    c: Array,
    gates: Array,
    g: Array,
    g_c: Array = None,
    g_gates: Array = None,
    c_start: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The gradients of lstm_training by its gates before their activations, from those by its
    results.

    ``g``, ``g_c`` and ``g_gates`` have the shapes of its results; of these, ``c`` and ``gates``
    are given. ``c_start`` is the cell state before the first step, by default zeros. The results
    are (..., batch, steps, 4 * units); its sum over the steps; and the gradients by h and c before
    the first step, as far as they do not pass through the gates. Raises ShapeError where shapes do
    not fit.

    >>> from eagerflow.ops.nn.recurrent_gradients import lstm_gradient
    >>> one, half = ef.ones((1, 1, 1)), ef.full((1, 1, 4), 0.5)
    >>> lstm_gradient(ef.zeros((1, 4)), ef.zeros((1, 1, 1)), half, one)[0].reshape((4,))
    Tensor([0.0625, 0.    , 0.1875, 0.    ], float32, cpu:0)
    """
    given = recurrent_kernel, c, gates, (g, g_c), g_gates, c_start, mask, reverse
    found: Any = primitives.recurrence.gradient(xp, "lstm", *given)
    return found


@_gradient("gru")
def gru_gradient(
    xp: Namespace,
    recurrent_kernel: Array,
    h: Array,
    gates: Array,
    g: Array,
    g_gates: Array = None,
    h_start: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The gradients of gru_training by its gates before their activations, from those by its
    results.

    ``g`` and ``g_gates`` have the shapes of its results ``h`` and ``gates``. ``h_start`` is the
    state before the first step, by default zeros. The results are (..., batch, steps, 4 * units),
    the last of which are for the product of the previous output in the new content; its sum over
    the steps; and the gradient of the initial state, as far as it does not pass through the gates.
    Raises ShapeError where shapes do not fit.

    >>> from eagerflow.ops.nn.recurrent_gradients import gru_gradient
    >>> one, half = ef.ones((1, 1, 1)), ef.full((1, 1, 4), 0.5)
    >>> gru_gradient(ef.zeros((1, 3)), one, half, one)[0].reshape((4,))
    Tensor([-0.125 ,  0.0469,  0.375 ,  0.1875], float32, cpu:0)
    """
    given = recurrent_kernel, h, gates, (g,), g_gates, h_start, mask, reverse
    found: Any = primitives.recurrence.gradient(xp, "gru", *given)
    return found
