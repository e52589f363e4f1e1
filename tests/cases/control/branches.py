"""Cases of eagerflow/capture/control/branches.py."""

import numpy as np

from tests.cases.control.samples import branch_errors, branch_samples, reference_run
from tests.cases.samples import Cases

CASES = {
    "cond": Cases(
        samples=branch_samples("cond"),
        errors=branch_errors("cond"),
        reference=lambda pred, *operands, true_graph, false_graph: tuple(
            reference_run((false_graph, true_graph)[int(pred)], operands)
        ),
    ),
    "switch": Cases(
        samples=branch_samples("switch"),
        errors=branch_errors("switch"),
        reference=lambda index, *operands, branches: tuple(
            reference_run(branches[int(np.clip(int(index), 0, len(branches) - 1))], operands)
        ),
    ),
}
