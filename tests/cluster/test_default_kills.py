"""A worker that is killed does not end training with default settings."""

import threading
import warnings

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import plan
from eagerflow.cluster.client import Client
from eagerflow.errors import TaskLostError
from tests.capture.placement.several_devices import COSTS

BATCH, EPOCHS, STEPS = 8, 3, 4
WORKERS = {"worker": 2}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((BATCH * STEPS, 5)).astype("float32")
Y = RNG.integers(0, 3, len(X))


def network(optimizer="adam", table=False):
    ef.random.seed(0)
    first = [ef.nn.Embedding(50, 4, sparse=True), ef.nn.Flatten()] if table else []
    hidden = [ef.nn.Dense(6, activation="tanh"), ef.nn.BatchNormalization(), ef.nn.Dropout(0.3)]
    model = ef.nn.Sequential([*first, *hidden, ef.nn.Dense(3)])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    if optimizer == "ema":
        optimizer = ef.nn.optimizers.SGD(0.1, momentum=0.9, use_ema=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    return model


class Kills(ef.nn.callbacks.Callback):
    """Kills tasks at moments: ``("batch", 5)`` is behind so many batches, counted from 1.

    Several names that a space divides are killed at once.
    """

    reads_batches = False

    def __init__(self, cluster, kills):
        self.cluster, self.kills, self.batches = cluster, dict(kills), 0

    def strike(self, *moment):
        name = self.kills.pop(moment, None)
        if name is not None:
            self.cluster.wait()
            for one in name.split():
                self.cluster.kill(one)

    def on_train_begin(self, logs=None):
        self.strike("begin", 0)

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        self.strike("batch", self.batches)

    def on_epoch_end(self, epoch, logs=None):
        self.strike("epoch", epoch)

    def on_test_begin(self, logs=None):
        self.strike("test", 0)


def fitted(kills=(), make=ef.cluster.DataParallel, jobs=WORKERS, optimizer="adam", table=False):
    """The numbers of a training and the bits that it ends with; all kills have come."""
    model = network(optimizer, table)
    x = RNG.integers(0, 50, (len(X), 2)) if table else X
    with ef.cluster.Cluster(jobs, local=True, costs=COSTS) as cluster:
        own = Kills(cluster, kills)
        history = model.fit(
            x, Y, BATCH, EPOCHS, verbose=0, shuffle=False, callbacks=own,
            strategy=make(cluster), validation_data=(x[:8], Y[:8]),
        ).history  # fmt: skip
        assert not own.kills
        tested = model.evaluate(x, Y, verbose=0)
    assert np.isfinite(tested).all()
    bits = [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]
    return history, bits


def names(*numbers):
    return [f"/job:worker/task:{n}" for n in numbers]


MOMENTS = {
    "first step": [("begin", 0)],
    "middle of an epoch": [("batch", 6)],
    "end of an epoch": [("batch", STEPS)],
    "between epochs": [("epoch", 0)],
    "validation": [("test", 0)],
    "three in turn": [("batch", 1), ("batch", 3), ("batch", 7)],
}


def check(moments, first=1, count=2, **options):
    victims = [names((first + i) % count)[0] for i in range(len(moments))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is lost
        found = fitted(zip(moments, victims, strict=True), **options)
    assert found == fitted(**options)


@pytest.mark.parametrize("moment", ["middle of an epoch", "three in turn"])
def test_a_killed_worker_costs_no_bit(moment):
    check(MOMENTS[moment])


@pytest.mark.soak
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "ema"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_no_moment_costs_a_bit(moment, first, count, optimizer):
    check(MOMENTS[moment], first, count, jobs={"worker": count}, optimizer=optimizer)


def test_a_killed_worker_of_servers_costs_no_bit():
    check(
        MOMENTS["middle of an epoch"], make=ef.cluster.ParameterServer, jobs={"worker": 2, "ps": 1}
    )


@pytest.mark.soak
@pytest.mark.parametrize("victims", [(0, 1), (1, 2), (2, 0)])
def test_two_of_three_at_once_cost_no_bit(victims):
    jobs = {"worker": 3}
    assert fitted({("batch", 6): " ".join(names(*victims))}, jobs=jobs) == fitted(jobs=jobs)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_task_that_is_lost_while_it_rescues_values_costs_no_bit(monkeypatch, victim):
    wanted, lost = fitted(jobs={"worker": 3}), []
    rescue, ask, rescuers = Client.rescue, Client.ask, set()

    def lost_first(client, task, message, *more, **named):
        if not lost and threading.get_ident() in rescuers:
            lost.append(task.name)
            task.connection.close()
        return ask(client, task, message, *more, **named)

    def rescued(client, risk):
        rescuers.add(threading.get_ident())
        rescue(client, risk)
        rescuers.remove(threading.get_ident())

    monkeypatch.setattr(Client, "ask", lost_first)
    monkeypatch.setattr(Client, "rescue", rescued)
    assert fitted({("batch", 6): names(victim)[0]}, jobs={"worker": 3}) == wanted
    assert lost not in ([], names(victim))


def test_a_lost_task_is_replaced_as_a_source_also_beside_a_silent_one():
    asked, sources = [], [["silent", "lost"], ["third"]]

    class Asking(Client):
        tasks = {"silent": TimeoutError("no answer"), "lost": TaskLostError("gone"), "third": None}

        def __init__(self):
            """Connects to nothing."""

        def wait(self, f):
            if f.func.__name__ != "_sources":
                return ()
            return {(name, "pull"): [] for name in sources.pop(0)}

        def ask(self, error, message, seconds):
            asked.append(next(name for name, task in self.tasks.items() if task is error))
            if error:
                raise error
            return {}, []

    Asking().rescue([])
    assert asked == ["silent", "lost", "third"]


def test_large_state_of_an_optimizer_is_as_after_the_last_merge(monkeypatch):
    monkeypatch.setattr(plan, "FOLLOWING_BYTES", 2000)

    def wide(kills):
        ef.random.seed(0)
        model = ef.nn.Sequential([ef.nn.Dense(200, activation="tanh"), ef.nn.Dense(3)])
        loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=loss, metrics=["accuracy"])
        with ef.cluster.Cluster(WORKERS, local=True, costs=COSTS) as cluster:
            more = {"verbose": 0, "shuffle": False, "callbacks": Kills(cluster, kills)}
            return model.fit(
                X, Y, BATCH, EPOCHS, strategy=ef.cluster.DataParallel(cluster), **more
            ).history

    with pytest.warns(UserWarning, match="/job:worker/task:0 was lost, with data .* last merge"):
        found = wide({("batch", 6): names(0)[0]})
    wanted = wide({})
    assert found["loss"][0] == wanted["loss"][0]
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=0.1)
    assert found["loss"][-1] < found["loss"][0]


