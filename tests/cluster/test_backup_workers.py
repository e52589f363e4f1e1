"""Backup workers: steps on the examples of those workers that come first, and on no others."""

import contextlib
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.placement import executor
from eagerflow.cluster import backup_workers, ray_hosts
from eagerflow.devices import current_device
from eagerflow.errors import (
    ArgumentError,
    CaptureError,
    IndexRangeError,
    SessionError,
    TaskLostError,
)
from tests.capture.placement.several_devices import COSTS
from tests.cluster.kills import Killer, kill
from tests.cluster.kills import trained as trained_on_digits
from tests.cluster.processes import ProcessHosts
from tests.cluster.programs import trained_on
from tests.cluster.test_data_parallel import OPTIMIZERS, assert_same, batch, dense, network

WORKERS, SERVERS = ["cpu:0", "cpu:1", "cpu:2"], ["cpu:3"]
ON_TASKS = {"devices": WORKERS[:2], "servers": ["cpu:2"]}  # the same as the tasks of a cluster


def server(count=1, **options):
    return ef.cluster.ParameterServer(
        **({"devices": WORKERS, "servers": SERVERS} | options), backup_workers=count
    )


def pushes(*rows):
    """A schedule of the workers that count in each step."""
    return [("push", worker) for row in rows for worker in row]


def make(*layers, optimizer="adam"):
    return network(*(layers or dense()), optimizer=optimizer)


def trained(own, batches, made=make):
    return trained_on(made, batches, own)


def bits(found):
    model, logs = found
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)], logs


