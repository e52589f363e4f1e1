"""Tasks with GPUs of a look-alike: graphs and training have the bits that they have by the host."""

import dataclasses
import os
import signal
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import client, links, ray_hosts
from eagerflow.errors import ArgumentError, TaskLostError
from tests.capture.placement.several_devices import COSTS
from tests.cluster.gpu_processes import GpuHosts
from tests.cluster.processes import SECONDS

WORKERS = ["/job:worker/task:0", "/job:worker/task:1"]
GPUS = [f"{name}/device:gpu:0" for name in WORKERS]
CPUS = [f"{name}/device:cpu:0" for name in WORKERS]
NCCL = "NCCL 2.32.3"
INSTALL = "CuPy finds no NCCL (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13)"
OFF = {"EAGERFLOW_NCCL": "off"}


@pytest.fixture
def cluster_of(monkeypatch):
    """What makes a cluster of two workers, each with a GPU and a CPU, in processes."""
    monkeypatch.setattr(ray_hosts, "RayHosts", GpuHosts)
    monkeypatch.setattr(links, "_known", {})

    def made(gpus=None, versions=None, settings=None, workers=2, costs=COSTS):
        monkeypatch.setattr(GpuHosts, "gpus", gpus or {})
        monkeypatch.setattr(GpuHosts, "versions", versions or {})
        monkeypatch.setattr(GpuHosts, "settings", settings or {})
        devices = {"worker": {"gpu": 1, "cpu": 1}}
        return ef.cluster.Cluster({"worker": workers}, devices=devices, costs=costs)

    return made


def there_and_back():
    """A graph whose values go from one GPU to the other and back, of several dtypes and shapes."""

    def f(x, n, z, b):
        with ef.device(GPUS[0]):
            a = [x @ x, n + 1, z * z, ~b, x.T[1:], x[:0] + 1.0]
        with ef.device(GPUS[1]):
            c = [v[::-1] if v.ndim else v + v for v in a]
        with ef.device(GPUS[0]):
            return {f"y{i}": ef.stack([v, v]) for i, v in enumerate(c)}

    specs = [((4, 4), "float32"), ((), "int64"), ((3,), "complex64"), ((2, 5), "bool")]
    return ef.capture.trace(f, *[ef.TensorSpec(*spec) for spec in specs])


RNG = np.random.default_rng(0)
FEEDS = {
    "x": RNG.standard_normal((4, 4)).astype("float32"),
    "n": np.array(41),
    "z": (RNG.standard_normal(3) + 1j).astype("complex64"),
    "b": RNG.random((2, 5)) > 0.5,
}
FETCHES = [f"y{i}" for i in range(6)]


def bits(values):
    return [(v.numpy().dtype.name, v.shape, v.numpy().tobytes()) for v in values]


def way(cluster, source=0, target=1):
    return cluster.status().transport(GPUS[source], GPUS[target])


def sent(cluster, source=0):
    """Bytes that have gone past the host from a worker to others."""
    return sum(row[-1] for row in cluster.status().tasks[source].past_host)


def run_until_past_host(cluster, run, source=0):
    """Run until something has gone past the host: lanes open beside the first runs."""
    end = time.monotonic() + SECONDS
    while not sent(cluster, source):
        run()
        assert time.monotonic() < end


def test_graphs_equal_the_host_way_bitwise(cluster_of):
    found, ways, past = {}, {}, {}
    for name, settings in (("nccl", {}), ("host", dict.fromkeys(WORKERS, OFF))):
        with cluster_of(settings=settings) as cluster:
            graph = there_and_back()
            with ef.capture.Session(graph, cluster=cluster, numerics="exact") as session:
                found[name] = [bits(session.run(FETCHES, FEEDS)) for _ in range(30)]
                ways[name], past[name] = way(cluster), sent(cluster)
                text = str(cluster.status())
    assert found["nccl"] == found["host"]
    assert ways["nccl"] == NCCL
    assert past["nccl"] > 0
    assert ways["host"] == f"shared memory (EAGERFLOW_NCCL is off in {WORKERS[0]})"
    assert past["host"] == 0
    assert f"{GPUS[0]} to {GPUS[1]}: {ways['host']}, 0 B" in text


