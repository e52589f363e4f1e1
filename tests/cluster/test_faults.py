"""Tasks and clients that end in the middle, messages from strangers, late and double messages."""

import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import job
from eagerflow.cluster.connections import connect
from eagerflow.errors import SessionError, TaskLostError
from eagerflow.runtime.channel import Channel
from tests.cluster.processes import SECONDS, gone, is_there
from tests.cluster.programs import error_of, training_step
from tests.cluster.test_sessions import digits
from tests.internals import early_messages, hosts_of, server_of

SPEC = ef.TensorSpec((), "int64")
LONG = 1 << 29  # rounds of a loop that takes many seconds


def slow_step():
    """A step in which the second worker is busy for a while, as long as it is told."""
    with ef.device("/job:ps/task:0"):
        n = ef.Variable(0.0, name="n")

    def f(rounds):
        with ef.device("/job:worker/task:1"):
            y = ef.while_loop(lambda i: i < rounds, lambda i: i + 1, rounds * 0)
        with ef.device("/job:ps/task:0"):
            n.assign_add(1.0)
            return {"y": y + 0}

    return ef.capture.trace(f, SPEC), n


def test_a_process_that_ends_while_it_is_joined_is_not_the_last(processes, monkeypatch):
    """Ray tells the address of a process that ends, until it has noticed."""
    join, ends = processes.client.join, [TaskLostError("it has gone")]

    def joined(task, address):
        if ends:
            raise ends.pop()
        join(task, address)

    monkeypatch.setattr(processes.client, "join", joined)
    worker = processes.task("/job:worker/task:1")
    os.kill(worker.pid, signal.SIGKILL)
    processes.wait(SECONDS)
    assert not ends
    assert worker.lives == 2


def test_a_worker_that_is_killed_in_a_run_costs_that_run(processes):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=processes)
    assert float(session.run("y", {"rounds": 2}, targets="n/assign")) == 2.0
    worker = processes.task("/job:worker/task:1")
    before = worker.pid
    killer = threading.Timer(0.3, os.kill, (before, signal.SIGKILL))
    killer.start()
    begin = time.monotonic()
    error = error_of(lambda: session.run("y", {"rounds": LONG}, targets="n/assign"))
    assert time.monotonic() - begin < SECONDS
    assert isinstance(error, TaskLostError)
    assert "/job:worker/task:1 has gone" in error.problem
    assert str(before) in error.received
    processes.wait()
    assert worker.pid != before
    assert worker.lives == 2
    assert float(session.variables["n"]) == 1.0, "the run that failed has changed something"
    assert float(session.run("y", {"rounds": 3}, targets="n/assign")) == 3.0
    assert float(session.variables["n"]) == 2.0


def test_the_newest_value_of_a_variable_is_lost_with_its_task(processes):
    graph, n = slow_step()
    session = ef.capture.Session(graph, cluster=processes)
    session.run("y", {"rounds": 1}, targets="n/assign")
    ps = processes.task("/job:ps/task:0")
    os.kill(ps.pid, signal.SIGKILL)
    wait_for(lambda: ps.lives == 2 and ps.state == "ready")
    for call in (
        lambda: session.run("y", {"rounds": 1}, targets="n/assign"),
        lambda: session.variables,
    ):
        error = error_of(call)
        assert isinstance(error, TaskLostError)
        assert "'n' was lost with /job:ps/task:0" in error.problem
    n.assign(40.0)
    session.run("y", {"rounds": 1}, targets="n/assign")
    assert float(session.variables["n"]) == 41.0


def test_a_value_that_the_client_has_too_is_not_lost(processes):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=processes)
    session.run("y", {"rounds": 1}, targets="n/assign")
    assert float(session.variables["n"]) == 1.0
    ps = processes.task("/job:ps/task:0")
    os.kill(ps.pid, signal.SIGKILL)
    wait_for(lambda: ps.lives == 2 and ps.state == "ready")
    session.run("y", {"rounds": 1}, targets="n/assign")
    assert float(session.variables["n"]) == 2.0