def used(batches, rows, count=3):
    """The examples of the workers that counted in each step."""
    found = []
    for (x, y), workers in zip(batches, rows, strict=True):
        ends = np.cumsum([0, *(len(x) // count + (r < len(x) % count) for r in range(count))])
        keep = np.concatenate([np.arange(ends[r], ends[r + 1]) for r in sorted(workers)])
        found.append((x[keep], y[keep]))
    return found


@contextlib.contextmanager
def slowed(monkeypatch, name, seconds):
    """A device that needs so many seconds more for each piece of a graph."""
    run_at = executor.run_at

    def slow(*args):
        if str(current_device()) == name:
            time.sleep(seconds)
        return run_at(*args)

    with monkeypatch.context() as patch:
        patch.setattr(executor, "run_at", slow)
        yield


def stop(cluster, task):
    """Let a task hang, and return when it does: a signal may take a moment."""
    os.kill(task.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        while True:
            cluster.client.ask(task, {"do": "ping"}, seconds=0.4)


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# Numbers -----------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["adam", "norm", "means", "in turn", "scaled"])
def test_a_step_is_one_on_the_examples_that_counted(name):
    batches = [batch(n) for n in (9, 8, 7, 2, 1, 9)]
    rows = [[0, 2], [1, 2], [0, 1], [1], [0], [1, 2]]
    own = server(schedule=pushes(*rows))

    def made():
        return make(optimizer=OPTIMIZERS[name]())

    found = trained(own, batches, made)
    assert_same(found, trained(None, used(batches, rows), made), 1e-7)
    counted = sum(len(y) for _, y in used(batches, rows))
    assert float(found[0].metrics[1].count) == counted
    assert own.dropped == {"cpu:0": 3, "cpu:1": 1, "cpu:2": 1}
    assert [*own.schedule] == pushes(*rows)


def test_a_sum_for_a_loss_is_that_of_the_examples_that_counted():
    w, optimizer = ef.Variable(0.0), ef.nn.optimizers.SGD(1.0)

    def step(x):
        with ef.GradientTape() as tape:
            loss = (x * w).sum()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    own = server(loss="sum", schedule=pushes([0, 2]))
    own.step(step)(ef.tensor([1.0, 2.0, 4.0]))
    own.merge()
    assert float(w) == -5.0


def test_results_are_those_of_the_examples_that_counted():
    own = server(schedule=pushes([2, 0]))
    rate = ef.Variable(0.3)
    found = own.step(lambda x: {"rows": x * 2, "mean": x.mean(), "rate": rate * 1.0})(
        ef.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    )
    np.testing.assert_array_equal(found["rows"].numpy(), [2, 4, 6, 12, 14])
    assert float(found["mean"]) == pytest.approx(np.mean([1, 2, 3, 6, 7]))
    assert found["rate"].numpy() == np.float32(0.3)


def test_first_results_count_and_repeat_bitwise():
    def made():
        layers = ef.nn.Dropout(0.3), ef.nn.BatchNormalization(dtype="float64")
        return make(*dense(), *layers, optimizer="adam")

    batches = [batch(n) for n in (9, 8, 9, 9, 2, 9)]
    own = server()
    first = bits(trained(own, batches, made))
    assert len(own.schedule) == 2 * 5 + 1
    for _ in range(2):
        again = server(schedule=own.schedule)
        assert bits(trained(again, batches, made)) == first
        assert again.schedule == own.schedule
        assert again.dropped == own.dropped


def test_without_backups_it_is_the_ordinary_step():
    batches = [batch(n) for n in (8, 7, 1)]
    wanted = ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS)
    own = server(0)
    assert bits(trained(own, batches)) == bits(trained(wanted, batches))
    assert own.dropped == dict.fromkeys(WORKERS, 0)


def test_fit_counts_the_examples_that_were_used():
    x, y = batch(27)
    rows = [[0, 1], [2, 0], [1, 2]] * 2
    batches = used([(x[i : i + 9], y[i : i + 9]) for i in (0, 9, 18)] * 2, rows)
    model = make()
    model(x[:2])
    own = server(schedule=pushes(*rows))
    more = {"shuffle": False, "verbose": 0}
    found = model.fit(x, y, 9, 2, strategy=own, **more).history
    wanted = make()
    wanted(x[:2])
    step = wanted.python_step("train")[0]
    for epoch in range(2):
        wanted.reset_metrics()
        for x, y in batches[3 * epoch : 3 * epoch + 3]:
            step(x, y)
        for name, value in wanted.logs().items():
            assert found[name][epoch] == pytest.approx(value, rel=1e-5)


# What late workers have changed ------------------------------------------------------------------


def test_running_means_are_those_of_workers_that_counted():
    x, y = batch(9)

    def made():
        return make(ef.nn.BatchNormalization(momentum=0.5, dtype="float64"))

    own = server(schedule=pushes([0, 1], [1, 0], [1, 2], [1, 2]))
    model, _ = trained(own, [(x, y)] * 4, made)
    means = [x[3 * r : 3 * r + 3].mean(0) for r in range(3)]
    steps = [2, 4, 2]
    after = [(1 - 0.5**n) * m for n, m in zip(steps, means, strict=True)]
    wanted = np.average(after, axis=0, weights=steps)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), wanted, 1e-5)


def test_a_worker_that_never_counts_leaves_nothing():
    x, y = batch(9)

    def made():
        return make(ef.nn.BatchNormalization(momentum=0.5, dtype="float64"))

    model, logs = trained(server(2, schedule=pushes([1], [1])), [(x, y)] * 2, made)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), 0.75 * x[3:6].mean(0), 1e-5)
    assert logs["loss"] == pytest.approx(
        trained(None, [(x[3:6], y[3:6])] * 2, made)[1]["loss"], rel=1e-5
    )


def test_random_numbers_do_not_come_again_after_a_merge():
    generator = ef.random.Generator(3)
    own = server(2, schedule=pushes([1], [1], [1], [0]))
    draw = own.step(lambda x: x + generator.normal(x.shape))
    seen = []
    for _ in range(4):
        seen.append(draw(ef.zeros((3, 2))).numpy().tobytes())
        own.merge()
    assert len(set(seen)) == 4


# Slow workers ------------------------------------------------------------------------------------


