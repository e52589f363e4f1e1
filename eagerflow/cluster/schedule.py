"""Schedules: what came when while workers trained with parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eagerflow.errors import SessionError

__all__ = ["Event", "schedule_ended"]


class Event(NamedTuple):
    """A moment of a schedule: a worker pulled the weights, or its gradients were used.

    ``what`` is ``"pull"`` or ``"push"``, ``worker`` the worker's place among all. Synchronous
    training with backup workers has pushes alone: of those workers that counted, step by step.

    >>> ef.cluster.Event("pull", 0)
    Event(what='pull', worker=0)
    """

    what: str
    worker: int


def schedule_ended(past: Sequence[Event]) -> SessionError:
    """The error of a schedule that has no more events, where there is more to do."""
    return SessionError(
        "the schedule has come to its end, and there is more to do",
        op="ParameterServer",
        argument="schedule",
        received=f"{len(past)} events",
    )
