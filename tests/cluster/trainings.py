"""Trainings that have to come out the same wherever they run: of digits, and of a GPT.

Products are large enough to be shared among threads, by BLAS as by generated kernels. Without
dropout and batch normalization a step on parts of a batch is, but for rounding, one on the whole.
SGD keeps rounding as small as it is; Adam would divide a gradient that is nothing but rounding by
its own size.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_digits

import eagerflow as ef

STEPS = 3
NUMERICS = ("exact", "fast")
ROUNDING = 2e-5  # of the largest weight, after steps of float32


class Trained(NamedTuple):
    """The results of a training: the losses of its steps, and the Variables after them."""

    losses: list[float]
    values: list[np.ndarray]

    @property
    def bits(self):
        """The values that have to be bitwise equal."""
        return self.losses, [v.tobytes() for v in self.values]

    def error(self, other):
        """The largest difference of a weight's values, over the largest of them."""
        pairs = zip(self.values, other.values, strict=True)
        return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6)) for a, b in pairs)


class Training(NamedTuple):
    """A network, and the batches that it is trained on."""

    network: Callable[[], Any]
    batch: Callable[[int], tuple[np.ndarray, np.ndarray]]


def _compiled(model):
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(ef.nn.optimizers.SGD(0.05, momentum=0.9), loss=loss)
    return model


def _perceptron():
    layers = [ef.nn.Dense(256, activation="relu") for _ in range(2)]
    return ef.nn.Sequential([ef.nn.Input((64,)), *layers, ef.nn.Dense(10)])


def _gpt():
    return ef.nn.networks.GPT(vocabulary=64, context=32, width=64, depth=2, heads=4, dropout=0.0)


def _some_digits(step, rows=64):
    found = load_digits()
    part = slice(step * rows, (step + 1) * rows)
    return (found.data[part] / 16).astype("float32"), found.target[part]


def _some_words(step, rows=8, length=32):
    ids = np.random.default_rng(step).integers(0, 64, (rows, length + 1))
    return ids[:, :-1], ids[:, 1:]


TRAININGS = {"digits": Training(_perceptron, _some_digits), "gpt": Training(_gpt, _some_words)}


def made(name):
    """The network of a training, with the same weights each time."""
    ef.random.seed(0)
    return _compiled(TRAININGS[name].network())


def step_of(model):
    """A step of a model on a batch, which gives its loss."""

    def step(x, y):
        with ef.GradientTape() as tape:
            loss = model.loss(y, model(x, training=True))
        weights = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def trained(name, strategy=None, numerics="fast"):
    """A training by a strategy, or in this process alone."""
    model = made(name)
    step = step_of(model)
    whole = strategy.step(step) if strategy else ef.function(step, numerics=numerics)
    losses = [float(whole(*TRAININGS[name].batch(i))) for i in range(STEPS)]
    if strategy:
        strategy.merge()
    kept = *model.variables, *model.optimizer.variables
    return Trained(losses, [v.numpy() for v in kept])


@cache
def on_devices(name, numerics, count):
    """Data parallel training on so many devices of this process."""
    devices = [f"cpu:{i}" for i in range(count)]
    return trained(name, ef.cluster.DataParallel(devices=devices, numerics=numerics))


def on_workers(name, numerics, cluster, count):
    """Data parallel training on so many workers of a cluster."""
    places = [d for d in cluster.devices() if d.task.startswith("/job:worker/")][:count]
    return trained(name, ef.cluster.DataParallel(cluster, devices=places, numerics=numerics))


def check_same(name, numerics, cluster, count):
    """Training on workers is that on devices here, and has the same bits in each of two runs."""
    first, again = (on_workers(name, numerics, cluster, count) for _ in range(2))
    devices = on_devices(name, numerics, count)
    assert first.bits == again.bits
    assert first.losses == pytest.approx(devices.losses, rel=ROUNDING)
    assert first.error(devices) < ROUNDING
    if numerics == "exact":  # in fast a product's kernel depends on the steps beside it
        assert first.bits == devices.bits


def check_cut(cluster):
    """A step of the GPT, cut where it pays, has the bits of one device in exact numerics."""
    results = []
    x, y = TRAININGS["gpt"].batch(0)
    for where in (None, cluster):
        model = made("gpt")
        graph = ef.function(step_of(model)).graph(x, y)
        feeds = dict(zip(graph.inputs, (x, y), strict=True))
        loss = graph.outputs.names[0]
        with ef.capture.Session(graph, cluster=where, numerics="exact") as session:
            losses = [float(session.run(loss, feeds, targets=graph)) for _ in range(2)]
        kept = *model.variables, *model.optimizer.variables
        results.append(Trained(losses, [v.numpy() for v in kept]).bits)
    assert cluster.partition(graph, numerics="exact").plan.cuts
    assert results[0] == results[1]