def test_a_slow_worker_is_dropped_and_does_not_hold_up_the_others(monkeypatch):
    batches = [batch(9) for _ in range(6)]
    own = server()
    model = make()
    model(batches[0][0])
    step = own.step(model.python_step("train")[0])
    step(*batches[0])
    begun = len(own.schedule)
    with slowed(monkeypatch, "cpu:1", 1.0):
        begin = time.monotonic()
        for x, y in batches[1:]:
            step(x, y)
        own.merge()
        assert time.monotonic() - begin < 4.0  # with it: five steps of two seconds and more
    assert {worker for _, worker in own.schedule[begun:]} == {0, 2}
    assert own.dropped["cpu:1"] >= 5
    rows = [[w for _, w in own.schedule[i : i + 2]] for i in range(0, 12, 2)]
    assert_same((model, model.logs()), trained(None, used(batches, rows)), 1e-7)
    wait_for(lambda: not any(t.name.startswith("eagerflow worker") for t in threading.enumerate()))


def test_a_slow_task_is_dropped_and_named(local, monkeypatch):
    batches = [batch(8)] * 12
    own = ef.cluster.ParameterServer(local, backup_workers=1)
    model = make()
    model(batches[0][0])
    step = own.step(model.python_step("train")[0])
    step(*batches[0])
    two = own.devices[1]
    before = own.dropped[two]
    with slowed(monkeypatch, two, 0.05):
        for x, y in batches[1:]:
            step(x, y)
            time.sleep(0.06)
    assert own.dropped[two] >= before + 9
    assert local.status().slow == ["/job:worker/task:1"]
    own.merge()
    again = server(**ON_TASKS, schedule=own.schedule)
    assert bits((model, model.logs())) == bits(trained(again, batches))


def test_a_task_that_hangs_holds_nothing_up(processes):
    batches = [batch(8)] * 8
    own = ef.cluster.ParameterServer(processes, backup_workers=1)
    model = make()
    model(batches[0][0])
    step = own.step(model.python_step("train")[0])
    step(*batches[0])
    hung = processes.tasks[0]
    stop(processes, hung)
    try:
        begin = time.monotonic()
        for x, y in batches[1:]:
            step(x, y)
        assert time.monotonic() - begin < 5.0  # it would be given up after 20
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    assert [worker for _, worker in own.schedule[1:]] == [1] * 7
    own.merge()
    again = server(**ON_TASKS, schedule=own.schedule)
    assert bits((model, model.logs())) == bits(trained(again, batches))


def test_an_interrupted_step_changes_nothing(monkeypatch):
    batches = [batch(9)] * 2
    own = server(schedule=pushes([0, 1], [1, 2]))
    model = make()
    model(batches[0][0])
    step = own.step(model.python_step("train")[0])
    step(*batches[0])
    with slowed(monkeypatch, "cpu:1", 0.3):
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            step(*batches[1])
    own.merge()
    found = bits((model, model.logs()))
    again = server(schedule=own.schedule)
    assert found == bits(trained(again, batches[:1]))
    step(*batches[1])
    own.merge()
    found, logs = bits((model, model.logs()))
    again = server(schedule=own.schedule)
    wanted, other = bits(trained(again, batches))
    assert found == wanted
    assert logs == pytest.approx(other, rel=1e-6)  # merged in between: sums in another order


# Errors, losses ----------------------------------------------------------------------------------


def taking(w):
    """A step that changes ``w`` where indices say."""
    optimizer = ef.nn.optimizers.SGD(0.5)

    def step(x, i):
        with ef.GradientTape() as tape:
            loss = (ef.take(w, i) * x).mean()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    return step


def test_worker_error_changes_nothing_and_training_continues():
    w = ef.Variable([1.0, 2.0, 3.0])
    own = server(schedule=pushes([1, 2], [0, 2]))
    step = own.step(taking(w))
    with pytest.raises(IndexRangeError):
        step(ef.ones((3,)), ef.tensor([0, 1, 9]))
    own.merge()
    np.testing.assert_array_equal(w.numpy(), [1.0, 2.0, 3.0])
    assert own.schedule == ()
    step(ef.ones((3,)), ef.tensor([0, 1, 2]))
    step(ef.ones((3,)), ef.tensor([0, 9, 2]))  # of the worker that is not asked
    own.merge()
    np.testing.assert_array_equal(w.numpy(), [0.75, 1.75, 2.5])


