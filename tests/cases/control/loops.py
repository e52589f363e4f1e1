"""Cases of eagerflow/capture/control/loops.py."""

from tests.cases.control.samples import reference_run, while_errors, while_samples
from tests.cases.samples import Cases


def _reference(*operands, cond, body, states, maximum_iterations):
    values, count = list(operands), 0
    while count < maximum_iterations and reference_run(cond, values)[0]:
        values[:states] = reference_run(body, values)
        count += 1
    return tuple(values[:states])


CASES = {
    "while_loop": Cases(samples=while_samples, errors=while_errors, reference=_reference),
}
