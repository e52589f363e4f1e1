"""A cluster: jobs of numbered tasks, each with devices, on one machine or several."""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from weakref import WeakSet

from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.cluster import ray_hosts
from eagerflow.cluster.client import READY, Client, RemoteTask
from eagerflow.cluster.hosts import LocalHosts
from eagerflow.cluster.links import link_between, measured
from eagerflow.cluster.plan import ClusterPlan, Follows
from eagerflow.cluster.simulation.machines import Link
from eagerflow.cluster.status import Status, compared
from eagerflow.cluster.variables import Held
from eagerflow.devices import HOST_TYPE, Device, as_device, knows_task
from eagerflow.devices import devices as devices_here
from eagerflow.errors import ArgumentError, PlacementError, SessionError, TaskLostError
from eagerflow.graph.graph import Graph
from eagerflow.guard import ScopeGuard
from eagerflow.handlers import raised_here
from eagerflow.variable import Variable

__all__ = ["Cluster", "in_cluster"]

_log = logging.getLogger("eagerflow.cluster")
_JOB = re.compile(r"[a-z][a-z0-9_]*")
MAX_TASKS = 4096
JOIN_SECONDS, AGAIN_SECONDS = 30.0, 0.1
KILL_SECONDS = 10.0
LEAVE_SECONDS = 20.0  # for fetching a task's values at the end
_made: WeakSet[Cluster] = WeakSet()
MAX_LIVES = 100  # limit for restarts of a task that always crashes


class Hosts(Protocol):
    """A source of processes for tasks."""

    own_processes: bool

    def start(self, task: RemoteTask) -> dict[str, Any]:
        """Start a task, or replace a lost one; returns its address."""

    def kill(self, task: RemoteTask) -> None:
        """Kill the process of a hanging task, so that ``start`` can replace it."""

    def stop(self, task: RemoteTask) -> None:
        """End a task."""

    def close(self) -> None:
        """End all tasks."""


