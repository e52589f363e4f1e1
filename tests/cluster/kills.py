"""Training whose tasks are killed, stopped and cut off at random moments, in numbers.

    python -m tests.cluster.kills [--count 200] [--ray] [--seed 0]

Of the blows most are ``kill -9`` of a random worker or parameter server; some stop a process for
longer than the cluster waits for a sign of life, and some end the connection, and with it its
threads on both sides, of a task that is well. They are shared by the ways to train, each of which
is compared to the bit with a training that nothing has happened to. Ways with default settings
have blows for workers alone; the others have a redundant cluster. Tasks are forked from a process
that waits for it, or with ``--ray`` started by Ray. Where no step follows a blow for two minutes,
all stacks are printed and the program ends with 1.
"""

import argparse
import faulthandler
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts
from tests.cluster.test_sessions import digits

HANG_SECONDS = 120.0
STAGGER_SECONDS = 0.05  # the most from one blow being overcome to the next one
COLORS = 17
RAY_SILENCE = 5.0  # a process that Ray starts has the machine for itself even less
DEVICES = {"devices": ["cpu:0", "cpu:1"]}
SERVERS = {**DEVICES, "servers": ["cpu:2"]}
ASYNCHRONOUS = {"mode": "asynchronous", "staleness": 2}


# Blows -------------------------------------------------------------------------------------------


def kill(task):
    """The process ends without a word."""
    os.kill(task.pid, signal.SIGKILL)


def stop(task):
    """The process stands still, for longer than the cluster waits."""
    os.kill(task.pid, signal.SIGSTOP)


def cut(task):
    """The connection with the task ends, and its threads on both sides."""
    task.connection.close()


def mixed(count, seed=0):
    """So many blows in some order: of ten of them one stops a process, one cuts it off."""
    blows = [stop if i % 10 == 4 else cut if i % 10 == 9 else kill for i in range(count)]
    random.Random(seed).shuffle(blows)
    return blows


class Killer:
    """Strikes a task at a random moment, and the next one when training has gone on.

    ``moved`` returns the training's progress; it has gone on when that is ``enough`` more than at
    the blow. ``goes_on`` is asked before each step. The block ends its thread.
    """

    def __init__(
        self, cluster, blows, moved=None, enough=2, seed=0, told=lambda done: None, jobs=None
    ):
        self._tasks = [t for t in cluster.tasks if jobs is None or t.job in jobs]
        self.cluster, self.blows, self.enough, self.told = cluster, list(blows), enough, told
        self.moved = moved or (lambda: self.steps)
        self.steps = 0
        self.back, self.going = [], []
        self._rng = random.Random(seed)
        self._begun, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._begun.set()
        self._thread.join()

    def goes_on(self, steps):
        """Whether there are blows left; ``steps`` have been made so far."""
        self.steps = steps
        if steps:  # the first one takes seconds, which many blows would prolong
            self._begun.set()
        return self._thread.is_alive()

    def _serve(self):
        self._begun.wait()
        for blow in self.blows:
            if self._over.wait(STAGGER_SECONDS * self._rng.random()):
                return
            task = self._rng.choice(self._tasks)
            lives, far, begin = task.lives, self.moved(), time.monotonic()
            blow(task)
            if not self._until(lambda t=task, n=lives: t.lives > n and t.state == "ready"):
                return
            self.back.append(time.monotonic() - begin)
            if not self._until(lambda n=far: self.moved() >= n + self.enough):
                return
            self.going.append(time.monotonic() - begin)
            self.told(len(self.going))

    def _until(self, condition):
        """Whether a condition comes true in time."""
        end = time.monotonic() + HANG_SECONDS
        while not condition():
            if self._over.is_set() or time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True


# Trainings ---------------------------------------------------------------------------------------


def network():
    ef.random.seed(0)
    layers = [ef.nn.Dense(32, activation="relu"), ef.nn.BatchNormalization(), ef.nn.Dropout(0.2)]
    layers += [ef.nn.Dense(10)]
    model = ef.nn.Sequential(layers)
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def network_with_table():
    """A network with an embedding of each pixel's position and color."""
    ef.random.seed(0)
    layers = ef.nn.Embedding(64 * COLORS, 8, sparse=True), ef.nn.Flatten(), ef.nn.Dense(10)
    model = ef.nn.Sequential([*layers])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def trained(strategy, goes_on, table=False):
    """The bits of a model, of its optimizer and its metrics after some steps, and their number."""
    x, labels = digits()
    y = np.argmax(labels, axis=1)
    if table:
        x = (x * (COLORS - 1)).astype("int64") + COLORS * np.arange(64)
    model = network_with_table() if table else network()
    model(x[:2])
    step, steps = strategy.step(model.python_step("train")[0]), 0
    while goes_on(steps):
        step(x[steps % 4 :: 4], y[steps % 4 :: 4])
        steps += 1
    strategy.merge()
    variables = *model.variables, *model.optimizer.variables
    return ([v.numpy().tobytes() for v in variables], model.logs()), steps


