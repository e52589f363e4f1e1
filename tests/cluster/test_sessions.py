"""Sessions over tasks: equal bits, places of Variables, failures, bytes sent."""

import gc
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

import eagerflow as ef
from eagerflow.cluster import client, ray_hosts
from eagerflow.errors import ArgumentError, DeviceError, PlacementError, SessionError, ShapeError
from eagerflow.runtime import shared_memory
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts
from tests.cluster.programs import check_random_programs, error_of, training_step
from tests.internals import server_of

SPEC = ef.TensorSpec((4,), "float32")
X = np.arange(4, dtype="float32")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_programs_equal_one_device_bitwise(local, first):
    check_random_programs(local, range(first, first + 10))


def test_random_programs_in_processes_equal_one_device_bitwise(processes):
    check_random_programs(processes, range(100, 125))


def digits():
    found = load_digits()
    x = (found.data[:60] / 16).astype("float32")
    return x, np.eye(10, dtype="float32")[found.target[:60]]


def losses(session, count=8):
    x, labels = digits()
    feeds = {"x": x, "labels": labels}
    return [float(session.run("loss", feeds, targets=session.graphs[0])) for _ in range(count)]


def test_training_over_tasks_is_that_of_one_device(local):
    graph, variables = training_step()
    begin = [v.value for v in variables]
    with ef.capture.Session(graph, numerics="exact") as session:
        wanted = losses(session), [v.numpy() for v in variables]
    assert wanted[0][-1] < 0.7 * wanted[0][0]
    for v, value in zip(variables, begin, strict=True):
        v.current = value
    with ef.capture.Session(graph, cluster=local, numerics="exact") as session:
        found = losses(session), [session.variables[v.name].numpy() for v in variables]
    assert found[0] == wanted[0]
    assert all(np.array_equal(a, b) for a, b in zip(found[1], wanted[1], strict=True))


def test_fast_training_is_the_same_in_threads_and_in_processes(monkeypatch):
    results = []
    for name in ("local", "processes"):
        with _cluster(name, monkeypatch) as cluster:
            graph, _ = training_step()
            with ef.capture.Session(graph, cluster=cluster) as session:
                results.append((losses(session), [v.tobytes() for v in _values(session)]))
    assert results[0] == results[1]


def _cluster(name, monkeypatch):
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    return ef.cluster.Cluster({"worker": 2, "ps": 1}, local=name == "local", costs=COSTS)


def _values(session):
    return [v.numpy() for v in session.variables.values()]


# Variables ---------------------------------------------------------------------------------------


def counter(place="/job:ps/task:0"):
    with ef.device(place):
        n = ef.Variable(0.0, name="n")
    graph = ef.capture.trace(lambda x: {"y": x + n.assign_add(1.0)}, SPEC)
    return graph, n


def test_variables_stay_in_their_task_and_come_when_asked_for(local):
    graph, n = counter()
    session = ef.capture.Session(graph, cluster=local)
    for _ in range(3):
        session.run("y", {"x": X}, targets="n/assign")
    assert float(n) == 0.0, "no task was asked"
    assert float(session.run("n")) == 3.0
    assert float(session.variables["n"]) == float(n) == 3.0
    n.assign(10.0)  # goes to the task with the next run
    assert session.run("y", {"x": X}, targets="n/assign").numpy()[0] == 11.0
    session.close()
    assert float(n) == 11.0


def test_two_sessions_share_a_variable(local):
    graph, _ = counter()
    one, two = (ef.capture.Session(graph, cluster=local) for _ in range(2))
    one.run("y", {"x": X}, targets="n/assign")
    two.run("y", {"x": X}, targets="n/assign")
    assert float(one.variables["n"]) == 2.0


def test_unreferenced_variables_are_dropped_in_the_task(local):
    graph, n = counter()
    with ef.capture.Session(graph, cluster=local) as session:
        session.run("y", {"x": X})
    assert local.status().tasks[2].variables == 1
    del graph, n, session
    gc.collect()
    other, _ = counter("/job:worker/task:0")
    ef.capture.Session(other, cluster=local).run("y", {"x": X})
    assert [task.variables for task in local.status().tasks] == [1, 0, 0]


def test_parts_that_were_not_used_for_longest_are_dropped(local, monkeypatch):
    monkeypatch.setattr(client, "MAX_PARTS", 2)
    graph, _ = counter()
    session = ef.capture.Session(graph, cluster=local)
    ps = local.task("/job:ps/task:0")
    for fetches in ("n", "y", ["n", "y"], "n", "y"):
        session.run(fetches, {"x": X})
        assert len(ps.parts) <= 2
    local.status()  # an answer, behind all that was told
    assert len(server_of(local, ps.name)._parts) <= 2