class Cluster(ScopeGuard):
    """Tasks in processes of their own, on this machine or on those of a Ray cluster.

    ``jobs`` are the numbers of tasks by the names of their jobs. ``address`` is that of a Ray
    cluster to join, or ``"auto"`` for the one started here by ``eagerflow cluster
    start``; without one Ray is started on this machine, and ended with the cluster. ``devices`` are
    the devices of each task by job, such as ``{"worker": {"gpu": 1}}``; one CPU device by
    default. With ``local=True`` the tasks are threads of this process, with the same
    results. ``costs`` is a CostModel for placing, measured if not given. A task that does not
    answer for ``silence`` seconds is considered lost, and replaced. With ``redundant=True`` each
    value that runs assign to a Variable is kept by two tasks, so that losing one loses no values.

    The tasks exist inside of ``with``, and end with it, or with this process, even if it is
    killed. Raises ArgumentError for invalid jobs, DeviceError for types of devices,
    MissingExtraError without Ray, and SessionError where tasks do not start.

    >>> with ef.cluster.Cluster({"worker": 2, "ps": 1}, local=True) as cluster:
    ...     cluster.devices()[0]
    Device('/job:worker/task:0/device:cpu:0')
    """

    def __init__(
        self,
        jobs: Mapping[str, int],
        address: str | None = None,
        devices: Mapping[str, Mapping[str, int]] | None = None,
        local: bool = False,
        costs: CostModel | None = None,
        silence: float = 20.0,
        redundant: bool = False,
    ) -> None:
        if not (isinstance(silence, int | float) and 0.0 < silence < float("inf")):
            raise ArgumentError(
                f"{silence!r} is no time",
                op="Cluster",
                argument="silence",
                expected="seconds, more than 0: a busy task answers within one or two",
            )
        self._silence, self._redundant = silence, redundant
        self._jobs = _checked(jobs)
        self._devices = _checked_devices(devices or {}, self._jobs)
        if address is not None and not isinstance(address, str):
            raise ArgumentError(
                f"{address!r} is not an address",
                op="Cluster",
                argument="address",
                expected="such as '10.0.0.1:6379', or 'auto'",
            )
        if local and address is not None:
            raise ArgumentError(
                "tasks in this process have no address", op="Cluster", argument="address"
            )
        self._address, self._local, self._costs = address, local, costs
        self._tasks: list[RemoteTask] = []
        self._client: Client | None = None
        self._hosts: Hosts | None = None
        self._closing = False
        _made.add(self)
        self.membership = 0
        """The number of times tasks were added or removed: graphs are placed anew then."""

    # Start and end -----------------------------------------------------------------------------

    def acquire(self) -> None:
        """Start the tasks in parallel."""
        if self._client is not None:
            raise SessionError("the cluster has been entered already", op="Cluster")
        taken = [f"/job:{job}/task:0" for job in self._jobs if knows_task(f"/job:{job}/task:0")]
        if taken:
            raise ArgumentError(
                f"another cluster of this process has {taken[0]}",
                op="Cluster",
                argument="jobs",
                hint="leave its with-block first, or give the job another name",
            )
        self._closing = False
        self.membership += 1
        token = secrets.token_bytes(32)
        try:
            if self._local:
                self._hosts = LocalHosts(token)
            else:
                self._hosts = ray_hosts.RayHosts(token, self._address, sum(self._jobs.values()))
            self._client = Client(token, self._hosts.own_processes, self._silence, self._redundant)
            self._client.lost = self._lost
            self._start(
                [self._new(job, i) for job, count in self._jobs.items() for i in range(count)]
            )
        except BaseException:
            self.release()
            raise

    def release(self) -> Exception | None:
        """Copy the Variables' values here, and end the tasks; returns the error of a lost one."""
        self._closing = True
        client, self._client = self._client, None
        hosts, self._hosts = self._hosts, None
        problem: Exception | None = None
        try:
            if client is not None:
                client.finish_snapshots(LEAVE_SECONDS)
                client.pull(seconds=LEAVE_SECONDS)
        except raised_here(SessionError, TimeoutError) as error:
            problem = error
        finally:
            if client is not None:
                client.close()
            if hosts is not None:
                hosts.close()
            self._tasks = []
        return problem

    @property
    def is_open(self) -> bool:
        """Whether tasks exist: inside of the with-block."""
        return self._client is not None

    @property
    def client(self) -> Client:
        """The client of the tasks; SessionError if there are none."""
        if self._client is None:
            raise SessionError(
                "the cluster has no tasks outside of its with-block",
                op="Cluster",
                hint="with cluster: ...",
            )
        return self._client

    def _new(self, job: str, index: int) -> RemoteTask:
        made = RemoteTask(job, index, self._devices.get(job, {HOST_TYPE: 1}))
        self._tasks.append(made)
        return made

    def _start(self, tasks: Sequence[RemoteTask]) -> None:
        """Start tasks in parallel."""
        with ThreadPoolExecutor(min(len(tasks), 32)) as pool:
            list(pool.map(self._start_one, tasks))

    def _start_one(self, task: RemoteTask) -> None:
        client, hosts = self._client, self._hosts
        if client is None or hosts is None:
            return
        end = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                client.join(task, hosts.start(task))
                return
            except raised_here(EOFError, TaskLostError, TimeoutError) as error:
                # A process that has lost its client accepts no other one, and ends soon.
                if not task.lives or self._closing or time.monotonic() > end:
                    words = f"{task.name} has not started: {error}"
                    raise SessionError(words, op="Cluster") from None
                time.sleep(AGAIN_SECONDS)

    def _lost(self, task: RemoteTask, risk: list[Held]) -> None:
        if not self._closing:
            threading.Thread(target=self._replace, args=(task, risk), daemon=True).start()

    def _replace(self, task: RemoteTask, risk: list[Held]) -> None:
        try:
            self.client.rescue(risk)
            if task.lives >= MAX_LIVES:
                _log.error("%s was lost %d times, and is not started again", task.name, task.lives)
                return
            if task.hangs and self._hosts is not None:
                self._hosts.kill(task)
            self._start_one(task)
        except raised_here(Exception):
            if not self._closing:
                _log.exception("%s has not come back", task.name)

    # Tasks -------------------------------------------------------------------------------------

    @property
    def tasks(self) -> list[RemoteTask]:
        """The tasks, job by job."""
        return list(self._tasks)

    def devices(self) -> list[Device]:
        """The devices of all tasks that are not drained, in order."""
        return [d for task in self._tasks for d in task.devices]

    def task(self, name: str) -> RemoteTask:
        """The task with this name; SessionError if there is none.

        >>> with ef.cluster.Cluster({"worker": 1}, local=True) as cluster:
        ...     cluster.task("/job:worker/task:0").state
        'ready'
        """
        self.client  # noqa: B018 (raises an error if there are no tasks)
        for task in self._tasks:
            if task.name == name:
                return task
        raise SessionError(
            f"there is no task {name!r}",
            op="Cluster",
            expected="one of " + ", ".join(t.name for t in self._tasks),
        )

    def add(self, job: str) -> RemoteTask:
        """Start another task of a job, existing or new, while others run.

        Sessions over all devices place their graphs anew, and can use it.

        >>> with ef.cluster.Cluster({"worker": 1}, local=True) as cluster:
        ...     cluster.add("worker").index
        1
        """
        self.client  # noqa: B018 (raises an error if there are no tasks)
        _checked({job: 1})
        made = self._new(job, max([t.index for t in self._tasks if t.job == job], default=-1) + 1)
        try:
            self._start_one(made)
        except BaseException:
            self._tasks.remove(made)
            raise
        self.membership += 1
        return made

    def drain(self, task: RemoteTask | str) -> None:
        """Remove a task: its Variables are copied to this process, and it ends.

        Sessions over all devices place their graphs anew, without it. Sessions that name its
        devices raise SessionError from then on, and graphs pinned to them PlacementError.
        """
        own = task if isinstance(task, RemoteTask) else self.task(task)
        client = self.client
        client.pull(client.held_by(own))
        client.leave(own)
        self._tasks.remove(own)
        self.membership += 1
        if self._hosts is not None:
            self._hosts.stop(own)

    def kill(self, task: RemoteTask | str) -> None:
        """Kill a task without warning, as if its machine failed: to test the recovery.

        Data that only it holds are lost, and another process replaces it. SessionError if it is
        not ready, TimeoutError if it does not end.
        """
        own = task if isinstance(task, RemoteTask) else self.task(task)
        if own.state != READY or self._hosts is None:
            raise SessionError(
                f"{own.name} is {own.state}: there is nothing to kill",
                op="Cluster.kill",
                hint="cluster.wait() returns when all tasks are ready",
            )
        client, life = self.client, own.lives
        self._hosts.kill(own)
        with client.changed:
            ended = client.changed.wait_for(
                lambda: own.state != READY or own.lives != life, KILL_SECONDS
            )
        if not ended:
            raise TimeoutError(f"{own.name} has not ended after {KILL_SECONDS:g} s")

    def wait(self, seconds: float = 60.0) -> None:
        """Return when all tasks have answered; TimeoutError if one has not after ``seconds``.

        This includes tasks with a loss that has not been noticed yet.
        """
        client, end = self.client, time.monotonic() + seconds
        while True:
            seen = client.changes
            late = [task.name for task in self._tasks if not self._answers(task, end)]
            if not late:
                return
            # A task that does not answer is being restarted, or about to be lost.
            if not client.wait_for_change(seen, end - time.monotonic()):
                raise TimeoutError(f"{', '.join(late)} not ready after {seconds:g} s")

    def _answers(self, task: RemoteTask, end: float) -> bool:
        try:
            left = max(end - time.monotonic(), 0.2)
            self.client.ask(task, {"do": "ping"}, seconds=left)
        except raised_here(TaskLostError, TimeoutError):
            return False
        return task.state == READY

    def status(self) -> Status:
        """The activity of each task, and the traffic between them so far.

        >>> with ef.cluster.Cluster({"worker": 1}, local=True) as cluster:
        ...     print(cluster.status())
        task ...
        """
        client = self.client
        return Status(compared([client.status(task) for task in self._tasks]))

    # Graphs ------------------------------------------------------------------------------------

    def partition(
        self,
        graph: Graph,
        devices: Sequence[Any] | None = None,
        numerics: str = "fast",
        transfer: str | None = None,
        costs: CostModel | None = None,
        follows: Follows | None = None,
    ) -> ClusterPlan:
        """A graph over these devices of tasks, or over all; used by ``ef.capture.Session``.

        ``costs`` replace measured ones, if the cluster was given none; ``follows``
        is as for ClusterPlan.
        """
        client = self.client
        places = self.devices() if devices is None else [as_device(d) for d in devices]
        known = {t.name for t in self._tasks}
        strange = [str(d) for d in places if d.task not in known]
        if strange:
            raise PlacementError(
                f"{strange[0]} is not a device of this cluster's tasks",
                op="Session",
                argument="devices",
                expected="one of " + ", ".join(map(str, self.devices())),
            )
        if transfer not in (None, "bfloat16"):
            raise ArgumentError(
                f"{transfer!r} is not a dtype that float32 can be sent as",
                op="Session",
                argument="transfer",
                expected="None or 'bfloat16'",
            )
        model = self._costs_of(places, costs)
        return ClusterPlan(client, graph, places, numerics, model, transfer, follows)

    def pull(self, variables: Sequence[Variable]) -> None:
        """Copy the newest values of Variables held by tasks to this process."""
        self.client.pull(variables)

    def link(self, source: Device | str, target: Device | str) -> Link:
        """The measured link between two devices of different tasks: for ``Machines``.

        Between GPUs that NCCL connects it is that path, else the one through host memory.
        Measured once for each pair of machines and each kind of path, for NCCL on the first two
        GPUs requested. ArgumentError unless these are two devices of different tasks,
        DeviceError for an invalid device.

        >>> with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
        ...     ef.cluster.Machines(2, link=cluster.link(*cluster.devices())).link.latency > 0
        True
        """
        known = {str(d): d for d in self.devices()}
        ends = [known.get(str(as_device(d))) for d in (source, target)]
        first, last = ends
        if first is None or last is None or first.task == last.task:
            raise ArgumentError(
                "two devices of different tasks are needed",
                op="Cluster.link",
                received=f"{source} and {target}",
                expected="two of " + ", ".join(known),
            )
        return link_between(self.client, first, last)

    def _costs_of(
        self, devices: Sequence[Device], given: CostModel | None = None
    ) -> CostModel | None:
        """The cost model of devices: a given one, or a measured one; None for one device."""
        found = self._costs or given
        return found if found or len(devices) < 2 else measured(self.client, devices)

    def __repr__(self) -> str:
        jobs = ", ".join(f"{job}: {count}" for job, count in self._jobs.items())
        return f"<Cluster of {jobs}{', local' if self._local else ''}>"