class Way(NamedTuple):
    """A way to train: on a cluster, and then repeated on devices."""

    make: Callable[[Any], Any]
    again: Callable[[Any], Any]
    moved: Callable[[Any], int] | None = None
    enough: int = 2  # steps: one was under way at the blow, the other begun after it
    table: bool = False
    redundant: bool = True  # else the settings are the default ones, and blows for workers


def pushes(strategy):
    """How many gradients have come."""
    return sum(event.what == "push" for event in strategy.schedule)


WAYS = {
    "data parallel": Way(ef.cluster.DataParallel, lambda own: ef.cluster.DataParallel(**DEVICES)),
    "parameter server": Way(
        ef.cluster.ParameterServer, lambda own: ef.cluster.ParameterServer(**SERVERS)
    ),
    "table on a server": Way(
        ef.cluster.ParameterServer, lambda own: ef.cluster.ParameterServer(**SERVERS), table=True
    ),
    "asynchronous": Way(
        lambda cluster: ef.cluster.ParameterServer(cluster, **ASYNCHRONOUS),
        lambda own: ef.cluster.ParameterServer(**SERVERS, **ASYNCHRONOUS, schedule=own.schedule),
        pushes,
        6,  # more than one worker brings while another one is away
    ),
    "data parallel by default": Way(
        ef.cluster.DataParallel, lambda own: ef.cluster.DataParallel(**DEVICES), redundant=False
    ),
    "parameter server by default": Way(
        ef.cluster.ParameterServer,
        lambda own: ef.cluster.ParameterServer(**SERVERS),
        redundant=False,
    ),
}


def cluster_for(name, silence):
    """Two workers and a parameter server with the settings of a way."""
    jobs, more = {"worker": 2, "ps": 1}, {"redundant": True} if WAYS[name].redundant else {}
    return ef.cluster.Cluster(jobs, costs=COSTS, silence=silence, **more)


class Endured(NamedTuple):
    """The outcome of a training during which tasks were killed."""

    steps: int
    same: bool
    back: list[float]
    going: list[float]


def endured(cluster, name, blows, told=lambda done: None):
    """Train one way under blows, and again without."""
    way = WAYS[name]
    own = way.make(cluster)
    moved = None if way.moved is None else lambda: way.moved(own)
    jobs = None if way.redundant else ("worker",)
    with Killer(cluster, blows, moved, way.enough, len(blows), told, jobs) as killer:
        found, steps = trained(own, killer.goes_on, way.table)
    same = trained(way.again(own), lambda step: step < steps, way.table)[0] == found
    return Endured(steps, same, killer.back, killer.going)


# In numbers --------------------------------------------------------------------------------------


def times(seconds):
    """The median, the 95th percentile, and the maximum."""
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return f"{cuts[9]:.2f} s median, {cuts[18]:.2f} s 95 %, {max(seconds):.2f} s at most"


def shares(count):
    """How many blows each way gets."""
    return {name: len(range(i, count, len(WAYS))) for i, name in enumerate(WAYS)}


def report(name, blows, found):
    """Print the outcome."""
    kinds = Counter(blow.__name__ for blow in blows)
    words = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    print(f"\n{name}: {len(found.going)} blows ({words}) in {found.steps} steps")
    print(f"  bits: {'the same as without' if found.same else 'OTHERS THAN WITHOUT'}")
    print(f"  the task was back after {times(found.back)}")
    print(f"  training had gone on after {times(found.going)}", flush=True)


def watched(name, count):
    """A callback for each recovery, which ends the program if the next one does not come."""

    def told(done):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(f"\r{name}: {done} of {count}", end="", flush=True)

    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="blows in all")
    parser.add_argument("--ray", action="store_true", help="processes that Ray starts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.count < 2 * len(WAYS):
        parser.error(f"--count: at least {2 * len(WAYS)}")
    ef.set_logical_devices("cpu", 3)
    if not options.ray:
        ray_hosts.RayHosts = ProcessHosts
    silence = RAY_SILENCE if options.ray else 2.0
    blows = mixed(options.count, options.seed)
    begin, good = time.monotonic(), True
    for name, count in shares(options.count).items():
        own, blows = blows[:count], blows[count:]
        told = watched(name, count)
        told(0)
        with cluster_for(name, silence) as cluster:
            found = endured(cluster, name, own, told)
        faulthandler.cancel_dump_traceback_later()
        report(name, own, found)
        good = good and found.same and len(found.going) == count
    print(f"\n{options.count} blows in {time.monotonic() - begin:.0f} s, no hang")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
