"""What Ray's processes are told, and which clusters are of this machine alone."""

import os
from types import SimpleNamespace

import pytest

from eagerflow import extras
from eagerflow.cluster.ray_hosts import RayHosts
from eagerflow.runtime import blas
from eagerflow.runtime.ray_library import told_by_environment
from eagerflow.serving import deployment

needs_ray = pytest.mark.skipif(extras.load_if_there("ray") is None, reason="Ray is not installed")
NEAR = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@pytest.mark.parametrize("near", [True, False])
def test_processes_are_told_the_kernels_of_products(monkeypatch, near):
    if not blas.kernels():
        pytest.skip("NumPy computes products with another library than OpenBLAS")
    monkeypatch.delenv(blas.CORE_TYPE, raising=False)
    assert told_by_environment(near)[blas.CORE_TYPE] == blas.kernels()
    monkeypatch.setenv(blas.CORE_TYPE, "Prescott")
    assert told_by_environment(near)[blas.CORE_TYPE] == "Prescott"


@pytest.fixture
def started(monkeypatch):
    """What Ray is started with: its arguments, and the environment at that moment."""
    ray, found = pytest.importorskip("ray"), []
    constants = extras.load("ray._private.ray_constants", "cluster", "a test")
    monkeypatch.setattr(constants, "ENABLE_RAY_CLUSTER", constants.ENABLE_RAY_CLUSTER)
    monkeypatch.delenv(NEAR, raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def init(address, **options):
        near = not constants.ENABLE_RAY_CLUSTER
        found.append(SimpleNamespace(address=address, near=near, environment=dict(os.environ)))

    monkeypatch.setattr(ray, "init", init)
    return found


STARTS = {
    "a cluster": lambda address: RayHosts(b"", address, 1),
    "a deployment": deployment._connect,
}
ADDRESSES = {"10.7.0.1:6398": False, "127.0.0.1:6398": True, "localhost:6398": True}


@needs_ray
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("is_found", [False, True])
def test_the_address_says_whether_a_cluster_is_of_this_machine(
    monkeypatch, started, start, address, is_found
):
    """Also that of the one that is found here: it may have other machines."""
    if is_found:
        monkeypatch.setenv("RAY_ADDRESS", address)
    start("auto" if is_found else address)
    (one,) = started
    assert (one.address, one.near) == (address, ADDRESSES[address])
    told = told_by_environment(one.near)
    assert {name: one.environment.get(name) for name in told} == told
    assert (NEAR in one.environment) == one.near


@needs_ray
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_what_is_started_here_is_of_this_machine(monkeypatch, started, start):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    start("10.7.0.1:6398")
    start(None)
    assert [(one.address, one.near) for one in started] == [
        ("10.7.0.1:6398", False),
        ("local", True),
    ]
