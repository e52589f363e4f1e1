"""The table and the picture of a cluster, and arguments that cannot be."""

import pytest

import eagerflow as ef
from eagerflow.cluster.status import Status, TaskStatus
from eagerflow.devices import as_device, knows_task
from eagerflow.errors import ArgumentError, DeviceError, SessionError
from tests.cluster.programs import training_step
from tests.cluster.test_sessions import digits
from tests.notebook.pages import contrast, found, view


def test_status_table_reports_variables_and_traffic(local):
    x, labels = digits()
    graph, _ = training_step()
    with ef.capture.Session(graph, cluster=local) as session:
        session.run("loss", {"x": x, "labels": labels}, targets=graph)
        worker, idle, ps = local.status().tasks
    assert (worker.variables, worker.held_bytes) == (2, 4 * (64 * 16 + 16))
    assert (ps.variables, ps.held_bytes) == (2, 4 * (16 * 10 + 10))
    assert worker.to_tasks["/job:ps/task:0"] >= 60 * 16 * 4
    assert ps.to_tasks["/job:worker/task:0"] >= 60 * 16 * 4
    assert worker.from_client >= x.nbytes
    assert (idle.variables, idle.held_bytes) == (0, 0)
    lines = str(local.status()).splitlines()
    assert lines[0].startswith("task")
    assert [line.split()[:2] for line in lines[1:]] == [
        [f"/job:{name}", "ready"] for name in ("worker/task:0", "worker/task:1", "ps/task:0")
    ]


def test_status_picture_has_boxes_for_tasks_and_arrows_for_links():
    tasks = [
        TaskStatus(
            "/job:worker/task:0", "ready", 1, "<node>", to_tasks={"/job:ps/task:0": 1 << 20}
        ),
        TaskStatus("/job:worker/task:1", "lost", None, None),
        TaskStatus("/job:ps/task:0", "ready", 2, "here", to_tasks={"/job:worker/task:0": 10}),
    ]
    root = found(view(Status(tasks)), "svg")[0]
    kinds = [part.tag.rpartition("}")[2] for part in root]
    assert kinds.count("rect") == 3
    assert kinds.count("g") == 2
    texts = [part.text for part in root if part.tag.endswith("text")]
    assert "/job:worker/task:1" in texts
    assert "lost" in texts
    arrow = next(part for part in root if part.tag.endswith("g"))
    told = [part.text for part in arrow if part.text]
    assert told == ["1.0 MiB from /job:worker/task:0 to /job:ps/task:0", "1.0 MiB"]
    assert {part.get("fill") for part in found(root, "text")} == {"currentColor"}
    for part in root.iter():
        for colour in {part.get("fill"), part.get("stroke")} - {None, "none", "currentColor"}:
            assert min(contrast(colour, paper) for paper in ("#111111", "#ffffff")) >= 3


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (({},), ArgumentError, "at least one task"),
        (({"Worker": 1},), ArgumentError, "'Worker' cannot name a job"),
        (({"local": 1},), ArgumentError, "'local' cannot name a job"),
        (({"worker": 0},), ArgumentError, "0 is not a number of tasks"),
        (({"worker": True},), ArgumentError, "True is not a number of tasks"),
        (({"worker": 1 << 20},), ArgumentError, "at most 4096"),
        (({"worker": 1}, None, {"ps": {"cpu": 1}}), ArgumentError, "there is no job 'ps'"),
        (({"worker": 1}, None, {"worker": {"moon": 1}}), DeviceError, "no device type 'moon'"),
        (({"worker": 1}, None, {"worker": {"cpu": 0}}), ArgumentError, "0 devices"),
        (({"worker": 1}, "auto", None, True), ArgumentError, "have no address"),
    ],
)
def test_clusters_that_cannot_be(arguments, error, words):
    with pytest.raises(error, match=words):
        ef.cluster.Cluster(*arguments)


def test_a_cluster_has_tasks_inside_of_its_block_alone():
    cluster = ef.cluster.Cluster({"worker": 1}, local=True)
    with pytest.raises(SessionError, match="no tasks outside"):
        cluster.status()
    for _ in range(2):
        with cluster:
            (place,) = cluster.devices()
            with pytest.raises(SessionError, match="entered already"):
                cluster.acquire()
        assert not knows_task(place.task)
        with pytest.raises(DeviceError, match="names of other tasks are known in"):
            as_device("/job:worker/task:0")


