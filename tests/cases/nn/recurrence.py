"""Cases of eagerflow/ops/nn/recurrence.py."""

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    def of(*lead, steps, blocks, gates, units, **more):
        whole = (*lead, steps, blocks)
        arrays = [
            make(rng, dtype, shape, -1, 1)
            for shape in (
                (*whole, units),
                (*whole, blocks, units),
                (*whole, gates, units),
                (*lead[:-1], units, gates * units),
            )
        ]
        return Sample(tuple(arrays), more)

    ways = [{}, {"reverse": True}, {"transposed": True}, {"reverse": True, "transposed": True}]
    return [
        *(of(2, steps=3, blocks=2, gates=2, units=2, **way) for way in ways),
        of(1, steps=4, blocks=1, gates=3, units=2),
        of(2, 1, steps=3, blocks=1, gates=1, units=2, transposed=True),
        of(2, steps=1, blocks=1, gates=1, units=1),
        of(3, steps=2, blocks=2, gates=1, units=1),
        of(1, steps=2, blocks=1, gates=1, units=4, reverse=True),
        of(5, steps=2, blocks=1, gates=2, units=1, transposed=True),
        of(2, steps=0, blocks=1, gates=1, units=2),
        of(0, steps=2, blocks=1, gates=2, units=2, transposed=True),
    ]


def _errors(rng):
    x, held, gates, kernel = (
        np.ones(s) for s in ((2, 3, 1, 4), (2, 3, 1, 1, 4), (2, 3, 1, 2, 4), (4, 8))
    )
    return [
        ErrorSample((x[0], held, gates, kernel), {}, ShapeError, "3 axes given"),
        ErrorSample((x, held[:1], gates, kernel), {}, ShapeError, "held has shape (1, 3, 1, 1, 4)"),
        ErrorSample((x, held, gates[:, :2], kernel), {}, ShapeError, "gates has shape"),
        ErrorSample((x, held, gates, kernel.T), {}, ShapeError, "expected: shape (4, 8)"),
    ]


def _reference(x, held, gates, kernel, *, reverse, transposed):
    """The matrix of all steps, example by example; its transpose is the transposed recurrence."""
    out = np.zeros(x.shape)
    *lead, batch, steps, blocks, units = x.shape
    count = gates.shape[-2]
    order = range(steps)[:: -1 if reverse else 1]
    size = blocks * units
    for at in np.ndindex(*lead, batch):
        weights = np.asarray(kernel[at[:-1]], float).reshape(units, count, units)
        whole = np.eye(steps * size)
        for now, t in enumerate(order[1:], 1):
            step = np.zeros((blocks, units, blocks, units))
            for k, j in np.ndindex(blocks, units):
                for b in range(blocks):
                    step[k, j, b, j] += held[at][t, k, b, j]
                for m in range(count):
                    step[k, j, 0] += float(gates[at][t, k, m, j]) * weights[:, m, j]
            here, before = (slice(n * size, (n + 1) * size) for n in (now, now - 1))
            whole[here] += step.reshape(size, size) @ whole[before]
        given = np.stack([np.asarray(x[at], float)[t] for t in order]) if steps else x[at]
        matrix = whole.T if transposed else whole
        found = (matrix @ given.reshape(-1)).reshape(steps, blocks, units)
        for now, t in enumerate(order):
            out[at][t] = found[now]
    return out


CASES = {
    "block_recurrence": Cases(samples=_samples, errors=_errors, reference=_reference),
}
