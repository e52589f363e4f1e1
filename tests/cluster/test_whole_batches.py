"""Synchronous strategies make the steps of one device on the whole batch, however it is cut."""

import numpy as np
import pytest

import eagerflow as ef
from tests.cluster.programs import trained_on
from tests.cluster.test_data_parallel import OPTIMIZERS, assert_same, batch, dense, network

WORKERS, SERVERS = ["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]
STRATEGIES = {
    "data parallel": lambda: ef.cluster.DataParallel(devices=WORKERS),
    "servers": lambda: ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS),
}
STRATEGY = pytest.mark.parametrize("strategy", STRATEGIES)


def halves(x, y):
    middle = len(y) // 2
    return [(x[:middle], y[:middle]), (x[middle:], y[middle:])]


def assert_same_weights(found, wanted, tolerance):
    for a, b in zip(found.trainable_weights, wanted.trainable_weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), tolerance, tolerance, err_msg=a.name)


@pytest.mark.sampled(2)
@STRATEGY
@pytest.mark.parametrize("optimizer", [ef.nn.optimizers.SGD, ef.nn.optimizers.Adam])
def test_accumulated_gradients_are_those_of_one_large_batch(strategy, optimizer):
    batches = [batch(n) for n in (12, 14, 6)]  # halves of six, seven and three examples
    cut = [half for x, y in batches for half in halves(x, y)]

    def make(steps=None):
        return network(*dense(), optimizer=optimizer(0.1, gradient_accumulation_steps=steps))

    found, logs = trained_on(lambda: make(2), cut, STRATEGIES[strategy]())
    wanted, whole_logs = trained_on(make, batches)
    assert_same_weights(found, wanted, 1e-6)  # float32 in its slots
    assert int(found.optimizer.iterations) == int(wanted.optimizer.iterations) == 3
    for name, value in whole_logs.items():
        assert logs[name] == pytest.approx(value, rel=1e-5)


@STRATEGY
def test_a_step_that_is_not_due_leaves_the_weights(strategy):
    def make():
        return network(*dense(), optimizer=ef.nn.optimizers.SGD(0.1, gradient_accumulation_steps=3))

    x, y = batch(8)
    model, _ = trained_on(make, [(x, y)] * 2, STRATEGIES[strategy]())
    begin = make()
    begin(x)
    assert_same_weights(model, begin, 0.0)
    model, _ = trained_on(make, [(x, y)] * 3, STRATEGIES[strategy]())
    assert not np.array_equal(model.weights[0].numpy(), begin.weights[0].numpy())


@pytest.mark.sampled(3)
@STRATEGY
@pytest.mark.parametrize("steps", [None, 2])
def test_synchronized_statistics_equal_those_of_the_full_batch(strategy, steps):
    """On one device they are those of the batch anyway."""
    batches = [batch(n, (6, 6, 2)) for n in (8, 7, 1, 8)]

    def make():
        layers = [
            ef.nn.Conv2D(4, 3, dtype="float64"),
            ef.nn.BatchNormalization(momentum=0.7, synchronized=True, dtype="float64"),
            ef.nn.Flatten(),
        ]
        own = ef.nn.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=steps)
        return network(*layers, optimizer=own)

    assert_same(trained_on(make, batches, STRATEGIES[strategy]()), trained_on(make, batches), 1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["norm", "means", "in turn", "scaled"])
def test_servers_make_the_steps_of_one_device(name):
    def make():
        return network(*dense(), optimizer=OPTIMIZERS[name]())

    batches = [batch(n) for n in (8, 7, 1, 8)]
    assert_same(trained_on(make, batches, STRATEGIES["servers"]()), trained_on(make, batches), 1e-7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["adam", "norm", "in turn", "scaled"])
def test_asynchronous_steps_in_turn_are_those_of_one_device(name):
    """Where each worker pulls what the one before has pushed, there is no staleness."""

    def make():
        return network(*dense(), optimizer=OPTIMIZERS[name]())

    batches = [batch(n) for n in (8, 7, 1, 8, 3)]
    turns = [(what, i % 2) for i in range(len(batches)) for what in ("pull", "push")]
    own = ef.cluster.ParameterServer(
        devices=WORKERS, servers=SERVERS, mode="asynchronous", schedule=turns
    )
    assert_same(trained_on(make, batches, own), trained_on(make, batches), 1e-7)
