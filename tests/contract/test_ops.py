"""The contract that every op keeps, checked from the op's own facts.

A new op is tested without a line of test code. ``EAGERFLOW_SOAK=1`` checks all samples instead
of a few.
"""

import pytest

from tests.contract.cases import shipped
from tests.contract.checks import CHECKS
from tests.contract.registry import NotApplicable

OPS = shipped()
CASES = [(check, op) for op in OPS for check in CHECKS.values() if check.excuse(op) is None]


@pytest.mark.parametrize(
    ("check", "op"),
    [
        pytest.param(check, op, id=f"{check.name}-{op.name}", marks=pytest.mark.sampled(check.step))
        for check, op in CASES
    ],
)
def test_contract(check, op):
    try:
        check(op)
    except NotApplicable as reason:
        pytest.skip(f"{check.name} of {op.name}: {reason}")


def test_every_check_is_for_some_op(capsys):
    """Prints for each check how many ops it is for, and why it is not for the others."""
    with capsys.disabled():
        print(f"\n{len(OPS)} ops, {len(CASES)} checks of ops")
    for check in CHECKS.values():
        excuses = {op.name: check.excuse(op) for op in OPS}
        excused = {name: reason for name, reason in excuses.items() if reason is not None}
        print(f"{check.name}: {len(OPS) - len(excused)} of {len(OPS)} ops")
        for name, reason in excused.items():
            print(f"    not {name}: {reason}")
        assert len(excused) < len(OPS), f"{check.name} checks nothing"
