"""Hosts in this process: each task is a server in threads, for tests and debugging."""

from __future__ import annotations

import threading
from typing import Any

from eagerflow.cluster.client import RemoteTask
from eagerflow.cluster.server import TaskServer
from eagerflow.errors import SessionError

__all__ = ["LocalHosts"]


class LocalHosts:
    """Tasks in threads of this process."""

    own_processes = False

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._servers: dict[str, TaskServer] = {}
        self._lock = threading.Lock()
        self._closed = False

    def start(self, task: RemoteTask) -> dict[str, Any]:
        """Start a task, or replace a lost one; returns its address."""
        with self._lock:
            if self._closed:
                raise SessionError("the cluster has been closed", op="Cluster")
            old = self._servers.pop(task.name, None)
            if old is not None:
                old.close()
            made = self._servers[task.name] = TaskServer(task.name, self._token)
        return made.address

    def server(self, task: RemoteTask) -> TaskServer:
        """The server of a task."""
        return self._servers[task.name]

    def kill(self, task: RemoteTask) -> None:
        """End a task, which may hang; it can be replaced."""
        self._servers[task.name].close()

    def stop(self, task: RemoteTask) -> None:
        """End a task."""
        self._servers.pop(task.name).close()

    def close(self) -> None:
        """End all tasks."""
        with self._lock:
            self._closed = True
            while self._servers:
                self._servers.popitem()[1].close()
