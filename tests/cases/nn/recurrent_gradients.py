"""Cases of eagerflow/ops/nn/recurrent_gradients.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.nn.recurrent_slopes import Given
from eagerflow.primitives.recurrent_cells import CELLS
from tests.cases.nn.recurrent import SIZES
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(cell):
    def samples(rng, dtype):
        found = []
        for size in SIZES:
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


def _errors(cell):
    def errors(rng):
        kernel, state = np.ones((4, 4 * cell.gates)), np.ones((2, 3, 4))
        values = (np.ones((2, 3, 4 * cell.values)),) if cell.beside else ()
        none = (None,) * ((cell.states + 1) * (cell.beside is not None))
        mask = np.ones((2, 4), bool)
        return [
            ErrorSample((kernel[0], state, *values, state), {}, ShapeError, "1 axes given"),
            ErrorSample((kernel[:3], state, *values, state), {}, ShapeError, "expected: shape (4,"),
            ErrorSample((kernel, state, *values, state[:1]), {}, ShapeError, "g has shape (1,"),
            ErrorSample((kernel, state, *values, state, *none, mask), {}, ShapeError, "(2, 4)"),
        ]

    return errors


def _reference(cell, one, kept):
    """The definition, one example, step and unit at a time, by ``one(values, before, after, *g)``.

    That returns the gradients of a unit's gate values, and of its previous states;
    ``kept(*values)`` the derivatives of the kept values.
    """

    def reference(kernel, state, *rest, reverse):
        given = Given.of(cell, rest)
        *lead, steps, units = state.shape
        out = np.zeros((*lead, steps, cell.values, units))
        ends = np.zeros((cell.states, *lead, units))
        for at in np.ndindex(*lead):
            weights = np.asarray(kernel[at[:-1]], float).reshape(units, cell.gates, units)
            held = np.zeros((cell.states, units))
            onward = np.zeros(units)
            order = range(steps)[:: 1 if reverse else -1]
            for t, earlier in zip(order, [*order[1:], None], strict=False):
                if earlier is None:
                    before = np.zeros(units) if given.start is None else given.start[at]
                else:
                    before = state[at][earlier]
                g = held + [
                    onward * 0 if x is None else np.asarray(x[at][t], float) for x in given.g
                ]
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


def _simple(values, before, after, g):
    return [g * (1 - after**2)], [0.0]


def _lstm(values, before, after, g, g_c):
    i, f, n, o = values
    top = float(np.tanh(after))
    of_c = g_c + g * o * (1 - top**2)
    gates = of_c * n * (i - i**2), of_c * before * (f - f**2), of_c * i * (1 - n**2)
    return [*gates, g * top * (o - o**2)], [0.0, of_c * f]


def _gru(values, before, after, g):
    z, r, n, u = values
    of_n = g * (1 - z) * (1 - n**2)
    return [g * (before - n) * (z - z**2), of_n * u * (r - r**2), of_n, of_n * r], [g * z]


def _lstm_kept(i, f, n, o):
    """The derivatives of the values kept by those of the gates."""
    return np.diag([i - i**2, f - f**2, 1 - n**2, o - o**2])


def _gru_kept(z, r, n, u):
    found = np.diag([z - z**2, r - r**2, 1 - n**2, 1])
    found[2, 1], found[2, 3] = (1 - n**2) * u * (r - r**2), (1 - n**2) * r
    return found


def _gradient(name, one, kept=None):
    cell = CELLS[name]
    return Cases(_samples(cell), _errors(cell), _reference(cell, one, kept))


CASES = {
    "simple_rnn_gradient": _gradient("simple_rnn", _simple),
    "lstm_gradient": _gradient("lstm", _lstm, _lstm_kept),
    "gru_gradient": _gradient("gru", _gru, _gru_kept),
}
