"""Values of Variables that two tasks keep, tasks that hang, and tasks that are slow."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from eagerflow.cluster.status import Status, TaskStatus, compared
from eagerflow.errors import ArgumentError, TaskLostError
from tests.capture.placement.several_devices import COSTS
from tests.cluster.kills import SERVERS, network
from tests.cluster.processes import ProcessHosts
from tests.cluster.programs import error_of
from tests.cluster.test_faults import LONG, slow_step, wait_for
from tests.cluster.test_sessions import digits

SILENCE = 1.5
RNG = np.random.default_rng(0)


def made(**options):
    jobs = {"worker": 2, "ps": 1}
    return ef.cluster.Cluster(jobs, costs=COSTS, silence=SILENCE, **options)


@pytest.fixture
def redundant(monkeypatch):
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    with made(redundant=True) as cluster:
        yield cluster


def kill(cluster, name):
    task = cluster.task(name)
    lives = task.lives
    os.kill(task.pid, signal.SIGKILL)
    wait_for(lambda: task.lives > lives and task.state == "ready")


def counter(places):
    """A graph that counts in a Variable at each place, and its session's arguments."""
    counts = []
    for i, place in enumerate(places):
        with ef.device(place):
            counts.append(ef.Variable(np.zeros(3, "float32"), name=f"n{i}"))

    def f(x):
        for i, n in enumerate(counts):
            with ef.device(str(n.device)):
                n.assign_add(x * (i + 1))
        return {"y": x + 0}

    return ef.capture.trace(f, ef.TensorSpec((), "float32")), counts


def test_a_value_outlives_its_task_and_the_one_with_its_copy(redundant):
    places = [task.name for task in redundant.tasks]
    graph, _ = counter(places)
    session = ef.capture.Session(graph, cluster=redundant)

    def run():
        session.run("y", {"x": 1.0}, targets=graph)

    run()
    for round in range(2):
        for name in places:  # without a run in between: the client keeps what had been copied
            kill(redundant, name)
        run()
        for name in places:
            kill(redundant, name)
            run()
        total = 1.0 + 4 * (round + 1)
        for i in range(3):
            np.testing.assert_array_equal(session.run(f"n{i}"), np.full(3, total * (i + 1)))
    for name in places:
        kill(redundant, name)
    held = session.variables
    assert [float(held[f"n{i}"].numpy()[0]) for i in range(3)] == [9.0, 18.0, 27.0]


def test_values_that_a_program_gives_are_newer_than_copies(redundant):
    graph, (n,) = counter(["/job:ps/task:0"])
    session = ef.capture.Session(graph, cluster=redundant)
    session.run("y", {"x": 1.0}, targets=graph)
    kill(redundant, "/job:ps/task:0")
    n.assign(np.full(3, 40.0))
    session.run("y", {"x": 1.0}, targets=graph)
    np.testing.assert_array_equal(session.run("n0"), np.full(3, 41.0))


def test_copies_move_when_a_task_is_drained(redundant):
    graph, _ = counter(["/job:ps/task:0"])
    session = ef.capture.Session(graph, cluster=redundant)
    session.run("y", {"x": 1.0}, targets=graph)
    redundant.drain("/job:worker/task:0")  # which has the copy
    kill(redundant, "/job:ps/task:0")
    session.run("y", {"x": 1.0}, targets=graph)
    np.testing.assert_array_equal(session.run("n0"), np.full(3, 2.0))


def test_twins_need_no_copies(redundant):
    """What one run gives two Variables of two tasks outlives one of them, without being sent."""
    with ef.device("/job:worker/task:0"):
        a = ef.Variable(np.zeros(1000, "float32"), name="a")
    with ef.device("/job:worker/task:1"):
        b = ef.Variable(np.zeros(1000, "float32"), name="b")

    def f(x):
        with ef.device("/job:worker/task:0"):
            new = a + x
            a.assign(new)
        with ef.device("/job:worker/task:1"):
            b.assign(new.to("/job:worker/task:1/device:cpu:0"))
        return {"y": x + 0}

    graph = ef.capture.trace(f, ef.TensorSpec((), "float32"))
    session = ef.capture.Session(graph, cluster=redundant)
    session.run("y", {"x": 2.0}, targets=graph)
    assert redundant.status().tasks[2].held_bytes == 0
    for name in ("/job:worker/task:0", "/job:worker/task:1"):
        kill(redundant, name)
        session.run("y", {"x": 2.0}, targets=graph)
    np.testing.assert_array_equal(session.run("b"), np.full(1000, 6.0))


