"""Tasks in processes of Ray's: the same bits, restarts, and nothing that stays behind.

Ray takes seconds to start, so the tests share one cluster.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import eagerflow as ef
from eagerflow import extras
from eagerflow.runtime import blas
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import SECONDS, gone
from tests.cluster.programs import check_random_programs, error_of, training_step
from tests.cluster.test_sessions import digits
from tests.cluster.trainings import NUMERICS, TRAININGS, check_cut, check_same

if extras.load_if_there("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def cluster():
    with ef.cluster.Cluster({"worker": 4, "ps": 1}, costs=COSTS, silence=10.0) as made:
        yield made
        pids = [task.pid for task in made.tasks]
    assert all(map(gone, pids))


def test_random_programs_equal_one_device_bitwise(cluster):
    assert len({task.pid for task in cluster.tasks} | {os.getpid()}) == 6
    check_random_programs(cluster, range(200, 210))


def test_tasks_give_way_to_others_no_more_than_this_process(cluster):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {os.getpriority(os.PRIO_PROCESS, t.pid) for t in cluster.tasks} == {own}


def test_a_machine_takes_more_tasks_than_it_has_cores(cluster):
    ray = extras.load_if_there("ray")
    assert ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"]
    added = cluster.add("worker")
    assert added.state == "ready"
    cluster.drain(added.name)
    assert gone(added.pid)


def test_training_is_that_of_one_device(cluster):
    x, labels = digits()
    results = []
    for where in (None, cluster):
        graph, variables = training_step()
        with ef.capture.Session(graph, cluster=where, numerics="exact") as session:
            losses = [
                float(session.run("loss", {"x": x, "labels": labels}, targets=graph))
                for _ in range(5)
            ]
        results.append((losses, [v.numpy().tobytes() for v in variables]))
    assert results[0] == results[1]
    assert results[0][0][-1] < results[0][0][0]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", TRAININGS)
def test_workers_train_bitwise_like_devices(cluster, name, numerics, count):
    check_same(name, numerics, cluster, count)


def test_a_step_cut_by_costs_equals_one_device_bitwise(cluster):
    check_cut(cluster)


def test_a_killed_task_is_started_again_by_ray(cluster):
    task = cluster.task("/job:worker/task:1")
    before = task.pid
    os.kill(before, signal.SIGKILL)
    end = time.monotonic() + 10 * SECONDS
    while task.lives < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    cluster.wait()
    assert task.pid != before
    check_random_programs(cluster, range(210, 213))


@pytest.mark.soak  # a quarter of a minute for one process
def test_a_stopped_task_is_replaced_by_ray(cluster):
    task = cluster.task("/job:worker/task:0")
    before, lives = task.pid, task.lives
    os.kill(before, signal.SIGSTOP)
    try:
        cluster.wait(120.0)
        assert task.lives == lives + 1
        assert task.pid != before
        assert gone(before)
    finally:
        with suppress(ProcessLookupError):
            os.kill(before, signal.SIGKILL)


def test_a_second_cluster_of_the_same_names_is_refused(cluster):
    error = error_of(ef.cluster.Cluster({"ps": 1}, local=True).acquire)
    assert "another cluster of this process has /job:ps/task:0" in error.problem


CLIENT = """
import time
import eagerflow as ef
cluster = ef.cluster.Cluster({"worker": 2})
cluster.__enter__()
print(*[task.pid for task in cluster.tasks], flush=True)
time.sleep(600)
"""


@pytest.mark.soak  # it starts a Ray of its own
def test_nothing_is_left_of_a_client_that_is_killed():
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        pids = list(map(int, client.stdout.readline().split()))
        assert len(pids) == 2
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    assert all(gone(pid, 3 * SECONDS) for pid in pids)


OTHER_KERNELS = """
import os
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
import numpy as np
del os.environ["OPENBLAS_CORETYPE"]
os.environ["EAGERFLOW_BLAS_KERNELS"] = "0"
import eagerflow as ef
del os.environ["EAGERFLOW_BLAS_KERNELS"]
x = np.random.default_rng(0).standard_normal((100, 100)).astype("float32")
graph = ef.capture.trace(lambda x: {"y": x @ x}, ef.TensorSpec(x.shape, "float32"))
found = []
with ef.cluster.Cluster({"worker": 1}) as cluster:
    for where in (None, cluster):
        with ef.capture.Session(graph, cluster=where, numerics="exact") as session:
            found.append(session.run("y", {"x": x}).numpy())
print(np.array_equal(*found))
"""


@pytest.mark.soak  # it starts a Ray of its own
@pytest.mark.skipif(not blas.has_avx512(), reason="the processor has no kernels but these")
def test_a_client_that_has_other_kernels_than_tasks_would_choose():
    own = {k: v for k, v in os.environ.items() if k not in (blas.CORE_TYPE, blas.KEEP_KERNELS)}
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", OTHER_KERNELS]
    found = subprocess.run(
        command, env=own | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True"]
