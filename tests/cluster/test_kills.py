"""Training whose tasks are killed and stopped at random moments has the bits of one that is not."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import SECONDS, ProcessHosts
from tests.cluster.test_sessions import digits

DEVICES = {"devices": ["cpu:0", "cpu:1"]}
SERVERS = {**DEVICES, "servers": ["cpu:2"]}


@pytest.fixture
def redundant(monkeypatch):
    """Two workers and a parameter server in processes, which keep copies for each other."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    jobs = {"worker": 2, "ps": 1}
    with ef.cluster.Cluster(jobs, costs=COSTS, silence=2.0, redundant=True) as made:
        yield made


def network():
    ef.random.seed(0)
    model = ef.nn.Sequential(
        [
            ef.nn.Dense(32, activation="relu"),
            ef.nn.BatchNormalization(),
            ef.nn.Dropout(0.2),
            ef.nn.Dense(10),
        ]
    )
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def trained(strategy, goes_on):
    """The bits of a model, of its optimizer and its metrics after some steps, and their number."""
    x, labels = digits()
    y = np.argmax(labels, axis=1)
    model = network()
    model(x[:2])
    step, steps = strategy.step(model.python_step("train")[0]), 0
    while goes_on(steps):
        step(x[steps % 4 :: 4], y[steps % 4 :: 4])
        steps += 1
    strategy.merge()
    variables = *model.variables, *model.optimizer.variables
    return ([v.numpy().tobytes() for v in variables], model.logs()), steps


class Killer:
    """Kills a task at a random moment after each few steps, until it has killed so many.

    ``goes_on`` counts steps. The block ends its thread.
    """

    def __init__(self, cluster, kills, blow=signal.SIGKILL):
        self.cluster, self.kills, self.blow = cluster, kills, blow
        self.rng = random.Random(kills)
        self.times = []
        self._begun, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._begun.set()
        self._thread.join()

    def goes_on(self, step):
        if step:  # the first one takes seconds, which many kills would prolong
            self._begun.set()
        return self._thread.is_alive()

    def _serve(self):
        while len(self.times) < self.kills:
            self._begun.wait()
            self._begun.clear()
            if self._over.wait(0.05 * self.rng.random()):
                return
            task = self.rng.choice(self.cluster.tasks)
            lives = task.lives
            begin = time.monotonic()
            os.kill(task.pid, self.blow)
            while task.lives == lives or task.state != "ready":
                if time.monotonic() - begin > SECONDS:
                    return  # the test sees that there were too few
                time.sleep(0.002)
            self.times.append(time.monotonic() - begin)


def check_kills(cluster, make, other, kills, blow=signal.SIGKILL):
    """Steps until tasks were killed so often: the bits are those of another strategy without."""
    with Killer(cluster, kills, blow) as killer:
        found, steps = trained(make(cluster), killer.goes_on)
    assert len(killer.times) == kills
    assert trained(other, lambda step: step < steps)[0] == found
    times = sorted(killer.times)
    print(
        f"{len(times)} kills in {steps} steps: {1e3 * times[len(times) // 2]:.0f} ms until the "
        f"task was back (median), {1e3 * times[-1]:.0f} ms at most"
    )


def test_kills_cost_no_bit(redundant):
    check_kills(redundant, ef.cluster.DataParallel, ef.cluster.DataParallel(**DEVICES), 3)
    check_kills(redundant, ef.cluster.ParameterServer, ef.cluster.ParameterServer(**SERVERS), 3)


def test_tasks_that_are_stopped_cost_no_bit(redundant):
    other = ef.cluster.DataParallel(**DEVICES)
    check_kills(redundant, ef.cluster.DataParallel, other, 1, signal.SIGSTOP)


def test_kills_of_asynchronous_training_can_be_repeated_without(redundant):
    mode = {"mode": "asynchronous", "staleness": 2}
    own = ef.cluster.ParameterServer(redundant, **mode)
    with Killer(redundant, 4) as killer:
        found, steps = trained(own, killer.goes_on)
    assert len(killer.times) == 4
    again = ef.cluster.ParameterServer(**SERVERS, **mode, schedule=own.schedule)
    assert trained(again, lambda step: step < steps)[0] == found


@pytest.mark.soak  # two minutes of kills
@pytest.mark.parametrize(
    ("make", "other"),
    [
        (ef.cluster.DataParallel, lambda: ef.cluster.DataParallel(**DEVICES)),
        (ef.cluster.ParameterServer, lambda: ef.cluster.ParameterServer(**SERVERS)),
    ],
)
def test_a_hundred_kills_cost_no_bit(redundant, make, other):
    check_kills(redundant, make, other(), 100)
