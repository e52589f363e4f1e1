"""Training whose tasks are killed and stopped at random moments has the bits of one that is not."""

import pytest

from eagerflow.cluster import ray_hosts
from tests.cluster.kills import WAYS, cluster_for, cut, endured, kill, mixed, stop, times
from tests.cluster.processes import ProcessHosts


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """Tasks are processes, as Ray would start them."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)


def check(name, blows):
    """All blows are overcome, and cost no bit."""
    with cluster_for(name, 2.0) as cluster:
        found = endured(cluster, name, blows)
    assert len(found.going) == len(blows)
    assert found.same
    print(f"{name}: {found.steps} steps, gone on after {times(found.going)}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WAYS)
def test_kills_cost_no_bit(name):
    check(name, 3 * [kill])


@pytest.mark.parametrize("blow", [stop, cut])
def test_tasks_that_are_stopped_or_cut_off_cost_no_bit(blow):
    check("data parallel", [blow, kill])


@pytest.mark.soak  # two minutes of kills
@pytest.mark.parametrize("name", WAYS)
def test_seventy_blows_cost_no_bit(name):
    check(name, mixed(70))