@pytest.mark.parametrize(
    "more", [{}, {"mode": "asynchronous", "staleness": 2}, {"backup_workers": 1}]
)
def test_lost_strategy_state_is_rebuilt_after_a_worker_restart(processes, more):
    """Gradients, copies of weights and counts of metrics were merged, or are made anew."""
    model = ef.nn.Sequential([ef.nn.layers.Dense(4), ef.nn.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"])
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((16, n)).astype("float32") for n in (3, 2))
    strategy = ef.cluster.ParameterServer(processes, **more)
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, strategy=strategy)
    worker = processes.task("/job:worker/task:1")
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: worker.lives == 2 and worker.state == "ready")
    processes.client.pull()  # as a task that leaves the cluster does
    model.fit(x, y, batch_size=8, verbose=0, strategy=strategy)


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["local", "processes"])
def test_a_task_can_be_killed_to_try_it(kind, request):
    cluster = request.getfixturevalue(kind)
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=cluster)
    session.run("y", {"rounds": 1})
    worker = cluster.task("/job:worker/task:1")
    cluster.kill(worker)
    wait_for(lambda: worker.lives == 2)
    cluster.wait()
    assert float(session.run("y", {"rounds": 5})) == 5.0
    cluster.kill("/job:ps/task:0")
    wait_for(lambda: cluster.task("/job:ps/task:0").lives == 2)
    cluster.wait()
    other = cluster.tasks[0]
    cluster.drain(other)
    with pytest.raises(SessionError, match="task:0 is drained: there is nothing to kill"):
        cluster.kill(other)


def test_an_interrupt_ends_a_run_and_changes_nothing(processes):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=processes)
    session.run("y", {"rounds": 1}, targets="n/assign")
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.run("y", {"rounds": LONG}, targets="n/assign")
    assert float(session.run("n")) == 1.0
    assert float(session.variables["n"]) == 1.0


def test_an_interrupt_at_the_moment_of_the_end_is_raised(local, monkeypatch):
    """It arrives after the last message was taken from the queue, and before it is handled."""

    class Interrupted(SimpleQueue):
        def get(self):
            super().get()
            raise KeyboardInterrupt

    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=local)
    session.run("y", {"rounds": 1}, targets="n/assign")
    raised = []

    def run():
        try:
            session.run("y", {"rounds": 1}, targets="n/assign")
        except KeyboardInterrupt as error:
            raised.append(error)

    with monkeypatch.context() as patched:
        patched.setattr(job, "SimpleQueue", Interrupted)
        running = threading.Thread(target=run, daemon=True)
        running.start()
        running.join(SECONDS)
    assert len(raised) == 1
    assert float(session.run("n")) == 2.0


# Clients that end --------------------------------------------------------------------------------

CLIENT = """
import sys, time
import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts
ray_hosts.RayHosts = ProcessHosts
cluster = ef.cluster.Cluster({"worker": 2}, costs=COSTS)
cluster.__enter__()
print(*[task.pid for task in cluster.tasks], flush=True)
time.sleep(600)
"""


def test_tasks_end_when_their_client_is_killed():
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        pids = list(map(int, client.stdout.readline().split()))
        assert len(pids) == 2
        assert all(map(is_there, pids))
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    assert all(map(gone, pids))


# Strangers ---------------------------------------------------------------------------------------