def test_steps_of_ones_own_go_on_and_count_right():
    def made(kills):
        model = network()
        model(X[:2])
        with ef.cluster.Cluster(WORKERS, local=True, costs=COSTS) as cluster:
            strategy = ef.cluster.DataParallel(cluster)
            step = strategy.step(model.python_step("train")[0])
            for i in range(STEPS):
                if i in kills:
                    cluster.wait()
                    cluster.kill(kills[i])
                step(X[i * BATCH :][:BATCH], Y[i * BATCH :][:BATCH])
            strategy.merge()
        assert float(model.metrics[0].count) == len(X)
        return model.logs()

    assert made({1: names(0)[0], 3: names(1)[0]}) == made({})


@pytest.mark.parametrize("make", ["server", "stage", "table"])
def test_loss_of_unreplicated_state_raises_with_a_hint(make):
    if make == "server":
        options = {"make": ef.cluster.ParameterServer, "jobs": {"worker": 2, "ps": 1}}
        victim = "/job:ps/task:0"
    elif make == "stage":
        options = {"make": lambda cluster: ef.cluster.Pipeline(cluster, costs=COSTS)}
        victim = names(1)[0]
    else:
        options, victim = {"table": True, "jobs": {"worker": 1}}, names(0)[0]
    with pytest.raises(TaskLostError, match=f"was lost with {victim}") as caught:
        fitted({("batch", 2): victim}, **options)
    assert "redundant=True" in caught.value.hint
    assert "BackupAndRestore" in caught.value.hint
