"""The steps of recurrent cells in scalar instructions, for arrays and for machine code.

The gates of a cell are columns of its kernels. The last ones, counted by ``apart``, have two
values: the inputs' contribution, and, after all gates, that of the previous output; others have the
sum of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Values = list[Any]


class Slopes(NamedTuple):
    """Gradients of the gate values, and of the previous states."""

    gates: Values
    """Of pre-activation values."""
    states: Values
    """The part that does not pass through the gates; None for zero."""


class Cell(NamedTuple):
    """A cell: its numbers of values per unit, and its forward and backward step.

    The functions take instructions ``s`` and lists. The values kept for the gradient are the
    ``values`` of the gates after their activations, as returned by ``step``; a cell without
    ``beside`` keeps none.
    """

    gates: int
    apart: int
    states: int
    step: Callable[[Any, Values, Values], tuple[Values, Values]]
    """``step(s, values, before)`` returns the kept values, and the states after the step."""
    back: Callable[[Any, Values, Any, Any, Values], Slopes]
    """``back(s, kept, before, after, g)`` takes the last kind of state before and after the step,
    and the gradients of all states after it."""
    beside: Callable[[Any, Values, Values], Values] | None = None
    """``beside(s, kept, g)`` returns the gradients of gate values that result from gradients of the
    kept values."""

    @property
    def values(self) -> int:
        """The number of gate values."""
        return self.gates + self.apart

    @property
    def of_output(self) -> list[int]:
        """Which values depend on the previous output, in the order of the gates."""
        both = self.gates - self.apart
        return [*range(both), *range(self.gates, self.values)]


def _sigmoid_slope(s: Any, y: Any) -> Any:
    """The derivative of a sigmoid, from its value."""
    return s.multiply(y, s.subtract(1, y))


def _tanh_slope(s: Any, y: Any) -> Any:
    return s.subtract(1, s.multiply(y, y))


def _simple_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    return [], [s.tanh(values[0])]


def _simple_back(s: Any, values: Values, before: Any, after: Any, g: Values) -> Slopes:
    return Slopes([s.multiply(g[0], _tanh_slope(s, after))], [None])


def _lstm_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    i, f, o = (s.sigmoid(values[at]) for at in (0, 1, 3))
    new = s.tanh(values[2])
    c = s.add(s.multiply(f, before[1]), s.multiply(i, new))
    return [i, f, new, o], [s.multiply(o, s.tanh(c)), c]


def _lstm_back(s: Any, values: Values, before: Any, after: Any, g: Values) -> Slopes:
    i, f, new, o = values
    top = s.tanh(after)
    of_c = s.add(s.multiply(s.multiply(g[0], o), _tanh_slope(s, top)), g[1])
    gates = [
        s.multiply(s.multiply(of_c, new), _sigmoid_slope(s, i)),
        s.multiply(s.multiply(of_c, before), _sigmoid_slope(s, f)),
        s.multiply(s.multiply(of_c, i), _tanh_slope(s, new)),
        s.multiply(s.multiply(g[0], top), _sigmoid_slope(s, o)),
    ]
    return Slopes(gates, [None, s.multiply(of_c, f)])


def _lstm_beside(s: Any, kept: Values, g: Values) -> Values:
    i, f, new, o = kept
    steep = _sigmoid_slope(s, i), _sigmoid_slope(s, f), _tanh_slope(s, new), _sigmoid_slope(s, o)
    return [s.multiply(a, b) for a, b in zip(g, steep, strict=True)]


def _gru_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    z, r = s.sigmoid(values[0]), s.sigmoid(values[1])
    new = s.tanh(s.add(values[2], s.multiply(r, values[3])))
    h = s.add(s.multiply(z, s.subtract(before[0], new)), new)
    return [z, r, new, values[3]], [h]


def _gru_back(s: Any, values: Values, before: Any, after: Any, g: Values) -> Slopes:
    z, r, new, u = values
    through = s.multiply(g[0], z)
    of_new = s.multiply(s.subtract(g[0], through), _tanh_slope(s, new))
    of_z = s.multiply(s.multiply(g[0], s.subtract(before, new)), _sigmoid_slope(s, z))
    of_r = s.multiply(s.multiply(of_new, u), _sigmoid_slope(s, r))
    return Slopes([of_z, of_r, of_new, s.multiply(of_new, r)], [through])


def _gru_beside(s: Any, kept: Values, g: Values) -> Values:
    z, r, new, u = kept
    of_new = s.multiply(g[2], _tanh_slope(s, new))
    of_r = s.add(g[1], s.multiply(of_new, u))
    return [
        s.multiply(g[0], _sigmoid_slope(s, z)),
        s.multiply(of_r, _sigmoid_slope(s, r)),
        of_new,
        s.add(g[3], s.multiply(of_new, r)),
    ]


CELLS = {
    "gru": Cell(3, 1, 1, _gru_step, _gru_back, _gru_beside),
    "lstm": Cell(4, 0, 2, _lstm_step, _lstm_back, _lstm_beside),
    "simple_rnn": Cell(1, 0, 1, _simple_step, _simple_back),
}
"""The cells by the names of their ops."""
