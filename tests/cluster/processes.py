"""Hosts for tests: each task is a process that is forked from one in which all is imported.

So a task starts in milliseconds, where one of Ray's takes seconds. ``python -m
tests.cluster.processes`` is the process that they are forked from; it ends with its input, and
its children with it.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time

from eagerflow.cluster.server import TaskServer

SECONDS = 20.0  # in which a killed process has to be gone


class Nursery:
    """The process that tasks are forked from, as the tests see it."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._lock = threading.Lock()

    def born(self, name, token, host):
        """The pid and the address of a new task."""
        with self._lock:
            self._process.stdin.write(json.dumps([name, token.hex(), host]).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


_nursery = threading.Lock()


@functools.cache
def _made():
    return Nursery()


def nursery():
    """The one of this process, for tasks that threads start at once."""
    with _nursery:
        return _made()


class ProcessHosts:
    """Tasks as processes of this machine."""

    own_processes = True
    host = None

    def __init__(self, token, address=None, count=0):
        self._token = token
        self.pids = {}

    def start(self, task):
        self.stop(task)
        self.pids[task.name], address = nursery().born(task.name, self._token, self.host)
        return address

    def kill(self, task):
        self.stop(task)

    def stop(self, task):
        pid = self.pids.pop(task.name, None)
        if pid is not None:
            end(pid)

    def close(self):
        while self.pids:
            end(self.pids.popitem()[1])


def is_there(pid):
    """Whether a process has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid, seconds=SECONDS):
    """Whether a process is gone, now or soon."""
    end = time.monotonic() + seconds
    while is_there(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def end(pid):
    """Kill a process, and wait until it has gone."""
    if is_there(pid):
        os.kill(pid, signal.SIGKILL)
    assert gone(pid), f"process {pid} has not gone"


def serve(name, token, host, output):
    """Be a task."""
    server = TaskServer(name, token, host, lambda: os._exit(0))
    os.write(output, json.dumps([os.getpid(), server.address]).encode() + b"\n")
    while True:
        time.sleep(60)


def main():
    """Fork a task for each line of the input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system takes them away
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        name, token, host = json.loads(line)
        pid = os.fork()
        if not pid:
            output = os.dup(1)
            for file in (0, 1):
                os.dup2(os.open(os.devnull, os.O_RDWR), file)
            serve(name, bytes.fromhex(token), host, output)
        children.append(pid)
    for pid in filter(is_there, children):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