def test_a_session_goes_on_when_its_cluster_is_entered_again():
    w = ef.Variable(2.0, name="w")
    graph = ef.capture.trace(lambda x: {"y": w.assign_add(x) * 1.0}, ef.TensorSpec((), "float32"))
    cluster = ef.cluster.Cluster({"worker": 1}, local=True)
    with cluster:
        session = ef.capture.Session(graph, cluster=cluster)
        assert float(session.run("y", {"x": 1.0}, targets="w/assign")) == 3.0
    with cluster:
        assert float(session.run("y", {"x": 1.0}, targets="w/assign")) == 4.0
    assert float(w) == 4.0


def test_names_of_devices_of_tasks():
    counts = {"worker": {"cpu": 2}}
    with ef.cluster.Cluster({"worker": 1, "ps": 1}, devices=counts, local=True) as cluster:
        assert [str(d) for d in cluster.devices()] == [
            "/job:worker/task:0/device:cpu:0",
            "/job:worker/task:0/device:cpu:1",
            "/job:ps/task:0/device:cpu:0",
        ]
        place = as_device("/job:worker/task:0/cpu:1")
        assert (place.type, place.index, place.task) == ("cpu", 1, "/job:worker/task:0")
        assert place is cluster.devices()[1]
        assert str(as_device("/job:ps")) == "/job:ps/task:0/device:cpu:0"
        with ef.device("/job:ps/task:0"):
            assert str(as_device("cpu:0")) == "cpu:0"
            assert str(as_device("/job:local/task:0")) == "cpu:0"
            x = ef.ones((2,))
        assert x.device is as_device("/job:ps/task:0")
        assert (x + x).numpy().tolist() == [2.0, 2.0]
        with pytest.raises(DeviceError, match="on different devices"):
            x + ef.ones((2,))
        assert str(x.to("cpu:0").device) == "cpu:0"
        with pytest.raises(DeviceError, match="there is no device"):
            as_device("/job:worker/task:0/device:cpu:2")


def test_devices_of_a_task_share_values_without_transfer():
    def f(x):
        with ef.device("/job:worker/task:0/device:cpu:0"):
            y = x + 1.0
        with ef.device("/job:worker/task:0/device:cpu:1"):
            return {"z": y * 2.0}

    counts = {"worker": {"cpu": 2}}
    with ef.cluster.Cluster({"worker": 1}, devices=counts, local=True) as cluster:
        graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
        with ef.capture.Session(graph, cluster=cluster, numerics="exact") as session:
            assert session.run("z", {"x": [1.0, 2.0]}).numpy().tolist() == [4.0, 6.0]
        assert cluster.status().tasks[0].to_tasks == {}


def test_costs_are_measured_over_the_tasks_if_none_are_given():
    with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
        one, two = map(str, cluster.devices())
        measure = cluster._costs_of
        found = measure(cluster.devices())
        assert found.rates(one) == found.rates(two)
        assert found.rates(f"{one} alone").product_rate(2 * 256**3) > 1e7
        assert set(found.bandwidth) == {(one, two), (two, one)}
        assert 0 < found.transfer(64, one, two) < found.transfer(1 << 26, one, two) < 60
        assert found.transfer(1 << 20, one, one) == 0
        assert measure(cluster.devices()[:1]) is None


def test_the_ways_of_many_gpus_are_counted():
    names = [f"/job:worker/task:{i}" for i in range(5)]
    tasks = [
        TaskStatus(
            name,
            "ready",
            1,
            "here",
            memory=str(i < 3),
            past_host=[
                (f"{name}/device:gpu:0", f"{other}/device:gpu:0", "" if j else "NCCL 2", "no", 1024)
                for j, other in enumerate(names)
                if other != name
            ],
        )
        for i, name in enumerate(names)
    ]
    assert str(Status(tasks)).splitlines()[6:] == [
        "6 pairs of GPUs: shared memory (no), 6.0 KiB",
        "10 pairs of GPUs: sockets (no), 10.0 KiB",
        "4 pairs of GPUs: NCCL 2, 4.0 KiB",
    ]
    few = Status(tasks[:2])
    ends = [f"{name}/device:gpu:0" for name in names]
    assert few.transport(*ends[:2]) == "shared memory (no)"
    assert few.transport(ends[1], ends[0]) == "NCCL 2"
    assert f"{ends[1]} to {ends[0]}: NCCL 2, 1.0 KiB" in str(few)
    assert Status(tasks).transport(ends[0], ends[4]) == "sockets (no)"