def test_an_error_is_raised_also_where_others_would_be_enough(monkeypatch):
    w = ef.Variable([1.0, 2.0, 3.0])
    own = server()
    step = own.step(taking(w))
    step(ef.ones((3,)), ef.tensor([0, 1, 2]))
    with slowed(monkeypatch, "cpu:0", 0.5), pytest.raises(IndexRangeError):
        step(ef.ones((3,)), ef.tensor([0, 1, 9]))
    assert len(own.schedule) == 2


def test_a_worker_does_one_thing_at_a_time_and_then_the_newest():
    threads, done = backup_workers.Threads(), []
    begun, may_end = threading.Event(), threading.Event()

    def first():
        begun.set()
        may_end.wait()
        done.append("first")

    threads.give(0, first)
    begun.wait()
    for name in ("second", "third"):
        threads.give(0, lambda name=name: done.append(name))
    threads.give(1, lambda: done.append("of another worker"))
    wait_for(lambda: done == ["of another worker"])
    time.sleep(0.05)
    may_end.set()
    wait_for(lambda: len(done) == 3)
    assert done == ["of another worker", "first", "third"]


def test_a_part_that_cannot_count_any_more_is_not_begun():
    class Part:
        def __init__(self):
            self.runs = 0

        def run(self, inputs):
            self.runs += 1
            return inputs

    parts = [Part(), Part()]
    this = backup_workers.Try(2, 1)
    this.lead(0, parts[0], ["outputs"])
    assert this.first() == {0: ["outputs"]}
    this.lead(1, parts[1], ["late"])
    assert this.first() == {0: ["outputs"]}
    assert [part.runs for part in parts] == [1, 0]


def weighted(w, optimizer):
    def step(x):
        with ef.GradientTape() as tape:
            loss = (x * w).mean()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    return step


def test_lost_workers_are_late_ones(processes):
    """Of what only workers need nothing is missed, also where no copies are kept."""
    w, optimizer = ef.Variable(64.0), ef.nn.optimizers.SGD(1.0)
    own = ef.cluster.ParameterServer(processes, backup_workers=1, retries=0)
    step = own.step(weighted(w, optimizer))
    for lost in (0, 1, 0):
        for _ in range(3):
            step(ef.ones((4,)))
        task = processes.tasks[lost]
        lives = task.lives
        os.kill(task.pid, signal.SIGKILL)
        for _ in range(3):
            step(ef.ones((4,)))
        wait_for(lambda task=task, lives=lives: task.lives > lives and task.state == "ready")
    for _ in range(8):
        step(ef.ones((4,)))
    own.merge()
    assert float(w) == 64.0 - len(own.schedule) == 64.0 - 26


def test_too_few_workers_raise_or_are_waited_for(processes):
    w, optimizer = ef.Variable(8.0), ef.nn.optimizers.SGD(1.0)
    own = ef.cluster.ParameterServer(processes, backup_workers=1, retries=0)
    step = own.step(weighted(w, optimizer))
    step(ef.ones((4,)))
    pids = [task.pid for task in processes.tasks[:2]]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(TaskLostError):
        step(ef.ones((4,)))
    own.retries = 5
    step(ef.ones((4,)))
    own.merge()
    assert float(w) == 6.0


