"""Schedules: the order of events while workers train with parameter servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, SessionError, short_repr

__all__ = ["Event", "events_of", "in_turn", "schedule_ended"]


class Event(NamedTuple):
    """An event of a schedule: a worker pulled the weights, or its gradients were used.

    ``what`` is ``"pull"`` or ``"push"``, ``worker`` the worker's index among all. Synchronous
    training with backup workers only has pushes: of those workers that counted, step by step.

    >>> ef.cluster.Event("pull", 0)
    Event(what='pull', worker=0)
    """

    what: str
    worker: int


def events_of(schedule: Iterable[Event], workers: int) -> deque[Event]:
    """The events of an untrusted schedule; ArgumentError if it is invalid."""
    if isinstance(schedule, str) or not isinstance(schedule, Iterable):
        raise _no_schedule(schedule, workers)
    return deque(_event(one, workers) for one in schedule)


def in_turn(events: Iterable[Event], workers: int) -> None:
    """Raise ArgumentError if a worker does not alternate pulls and pushes."""
    has_pulled = [False] * workers
    for event in events:
        if has_pulled[event.worker] is (event.what == "pull"):
            raise ArgumentError(
                f"worker {event.worker} does not pull and push in turn",
                op="ParameterServer",
                argument="schedule",
                expected="strategy.schedule of a training that has ended",
            )
        has_pulled[event.worker] = not has_pulled[event.worker]


def _event(given: Any, workers: int) -> Event:
    try:
        what, worker = given
    except (TypeError, ValueError):
        raise _no_schedule(given, workers) from None
    if what not in ("pull", "push") or type(worker) is not int or not 0 <= worker < workers:
        raise _no_schedule(given, workers)
    return Event(what, worker)


def _no_schedule(given: object, workers: int) -> ArgumentError:
    last = f"to {workers - 1}" if workers > 1 else "alone"
    return ArgumentError(
        f"{short_repr(given)} is not an event",
        op="ParameterServer",
        argument="schedule",
        expected=f"a sequence of ('pull', worker) and ('push', worker), with workers from 0 {last}",
    )


def schedule_ended(past: Sequence[Event]) -> SessionError:
    """The error of a schedule without further events while there is more work."""
    return SessionError(
        "the schedule has ended, and there is more to do",
        op="ParameterServer",
        argument="schedule",
        received=f"{len(past)} events",
    )
