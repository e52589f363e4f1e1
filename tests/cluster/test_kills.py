"""Training whose tasks are killed and stopped at random moments has the bits of one that is not."""

import pytest

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.kills import WAYS, cut, endured, kill, mixed, stop, times
from tests.cluster.processes import ProcessHosts


@pytest.fixture
def redundant(monkeypatch):
    """Two workers and a parameter server in processes, which keep copies for each other."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    jobs = {"worker": 2, "ps": 1}
    with ef.cluster.Cluster(jobs, costs=COSTS, silence=2.0, redundant=True) as made:
        yield made


def check(cluster, name, blows):
    """All blows are overcome, and cost no bit."""
    found = endured(cluster, name, blows)
    assert len(found.going) == len(blows)
    assert found.same
    print(f"{name}: {found.steps} steps, gone on after {times(found.going)}")


@pytest.mark.parametrize("name", WAYS)
def test_kills_cost_no_bit(redundant, name):
    check(redundant, name, 3 * [kill])


@pytest.mark.parametrize("blow", [stop, cut])
def test_tasks_that_are_stopped_or_cut_off_cost_no_bit(redundant, blow):
    check(redundant, "data parallel", [blow, kill])


@pytest.mark.soak  # two minutes of kills
@pytest.mark.parametrize("name", WAYS)
def test_seventy_blows_cost_no_bit(redundant, name):
    check(redundant, name, mixed(70))
