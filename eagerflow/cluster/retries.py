"""Retries: what is done again when a task was lost meanwhile, and another process has its place.

A run changes all Variables or none, and so it can be made again: nothing counts twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.errors import TaskLostError

__all__ = ["Retried", "retried"]

_log = logging.getLogger("eagerflow.cluster")
WAIT_SECONDS = 150.0  # for the process that takes a lost one's place: Ray may take two minutes


def retried(cluster: Any, times: int, call: Callable[[], Any], restore: Callable[[], None]) -> Any:
    """The result of a call, which is made so many ``times`` again where a task is lost in it.

    ``restore`` is called before each, and raises TaskLostError where another call cannot succeed.
    The last TaskLostError is raised, TimeoutError where no process takes the lost one's place.
    """
    while True:
        try:
            return call()
        except TaskLostError as error:
            if not times:
                raise
            _log.warning("%s: what it was part of is made again", error.problem)
        times -= 1
        cluster.wait(WAIT_SECONDS)
        restore()


class Retried:
    """A plan over the tasks of a cluster whose runs are made again where a task is lost."""

    def __init__(self, plan: Any, again: Callable[[Callable[[], Any]], Any]) -> None:
        self._plan, self._again = plan, again

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs for these inputs."""
        return self._again(lambda: self._plan.run(inputs))