def test_leaving_the_cluster_brings_the_values(monkeypatch):
    with _cluster("processes", monkeypatch) as cluster:
        graph, n = counter()
        session = ef.capture.Session(graph, cluster=cluster)
        session.run("y", {"x": X}, targets="n/assign")
    assert float(n) == 1.0
    with pytest.raises(SessionError, match="no tasks outside of its with-block"):
        session.run("y", {"x": X})


def test_random_numbers_go_on_where_the_tasks_left_off(local):
    def draws():
        generator = ef.random.Generator(3)
        graph = ef.capture.trace(lambda x: {"y": x + generator.normal((4,))}, SPEC)
        return generator, graph

    generator, graph = draws()
    with ef.capture.Session(graph) as session:
        wanted = [session.run("y", {"x": X}).numpy() for _ in range(2)] + [
            generator.normal((3,)).numpy()
        ]
    generator, graph = draws()
    with ef.capture.Session(graph, cluster=local) as session:
        found = [session.run("y", {"x": X}).numpy() for _ in range(2)] + [
            generator.normal((3,)).numpy()
        ]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_unplaced_variables_go_to_the_first_task(local):
    w = ef.Variable(np.ones(4, "float32"), name="w")
    graph = ef.capture.trace(lambda x: {"y": x * w}, SPEC)
    with ef.capture.Session(graph, cluster=local) as session:
        assert np.array_equal(session.run("y", {"x": X}).numpy(), X)
        assert session.run("w").numpy().sum() == 4.0
        (held,) = local.client.variables.of([w])
        assert str(held.place) == "/job:worker/task:0/device:cpu:0"


# Runs --------------------------------------------------------------------------------------------


def test_sizes_that_are_free(local):
    def f(x):
        with ef.device("/job:worker/task:1"):
            return {"y": ef.sum(x * 2.0)}

    graph = ef.capture.trace(f, ef.TensorSpec(("n",), "float32"))
    with ef.capture.Session(graph, cluster=local) as session:
        for n in (1, 3, 7):
            assert float(session.run("y", {"x": np.ones(n, "float32")})) == 2.0 * n


def test_passed_through_inputs_constants_and_unchanged_variables(local):
    with ef.device("/job:ps/task:0"):
        w = ef.Variable(X + 1.0, name="w")

    def f(x):
        w.assign(ef.tensor([5.0, 6.0, 7.0, 8.0]))
        return {"x": x, "four": ef.tensor(4.0), "sum": ef.sum(x)}

    graph = ef.capture.trace(f, SPEC)
    with ef.capture.Session(graph, cluster=local) as session:
        x, four, w_before = session.run(["x", "four", "w"], {"x": X}, targets="w/assign")
        assert np.array_equal(x.numpy(), X)
        assert float(four) == 4.0
        assert np.array_equal(w_before.numpy(), X + 1.0)
        assert session.variables["w"].numpy().tolist() == [5.0, 6.0, 7.0, 8.0]


