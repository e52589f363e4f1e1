"""Networks that delay, double, hang, part and close: training has the bits of one without."""

import pytest

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.kills import DEVICES, trained
from tests.cluster.proxies import ProxyHosts, part
from tests.internals import hosts_of

SILENCE = 2.0  # a busy machine stops a process for a second
SHORT, LONG = 0.4, 5.0  # seconds in which nothing passes


@pytest.fixture
def parted(monkeypatch):
    """Two workers and a parameter server, with a network between all."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProxyHosts)
    jobs = {"worker": 2, "ps": 1}
    with ef.cluster.Cluster(jobs, costs=COSTS, silence=SILENCE, redundant=True) as made:
        yield made


def check(cluster, faults, steps):
    """Training with faults before some steps has the bits of one without; lives of tasks."""
    timers = []

    def goes_on(step):
        if step in faults:
            timers.append(faults[step]())
        return step < steps

    found = trained(ef.cluster.DataParallel(cluster), goes_on)[0]
    for timer in timers:
        if timer is not None:
            timer.join()
    assert found == trained(ef.cluster.DataParallel(**DEVICES), lambda step: step < steps)[0]
    return [task.lives for task in cluster.tasks]


def test_late_and_double_messages_change_nothing(parted):
    network = hosts_of(parted).network

    def begin():
        network.delay, network.doubles = 0.01, True

    assert check(parted, {1: begin}, 6) == [1, 1, 1]
    assert network.doubled > 20


def test_a_network_that_hangs_for_a_moment_costs_that_moment(parted):
    gates = [gate for proxy in hosts_of(parted).proxies.values() for gate in proxy.gates.values()]
    faults = {2: lambda: part(gates, SHORT), 4: lambda: part(gates, SHORT)}
    assert check(parted, faults, 6) == [1, 1, 1]


def test_a_task_that_is_cut_off_is_replaced(parted):
    proxies = hosts_of(parted).proxies
    faults = {
        2: lambda: part(proxies["/job:worker/task:1"].gates.values(), LONG),
        4: lambda: part([proxies["/job:worker/task:0"].gates["client"]], LONG),
    }
    assert check(parted, faults, 6) == [2, 2, 1]


def test_a_partition_between_tasks_is_survived(parted):
    gate = hosts_of(parted).proxies["/job:worker/task:0"].gates["tasks"]
    assert check(parted, {2: lambda: part([gate], LONG)}, 4) == [1, 1, 1]


def test_a_task_whose_connections_are_closed_is_replaced(parted):
    cut = hosts_of(parted).proxies["/job:worker/task:1"].cut
    assert check(parted, {2: cut}, 4) == [1, 2, 1]