@pytest.mark.parametrize("victim", ["/job:ps/task:0", "/job:worker/task:0"])
def test_training_goes_on_when_tables_or_their_copies_are_lost(redundant, victim):
    """Rows are sent to copies: after a loss the bits are those of a training without one."""
    batches = [(RNG.integers(0, 500, (8, 2)), RNG.integers(0, 3, 8)) for _ in range(8)]

    def trained(strategy, between=lambda i: None):
        ef.random.seed(0)
        layers = ef.nn.Embedding(500, 16, sparse=True), ef.nn.Flatten(), ef.nn.Dense(3)
        model = ef.nn.Sequential([*layers])
        loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=loss, metrics=["accuracy"])
        model(batches[0][0])
        step = strategy.step(model.python_step("train")[0])
        for i, batch in enumerate(batches):
            between(i)
            step(*batch)
        strategy.merge()
        assert strategy.tables.places, "there is a table"
        return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]

    def between(i):
        if i in (3, 6):
            kill(redundant, victim)

    found = trained(ef.cluster.ParameterServer(redundant), between)
    assert found == trained(ef.cluster.ParameterServer(**SERVERS))


def test_checkpoint_restores_state_of_lost_tasks(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    x, labels = digits()
    y = np.argmax(labels, axis=1)
    found = []
    with made() as cluster:
        for kills in (False, True):
            strategy = ef.cluster.ParameterServer(cluster)
            model = network()
            model(x[:2])
            step = strategy.step(model.python_step("train")[0])
            checkpoint = ef.nn.Checkpoint(tmp_path / str(kills))
            step(x, y)
            strategy.merge()
            checkpoint.save(model)
            if kills:
                step(x, y)
                kill(cluster, "/job:ps/task:0")
                error = error_of(lambda: step(x, y))  # noqa: B023
                assert isinstance(error, TaskLostError)
                assert "was lost with /job:ps/task:0" in error.problem
                checkpoint.restore(model)
            step(x, y)
            strategy.merge()
            found.append([w.numpy().tobytes() for w in model.trainable_weights])
    assert found[0] == found[1]


# Tasks that hang ---------------------------------------------------------------------------------


def test_a_task_that_is_stopped_is_replaced(redundant):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=redundant)
    session.run("y", {"rounds": 1})
    worker = redundant.task("/job:worker/task:1")
    threading.Timer(0.3, os.kill, (worker.pid, signal.SIGSTOP)).start()
    begin = time.monotonic()
    error = error_of(lambda: session.run("y", {"rounds": LONG}))
    assert time.monotonic() - begin < 10 * SILENCE
    assert isinstance(error, TaskLostError)
    assert f"has not answered for {SILENCE:g} s" in error.received
    redundant.wait()
    assert worker.lives == 2
    assert float(session.run("y", {"rounds": 3})) == 3.0


def test_a_task_that_is_busy_is_not_taken_for_lost(redundant):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=redundant)
    rounds, taken = 1 << 23, 0.0
    while taken < 1.5 * SILENCE:
        rounds *= 2
        begin = time.monotonic()
        assert float(session.run("y", {"rounds": rounds})) == rounds
        taken = time.monotonic() - begin
    assert [task.lives for task in redundant.tasks] == [1, 1, 1]


def test_paused_client_does_not_declare_tasks_lost(redundant):
    task = redundant.tasks[0]
    for _ in range(3):
        now = time.monotonic()
        assert task.connection.silence(now + 100.0, since=now + 100.0) <= 0.0
    redundant.wait()
    assert task.lives == 1


# Tasks that are slow -----------------------------------------------------------------------------


def row(name, seconds):
    return TaskStatus(name, "ready", 1, "here", seconds=seconds)


def test_a_slow_task_is_named():
    times = [0.010, 0.011, 0.031, 0.009]
    tasks = [row(f"/job:worker/task:{i}", t) for i, t in enumerate(times)]
    status = Status(compared([*tasks, row("/job:ps/task:0", 0.5), row("/job:ps/task:1", None)]))
    assert status.slow == ["/job:worker/task:2"]
    lines = str(status).splitlines()
    assert "31 ms, slow: others 10 ms" in lines[3]
    assert not any("slow" in line for i, line in enumerate(lines) if i != 3)


def test_times_of_runs_are_those_of_work_alone(local):
    graph, _ = slow_step()
    session = ef.capture.Session(graph, cluster=local)
    for _ in range(6):
        session.run("y", {"rounds": 200_000}, targets=graph)
    _, worker, ps = local.status().tasks
    assert worker.seconds > 2 * ps.seconds  # which waits for it


# Arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("silence", [0.0, -1.0, float("nan"), float("inf")])
def test_a_silence_has_seconds(silence):
    with pytest.raises(ArgumentError, match="is no time"):
        ef.cluster.Cluster({"worker": 1}, silence=silence)


@pytest.mark.parametrize("retries", [-1, 1.5, None])
def test_retries_are_a_number(retries):
    with pytest.raises(ArgumentError, match="is not a number of times"):
        ef.cluster.DataParallel(devices=["cpu:0"], retries=retries)
