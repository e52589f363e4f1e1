"""A training that is killed repeatedly, and prints its weights at the end.

    checkpoint_worker.py KILLS SEED FOLDER

Children train from the newest checkpoint on. Each is killed at a random moment, the last one ends.
"""

import hashlib
import json
import os
import random
import select
import signal
import sys
import time

import numpy as np

import eagerflow as ef

STEPS = 30
X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


class Rows:
    """Batches in an order drawn anew for each epoch, from a position on."""

    def __init__(self):
        self.epoch = self.at = 0

    def state(self):
        return {"epoch": self.epoch, "at": self.at}

    def set_state(self, state):
        self.epoch, self.at = state["epoch"], state["at"]

    def take(self):
        rows = np.random.default_rng(self.epoch).permutation(len(X))[self.at : self.at + 8]
        self.at += 8
        if self.at >= len(X):
            self.epoch, self.at = self.epoch + 1, 0
        return X[rows], Y[rows]


def network():
    layers = [ef.nn.Input((4,)), ef.nn.Dense(8, "relu"), ef.nn.BatchNormalization()]
    layers += [ef.nn.Dropout(0.2, seed=5), ef.nn.Dropout(0.2), ef.nn.Dense(1)]
    model = ef.nn.Sequential(layers)
    model.compile(ef.nn.optimizers.Adam(0.01), "mse", run_eagerly=True)
    return model


def train(folder, acknowledge=None):
    """Train from the newest state on until STEPS are done; returns the hash of the weights."""
    ef.random.seed(1)
    model, rows, checkpoint = network(), Rows(), ef.nn.Checkpoint(folder, keep=2)
    found = checkpoint.restore(model, rows)
    for step in range(0 if found is None else found.step, STEPS):
        model.train_on_batch(*rows.take())
        checkpoint.save(model, rows, step=step + 1, epoch=rows.epoch)
        if acknowledge is not None:
            os.write(acknowledge, (step + 1).to_bytes(4, "little"))
    return hashlib.sha256(b"".join(a.tobytes() for a in model.get_weights())).hexdigest()


def killed(folder, delay):
    """Start a child and kill it; gives the last step that it had saved."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            train(folder, writing)
        finally:
            os._exit(0)
    os.close(writing)
    select.select([reading], [], [], 60)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    known = b""
    while part := os.read(reading, 1 << 16):
        known += part
    os.close(reading)
    return int.from_bytes(known[-4:], "little")


def main(kills, seed, folder):
    rng = random.Random(seed)
    undisturbed = train(os.path.join(folder, "undisturbed"))
    interrupted = os.path.join(folder, "interrupted")
    checkpoint = ef.nn.Checkpoint(interrupted, keep=2)
    found = {"trainings": 0, "other": 0, "lost": 0, "litter": 0}
    done = 0
    for kill in range(kills):
        saved = killed(interrupted, rng.uniform(0, 0.1))
        progress = checkpoint.restore(network(), Rows())
        before, done = done, 0 if progress is None else progress.step
        found["lost"] += done < max(before, saved)
        found["litter"] += len(os.listdir(interrupted)) > 4
        if done == STEPS or kill == kills - 1:
            found["other"] += train(interrupted) != undisturbed
            found["trainings"] += 1
            for path in checkpoint.paths:
                path.unlink()
            done = 0
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