def stranger(task):
    """A bare connection to a task."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(SECONDS)
    found.connect(task.address["name"])
    return Channel(found)


def ends(channel):
    with pytest.raises(EOFError):
        while True:
            channel.receive()
    channel.close()
    return True


@pytest.mark.parametrize("name", ["client", "/job:worker/task:1"])
def test_a_wrong_token_is_refused(local, name):
    task = local.tasks[0]
    with pytest.raises(EOFError, match="cannot be reached"):
        connect(task.address, b"guessed", name, task.name)
    wait_for(lambda: task.state == "ready")
    assert local.status().tasks[0].state == "ready"


def test_garbage_and_large_greetings_end_the_connection(local):
    task = local.tasks[0]
    for data in (b"\xff" * 64, b"\x05\x00\x00\x00{{{{{", b"\x02\x00\x00\x00[]", b""):
        channel = stranger(task)
        channel.socket.sendall(data)
        channel.socket.shutdown(socket.SHUT_WR)
        assert ends(channel)
    channel = stranger(task)
    channel.send(
        {"number": "0", "name": "client", "proof": "0", "arrays": [["float32", [1 << 40]]]}
    )
    assert ends(channel)
    assert local.status().tasks[0].state == "ready"


def test_a_second_client_is_not_let_in(local):
    token = hosts_of(local)._token
    task = local.tasks[0]
    second = connect(task.address, token, "client", task.name)
    over = threading.Event()
    second.start(lambda *_: None, lambda _: over.set())
    assert over.wait(SECONDS)
    assert local.status().tasks[0].state == "ready"


# Networks ----------------------------------------------------------------------------------------


def test_late_and_double_messages_are_ignored(local):
    transport = server_of(local, local.tasks[0].name).transport
    seen = []
    one, two = np.ones(2), np.full(2, 2.0)
    run = 1 << 40
    transport.arrived((run, 1), [one])  # before it is requested
    transport.receive((run, 1), seen.append)
    transport.arrived((run, 1), [two])  # again
    transport.receive((run, 2), seen.append)
    transport.arrived((run, 2), [two])
    transport.arrived((run, 2), [one])
    assert [float(x[0][0]) for x in seen] == [1.0, 2.0]
    transport.receive((run, 3), seen.append)
    transport.forget(run)
    transport.arrived((run, 3), [one])  # too late
    transport.forget_before(run + 5)
    transport.arrived((run + 1, 1), [one])
    assert len(seen) == 2
    assert not early_messages(transport)
    assert not transport._waiting


# Tasks that come and go --------------------------------------------------------------------------


def test_tasks_are_added_and_drained(local):
    with ef.device("/job:ps/task:0"):
        n = ef.Variable(0.0, name="n")
    graph = ef.capture.trace(lambda x: {"y": x + n.assign_add(1.0)}, ef.TensorSpec((), "float32"))
    session = ef.capture.Session(graph, cluster=local)
    session.run("y", {"x": 1.0}, targets="n/assign")
    added = local.add("ps")
    assert (added.name, added.state) == ("/job:ps/task:1", "ready")
    assert str(local.devices()[-1]) == "/job:ps/task:1/device:cpu:0"
    local.drain("/job:worker/task:0")
    assert [t.name for t in local.tasks] == [
        "/job:worker/task:1",
        "/job:ps/task:0",
        "/job:ps/task:1",
    ]
    session.run("y", {"x": 1.0}, targets="n/assign")
    local.drain("/job:ps/task:0")
    assert float(n) == 2.0
    with pytest.raises(ef.errors.EagerflowError):
        session.run("y", {"x": 1.0}, targets="n/assign")
    with pytest.raises(SessionError, match="there is no task '/job:ps/task:0'"):
        local.drain("/job:ps/task:0")


# Many kills --------------------------------------------------------------------------------------


@pytest.mark.soak  # half a minute of kills
def test_many_kills_cost_no_hang_and_no_wrong_number(processes):
    x, labels = digits()
    feeds = {"x": x, "labels": labels}
    graph, variables = training_step()
    begin = [v.value for v in variables]
    with ef.capture.Session(graph, numerics="exact") as session:
        wanted = [float(session.run("loss", feeds, targets=graph)) for _ in range(500)]
    for v, value in zip(variables, begin, strict=True):
        v.assign(value.numpy())
    session = ef.capture.Session(graph, cluster=processes, numerics="exact")
    step, saved, kills, rng = 0, (0, begin), 0, random.Random(1)
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        if rng.random() < 0.03:
            task = rng.choice(processes.tasks)
            kills += task.state == "ready"
            with suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGKILL)
        started = time.monotonic()
        try:
            if rng.random() < 0.02:
                held = session.variables
                saved = step, [held[v.name].value for v in variables]
            assert float(session.run("loss", feeds, targets=graph)) == wanted[step]
            step += 1
            if step == len(wanted):
                step, saved = 0, (0, begin)
                restore(variables, begin)
        except TaskLostError as error:
            if "newest value" in error.problem:
                step = saved[0]
                restore(variables, saved[1])
        assert time.monotonic() - started < SECONDS
    assert kills > 20
    restore(variables, begin)


def restore(variables, values):
    for v, value in zip(variables, values, strict=True):
        v.assign(value.numpy())
