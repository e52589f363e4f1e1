"""Hosts that Ray gives: each task is an actor of Ray's, which places, watches and restarts it.

Ray carries nothing but the first words: who a task is, and where it can be reached. What Ray
passes is pickled, and so it is only what this file makes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from eagerflow import extras
from eagerflow.cluster.client import RemoteTask
from eagerflow.cluster.server import TaskServer
from eagerflow.devices import HOST_TYPE
from eagerflow.errors import SessionError

__all__ = ["RayHosts"]

ATTEMPTS = 2  # to start Ray, which waits for its own processes for 30 s alone
START_SECONDS = 120.0  # for the process of a task
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Variables by which Ray tells nobody of its use, and binds to the address that it is given."""
GRACE_SECONDS = 2.0  # from the end of the client's connection to the end of the task
FIRST_SECONDS = 60.0  # in which the client has to connect
MEMORY_BYTES = 80 << 20  # the least that Ray's own store of objects takes; we keep nothing there


class TaskActor:
    """A task in a process that Ray has started."""

    def __init__(self, name: str, token: bytes, near: bool) -> None:
        ray = extras.load("ray", "cluster", "ef.cluster")
        host = None if near else ray.util.get_node_ip_address()
        self._server = TaskServer(name, token, host, lambda: _end_after(GRACE_SECONDS))
        timer = threading.Timer(FIRST_SECONDS, self._end_alone)
        timer.daemon = True
        timer.start()

    def _end_alone(self) -> None:
        if not self._server.has_client:
            os._exit(1)

    def address(self) -> dict[str, Any]:
        """Where it can be reached."""
        return self._server.address


def _end_after(seconds: float) -> None:
    """End this process soon: what is at work gets a little time."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


@contextmanager
def _changed(changes: Mapping[str, str]) -> Iterator[None]:
    """A block in which variables have these values, for what is started in it."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class RayHosts:
    """Tasks as actors of the Ray cluster at ``address``, or of one that is started here."""

    own_processes = True

    def __init__(self, token: bytes, address: str | None, count: int) -> None:
        with _changed(QUIET):  # which Ray reads when it is imported
            self._ray = extras.load("ray", "cluster", "ef.cluster")
        self._token = token
        self._actors: dict[str, Any] = {}
        self._started = not self._ray.is_initialized()
        if self._started:
            self._begin(address, count)
        self._near = address is None
        self._class = self._ray.remote(TaskActor)

    def _begin(self, address: str | None, count: int) -> None:
        """Join a Ray cluster, or start one on this machine that only it can reach."""
        changes = {
            **QUIET,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # modules are found as here
        }
        quiet: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
        if address is None:
            quiet |= {
                "address": "local",  # a new one, whatever else runs on this machine
                "num_cpus": max(count, os.cpu_count() or 1),
                "include_dashboard": False,
                "object_store_memory": MEMORY_BYTES,
                "_node_ip_address": "127.0.0.1",
            }
        else:
            quiet["address"] = address
        with _changed(changes):
            for left in reversed(range(ATTEMPTS)):
                try:
                    self._ray.init(**quiet)
                    return
                except Exception as error:  # of no class of Ray's own
                    self._ray.shutdown()
                    if not left:
                        raise SessionError(
                            "Ray has not started here"
                            if address is None
                            else f"there is no Ray cluster at {address}",
                            op="Cluster",
                            received=str(error).partition("\n")[0][:300],
                            hint="Ray gives up after 30 s: the machine may be busy"
                            if address is None
                            else "eagerflow cluster status tells the address of one that runs here",
                        ) from None

    def start(self, task: RemoteTask) -> dict[str, Any]:
        """Start a task, or wait until Ray has started it again; its address."""
        actor = self._actors.get(task.name)
        if actor is None:
            options: dict[str, Any] = {
                "num_cpus": 1,
                "max_restarts": -1,
                "max_task_retries": -1,
                "max_concurrency": 2,
            }
            others = sum(n for kind, n in task.device_counts.items() if kind != HOST_TYPE)
            if others:
                options["num_gpus"] = others
            actor = self._class.options(**options).remote(task.name, self._token, self._near)
            self._actors[task.name] = actor
        try:
            found: dict[str, Any] = self._ray.get(actor.address.remote(), timeout=START_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise SessionError(
                f"Ray has not started {task.name} within {START_SECONDS:g} s",
                op="Cluster",
                received=str(error).splitlines()[0][:200],
                hint="a Ray cluster needs a free CPU for each task: eagerflow cluster status",
            ) from None
        return found

    def stop(self, task: RemoteTask) -> None:
        """End a task."""
        actor = self._actors.pop(task.name, None)
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End all tasks, and Ray if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
        if self._started:
            self._ray.shutdown()