def trained(cluster, steps=12, **options):
    """The bits of a network after steps on the GPUs of a cluster's workers."""
    rng = np.random.default_rng(3)
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(3)])
    model.compile("sgd", loss="mse")
    x, y = rng.standard_normal((8, 5)).astype("float32"), rng.standard_normal((8, 3))
    model(x)
    strategy = ef.cluster.DataParallel(cluster, devices=GPUS, **options)
    step = strategy.step(model.python_step("train")[0])
    for _ in range(steps):
        step(x, y.astype("float32"))
    past = sent(cluster)
    strategy.merge()
    return bits([v.value for v in model.variables]), past


def test_a_data_parallel_step_equals_the_host_way_bitwise(cluster_of):
    with cluster_of() as cluster:
        found, past = trained(cluster)
    with cluster_of(versions={WORKERS[1]: None}) as cluster:
        wanted, none = trained(cluster)
        assert way(cluster) == f"shared memory ({INSTALL})"
    assert found == wanted
    assert past > 0
    assert none == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpus": {name: ["0000:01:00.0"] for name in WORKERS}}, "both are one GPU"),
        ({"versions": {WORKERS[1]: 22100}}, f"{NCCL} here, NCCL 2.21.0 there"),
        ({"versions": dict.fromkeys(WORKERS)}, INSTALL),
    ],
)
def test_where_there_is_no_way_from_gpu_to_gpu_the_host_is_taken(cluster_of, given, words):
    with cluster_of(**given) as cluster:
        graph = there_and_back()
        with ef.capture.Session(graph, cluster=cluster) as session:
            for _ in range(5):
                y = session.run("y1", FEEDS)
        assert int(y[0]) == 84
        assert way(cluster) == f"shared memory ({words})"
        assert sent(cluster) == 0
        status = cluster.status()
        assert status.transport(GPUS[0], f"{WORKERS[1]}/device:cpu:0") == "shared memory"
        with pytest.raises(ArgumentError, match="different tasks"):
            status.transport(GPUS[0], GPUS[0])


def test_the_program_turns_it_off_for_all_tasks(cluster_of, monkeypatch):
    monkeypatch.setenv("EAGERFLOW_NCCL", "off")
    with cluster_of() as cluster:
        assert way(cluster) == "shared memory"
        assert cluster.status().tasks[0].past_host == []


def test_values_are_rounded_on_request_and_alike(cluster_of):
    def f(x):
        with ef.device(GPUS[0]):
            a = x * 2.0
        with ef.device(GPUS[1]):
            return {"y": a * 0.5}

    x = RNG.standard_normal(50).astype("float32")
    with cluster_of() as cluster:
        graph = ef.capture.trace(f, ef.TensorSpec((50,), "float32"))
        found = set()
        with ef.capture.Session(graph, cluster=cluster, transfer="bfloat16") as session:
            run_until_past_host(
                cluster, lambda: found.add(session.run("y", {"x": x}).numpy().tobytes())
            )
            found.add(session.run("y", {"x": x}).numpy().tobytes())
    assert found == {x.astype(ef.bfloat16).astype("float32").tobytes()}


def slow_receiver():
    """A graph that sends much from one GPU to the other, which is busy as long as it is told."""

    def f(x, rounds):
        with ef.device(GPUS[0]):
            a = x + 1.0
        with ef.device(f"{WORKERS[1]}/device:cpu:0"):
            n = ef.while_loop(lambda i: i < rounds, lambda i: i + 1, rounds * 0)
        with ef.device(GPUS[1]):
            return {"y": ef.sum(a * 2.0), "n": n + 0}

    return ef.capture.trace(f, ef.TensorSpec((1 << 16,), "float32"), ef.TensorSpec((), "int64"))


