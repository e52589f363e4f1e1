"""What a step of a recurrent cell does, in scalar instructions: on arrays and in machine code.

The gates of a cell are columns of its kernels. Those that are ``apart``, the last ones, have two
values: what the inputs bring, and behind all gates what the output before brings; others have the
sum of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Values = list[Any]


class Slopes(NamedTuple):
    """Gradients by the values of the gates, and by the states before."""

    gates: Values
    """Before their activations."""
    states: Values
    """Where these do not pass through the gates; None for zero."""


class Cell(NamedTuple):
    """A cell: how many there are of a kind for each unit, and its step forward and back."""

    gates: int
    apart: int
    states: int
    activations: tuple[str, ...]
    """Of the values of gates that the gradient needs: "sigmoid", "tanh" or "" for none."""
    step: Callable[[Any, Values, Values], tuple[Values, Values]]
    """``step(s, values, before)`` gives the values after their activations, as far as the gradient
    needs them, and the states."""
    back: Callable[[Any, Values, Values, Values, Values], Slopes]
    """``back(s, values, before, after, g)`` takes these, and gradients by the states."""

    @property
    def values(self) -> int:
        """How many values the gates have."""
        return self.gates + self.apart

    @property
    def of_output(self) -> list[int]:
        """Which values the output before is a part of, in the order of the gates."""
        both = self.gates - self.apart
        return [*range(both), *range(self.gates, self.values)]


def slope(s: Any, activation: str, y: Any) -> Any:
    """The derivative of an activation, from its value."""
    if activation == "sigmoid":
        return s.multiply(y, s.subtract(1, y))
    return s.subtract(1, s.multiply(y, y)) if activation else s.multiply(y, 0)


def _simple_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    return [], [s.tanh(values[0])]


def _simple_back(s: Any, values: Values, before: Values, after: Values, g: Values) -> Slopes:
    return Slopes([s.multiply(g[0], slope(s, "tanh", after[0]))], [None])


def _lstm_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    i, f, o = (s.sigmoid(values[at]) for at in (0, 1, 3))
    new = s.tanh(values[2])
    c = s.add(s.multiply(f, before[1]), s.multiply(i, new))
    return [i, f, new, o], [s.multiply(o, s.tanh(c)), c]


def _lstm_back(s: Any, values: Values, before: Values, after: Values, g: Values) -> Slopes:
    i, f, new, o = values
    top = s.tanh(after[1])
    of_c = s.add(s.multiply(s.multiply(g[0], o), slope(s, "tanh", top)), g[1])
    gates = [
        s.multiply(s.multiply(of_c, new), slope(s, "sigmoid", i)),
        s.multiply(s.multiply(of_c, before[1]), slope(s, "sigmoid", f)),
        s.multiply(s.multiply(of_c, i), slope(s, "tanh", new)),
        s.multiply(s.multiply(g[0], top), slope(s, "sigmoid", o)),
    ]
    return Slopes(gates, [None, s.multiply(of_c, f)])


def _gru_step(s: Any, values: Values, before: Values) -> tuple[Values, Values]:
    z, r = s.sigmoid(values[0]), s.sigmoid(values[1])
    new = s.tanh(s.add(values[2], s.multiply(r, values[3])))
    h = s.add(s.multiply(z, s.subtract(before[0], new)), new)
    return [z, r, new, values[3]], [h]


def _gru_back(s: Any, values: Values, before: Values, after: Values, g: Values) -> Slopes:
    z, r, new, u = values
    through = s.multiply(g[0], z)
    of_new = s.multiply(s.subtract(g[0], through), slope(s, "tanh", new))
    of_z = s.multiply(s.multiply(g[0], s.subtract(before[0], new)), slope(s, "sigmoid", z))
    of_r = s.multiply(s.multiply(of_new, u), slope(s, "sigmoid", r))
    return Slopes([of_z, of_r, of_new, s.multiply(of_new, r)], [through])


_GATES = ("sigmoid", "sigmoid", "tanh")

CELLS = {
    "gru": Cell(3, 1, 1, (*_GATES, ""), _gru_step, _gru_back),
    "lstm": Cell(4, 0, 2, (*_GATES, "sigmoid"), _lstm_step, _lstm_back),
    "simple_rnn": Cell(1, 0, 1, (), _simple_step, _simple_back),
}
"""The cells by the names of their ops."""
