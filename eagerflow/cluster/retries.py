"""Retries: calls are repeated after the loss of a task, when another process has replaced it.

A run changes all Variables or none, so it can be repeated: nothing counts twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.errors import TaskLostError

__all__ = ["Retried", "retried"]

_log = logging.getLogger("eagerflow.cluster")
WAIT_SECONDS = 150.0  # for the replacement of a lost process: Ray may take two minutes


def retried(cluster: Any, times: int, call: Callable[[], Any], restore: Callable[[], None]) -> Any:
    """The result of a call, which is repeated up to ``times`` times if a task is lost during it.

    ``restore`` is called before each, and raises TaskLostError if another call cannot succeed.
    Raises the last TaskLostError, or TimeoutError if no process replaces the lost one.
    """
    while True:
        try:
            return call()
        except TaskLostError as error:
            if not times:
                raise
            _log.warning("%s: its call is repeated", error.problem)
        times -= 1
        cluster.wait(WAIT_SECONDS)
        restore()


class Retried:
    """A plan over the tasks of a cluster that repeats its runs if a task is lost."""

    def __init__(self, plan: Any, again: Callable[[Callable[[], Any]], Any]) -> None:
        self._plan, self._again = plan, again

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs for these inputs."""
        return self._again(lambda: self._plan.run(inputs))
