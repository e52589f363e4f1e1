"""The list of contract checks: its name, its function, and the ops it is for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from eagerflow.op import Missing
from tests.cases import cases_of

CHECKS = {}


class NotApplicable(Exception):
    """The op has nothing that a check can compare with; the message is the reason."""


class Check(NamedTuple):
    """``run(op)`` raises where the op breaks its contract; ``excuse(op)`` says why not to ask.

    Each day every ``step``-th op is checked: see ``tests/sampling.py``.
    """

    name: str
    run: Callable[[Any], None]
    excuse: Callable[[Any], str | None]
    step: int

    def __call__(self, op):
        self.run(op)


def check(excuse=lambda op: None, step=1):
    """Make a function of an op a check of all ops for which ``excuse(op)`` is None."""

    def decorate(function):
        found = Check(function.__name__, function, excuse, step)
        assert found.name not in CHECKS
        CHECKS[found.name] = found
        return found

    return decorate


def lacks(*facts):
    """An excuse: the reason of the first of these facts that is missing."""

    def excuse(op):
        values = [getattr(op, fact) for fact in facts]
        return next((f"{v.reason}" for v in values if isinstance(v, Missing)), None)

    return excuse


def no_reference(op):
    """An excuse: the reason why there is no reference."""
    return getattr(cases_of(op).reference, "reason", None)


def either(*excuses):
    """The first excuse of several."""
    return lambda op: next((reason for e in excuses if (reason := e(op))), None)


def no_data(op):
    """An excuse: nothing goes in."""
    return None if op.data else "the op has no data arguments"