def test_many_threads_run_one_session(local):
    graph, _ = counter()
    session = ef.capture.Session(graph, cluster=local)
    seen = []

    def work():
        for _ in range(10):
            seen.append(float(session.run("y", {"x": X}, targets="n/assign").numpy()[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == list(range(1, 41))


def test_large_values_cross_through_shared_memory(processes):
    def f(x):
        with ef.device("/job:worker/task:0"):
            y = x + 1.0
        with ef.device("/job:worker/task:1"):
            z = ef.reshape(y, (-1,)) * 2.0
        with ef.device("/job:ps/task:0"):
            kept.assign(ef.reshape(z, x.shape))  # a view of what has come, which is kept
        return {"z": z}

    with ef.device("/job:ps/task:0"):
        kept = ef.Variable(np.zeros((512, 300), "float32"), name="kept")
    graph = ef.capture.trace(f, ef.TensorSpec((512, 300), "float32"))
    rng = np.random.default_rng(0)
    with ef.capture.Session(graph, cluster=processes, numerics="exact") as session:
        for _ in range(5):
            x = rng.standard_normal((512, 300)).astype("float32")
            z = session.run("z", {"x": x}, targets="kept/assign").numpy()
            assert np.array_equal(z, ((x + 1.0) * 2.0).reshape(-1))
            assert np.array_equal(session.run("kept").numpy().reshape(-1), z)


def test_over_ports_without_shared_memory_it_is_the_same(monkeypatch):
    monkeypatch.setattr(shared_memory, "are_there", lambda: False)
    with _cluster("local", monkeypatch) as cluster:
        assert cluster.tasks[0].address["host"] == "127.0.0.1"
        assert "name" not in cluster.tasks[0].address
        check_random_programs(cluster, range(300, 310))

        def f(x):
            with ef.device("/job:worker/task:0"):
                y = x + 1.0
            with ef.device("/job:worker/task:1"):
                return {"z": y * 2.0}

        graph = ef.capture.trace(f, ef.TensorSpec((1000, 700), "float32"))
        x = np.random.default_rng(0).standard_normal((1000, 700)).astype("float32")
        with ef.capture.Session(graph, cluster=cluster, numerics="exact") as session:
            assert np.array_equal(session.run("z", {"x": x}).numpy(), (x + 1.0) * 2.0)


def test_bfloat16_on_the_way_is_asked_for(local):
    def f(x):
        with ef.device("/job:worker/task:0"):
            y = x + 0.0
        with ef.device("/job:worker/task:1"):
            return {"z": y * 1.5}

    graph = ef.capture.trace(f, SPEC)
    x = np.float32([1.0 + 2**-7, 1.0 + 2**-12, 3.0, -1.0 / 3])
    with ef.capture.Session(graph, cluster=local, transfer="bfloat16", numerics="exact") as session:
        found = session.run("z", {"x": x}).numpy()
    assert np.array_equal(found, x.astype(ef.as_dtype("bfloat16")).astype("float32") * 1.5)
    assert not np.array_equal(found, x * 1.5)
    with pytest.raises(ArgumentError, match="'float16' is not a dtype"):
        ef.capture.Session(graph, cluster=local, transfer="float16").run("z", {"x": x})


# What goes wrong ---------------------------------------------------------------------------------


def failing(place="/job:worker/task:1"):
    with ef.device("/job:ps/task:0"):
        n = ef.Variable(0.0, name="n")

    def f(x, i):
        n.assign_add(1.0)
        with ef.device(place):
            return {"y": ef.take(x, i)}

    graph = ef.capture.trace(f, SPEC, ef.TensorSpec((), "int64"))
    return graph, n


def test_a_run_that_fails_names_task_and_line_and_changes_nothing(local):
    graph, _ = failing()
    with ef.capture.Session(graph, cluster=local, numerics="exact") as session:
        feeds = {"x": X, "i": 2}
        assert float(session.run("y", feeds, targets="n/assign")) == 2.0
        error = error_of(lambda: session.run("y", feeds | {"i": 99}, targets="n/assign"))
        assert "/job:worker/task:1 on" in error.problem
        assert "test_sessions.py" in error.at
        assert float(session.variables["n"]) == 1.0
        assert float(session.run("y", feeds, targets="n/assign")) == 2.0
        assert float(session.variables["n"]) == 2.0


def test_feeds_that_do_not_fit(local):
    graph, _ = counter()
    session = ef.capture.Session(graph, cluster=local)
    with pytest.raises(ShapeError):
        session.run("y", {"x": np.zeros(5, "float32")})


def test_pins_to_missing_devices_are_refused(local):
    for name in ("/job:ps/task:1", "/job:chief/task:0", "/job:ps/task:0/device:gpu:0"):
        with pytest.raises(DeviceError, match="there is no device"):
            ef.device(name)
    with ef.device("/job:ps/task:0"):
        w = ef.Variable(1.0, name="w")
    graph = ef.capture.trace(lambda x: {"y": x * w}, SPEC)
    with pytest.raises(PlacementError, match="not among the devices"):
        ef.capture.Session(graph, ["/job:worker/task:0"], cluster=local).run("y", {"x": X})
    with pytest.raises(PlacementError, match="not a device of this cluster"):
        ef.capture.Session(graph, ["cpu:0"], cluster=local).run("y", {"x": X})


def test_a_part_is_sent_once_for_the_same_work(local):
    graph, _ = counter()
    ps = local.task("/job:ps/task:0")
    numbers = []
    for _ in range(3):
        with ef.capture.Session(graph, cluster=local, numerics="exact") as session:
            session.run("n")
            session.run("n")
        numbers.append(dict(ps.parts))
    assert len(numbers[0]) == 1
    assert numbers[0] == numbers[1] == numbers[2]


def test_a_variable_does_not_move_while_a_run_writes_it(local):
    """What the run has made would be nowhere."""
    n = ef.Variable(1.0, name="n")

    def writing(rounds):
        y = ef.while_loop(lambda i: i < rounds, lambda i: i + 1, rounds * 0)
        n.assign_add(ef.astype(y, "float32"))
        return {"y": y + 0}

    write = ef.capture.trace(writing, ef.TensorSpec((), "int64"))
    read = ef.capture.trace(lambda: {"double": n * 2.0})
    one = ef.capture.Session(write, ["/job:ps/task:0"], cluster=local)
    other = ef.capture.Session(read, ["/job:worker/task:0"], cluster=local)
    rounds = 1 << 22
    run = threading.Thread(target=lambda: one.run("y", {"rounds": rounds}, targets=write))
    run.start()
    while not local.client._jobs:
        time.sleep(0.001)
    with pytest.raises(SessionError, match="'n' lies on /job:ps/task:0"):
        other.run("double")
    run.join()
    assert float(one.variables["n"]) == 1.0 + rounds
    assert float(other.run("double")) == 2.0 * (1.0 + rounds)
