"""Cases of eagerflow/ops/nn/recurrent.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.primitives.recurrent_cells import CELLS
from tests.cases.samples import Cases, ErrorSample, Sample, make

SIZES = [
    {"lead": (2,), "steps": 3, "width": 2, "units": 2, "given": "b"},
    {"lead": (1,), "steps": 1, "width": 1, "units": 1},
    {"lead": (2,), "steps": 3, "width": 3, "units": 1, "given": "bs", "reverse": True},
    {"lead": (2,), "steps": 4, "width": 1, "units": 2, "given": "bsm"},
    {"lead": (3,), "steps": 3, "width": 2, "units": 1, "given": "m", "reverse": True},
    {"lead": (2, 2), "steps": 2, "width": 2, "units": 2, "given": "bsm"},
    {"lead": (5,), "steps": 3, "width": 2, "units": 1, "given": "bm"},
    {"lead": (1,), "steps": 2, "width": 4, "units": 1, "given": "s"},
    {"lead": (1,), "steps": 5, "width": 1, "units": 1, "given": "m"},
    {"lead": (1, 2), "steps": 2, "width": 1, "units": 2, "given": "bs", "reverse": True},
    {"lead": (2,), "steps": 0, "width": 2, "units": 2, "given": "s"},
    {"lead": (0,), "steps": 2, "width": 2, "units": 2, "given": "b"},
    {"lead": (2,), "steps": 2, "width": 0, "units": 1, "given": "b"},
]
"""The axes before the steps, and the given arguments: bias, states and mask."""


def _samples(cell):
    def samples(rng, dtype):
        return [_sample(cell, rng, dtype, **size) for size in SIZES]

    return samples


def _sample(
    cell,
    rng,
    dtype,
    *,
    lead,
    steps,
    width,
    units,
    given="",
    **more,
):
    wide, own = cell.gates * units, lead[:-1]
    bias = (*own, 2, wide) if cell.apart else (*own, wide)
    shapes = [(*lead, steps, width), (*own, width, wide), (*own, units, wide)]
    args = [make(rng, dtype, shape, -1, 1) for shape in shapes]
    args.append(make(rng, dtype, bias, -1, 1) if "b" in given else None)
    for _ in range(cell.states):
        args.append(make(rng, dtype, (*lead, units), -1, 1) if "s" in given else None)
    args.append(rng.random((*lead, steps)) < 0.6 if "m" in given else None)
    return Sample(tuple(args), more)


def _errors(cell):
    def errors(rng):
        x, kernel = np.ones((2, 3, 4)), np.ones((4, 5 * cell.gates))
        recurrent = np.ones((5, 5 * cell.gates))
        none = (None,) * (cell.states - 1)
        return [
            ErrorSample((x[0], kernel, recurrent), {}, ShapeError, "2 axes given"),
            ErrorSample((x, kernel[0], recurrent), {}, ShapeError, "kernel has shape"),
            ErrorSample((x, kernel, recurrent[:3]), {}, ShapeError, "expected: shape (4,"),
            ErrorSample((x, kernel, recurrent, x[0]), {}, ShapeError, "bias has shape (3, 4)"),
            ErrorSample((x, kernel, recurrent, None, x), {}, ShapeError, "shape (2, 5)"),
            ErrorSample(
                (x, kernel, recurrent, None, None, *none, np.ones((2, 4), bool)),
                {},
                ShapeError,
                "mask has shape (2, 4)",
            ),
        ]

    return errors


def _reference(cell, one, keep):
    """The definition, one example, step and unit at a time, by ``one(a, u, j, *states)``.

    ``a`` and ``u`` have numbers for each gate and unit; ``one`` returns the kept gate values, and
    the states.
    """

    def reference(x, kernel, recurrent, bias, *rest, reverse):
        *starts, mask = rest
        *lead, steps, _ = x.shape
        units = recurrent.shape[-2]
        out = np.zeros((cell.states, *lead, steps, units))
        gates = np.zeros((*lead, steps, cell.values, units))
        for at in np.ndindex(*lead):
            w, r = (np.asarray(k[at[:-1]], float) for k in (kernel, recurrent))
            b = np.zeros(w.shape[-1]) if bias is None else np.asarray(bias[at[:-1]], float)
            b = b if cell.apart else np.stack([b, b * 0])
            states = [np.zeros(units) if s is None else np.asarray(s[at], float) for s in starts]
            for t in range(steps)[:: -1 if reverse else 1]:
                a = (np.asarray(x[at][t], float) @ w + b[0]).reshape(cell.gates, units).tolist()
                u = (states[0] @ r + b[1]).reshape(cell.gates, units).tolist()
                found = [one(a, u, j, *(s[j] for s in states)) for j in range(units)]
                if cell.beside:
                    gates[at][t] = np.array([values for values, _ in found]).T
                if mask is None or mask[at][t]:
                    states = list(np.array([after for _, after in found]).T)
                for k, state in enumerate(states):
                    out[k][at][t] = state
        kept = [gates.reshape(*lead, steps, cell.values * units)] * keep
        results = (*out, *kept)
        return results if len(results) > 1 else results[0]

    return reference


def _logistic(x):
    return float(1 / (1 + np.exp(-x)))


def _simple(a, u, j, h):
    """A unit of a plain cell."""
    return (), (float(np.tanh(a[0][j] + u[0][j])),)


def _lstm(a, u, j, h, c):
    """A unit of an LSTM."""
    i, f, n, o = (a[k][j] + u[k][j] for k in range(4))
    i, f, n, o = _logistic(i), _logistic(f), float(np.tanh(n)), _logistic(o)
    c = f * c + i * n
    return (i, f, n, o), (o * float(np.tanh(c)), c)


def _gru(a, u, j, h):
    """A unit of a GRU."""
    z, r = _logistic(a[0][j] + u[0][j]), _logistic(a[1][j] + u[1][j])
    n = float(np.tanh(a[2][j] + r * u[2][j]))
    return (z, r, n, u[2][j]), (z * h + (1 - z) * n,)


def _network(name, one, keep=False):
    cell = CELLS[name]
    return Cases(_samples(cell), _errors(cell), _reference(cell, one, keep))


CASES = {
    "simple_rnn": _network("simple_rnn", _simple),
    "lstm_training": _network("lstm", _lstm, keep=True),
    "gru_training": _network("gru", _gru, keep=True),
    "lstm": _network("lstm", _lstm),
    "gru": _network("gru", _gru),
}
