"""Gradients of recurrent networks by the values of their gates: one op for each cell.

Forward, small changes of a network follow a linear recurrence (see ``recurrence``), whose
coefficients are ``slopes`` of the values of gates and of states. These ops are its transpose, made
step by step; written out in public ops, it is what their own gradients are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow import primitives
from eagerflow.dtypes import BOOL, FLOATS, DType
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample
from eagerflow.ops.creation.filled import eye, zeros_like
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.family import define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn import recurrent_facts as facts
from eagerflow.ops.nn.recurrence import block_recurrence, factor_gradients, rows, shifted
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.joining import concat, split, stack
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives.recurrent_cells import CELLS, Cell
from eagerflow.spec import Array, Namespace, TensorSpec

__all__: list[str] = []


# Slopes ------------------------------------------------------------------------------------------


class _Slopes(NamedTuple):
    """How a cell's states change, in public ops.

    ``of(values, before, after)`` gives ``held``, rows of slopes by the states before, and ``by``,
    rows of slopes by the values of gates, a row for each state. ``back`` takes the same, and
    gradients by ``held`` and ``by``; it gives those by values, before and after.
    """

    of: Callable[..., tuple[Any, Any]]
    back: Callable[..., tuple[Any, Any, Any]]
    beside_back: Callable[..., tuple[Any, Any]] | None = None
    """``beside_back(values, g, found)`` gives the gradients by g and values of the cell's ``beside``,
    from those by its result."""


def _simple_slopes(values: Any, before: Any, after: Any) -> tuple[Any, Any]:
    return [[zeros_like(after)]], [[1 - after * after]]


def _simple_back(values: Any, before: Any, after: Any, held: Any, by: Any) -> Any:
    return [], zeros_like(after), -2 * after * by[0][0]


def _lstm_slopes(values: Any, before: Any, after: Any) -> tuple[Any, Any]:
    i, f, new, o = values
    top = tanh(after)
    through = o * (1 - top * top)
    to_c = [new * i * (1 - i), before * f * (1 - f), i * (1 - new * new)]
    to_h = [through * part for part in to_c]
    nothing = zeros_like(before)
    held = [[nothing, through * f], [nothing, f]]
    return held, [[*to_h, top * o * (1 - o)], [*to_c, nothing]]


def _lstm_back(values: Any, before: Any, after: Any, held: Any, by: Any) -> Any:
    i, f, new, o = values
    top = tanh(after)
    flat = 1 - top * top
    through = o * flat
    to_c = [new * i * (1 - i), before * f * (1 - f), i * (1 - new * new)]
    of_c = [b + through * a for a, b in zip(by[0][:3], by[1][:3], strict=True)]
    of_through = f * held[0][1] + sum(a * b for a, b in zip(to_c, by[0][:3], strict=True))
    of_top = by[0][3] * o * (1 - o) - 2 * top * o * of_through
    of_values = [
        of_c[0] * new * (1 - 2 * i) + of_c[2] * (1 - new * new),
        of_c[1] * before * (1 - 2 * f) + through * held[0][1] + held[1][1],
        of_c[0] * i * (1 - i) - 2 * of_c[2] * i * new,
        of_through * flat + by[0][3] * top * (1 - 2 * o),
    ]
    return of_values, of_c[1] * f * (1 - f), of_top * flat


def _lstm_beside_back(values: Any, g: Any, found: Any) -> tuple[Any, Any]:
    i, f, new, o = values
    steep = i * (1 - i), f * (1 - f), 1 - new * new, o * (1 - o)
    curved = 1 - 2 * i, 1 - 2 * f, -2 * new, 1 - 2 * o
    of_g = [a * b for a, b in zip(found, steep, strict=True)]
    return of_g, [a * b * c for a, b, c in zip(found, g, curved, strict=True)]


def _gru_slopes(values: Any, before: Any, after: Any) -> tuple[Any, Any]:
    z, r, new, u = values
    by_new = (1 - z) * (1 - new * new)
    row = [(before - new) * z * (1 - z), by_new * u * r * (1 - r), by_new, by_new * r]
    return [[z]], [row]


def _gru_back(values: Any, before: Any, after: Any, held: Any, by: Any) -> Any:
    z, r, new, u = values
    ((of_z, of_r, of_new, of_u),) = by
    flat, steep = 1 - new * new, r * (1 - r)
    by_new = (1 - z) * flat
    of_by_new = of_r * u * steep + of_new + of_u * r
    of_apart = of_z * z * (1 - z)
    of_values = [
        held[0][0] + of_z * (before - new) * (1 - 2 * z) - of_by_new * flat,
        by_new * (of_r * u * (1 - 2 * r) + of_u),
        -of_apart - 2 * of_by_new * new * (1 - z),
        of_r * by_new * steep,
    ]
    return of_values, of_apart, zeros_like(after)


def _gru_beside_back(values: Any, g: Any, found: Any) -> tuple[Any, Any]:
    z, r, new, u = values
    flat, steep = 1 - new * new, r * (1 - r)
    of_new = g[2] * flat
    through = found[1] * steep * u + found[2] + found[3] * r
    of_values = [
        found[0] * g[0] * (1 - 2 * z),
        found[1] * (g[1] + of_new * u) * (1 - 2 * r) + found[3] * of_new,
        -2 * through * g[2] * new,
        found[1] * steep * of_new,
    ]
    return [found[0] * z * (1 - z), found[1] * steep, through * flat, found[3]], of_values


_SLOPES = {
    "gru": _Slopes(_gru_slopes, _gru_back, _gru_beside_back),
    "lstm": _Slopes(_lstm_slopes, _lstm_back, _lstm_beside_back),
    "simple_rnn": _Slopes(_simple_slopes, _simple_back),
}


def _pairs(blocks: Sequence[Sequence[Any]]) -> Any:
    """Rows of slopes as a tensor of axes (..., row, column, units)."""
    whole = stack([part for row in blocks for part in row], axis=-2)
    return reshape(whole, (*whole.shape[:-2], len(blocks), len(blocks[0]), whole.shape[-1]))


def _apart(x: Any) -> list[list[Any]]:
    """The parts of such a tensor."""
    return [[x[..., i, j, :] for j in range(x.shape[-2])] for i in range(x.shape[-3])]


def _parts(x: Any, count: int) -> Any:
    """A tensor of axes (..., count, units) from one of (..., count * units)."""
    return reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))


def _columns(cell: Cell, x: Any) -> Any:
    """Of axes (..., values, units) those that the output before is a part of."""
    if not cell.apart:
        return x
    both = cell.gates - cell.apart
    return concat([x[..., :both, :], x[..., cell.gates :, :]], axis=-2)


def _placed(cell: Cell, x: Any) -> Any:
    """The opposite, with zeros elsewhere."""
    if not cell.apart:
        return x
    both = cell.gates - cell.apart
    parts = [x[..., :both, :], zeros_like(x[..., both:, :]), x[..., both:, :]]
    return concat(parts, axis=-2)


# The gradients' gradients --------------------------------------------------------------------------


class _Given(NamedTuple):
    """The arguments of a gradient behind the kernel and the state."""

    values: Any
    g: tuple[Any, ...]
    g_values: Any
    start: Any
    mask: Any

    @classmethod
    def of(cls, cell: Cell, rest: Sequence[Any]) -> _Given:
        """From these arguments, in the order that ops have them."""
        if not cell.beside:
            return cls(None, tuple(rest[:-1]), None, None, rest[-1])
        values, *g, g_values, start, mask = rest
        return cls(values, tuple(g), g_values, start, mask)


def _first_step(x: Any, like: Any, reverse: bool) -> Any:
    """What belongs to the first step, with zeros for all others; along the steps of ``like``."""
    first, rest = like[..., :1, :, :], like[..., 1:, :, :]
    found = zeros_like(first) + x[..., None, :, :]  # no step has no first one
    parts = [found, zeros_like(rest)]
    return concat(parts[::-1] if reverse else parts, axis=-3)


class _PublicOps:
    """The scalar instructions of cells as public ops."""

    add, multiply, subtract = staticmethod(add), staticmethod(multiply), staticmethod(subtract)


class _Beside:
    """What gradients by the values kept add to those by the values of gates."""

    def __init__(self, name: str, values: Any, g_values: Any) -> None:
        self.cell, self.slopes = CELLS[name], _SLOPES[name]
        self.values, self.g = (split(x, self.cell.values, axis=-1) for x in (values, g_values))
        assert self.cell.beside is not None
        found = self.cell.beside(_PublicOps, self.values, self.g)
        own = _columns(self.cell, stack(found, axis=-2))
        self.products = reshape(own, (*own.shape[:-2], own.shape[-2] * own.shape[-1]))

    def by_output(self, kernel: Any, reverse: bool) -> Any:
        """What comes through the products of the output with the kernel, by this output."""
        found = matmul(rows(self.products), transposed(kernel))
        found = reshape(found, (*self.products.shape[:-1], found.shape[-1]))
        return shifted(found, None, not reverse, -2)

    def back(self, output: Any, kernel: Any, own: Any, reverse: bool) -> tuple[Any, Any, Any]:
        """Gradients by g, by the values kept and by the kernel.

        They are pulled back from those by ``by_output``, and by all values of gates.
        """
        before = rows(shifted(output, None, reverse, -2))
        of_products = reshape(matmul(before, kernel), self.products.shape)
        own = own + _placed(self.cell, _parts(of_products, self.cell.gates))
        found = [own[..., k, :] for k in range(self.cell.values)]
        assert self.slopes.beside_back is not None
        of_g, of_values = self.slopes.beside_back(self.values, self.g, found)
        of_kernel = matmul(transposed(before), rows(self.products))
        return concat(of_g, axis=-1), concat(of_values, axis=-1), of_kernel


def _masked(mask: Any, held: Any, by: Any) -> tuple[Any, Any]:
    """Slopes of steps that hold the states where ``mask`` is False."""
    if mask is None:
        return held, by
    seen = mask[..., None, None, None]
    same = eye(held.shape[-2], dtype=held.dtype, device=str(held.device))[..., None]
    return where(seen, held, same), where(seen, by, 0)


def _rule(name: str) -> Callable[..., Any]:
    """The gradient of the transposed recurrence, and of what its slopes are made of."""
    cell, slopes = CELLS[name], _SLOPES[name]

    def vjp(
        g: Any, y: Any, kernel: Any, state: Any, *rest: Any, reverse: bool
    ) -> tuple[Any, ...]:
        given = _Given.of(cell, rest)
        start = None if given.start is None else given.start[..., None, :]
        before = shifted(state, start, reverse, -2)
        values = [] if given.values is None else split(given.values, cell.values, axis=-1)
        held, by = _masked(given.mask, *map(_pairs, slopes.of(values, before, state)))
        gates = _columns(cell, by)
        by_states = [zeros_like(state) if x is None else x for x in given.g]
        beside = None if given.g_values is None else _Beside(name, given.values, given.g_values)
        if beside is not None:
            by_states[0] = by_states[0] + beside.by_output(kernel, reverse)
        by_states = stack(by_states, axis=-2)
        adjoint = block_recurrence(by_states, held, gates, kernel, reverse=reverse, transposed=True)
        own = _parts(g[0] + g[1][..., None, :], cell.values)
        ends = _first_step(stack(g[2:], axis=-2), adjoint, reverse)
        of_adjoint = total(by * own[..., None, :, :], axis=-2)
        of_adjoint = of_adjoint + total(held * ends[..., None, :, :], axis=-2)
        other = block_recurrence(of_adjoint, held, gates, kernel, reverse=reverse)
        of_held, of_gates, of_kernel = factor_gradients(other, adjoint, gates, kernel, reverse)
        of_held = of_held + adjoint[..., :, None, :] * ends[..., None, :, :]
        of_by = adjoint[..., :, None, :] * own[..., None, :, :] + _placed(cell, of_gates)
        if given.mask is not None:
            seen = given.mask[..., None, None, None]
            of_held, of_by = where(seen, of_held, 0), where(seen, of_by, 0)
        of_values, of_before, of_after = slopes.back(
            values, before, state, _apart(of_held), _apart(of_by)
        )
        of_state = of_after + shifted(of_before, None, not reverse, -2)
        of_g = [None if x is None else other[..., k, :] for k, x in enumerate(given.g)]
        if not values:
            return of_kernel, of_state, *of_g, None
        of_values, of_g_values = concat(of_values, axis=-1), None
        if beside is not None:
            of_g_values, *more = beside.back(other[..., 0, :], kernel, own, reverse)
            of_values, of_kernel = of_values + more[0], of_kernel + more[1]
        first = slice(-1, None) if reverse else slice(None, 1)
        of_start = None if given.start is None else total(of_before[..., first, :], axis=-2)
        return of_kernel, of_state, of_values, *of_g, of_g_values, of_start, None

    return in_float32(vjp)


# The other facts ---------------------------------------------------------------------------------


def _spec(cell: Cell) -> Callable[..., Any]:
    names = ("g", "g_c")[: cell.states]

    def infer(
        recurrent_kernel: TensorSpec, state: TensorSpec, *rest: Any, reverse: bool = False
    ) -> Any:
        count = cell.beside
        wanted = (cell.states + 4 if count else 2) - len(rest)
        given = _Given.of(cell, (*rest, *(None,) * wanted))
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
        return (*map(state.like, shapes), *starts)

    return infer


def _cost(recurrent_kernel: TensorSpec, state: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
    wide = recurrent_kernel.shape[-1]
    examples = state.size // state.shape[-1] if state.shape[-1] else 0
    size = 2 * examples * wide + 3 * state.size + recurrent_kernel.size
    return Cost(2 * state.size * wide + 20 * examples * wide, size * state.dtype.itemsize)


def _samples(cell: Cell) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = []
        for size in facts.SIZES:
            lead, steps, units = size["lead"], size["steps"], size["units"]
            given = size.get("given", "")
            state, values = (*lead, steps, units), (*lead, steps, cell.values * units)
            args = [make(rng, dtype, (*lead[:-1], units, cell.gates * units), -1, 1)]
            args.append(make(rng, dtype, state, -1, 1))
            if cell.beside:
                args.append(make(rng, dtype, values, 0.1, 0.9))
            args.append(make(rng, dtype, state, -1, 1))
            args += [
                make(rng, dtype, state, -1, 1) if "b" in given else None
                for _ in range(cell.states - 1)
            ]
            if cell.beside:
                args.append(make(rng, dtype, values, -1, 1) if "m" in given else None)
                args.append(make(rng, dtype, (*lead, units), -1, 1) if "s" in given else None)
            args.append(rng.random((*lead, steps)) < 0.6 if "m" in given else None)
            found.append(Sample(tuple(args), {"reverse": size.get("reverse", False)}))
        return found

    return samples


def _errors(cell: Cell) -> Callable[..., list[ErrorSample]]:
    def errors(rng: np.random.Generator) -> list[ErrorSample]:
        kernel, state = np.ones((4, 4 * cell.gates)), np.ones((2, 3, 4))
        values = (np.ones((2, 3, 4 * cell.values)),) if cell.beside else ()
        none = (None,) * ((cell.states + 1) * (cell.beside is not None))
        mask = np.ones((2, 4), bool)
        return [
            ErrorSample((kernel[0], state, *values, state), {}, ShapeError, "1 axes came"),
            ErrorSample((kernel[:3], state, *values, state), {}, ShapeError, "expected: shape (4,"),
            ErrorSample((kernel, state, *values, state[:1]), {}, ShapeError, "g has shape (1,"),
            ErrorSample((kernel, state, *values, state, *none, mask), {}, ShapeError, "(2, 4)"),
        ]

    return errors


def _reference(cell: Cell, one: Callable[..., Any], kept: Any) -> Callable[..., Any]:
    """The definition, one example, step and unit at a time, by ``one(values, before, after, *g)``.

    That gives the gradients by the values of a unit's gates, and by its states before;
    ``kept(*values)`` the derivatives of what is kept.
    """

    def reference(kernel: Any, state: Any, *rest: Any, reverse: bool) -> Any:
        given = _Given.of(cell, rest)
        *lead, steps, units = state.shape
        out = np.zeros((*lead, steps, cell.values, units))
        ends = np.zeros((cell.states, *lead, units))
        for at in np.ndindex(*lead):
            weights = np.asarray(kernel[at[:-1]], float).reshape(units, cell.gates, units)
            held = np.zeros((cell.states, units))
            onward = np.zeros(units)
            order = range(steps)[:: 1 if reverse else -1]
            for t, earlier in zip(order, [*order[1:], None], strict=True):
                if earlier is None:
                    before = np.zeros(units) if given.start is None else given.start[at]
                else:
                    before = state[at][earlier]
                g = held + [0 if x is None else np.asarray(x[at][t], float) for x in given.g]
                g[0] += onward
                own = np.zeros((cell.values, units))
                if given.values is not None:
                    own[:] = given.values[at][t].reshape(own.shape)
                if given.mask is not None and not given.mask[at][t]:
                    held = g
                else:
                    for j in range(units):
                        numbers = own[:, j].tolist(), float(before[j]), float(state[at][t][j])
                        out[at][t][:, j], held[:, j] = one(*numbers, *g[:, j].tolist())
                if given.g_values is not None:
                    beside = np.asarray(given.g_values[at][t], float).reshape(own.shape)
                    for j in range(units):
                        out[at][t][:, j] += kept(*own[:, j]).T @ beside[:, j]
                onward = np.einsum("kj,mkj->m", out[at][t][cell.of_output], weights)
            ends[(slice(None), *at)] = held
        out = out.reshape(*lead, steps, cell.values * units)
        return (out, out.sum(axis=-2), *ends)

    return reference


def _lstm_kept(i: float, f: float, n: float, o: float) -> Any:
    """The derivatives of the values kept by those of the gates."""
    return np.diag([i - i**2, f - f**2, 1 - n**2, o - o**2])


def _gru_kept(z: float, r: float, n: float, u: float) -> Any:
    found = np.diag([z - z**2, r - r**2, 1 - n**2, 1])
    found[2, 1], found[2, 3] = (1 - n**2) * u * (r - r**2), (1 - n**2) * r
    return found


def _simple_one(values: Any, before: float, after: float, g: float) -> Any:
    return [g * (1 - after**2)], [0.0]


def _lstm_one(values: Any, before: float, after: float, g: float, g_c: float) -> Any:
    i, f, n, o = values
    top = float(np.tanh(after))
    of_c = g_c + g * o * (1 - top**2)
    gates = of_c * n * (i - i**2), of_c * before * (f - f**2), of_c * i * (1 - n**2)
    return [*gates, g * top * (o - o**2)], [0.0, of_c * f]


def _gru_one(values: Any, before: float, after: float, g: float) -> Any:
    z, r, n, u = values
    of_n = g * (1 - z) * (1 - n**2)
    return [g * (before - n) * (z - z**2), of_n * u * (r - r**2), of_n, of_n * r], [g * z]


def _gradient(name: str, one: Callable[..., Any], kept: Any = None) -> Callable[..., Any]:
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
        vjp=_rule(name),
        saves=" ".join(
            ["recurrent_kernel", facts.STATES[cell.states - 1], known, "g", *more, start, "mask"]
        ),
        batch=facts.batching((0,), cell.states + 2),
        split=facts.splitting((0,), 1),
        cost=_cost,
        onnx=Missing("exported as Loop of its steps"),
        samples=_samples(cell),
        errors=_errors(cell),
        reference=_reference(cell, one, kept),
        ulp=256,
    )


# The ops -----------------------------------------------------------------------------------------


@_gradient("simple_rnn", _simple_one)
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
    """The gradient of simple_rnn by what stands within its tanh, from that by its result ``h``.

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


@_gradient("lstm", _lstm_one, _lstm_kept)
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


@_gradient("gru", _gru_one, _gru_kept)
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
    of which the last ones are by the product of the output before in the new content; its sum over
    the steps; and the gradient by the state before the first step, as far as it does not pass
    through the gates. Raises ShapeError where shapes do not fit.

    >>> from eagerflow.ops.nn.recurrent_gradients import gru_gradient
    >>> one, half = ef.ones((1, 1, 1)), ef.full((1, 1, 4), 0.5)
    >>> gru_gradient(ef.zeros((1, 3)), one, half, one)[0].reshape((4,))
    Tensor([-0.125 ,  0.0469,  0.375 ,  0.1875], float32, cpu:0)
    """
    given = recurrent_kernel, h, gates, (g,), g_gates, h_start, mask, reverse
    found: Any = primitives.recurrence.gradient(xp, "gru", *given)
    return found