@pytest.fixture
def redundant(monkeypatch):
    """Three workers and a parameter server in processes, which keep copies for each other."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    jobs = {"worker": 3, "ps": 1}
    with ef.cluster.Cluster(jobs, costs=COSTS, silence=2.0, redundant=True) as made:
        yield made


def check_kills(cluster, kills):
    """Steps until tasks were killed so often: they can be repeated to the bit without kills."""
    own = ef.cluster.ParameterServer(cluster, backup_workers=1)
    with Killer(cluster, [kill] * kills) as killer:
        found, steps = trained_on_digits(own, killer.goes_on)
    assert len(killer.going) == kills
    assert len(own.schedule) == 2 * steps
    again = server(schedule=own.schedule)
    assert trained_on_digits(again, lambda step: step < steps)[0] == found
    print(f"{kills} kills in {steps} steps; late: {[*own.dropped.values()]}")


def test_kills_lose_nothing_and_double_nothing(redundant):
    check_kills(redundant, 4)


@pytest.mark.soak  # a minute of kills
def test_a_hundred_kills_lose_nothing_and_double_nothing(redundant):
    check_kills(redundant, 100)


def test_further_sets_of_workers_make_no_graph():
    rows = [[0, 1], [1, 2], [0, 2], [2, 1]]
    own = server(schedule=pushes(*rows))
    batches = [batch(9) for _ in rows]
    assert_same(trained(own, batches), trained(None, used(batches, rows)), 1e-7)
    assert len(own.graphs) == 2 * 3 + 1


def test_staged_values_of_late_workers_are_ignored():
    """Not even where it is no number."""
    rows = [[0, 1], [1, 2]]
    batches, found = [batch(9) for _ in rows], []
    for spoilt in (False, True):
        model = make(ef.nn.BatchNormalization(dtype="float64"))
        model(batches[0][0])
        own = server(schedule=pushes(*rows))
        step = own.step(model.python_step("train")[0])
        step(*batches[0])
        (prepared,) = step._kept.values()
        computed = prepared.parts[0].computed
        staged = [*computed.gradients.values(), *computed.staged.values()]
        for v in staged if spoilt else ():
            v.assign(np.full(v.shape, np.nan) if v.dtype.kind == "f" else v.numpy() + 7)
        step(*batches[1])
        own.merge()
        found.append(bits((model, model.logs())))
    assert found[0] == found[1]
    assert staged


def test_many_sizes_are_forgotten(monkeypatch):
    monkeypatch.setattr(backup_workers, "MAX_KEPT_GRAPHS", 2)
    batches = [batch(n) for n in (9, 9, 9, 9, 6, 3, 9)]
    rows = [[0, 1], [1, 2], [0, 2], [0, 1], [0, 2], [1, 2], [2, 1]]
    own = server(schedule=pushes(*rows))
    found = trained(own, batches)
    assert_same(found, trained(None, used(batches, rows)), 1e-7)
    assert len(own.graphs) <= 2 * (2 * 3 + 1)


def test_invalid_use_is_refused():
    for options in (
        {"count": 3},
        {"count": -1},
        {"count": True},
        {"count": 1.5},
        {"count": 1, "mode": "asynchronous"},
    ):
        with pytest.raises(ArgumentError, match="backup") as caught:
            server(**options)
        assert caught.value.argument == "backup_workers"
    own = server(schedule=pushes([0, 1]))
    with pytest.raises(SessionError, match="schedule has ended"):
        trained(own, [batch(9)] * 2)
    for wrong in ([("pull", 0), ("push", 0)], pushes([1, 1])):
        with pytest.raises(SessionError, match="that of another training"):
            trained(server(schedule=wrong), [batch(9)])
    model = make(ef.nn.BatchNormalization(synchronized=True))
    model(batch(2)[0])
    with pytest.raises(CaptureError, match="mean over all workers"):
        server().step(model.python_step("train")[0])(*batch(6))


def looked_up_in(rows, steps=2):
    """The warnings of a training that looks up few rows of so many."""
    layers = [ef.nn.Embedding(rows, 64, sparse=True), ef.nn.Flatten(), ef.nn.Dense(3)]
    model = make(*layers, optimizer="sgd")
    x = np.arange(12).reshape(6, 2)
    model(x)
    step = server(2).step(model.python_step("train")[0])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(steps):
            step(x, np.zeros(6, int))
    return [str(w.message) for w in found]


def test_tables_sent_whole_cause_a_warning():
    (words,) = looked_up_in(1 << 14)
    assert "embedding" in words and "4,194,304 bytes, of which it looks up 1,024" in words
    assert looked_up_in(1 << 6) == []
