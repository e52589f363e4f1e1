import threading
import time

import pytest

import eagerflow as ef
from eagerflow.capture.placement import executor
from eagerflow.cluster import ray_hosts
from eagerflow.devices import device_types
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch):
    """``cpu:0`` to ``cpu:3``, with threads of their own that end with the test."""
    monkeypatch.setattr(device_types["cpu"], "logical", 4)
    monkeypatch.setattr(device_types["cpu"], "devices", dict(device_types["cpu"].devices))
    yield
    executor.shutdown()


@pytest.fixture
def local():
    """Two workers and a parameter server in threads of this process."""
    with ef.cluster.Cluster({"worker": 2, "ps": 1}, local=True, costs=COSTS) as made:
        yield made
    executor.shutdown()
    left = "no thread"
    for _ in range(200):  # those of connections end by themselves
        left = [t.name for t in threading.enumerate() if t.name.startswith("eagerflow ")]
        if not left:
            break
        time.sleep(0.02)
    assert not left


@pytest.fixture
def processes(monkeypatch):
    """Two workers and a parameter server in processes, as Ray would start them."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    with ef.cluster.Cluster({"worker": 2, "ps": 1}, costs=COSTS) as made:
        yield made
