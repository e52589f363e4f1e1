"""Weights with servers: in step, side by side, and the same again by a schedule."""

import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from tests.cluster.test_data_parallel import assert_same, batch, dense, network, trained

WORKERS, SERVERS = ["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]


def server(**options):
    return ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS, **options)


def make():
    return network(*dense(), optimizer="adam")


def served(batches, **options):
    model = make()
    model(batches[0][0])
    own = server(**options)
    step = own.step(model.python_step("train")[0])
    for x, y in batches:
        step(x, y)
    own.merge()
    return model, own


def bits(model):
    optimizer = model.optimizer.variables
    return [v.numpy().tobytes() for v in (*model.variables, *optimizer)]


def test_in_step_it_is_one_batch():
    batches = [batch(n) for n in (8, 7, 1)]
    model, _ = served(batches)
    assert_same((model, model.logs()), trained(make, batches), 1e-7)


def test_weights_and_their_state_lie_with_the_servers():
    model, own = served([batch(4)])
    (graph,) = own.graphs
    places = {c.name: c.value.device for c in graph.cells}
    mine = [d for name, d in places.items() if "momentum" in name or "velocity" in name]
    assert set(mine) == set(SERVERS)
    assert places["dense/kernel" if "dense/kernel" in places else model.weights[0].name] in SERVERS


def test_side_by_side_every_batch_counts_once():
    batches = [batch(n) for n in (8, 8, 5, 8, 8, 3)]
    model, own = served(batches, mode="asynchronous")
    assert int(model.optimizer.iterations) == len(batches)
    assert float(model.metrics[1].count) == sum(len(y) for _, y in batches)
    assert sorted(own.schedule) == sorted(
        [(what, i % 2) for i in range(len(batches)) for what in ("pull", "push")]
    )


def test_a_schedule_gives_the_same_bits_again():
    batches = [batch(8) for _ in range(8)]
    first, own = served(batches, mode="asynchronous")
    for _ in range(2):
        again, other = served(batches, mode="asynchronous", schedule=own.schedule)
        assert bits(again) == bits(first)
        assert other.schedule == own.schedule


def test_without_staleness_workers_keep_pace():
    batches = [batch(8) for _ in range(8)]
    _, own = served(batches, mode="asynchronous", staleness=0)
    steps, pulled = [0, 0], [0, 0]
    for what, worker in own.schedule:
        if what == "pull":
            pulled[worker] += 1
            assert pulled[worker] - 1 - min(steps) <= 0
        else:
            steps[worker] += 1


def test_it_learns_as_well():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((256, 5))
    y = (x.sum(axis=1) > 0).astype(int) + (x[:, 0] > 1)
    found = {}
    for name, own in (("one", None), ("many", server(mode="asynchronous", staleness=4))):
        model = network(*dense(), optimizer=ef.nn.optimizers.Adam(0.02))
        model(x[:2])
        found[name] = model.fit(x, y, 16, 12, verbose=0, strategy=own).history["loss"][-1]
    assert found["many"] < 1.3 * found["one"] + 0.05


def test_changes_between_merges_are_seen():
    w = ef.Variable(4.0)
    optimizer = ef.nn.optimizers.SGD(1.0)

    def step(x):
        with ef.GradientTape() as tape:
            loss = (x * w).mean()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    own = server(mode="asynchronous")
    step = own.step(step)
    step(ef.ones((2,)))
    own.merge()
    assert float(w) == 3.0
    w.assign(10.0)
    optimizer.learning_rate = 2.0
    step(ef.ones((2,)))
    own.merge()
    assert float(w) == 8.0


def test_worker_error_is_raised_and_training_continues():
    w = ef.Variable([1.0, 2.0])
    optimizer = ef.nn.optimizers.SGD(0.5)

    def step(x, i):
        with ef.GradientTape() as tape:
            loss = (ef.take(w, i) * x).mean()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    own = server(mode="asynchronous")
    step = own.step(step)
    step(ef.ones((2,)), ef.tensor([0, 9]))
    with pytest.raises(ef.errors.EagerflowError):
        own.merge()
    np.testing.assert_array_equal(w.numpy(), [1.0, 2.0])
    step(ef.ones((2,)), ef.tensor([0, 1]))
    own.merge()
    np.testing.assert_array_equal(w.numpy(), [0.75, 1.75])


def test_schedule_that_is_too_short_raises():
    batches = [batch(8) for _ in range(2)]
    with pytest.raises(ef.errors.SessionError, match="schedule has ended"):
        served(batches, mode="asynchronous", schedule=[("pull", 0), ("push", 0)])


def test_schedule_for_more_batches_raises():
    batches = [batch(8) for _ in range(6)]
    _, own = served(batches, mode="asynchronous")
    with pytest.raises(ef.errors.SessionError, match="has nothing to do"):
        served(batches[:1], mode="asynchronous", schedule=sorted(own.schedule, key=lambda e: -e[1]))


def test_no_thread_is_left():
    served([batch(4)], mode="asynchronous")
    end = time.monotonic() + 5
    while any(t.name.startswith("eagerflow worker") for t in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_invalid_use_is_refused():
    for options, words in (
        ({"mode": "fast"}, "is not a choice"),
        ({"staleness": -1}, "not a number of steps"),
        ({"staleness": True}, "not a number of steps"),
        ({"schedule": [("push", 0)]}, "nothing to repeat"),
    ):
        with pytest.raises(ef.errors.ArgumentError, match=words):
            server(**options)
    with pytest.raises(ef.errors.ArgumentError, match="no devices"):
        ef.cluster.ParameterServer(devices=WORKERS)
    model = network(ef.nn.BatchNormalization(synchronized=True))
    model(batch(2)[0])
    step = server(mode="asynchronous").step(model.python_step("train")[0])
    with pytest.raises(ef.errors.CaptureError, match="mean over all workers"):
        step(*batch(4))
