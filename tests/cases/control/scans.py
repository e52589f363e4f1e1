"""Cases of eagerflow/capture/control/scans.py."""

import numpy as np

from eagerflow.capture.control.bodies import sizes_of
from eagerflow.graph.sizes import with_sizes
from tests.cases.control.samples import reference_run, scan_errors, scan_samples
from tests.cases.samples import Cases


def _reference(
    *operands,
    body,
    carries,
    sequences,
    length,
    reverse,
    compiled,
):
    state, xs = list(operands[:carries]), operands[carries : carries + sequences]
    captured = operands[carries + sequences :]
    steps = len(xs[0]) if length is None else length
    rows = {}
    for i in range(steps)[:: -1 if reverse else 1]:
        outs = reference_run(body, [*state, *(x[i] for x in xs), *captured])
        state, rows[i] = outs[:carries], outs[carries:]
    row_zeros = [np.zeros(x.shape[1:], x.dtype) for x in xs]
    sizes = sizes_of(body, [*state, *row_zeros, *captured], str)
    ys = [
        np.array([rows[i][j] for i in range(steps)], v.dtype).reshape(steps, *v.shape)
        for j, v in enumerate(with_sizes(body, sizes).outputs[carries:])
    ]
    return (*state, *ys)


CASES = {
    "scan": Cases(samples=scan_samples, errors=scan_errors, reference=_reference),
}
