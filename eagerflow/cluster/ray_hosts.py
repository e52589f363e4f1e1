"""Hosts by Ray: each task is a Ray actor, which Ray places, monitors and restarts.

Ray only transports the first messages: a task's name, and its address. Data passed by
Ray are pickled, and so they are only those made in this file.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from eagerflow.cluster.client import RemoteTask
from eagerflow.cluster.server import TaskServer
from eagerflow.devices import HOST_TYPE
from eagerflow.errors import SessionError
from eagerflow.handlers import raised_here, suppress
from eagerflow.runtime.ray_library import (
    address_of,
    begin_ray,
    end_ray,
    is_loopback,
    keep_to_this_machine,
    load_ray,
    told_by_environment,
)
from eagerflow.settings import changed, set_unless_said

__all__ = ["RayHosts"]

ATTEMPTS = 2  # to start Ray, which itself waits 30 s for its processes
START_SECONDS = 120.0  # for the process of a task
NEEDS = "cluster", "ef.cluster"  # the extra, and the feature that needs it
TOKEN = Path("~/.ray/auth_token")  # read by Ray, written by ``eagerflow cluster start``
CLOSE_SECONDS = 20.0
GRACE_SECONDS = 2.0  # from the end of the client's connection to the end of the task
FIRST_SECONDS = 60.0  # within which the client must connect
MEMORY_BYTES = 80 << 20  # Ray's minimum for its object store; nothing is kept there


class TaskActor:
    """A task in a process started by Ray."""

    def __init__(self, name: str, token: bytes, near: bool) -> None:
        ray = load_ray(*NEEDS)
        host = None if near else ray.util.get_node_ip_address()
        self._server = TaskServer(name, token, host, lambda: _end_after(GRACE_SECONDS))
        timer = threading.Timer(FIRST_SECONDS, self._end_alone)
        timer.daemon = True
        timer.start()

    def _end_alone(self) -> None:
        if not self._server.has_client:
            os._exit(1)

    def address(self) -> dict[str, Any]:
        """The address of the task."""
        return self._server.address


def _end_after(seconds: float) -> None:
    """End this process soon: active work gets a little time."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


@contextmanager
def _silent() -> Iterator[None]:
    """A block in which Ray only logs errors: it would log at each start that it wants a token."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class RayHosts:
    """Tasks as actors of the Ray cluster at ``address``, or of one started here."""

    own_processes = True

    def __init__(self, token: bytes, address: str | None, count: int) -> None:
        if address is not None and TOKEN.expanduser().exists():
            set_unless_said("RAY_AUTH_MODE", "token")
        self._ray = load_ray(*NEEDS)
        self._token = token
        self._address = None if address is None else address_of(address, *NEEDS)
        self._actors: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._started = begin_ray(partial(self._begin, count), self._ray.shutdown)
        self._class = self._ray.remote(TaskActor)

    def _begin(self, count: int) -> bool:
        """Join a Ray cluster, or start one on this machine; False if this process has one."""
        if self._ray.is_initialized():
            return False
        self._join(count)
        return True

    def _join(self, count: int) -> None:
        """Join a Ray cluster, or start one on this machine that is reachable only from it."""
        options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
        if self._address is None:
            options |= {
                "address": "local",  # a new one, regardless of others on this machine
                "num_cpus": max(count, os.cpu_count() or 1),
                "include_dashboard": False,
                "object_store_memory": MEMORY_BYTES,
                "_node_ip_address": "127.0.0.1",
            }
        else:
            options["address"] = self._address
        near = self._address is None or is_loopback(self._address)
        keep_to_this_machine(near, *NEEDS)
        path = os.pathsep.join(filter(None, sys.path))  # so that modules are found as here
        with changed({**told_by_environment(near), "PYTHONPATH": path}), _silent():
            for left in reversed(range(ATTEMPTS)):
                try:
                    self._ray.init(**options)
                    return
                except raised_here(Exception) as error:  # not a subclass of Ray's errors
                    self._ray.shutdown()
                    if not left:
                        raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> SessionError:
        told = str(error).partition("\n")[0][:300]
        if self._address is None:
            words, hint = "Ray has not started here", "it gives up after 30 s on a busy machine"
        else:
            words = f"there is no Ray cluster at {self._address}"
            hint = f"eagerflow cluster status shows the address; the token is read from {TOKEN}"
        return SessionError(words, op="Cluster", received=told, hint=hint)

    def start(self, task: RemoteTask) -> dict[str, Any]:
        """Start a task, or wait until Ray has restarted it; returns its address."""
        actor = self._actor(task)
        try:
            found: dict[str, Any] = self._ray.get(actor.address.remote(), timeout=START_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise SessionError(
                f"Ray has not started {task.name} within {START_SECONDS:g} s",
                op="Cluster",
                received=str(error).partition("\n")[0][:200],
                hint="a Ray cluster needs a free CPU for each task: eagerflow cluster status",
            ) from None
        return found

    def _actor(self, task: RemoteTask) -> Any:
        """The actor of a task, made if there is none."""
        with self._lock:
            if self._closed:  # Ray would start again
                raise SessionError("the cluster has been closed", op="Cluster")
            found = self._actors.get(task.name)
            if found is None:
                is_own = self._started and self._address is None
                options: dict[str, Any] = {
                    "num_cpus": 0 if is_own else 1,  # ours has as many tasks as are added
                    "max_restarts": -1,
                    "max_task_retries": -1,
                    "max_concurrency": 2,
                }
                others = sum(n for kind, n in task.device_counts.items() if kind != HOST_TYPE)
                if others:
                    options["num_gpus"] = others
                made = self._class.options(**options)
                found = made.remote(task.name, self._token, self._address is None)
                self._actors[task.name] = found
            return found

    def kill(self, task: RemoteTask) -> None:
        """End the process of a task, which may hang; Ray restarts it."""
        with self._lock:
            actor = self._actors.get(task.name)
        if actor is not None:
            self._ray.kill(actor, no_restart=False)

    def stop(self, task: RemoteTask) -> None:
        """End a task."""
        with self._lock:
            actor = self._actors.pop(task.name, None)
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End all tasks, and Ray if it was started here; gives up on a Ray that hangs."""
        with self._lock:
            self._closed = True
            actors = list(self._actors.values())
            self._actors.clear()
        end_ray(partial(self._end, actors), CLOSE_SECONDS)

    def _end(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            with suppress(Exception):  # Ray itself has ended
                self._ray.kill(actor, no_restart=True)
        if self._started:
            self._ray.shutdown()
