"""Asynchronous parameter servers of the simulator, event by event."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster.simulation.asynchronous import Asynchronous
from eagerflow.cluster.simulation.data_parallel import ParameterServers

Link, Machines, Workload = ef.cluster.Link, ef.cluster.Machines, ef.cluster.Workload

WORK = Workload(compute_seconds=0.1, gradients=[1e6] * 5, batch=16)


def ran(machines, seed=0, work=WORK, **options):
    servers = ParameterServers(mode="asynchronous", **options)
    events = Asynchronous(servers, work, machines, work.batch, seed)
    events.run()
    return events


def asynchronous(machines, work=WORK, seed=0, **options):
    return ef.cluster.simulate(
        work, machines, method="parameter-servers", mode="asynchronous", seed=seed, **options
    ).last


@settings(max_examples=25)
@given(st.integers(0, 3), st.integers(1, 12), st.floats(0.1, 1.0), st.integers(0, 99))
def test_the_bound_on_staleness_is_never_exceeded(bound, workers, jitter, seed):
    log = ran(Machines(workers, jitter=jitter), seed, staleness=bound).log
    ended = dict.fromkeys(range(workers), 0)
    for begin in log:
        ended[begin.worker] = begin.step
        assert begin.step - begin.slowest <= bound
        # The log itself says how far all are: no task has begun a step that needs more.
        assert begin.slowest >= min(ended.values()) - 1
    assert max(begin.step for begin in log) > 0


def test_without_a_bound_workers_get_further_apart():
    machines = Machines(8, jitter=0.5)
    assert max(b.step - b.slowest for b in ran(machines).log) > 2
    assert asynchronous(machines, staleness=0).seconds > asynchronous(machines).seconds


def test_the_same_seed_gives_the_same_events():
    machines = Machines(16, jitter=0.2)
    first, again, other = (ran(machines, seed, staleness=2).log for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert asynchronous(machines, seed=3) == asynchronous(machines, seed=3)


def test_equal_workers_match_the_formula():
    # One worker has servers and links for itself: it computes, pulls and pushes in turn.
    found = asynchronous(Machines(1, link=Link(1e-3, 1e9)), servers=1, own_machines=True)
    assert found.seconds == pytest.approx(0.1 + 2 * (1e-3 + WORK.size / 1e9))


@pytest.mark.parametrize("servers", [1, 4])
def test_many_workers_are_bounded_by_the_ports_of_the_servers(servers):
    machines = Machines(200, link=Link(1e-5, 1e9), jitter=0.1)
    found = asynchronous(machines, servers=servers, own_machines=True)
    bound = servers * 1e9 / WORK.size  # pushes a second
    rate = found.throughput / WORK.batch
    assert rate <= bound * 1.02
    assert rate == pytest.approx(bound, rel=0.1)
    assert found.bottleneck == "ports of the servers"


def test_few_workers_are_compute_bound():
    found = asynchronous(Machines(4, link=Link(1e-6, 1e12), jitter=0.1))
    assert found.throughput == pytest.approx(4 * WORK.batch / 0.1, rel=0.03)


def test_no_wait_for_slow_workers_without_staleness_bound():
    machines = Machines(32, link=Link(1e-6, 1e12), jitter=0.5)
    in_step = ef.cluster.simulate(WORK, machines, method="parameter-servers").last
    assert asynchronous(machines).seconds < in_step.seconds / 1.5


def test_ten_thousand_machines_take_no_time():
    machines = Machines(10_000, devices_per_machine=8, jitter=0.1)
    begin = time.process_time()
    for options in ({}, {"method": "parameter-servers"}, {"method": "pipeline", "stages": 16}):
        assert ef.cluster.simulate(WORK, machines, **options).last.devices == 80_000
    assert asynchronous(machines, staleness=3).machines == 10_000
    assert time.process_time() - begin < 20