def quick(session, x):
    return float(session.run("y", {"x": x, "rounds": 1}))


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_task_raises_and_the_next_run_has_new_lanes(cluster_of, victim):
    x = np.ones(1 << 16, "float32")
    with cluster_of() as cluster:
        session = ef.capture.Session(slow_receiver(), cluster=cluster)
        run_until_past_host(cluster, lambda: quick(session, x))
        pid = cluster.tasks[victim].pid
        timer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(TaskLostError, match=f"{WORKERS[victim]} has gone"):
            for _ in range(10_000):
                session.run(["y", "n"], {"x": x, "rounds": 2000})
        cluster.wait()
        assert quick(session, x) == 4.0 * x.size
        run_until_past_host(cluster, lambda: quick(session, x))
        assert cluster.tasks[victim].lives == 2


def test_cancelled_runs_leave_the_lanes_in_order(cluster_of):
    x = np.ones(1 << 16, "float32")
    with cluster_of() as cluster:
        session = ef.capture.Session(slow_receiver(), cluster=cluster)
        run_until_past_host(cluster, lambda: quick(session, x))
        main = threading.main_thread().ident
        for number in range(3):
            timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                session.run(["y", "n"], {"x": x, "rounds": 1 << 29})
            before = sent(cluster)
            assert quick(session, x + number) == 2.0 * (2.0 + number) * x.size
            assert sent(cluster) == before + x.nbytes


# What it costs -----------------------------------------------------------------------------------


def test_a_link_between_gpus_is_measured_for_itself(cluster_of):
    with cluster_of() as cluster:
        past = cluster.link(*GPUS)
        assert sent(cluster) > links.LARGE_LANE_BYTES
        assert cluster.link(*GPUS) is past
        hosts = cluster.link(*CPUS)
        assert hosts is cluster.link(GPUS[0], CPUS[1]) is not past
        with pytest.raises(ArgumentError, match="different tasks"):
            cluster.link(GPUS[0], CPUS[0])
        with pytest.raises(ArgumentError, match="different tasks"):
            cluster.link(GPUS[0], "cpu:0")
    with cluster_of(versions={WORKERS[1]: None}) as cluster:
        assert cluster.link(*GPUS) is hosts


def test_unavailable_gpu_link_costs_as_much_as_the_host_link(cluster_of, monkeypatch):
    monkeypatch.setattr(links, "times_of", lambda client, *rest: [] if rest[-1] else [1e-4, 1e-3])
    with cluster_of() as cluster:
        assert cluster.link(*GPUS) is cluster.link(*CPUS)


def branches(x, w):
    """Two rows of products that need no more of each other than their arguments."""
    a, b = x, x
    for _ in range(3):
        a, b = ef.tanh(a @ w), ef.sin(b @ w) * 0.5
    return a + b


@pytest.mark.parametrize("rate", [1e6, 1e12])
def test_placing_and_its_bill_know_of_it(cluster_of, monkeypatch, rate):
    """As fast as GPUs are connected both are used, or one."""
    host, past = ef.cluster.Link(1e-5, 1e6), ef.cluster.Link(1e-5, rate)
    monkeypatch.setattr(links, "measured_link", lambda *rest: past if NCCL in rest else host)
    rates = {"": dataclasses.asdict(ef.capture.Rates(products=1e9))}
    ask = client.Client.ask
    answers = {"calibrate": ({"rates": rates}, ())}
    monkeypatch.setattr(
        client.Client,
        "ask",
        lambda own, task, message, *rest, **more: (
            answers.get(message["do"]) or ask(own, task, message, *rest, **more)
        ),
    )
    graph = ef.capture.trace(branches, *[ef.TensorSpec((512, 512), "float32")] * 2)
    with cluster_of(costs=None) as cluster:
        plan = cluster.partition(graph, GPUS, "fast", None).plan
        model = cluster.partition(graph, cluster.devices(), "fast", None).plan.costs
    used = {str(piece.device) for piece in plan.pieces}
    assert used == (set(GPUS) if rate > 1e9 else {GPUS[0]})
    assert plan.bill.worth == (rate > 1e9)
    assert model.transfer(1e6, *GPUS) == past.seconds(1e6)
    assert model.transfer(1e6, *CPUS) == model.transfer(1e6, GPUS[0], CPUS[1]) == host.seconds(1e6)