def in_cluster() -> bool:
    """Whether this process has entered a cluster."""
    return any(one.is_open for one in list(_made))


def _checked(jobs: Mapping[str, int]) -> dict[str, int]:
    """The jobs, after a check; ArgumentError if they are invalid."""
    if not isinstance(jobs, Mapping):
        raise ArgumentError(
            f"{jobs!r} is not a dict",
            op="Cluster",
            argument="jobs",
            expected='the numbers of tasks by the names of their jobs, such as {"worker": 2}',
        )
    found = dict(jobs)
    for job, count in found.items():
        if not isinstance(job, str) or not _JOB.fullmatch(job) or job == "local":
            raise ArgumentError(
                f"{job!r} cannot name a job",
                op="Cluster",
                argument="jobs",
                expected="lowercase letters, digits and _, such as 'worker', and not 'local'",
            )
        if type(count) is not int or count < 1:
            raise ArgumentError(
                f"{count!r} is not a number of tasks",
                op="Cluster",
                argument=job,
                expected="at least 1",
            )
    if not 1 <= sum(found.values()) <= MAX_TASKS:
        raise ArgumentError(
            "a cluster has at least one task",
            op="Cluster",
            argument="jobs",
            received=str(found),
            expected=f'such as {{"worker": 2}}, and at most {MAX_TASKS} tasks',
        )
    return found


def _checked_devices(
    devices: Mapping[str, Mapping[str, int]], jobs: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """The devices of jobs, after a check; ArgumentError or DeviceError if they are invalid."""
    if not (isinstance(devices, Mapping) and all(isinstance(d, Mapping) for d in devices.values())):
        raise ArgumentError(
            f"{devices!r} does not give numbers of devices",
            op="Cluster",
            argument="devices",
            expected='those of a task by type, for each job, such as {"worker": {"gpu": 1}}',
        )
    for job, counts in devices.items():
        _check_devices(job, counts, jobs)
    return {job: dict(own) for job, own in devices.items()}


def _check_devices(job: str, counts: Mapping[str, int], jobs: Mapping[str, int]) -> None:
    if job not in jobs:
        raise ArgumentError(
            f"there is no job {job!r}",
            op="Cluster",
            argument="devices",
            expected="one of " + ", ".join(jobs),
        )
    for kind, count in counts.items():
        devices_here(kind)  # DeviceError for an unknown type
        if type(count) is not int or count < 1:
            raise ArgumentError(
                f"{count!r} devices of type {kind!r} cannot be",
                op="Cluster",
                argument="devices",
                expected='such as {"worker": {"cpu": 2}}',
            )
