"""The gradients of ``recurrent_gradients``, in public ops.

Small changes of a network follow a linear recurrence (see ``recurrence``), whose coefficients are
slopes of the gate values and of states. Gradients of gate values are its transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.ops.creation.filled import eye, zeros_like
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.recurrence import block_recurrence, by_rows, factor_gradients, rows, shifted
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat, split, stack
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives.recurrent_cells import CELLS, Cell

__all__: list[str] = []


# Slopes ------------------------------------------------------------------------------------------


class _Slopes(NamedTuple):
    """How a cell's states change, in public ops.

    ``of(values, before, after)`` returns ``held``, rows of slopes by the previous states, and
    ``by``, rows of slopes by the gate values, a row for each state. ``back`` takes the same, and
    gradients of ``held`` and ``by``; it returns those of values, before and after.
    """

    of: Callable[..., tuple[Any, Any]]
    back: Callable[..., tuple[Any, Any, Any]]
    beside_back: Callable[..., tuple[Any, Any]] | None = None
    """``beside_back(values, g, found)`` returns the gradients of g and of the values of the cell's
    ``beside``, from those of its result."""


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


# Gradients of gradients --------------------------------------------------------------------------


class Given(NamedTuple):
    """The arguments of a gradient after the kernel and the state."""

    values: Any
    g: tuple[Any, ...]
    g_values: Any
    start: Any
    mask: Any

    @classmethod
    def of(cls, cell: Cell, rest: Sequence[Any]) -> Given:
        """From these arguments, in the order that ops have them."""
        if not cell.beside:
            return cls(None, tuple(rest[:-1]), None, None, rest[-1])
        values, *g, g_values, start, mask = rest
        return cls(values, tuple(g), g_values, start, mask)


def _first_step(x: Any, like: Any, reverse: bool) -> Any:
    """The value for the first step, with zeros for all others; along the steps of ``like``."""
    first, rest = like[..., :1, :, :], like[..., 1:, :, :]
    found = zeros_like(first) + x[..., None, :, :]  # the first step is not included
    parts = [found, zeros_like(rest)]
    return concat(parts[::-1] if reverse else parts, axis=-3)


class _PublicOps:
    """The scalar instructions of cells as public ops."""

    add, multiply, subtract = staticmethod(add), staticmethod(multiply), staticmethod(subtract)


class _Beside:
    """The contribution of the kept values' gradients to those of the gate values."""

    def __init__(self, name: str, values: Any, g_values: Any) -> None:
        self.cell, self.slopes = CELLS[name], _SLOPES[name]
        self.values, self.g = (split(x, self.cell.values, axis=-1) for x in (values, g_values))
        assert self.cell.beside is not None
        found = self.cell.beside(_PublicOps, self.values, self.g)
        own = _columns(self.cell, stack(found, axis=-2))
        self.products = reshape(own, (*own.shape[:-2], own.shape[-2] * own.shape[-1]))

    def by_output(self, kernel: Any, reverse: bool) -> Any:
        """The contribution through the products of the output with the kernel, to this output."""
        return shifted(by_rows(self.products, transposed(kernel)), None, not reverse, -2)

    def back(self, output: Any, kernel: Any, own: Any, reverse: bool) -> tuple[Any, Any, Any]:
        """Gradients by g, by the values kept and by the kernel.

        They are pulled back from those by ``by_output``, and by all values of gates.
        """
        before = shifted(output, None, reverse, -2)
        of_products = _parts(by_rows(before, kernel), self.cell.gates)
        own = own + _placed(self.cell, of_products)
        found = [own[..., k, :] for k in range(self.cell.values)]
        assert self.slopes.beside_back is not None
        of_g, of_values = self.slopes.beside_back(self.values, self.g, found)
        of_kernel = matmul(transposed(rows(before)), rows(self.products))
        return concat(of_g, axis=-1), concat(of_values, axis=-1), of_kernel


def _masked(mask: Any, held: Any, by: Any) -> tuple[Any, Any]:
    """Slopes of steps that hold the states where ``mask`` is False."""
    if mask is None:
        return held, by
    seen = mask[..., None, None, None]
    same = eye(held.shape[-2], dtype=held.dtype, device=str(held.device))[..., None]
    return where(seen, held, same), where(seen, by, 0)


def gradient_rule(name: str) -> Callable[..., Any]:
    """The gradient of the transposed recurrence, and of the operands of its slopes."""
    cell, slopes = CELLS[name], _SLOPES[name]

    def vjp(g: Any, y: Any, kernel: Any, state: Any, *rest: Any, reverse: bool) -> tuple[Any, ...]:
        given = Given.of(cell, rest)
        start = None if given.start is None else given.start[..., None, :]
        before = shifted(state, start, reverse, -2)
        values = [] if given.values is None else split(given.values, cell.values, axis=-1)
        held, by = _masked(given.mask, *[_pairs(x) for x in slopes.of(values, before, state)])
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
