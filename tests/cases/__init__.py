"""The cases of each op: calls that must work, calls that must raise, an independent reference.

They are laid out like ``eagerflow/ops``: the table ``CASES`` of ``tests/cases/shapes/joining.py``
has a row for each op and each composed function of ``eagerflow/ops/shapes/joining.py``.
"""

import importlib

from eagerflow.op import Op, ops
from tests.cases.families import completed
from tests.cases.samples import Cases

__all__ = ["Cases", "cases_of", "of_tests"]

of_tests = {}
"""Cases of ops and functions that tests make."""


def cases_of(op):
    """The cases of an op or a composed function; KeyError if it has none."""
    if op in of_tests:
        return of_tests[op]
    function = ops[op.name].kernel if isinstance(op, Op) else op.call
    _, room, *path = function.__module__.split(".")
    assert room in ("ops", "capture"), function.__module__
    module = importlib.import_module(".".join(("tests.cases", *path)))
    return completed(op, module.CASES[op.name])
