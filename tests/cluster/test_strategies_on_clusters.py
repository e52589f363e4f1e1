"""Strategies over tasks: the bits of devices in this process, in threads and in processes."""

import os
import signal
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.placement import partition
from eagerflow.cluster import cluster as clusters
from tests.capture.placement.several_devices import COSTS
from tests.cluster.test_data_parallel import batch, check_changes_between_steps, dense, network

BATCHES = [batch(n) for n in (8, 7, 1, 8)]
WORKERS, SERVERS = ["cpu:0", "cpu:1"], ["cpu:2"]


def trained(own):
    """The bits of a model and of its optimizer after some steps."""
    model = network(*dense(), optimizer="adam")
    model(BATCHES[0][0])
    step = own.step(model.python_step("train")[0])
    for x, y in BATCHES:
        step(x, y)
    own.merge()
    variables = *model.variables, *model.optimizer.variables
    return [v.numpy().tobytes() for v in variables], model.logs()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_tasks_equal_devices_bitwise(kind, request):
    cluster = request.getfixturevalue(kind)
    found = trained(ef.cluster.DataParallel(cluster))
    assert found == trained(ef.cluster.DataParallel(devices=WORKERS))
    found = trained(ef.cluster.ParameterServer(cluster))
    assert found == trained(ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS))
    own = ef.cluster.ParameterServer(cluster, mode="asynchronous", staleness=1)
    first = trained(own)
    more = {"mode": "asynchronous", "schedule": own.schedule}
    assert trained(ef.cluster.ParameterServer(cluster, **more)) == first
    again = ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS, **more)
    assert trained(again) == first
    more = {"microbatches": 3, "costs": COSTS}
    found = trained(ef.cluster.Pipeline(cluster, **more))
    assert found == trained(ef.cluster.Pipeline(devices=WORKERS, **more))


def test_how_steps_are_cut_depends_on_no_measurement(monkeypatch):
    def refused(*args):
        raise AssertionError("what is measured is another thing on each machine")

    monkeypatch.setattr(partition, "calibrate", refused)
    monkeypatch.setattr(clusters, "measured", refused)
    with ef.cluster.Cluster({"worker": 2, "ps": 1}, local=True) as cluster:
        found = trained(ef.cluster.DataParallel(cluster))
    assert found == trained(ef.cluster.DataParallel(devices=WORKERS))


@pytest.mark.parametrize("merges", [0, 1, 2])
def test_changes_by_the_program_are_sent_to_tasks(local, merges):
    check_changes_between_steps(ef.cluster.DataParallel(local), merges)


def test_weights_are_here_when_training_has_ended(local):
    x, y = batch(32)
    found = []
    for own in (ef.cluster.DataParallel(local), None):
        model = network(*dense())
        model(x[:2])
        model.fit(x, y, 8, 2, shuffle=False, verbose=0, strategy=own)
        found.append(model.get_weights())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, 1e-9, 1e-9)


def test_training_goes_on_when_a_worker_was_killed(processes):
    """A step that it took part in fails and changes nothing; with its values given, it goes on."""
    x, y = batch(8)

    def begun(own):
        model = network(*dense(), optimizer="adam")
        model(x)
        step = own.step(model.python_step("train")[0])
        step(x, y)
        own.merge()
        return model, step

    own = ef.cluster.DataParallel(processes)
    model, step = begun(own)
    kept = {v: v.value for v in (*model.variables, *model.optimizer.variables)}
    os.kill(processes.tasks[1].pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while True:
        try:
            step(x, y)
            break
        except ef.errors.TaskLostError:
            assert time.monotonic() < end
            for v, value in kept.items():
                v.assign(value)
            time.sleep(0.02)
    own.merge()
    other = ef.cluster.DataParallel(devices=WORKERS)
    wanted, step = begun(other)
    step(x, y)
    other.merge()
    for a, b in zip(model.trainable_weights, wanted.trainable_weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
