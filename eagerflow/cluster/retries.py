"""Retries: what is done again when a task was lost meanwhile, and another process has its place.

A run changes all Variables or none, and so it can be made again: nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.errors import TaskLostError

__all__ = ["Retried", "retried"]

WAIT_SECONDS = 150.0  # for the process that takes a lost one's place: Ray may take two minutes


def retried(cluster: Any, times: int, call: Callable[[], Any]) -> Any:
    """The result of a call, which is made so many ``times`` again where a task is lost in it.

    The last TaskLostError is raised, TimeoutError where no process takes the lost one's place.
    """
    while True:
        try:
            return call()
        except TaskLostError:
            if not times:
                raise
        times -= 1
        cluster.wait(WAIT_SECONDS)


class Retried:
    """A plan over the tasks of a cluster whose runs are made again where a task is lost."""

    def __init__(self, plan: Any, cluster: Any, times: int) -> None:
        self._plan, self._cluster, self._times = plan, cluster, times

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs for these inputs."""
        return retried(self._cluster, self._times, lambda: self._plan.run(inputs))
