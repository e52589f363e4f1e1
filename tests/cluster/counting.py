"""A model all of whose weights are minus the number of steps, for any batches.

    counting.py KILLS FOLDER

Children train it and save it all the time; each is killed at a random moment, with its tasks still
at work. Errors are printed.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import numpy as np

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from eagerflow.nn import shards
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts, nursery

X = np.ones((4, 8), "float32")
SECONDS = 60  # in which a child has saved once


def counting(size=8):
    """The model, and its step."""
    layers = [ef.nn.Input((8,))]
    layers += [ef.nn.Dense(size, kernel_initializer="zeros") for _ in range(4)]
    model = ef.nn.Sequential(layers)
    model.compile(ef.nn.optimizers.SGD(1.0), "mse")

    def step(x):
        with ef.GradientTape() as tape:
            loss = sum(w.sum() for w in model.trainable_weights) * x.mean()
        weights = model.trainable_weights
        model.optimizer.apply(tape.gradient(loss, weights), weights)

    return model, step


def counts(path):
    """The numbers of steps found in the values of a checkpoint: one if it is consistent."""
    found = shards.read(path, "test")
    arrays = found.arrays
    numbers = {json.loads(found.texts["progress"])["step"], int(arrays["optimizer/iterations"])}
    for name, array in arrays.items():
        if name.startswith("weights/"):
            numbers.update(-np.unique(array))
    return numbers


def train(folder, mode, acknowledge):
    """Train and save until the process is killed; prints the number of each complete checkpoint."""
    ray_hosts.RayHosts = ProcessHosts
    with ef.cluster.Cluster({"worker": 2, "ps": 2}, costs=COSTS) as cluster:
        strategy = ef.cluster.ParameterServer(cluster, mode=mode)
        model, step = counting(64)
        step, checkpoint = strategy.step(step), ef.nn.Checkpoint(folder, keep=2)
        while True:
            for _ in range(2):
                step(X)
            checkpoint.wait()
            latest = checkpoint.latest
            if latest is not None:
                os.write(acknowledge, int(latest.stem[-8:]).to_bytes(4, "little"))
            checkpoint.save(model, strategy=strategy, wait=False)


def killed(folder, mode, delay):
    """Start a child and kill it; returns the last checkpoint that it had reported."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            train(folder, mode, writing)
        finally:
            os._exit(1)
    os.close(writing)
    begun = select.select([reading], [], [], SECONDS)[0]
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    known = b""
    while begun and (part := os.read(reading, 1 << 16)):
        known += part
    os.close(reading)
    return int.from_bytes(known[-4:], "little")


def main(kills, folder):
    nursery()  # which all children share
    rng = random.Random(kills)
    found = {"saved": 0, "lost": 0, "mixed": 0, "litter": 0}
    for kill in range(kills):
        mode = ("synchronous", "asynchronous")[kill % 2]
        saved = killed(folder, mode, rng.uniform(0, 0.2))
        paths = sorted(Path(folder).glob("checkpoint-*.ef"))
        newest = int(paths[-1].stem[-8:]) if paths else 0
        found["saved"] += saved > 0
        found["lost"] += newest < saved
        found["mixed"] += any(len(counts(path)) != 1 for path in paths)
        found["litter"] += len(os.listdir(folder)) > 3 * 3 + 4  # three states, and begun files
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
