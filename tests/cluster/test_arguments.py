"""What newcomers write: each mistake is told by its argument, before anything begins."""

import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DeviceError, SessionError
from tests.cluster.programs import error_of

TWO = {"worker": 2}
DEVICES = {"devices": ["cpu:0", "cpu:1"]}
SERVED = DEVICES | {"servers": ["cpu:2"]}


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"jobs": 2}, "jobs"),
        ({"jobs": ["worker"]}, "jobs"),
        ({"jobs": TWO, "devices": "gpu"}, "devices"),
        ({"jobs": TWO, "devices": {"worker": "gpu"}}, "devices"),
        ({"jobs": TWO, "silence": None}, "silence"),
        ({"jobs": TWO, "address": 6379}, "address"),
    ],
)
def test_arguments_of_a_cluster(options, argument):
    error = error_of(lambda: ef.cluster.Cluster(**options))
    assert isinstance(error, ArgumentError)
    assert error.argument == argument
    assert error.expected


def test_tasks_are_asked_for_inside_of_the_block():
    cluster = ef.cluster.Cluster(TWO, local=True)
    for call in (cluster.task, cluster.kill, cluster.drain):
        with pytest.raises(SessionError, match="no tasks outside of its with-block"):
            call("/job:worker/task:0")


STRATEGIES = [ef.cluster.DataParallel, ef.cluster.ParameterServer, ef.cluster.Pipeline]


@pytest.mark.parametrize("kind", STRATEGIES)
def test_arguments_of_strategies(kind):
    for given in ("worker", 2, ["cpu:0"]):
        error = error_of(lambda given=given: kind(given))
        assert (error.op, error.argument) == (kind.__name__, "cluster")
    error = error_of(lambda: kind(devices="cpu:0"))
    assert (error.op, error.argument) == (kind.__name__, "devices")
    with pytest.raises(DeviceError, match="there is no device 'cpu:7'"):
        kind(devices=["cpu:0", "cpu:7"])
    with pytest.raises(SessionError, match="no tasks outside of its with-block"):
        kind(ef.cluster.Cluster({"worker": 1, "ps": 1}, local=True))


def test_a_job_that_a_strategy_misses_is_named():
    with ef.cluster.Cluster(TWO, local=True) as cluster:
        error = error_of(lambda: ef.cluster.ParameterServer(cluster))
    assert (error.op, error.argument) == ("ParameterServer", "cluster")
    assert error.received == "no task of the job 'ps' in <Cluster of worker: 2, local>"


def test_a_bound_on_staleness_is_for_asynchronous_training():
    error = error_of(lambda: ef.cluster.ParameterServer(**SERVED, staleness=4))
    assert (error.argument, error.hint) == ("staleness", "mode='asynchronous'")


def model_of(*layers):
    made = ef.nn.Sequential([ef.nn.Input((3,)), *layers])
    made.compile("sgd", "mse")
    return made


X, Y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")


@pytest.mark.parametrize("given", ["mirrored", ef.cluster.DataParallel])
def test_invalid_strategy_is_refused(tmp_path, given):
    model, checkpoint = model_of(ef.nn.Dense(2)), ef.nn.Checkpoint(tmp_path)
    for op, call in {
        "fit": lambda: model.fit(X, Y, verbose=0, strategy=given),
        "Checkpoint.save": lambda: checkpoint.save(model, strategy=given),
        "Checkpoint.restore": lambda: checkpoint.restore(model, strategy=given),
    }.items():
        error = error_of(call)
        assert (error.op, error.argument) == (op, "strategy")
    assert not checkpoint.paths


# Schedules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"mode": "asynchronous"}, {"backup_workers": 1}])
@pytest.mark.parametrize(
    "schedule",
    ["s.json", 3, ["pull"], [{"what": "pull"}], [("send", 0)], [("pull", 2)], [("pull", "0")]],
)
def test_schedules_that_are_none(options, schedule):
    error = error_of(lambda: ef.cluster.ParameterServer(**SERVED, schedule=schedule, **options))
    assert isinstance(error, ArgumentError)
    assert error.argument == "schedule"


@pytest.mark.parametrize("schedule", [[("push", 0)], [("pull", 1), ("pull", 1)]])
def test_workers_pull_and_push_in_turn(schedule):
    with pytest.raises(ArgumentError, match=r"worker \d does not pull and push in turn"):
        ef.cluster.ParameterServer(**SERVED, mode="asynchronous", schedule=schedule)


def test_infeasible_schedule_raises():
    """Batches come to workers in turn, so none of them may have all steps."""
    w = ef.Variable(1.0)
    schedule = [("pull", 1), ("push", 1)] * 8
    strategy = ef.cluster.ParameterServer(**SERVED, mode="asynchronous", schedule=schedule)
    step, found = strategy.step(lambda x: {"w": w.assign_add(ef.sum(x))}), []

    def train():
        for _ in range(12):
            step(ef.ones((2,)))
        strategy.merge()

    thread = threading.Thread(target=lambda: found.append(error_of(train)), daemon=True)
    thread.start()
    thread.join(20.0)
    assert [error.problem for error in found] == [
        "the schedule waits for worker 1, which has nothing to do"
    ]


# Layers in parts ---------------------------------------------------------------------------------


def test_a_layer_in_parts_outlives_its_cluster(tmp_path):
    with ef.cluster.Cluster(TWO, local=True) as cluster:
        both = ef.cluster.SplitDense(ef.nn.Dense(6), cluster.devices(), then=ef.nn.Dense(2))
        model = model_of(both)
        model.fit(X, Y, verbose=0, strategy=ef.cluster.Pipeline(cluster, microbatches=1))
        expected = model.predict(X, verbose=0)
        with pytest.raises(DeviceError, match="there is no device '/job:worker/task:7'"):
            ef.cluster.SplitDense(ef.nn.Dense(6), ["/job:worker/task:7"])(X)
    np.testing.assert_array_equal(model.predict(X, verbose=0), expected)
    np.testing.assert_array_equal(model(X), expected)
    assert np.isfinite(model.fit(X, Y, verbose=0).history["loss"][0])
    model.save(tmp_path / "model.ef")
    again = ef.nn.load_model(tmp_path / "model.ef")
    np.testing.assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))


def test_devices_of_a_layer_in_parts():
    error = error_of(lambda: ef.cluster.SplitDense(ef.nn.Dense(8), "cpu:0"))
    assert error.expected == "['cpu:0', 'cpu:1']"
    error = error_of(lambda: ef.cluster.SplitDense(ef.nn.Dense(1), ["cpu:0", "cpu:1"]))
    assert error.expected == "from 1 to 1 devices, for as many units"
