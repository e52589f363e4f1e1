"""Hosts for tests: each task is a process that is forked from one in which all is imported.

So a task starts in milliseconds, where one of Ray's takes seconds. ``python -m
tests.cluster.processes`` is the process that they are forked from; it ends with its input, and
its children with it. Other modules may be such a process, which prepares its children.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

from eagerflow.cluster.server import TaskServer

SECONDS = 20.0  # in which a killed process has to be gone


class Nursery:
    """The process that tasks are forked from, as the tests see it."""

    def __init__(self, module):
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._lock = threading.Lock()

    def born(self, name, token, host, given=None):
        """The pid and the address of a new task, which gets something to be prepared by."""
        row = [name, token.hex(), host, given]
        with self._lock:
            self._process.stdin.write(json.dumps(row).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


_nurseries = threading.Lock()


@functools.cache
def _made(module):
    return Nursery(module)


def nursery(module="tests.cluster.processes"):
    """The one of this process and of a module, for tasks that threads start at once."""
    with _nurseries:
        return _made(module)


class ProcessHosts:
    """Tasks as processes of this machine."""

    own_processes = True
    host = None

    def __init__(self, token, address=None, count=0):
        self._token = token
        self.pids = {}

    def start(self, task):
        self.stop(task)
        self.pids[task.name], address = self.born(task)
        return address

    def born(self, task):
        return nursery().born(task.name, self._token, self.host)

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
    with suppress(ProcessLookupError):  # it may have ended by itself
        os.kill(pid, signal.SIGKILL)
    assert gone(pid), f"process {pid} has not gone"


def serve(name, token, host, output):
    """Be a task."""
    server = TaskServer(name, token, host, lambda: os._exit(0))
    os.write(output, json.dumps([os.getpid(), server.address]).encode() + b"\n")
    while True:
        time.sleep(60)


def main(prepare=lambda given: None):
    """Fork a task for each line of the input; it is prepared with the arguments of its line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system takes them away
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        name, token, host, given = json.loads(line)
        pid = os.fork()
        if not pid:
            output = os.dup(1)
            for file in (0, 1):
                os.dup2(os.open(os.devnull, os.O_RDWR), file)
            prepare(given)
            serve(name, bytes.fromhex(token), host, output)
        children.append(pid)
    for pid in filter(is_there, children):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
