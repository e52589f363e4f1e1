"""Formulas and bounds of the simulator: links, all-reduce, servers, pipelines, failures."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster.simulation.collectives import ALGORITHMS, all_reduce
from eagerflow.cluster.simulation.pipeline import SCHEDULES, Stage, company, laid_out, makespan
from eagerflow.cluster.simulation.step import RUN, UPDATE, bucketed, exposed, slowest
from eagerflow.errors import ArgumentError, KeywordError

Failures, Link = ef.cluster.Failures, ef.cluster.Link
Machines, Workload, simulate = ef.cluster.Machines, ef.cluster.Workload, ef.cluster.simulate

METHODS = (
    {"method": "all-reduce"},
    *({"method": "all-reduce", "algorithm": name} for name in ALGORITHMS),
    {"method": "all-reduce", "overlap": False, "sharded": True},
    {"method": "parameter-servers"},
    {"method": "parameter-servers", "servers": 2, "own_machines": True},
    {"method": "parameter-servers", "mode": "asynchronous", "staleness": 2},
    *({"method": "pipeline", "microbatches": 8, "schedule": name} for name in SCHEDULES),
)


@st.composite
def works(draw):
    sizes = draw(st.lists(st.floats(1e3, 1e8), min_size=1, max_size=12))
    return Workload(
        compute_seconds=draw(st.floats(1e-3, 1.0)),
        gradients=sizes,
        batch=draw(st.sampled_from([1, 32, 512])),
        update=draw(st.sampled_from([0.0, 1e-3])),
        boundary=draw(st.sampled_from([0.0, 1e6])),
        activations=1e8,
    )


@st.composite
def clusters(draw):
    link = st.builds(
        Link, st.floats(0, 1e-3), st.floats(1e7, 1e11), st.booleans(), st.sampled_from([1.0, 4.0])
    )
    return Machines(
        draw(st.sampled_from([1, 2, 3, 8, 24])),
        devices_per_machine=draw(st.sampled_from([1, 2, 8])),
        link=draw(link),
        inner=draw(link),
        jitter=draw(st.sampled_from([0.0, 0.1])),
        crowd=draw(st.sampled_from([1.0, 1.2])),
        run=draw(st.sampled_from([0.0, 1e-3])),
    )


def faster(machines, times):
    """The same machines with more bandwidth."""
    link, inner = (
        replace(x, bandwidth=times * x.bandwidth) for x in (machines.link, machines.inner)
    )
    return replace(machines, link=link, inner=inner)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", METHODS, ids=str)
@settings(max_examples=25)
@given(work=works(), machines=clusters(), times=st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower_and_nothing_beats_ideal(options, work, machines, times):
    rows = simulate(work, machines, **options).rows
    wide = simulate(work, faster(machines, times), **options).rows
    for row, other in zip(rows, wide, strict=True):
        # Servers and stages divide the update among them, and one device does all of it.
        ideal = row.devices * (1 + work.update / work.compute_seconds)
        assert 0 < row.speedup <= ideal * (1 + 1e-9)
        assert work.update or row.efficiency <= 1 + 1e-9
        assert row.seconds == pytest.approx(sum(row.parts.values()))
        # Where workers queue, an order may change; the mean is then of other steps.
        slack = 0.02 if options.get("mode") == "asynchronous" else 1e-6
        assert other.seconds <= row.seconds * (1 + slack)


@given(st.floats(1, 1e9), st.integers(2, 5000), st.floats(0, 1e-2), st.floats(1e6, 1e12))
def test_ring_time_matches_its_formula(size, count, latency, bandwidth):
    found = all_reduce("ring", size, Machines(count, link=Link(latency, bandwidth)))
    messages = 2 * (count - 1)
    assert found.seconds == pytest.approx(messages * (latency + size / count / bandwidth))
    assert found.link_bytes == pytest.approx(messages / count * size)
    # Nothing that sends to others what they need sends less.
    for name in ALGORITHMS:
        other = all_reduce(name, size, Machines(count, link=Link(0.0, bandwidth)))
        assert other.seconds >= messages / count * size / bandwidth * (1 - 1e-9)


def test_a_tree_suits_small_sums_and_a_ring_large_ones():
    machines = Machines(64)
    seconds = lambda name, size: all_reduce(name, size, machines).seconds
    assert seconds("tree", 1e3) < seconds("ring", 1e3)
    assert seconds("ring", 1e9) < seconds("tree", 1e9)
    assert seconds("halving", 1e3) == pytest.approx(seconds("tree", 1e3), rel=0.05)


def test_sums_within_machines_first_pass_each_port_once():
    machines = Machines(4, devices_per_machine=8, inner=Link(0.0, 1e12))
    flat, levels = (all_reduce(name, 1e9, machines) for name in ("ring", "hierarchical"))
    assert levels.link_bytes == pytest.approx(2 * 3 / 4 * 1e9)
    assert flat.link_bytes == pytest.approx(2 * 31 / 32 * 1e9)
    assert levels.seconds < flat.seconds


def test_communication_overlapping_the_backward_pass_is_free():
    work = Workload(compute_seconds=0.3, gradients=[1e6] * 20)
    machines = Machines(4, link=Link(0.0, 1e9))
    step = lambda **options: simulate(work, machines, algorithm="ring", **options).last
    whole = all_reduce("ring", work.size, machines).seconds
    assert step(overlap=False).seconds == pytest.approx(0.3 + whole)
    assert step(bucket=1e6).seconds == pytest.approx(0.3 + whole / 20)  # the last bucket alone
    # One that no pass can hide: the first gradient is there when a third and a part have run.
    slow = Machines(4, link=Link(0.0, 1e7))
    late = all_reduce("ring", work.size, slow).seconds
    found = simulate(work, slow, algorithm="ring", bucket=1e6).last
    assert found.seconds == pytest.approx(0.1 + 0.2 / 20 + late)


def test_buckets_hold_all_gradients_in_their_order():
    made = [(0.5, 10.0), (0.6, 10.0), (0.8, 30.0), (1.0, 5.0)]
    assert [tuple(b) for b in bucketed(made, 20, True)] == [(0.6, 20.0), (0.8, 30.0), (1.0, 5.0)]
    assert [b.ready for b in bucketed(made, 20, False)] == [1.0, 1.0, 1.0]
    assert exposed([], 1.0, []).seconds == 0.0


def test_each_device_updates_its_part_of_the_weights():
    work, machines = Workload(0.1, [1e6], update=0.08), Machines(4)
    whole, parts = (simulate(work, machines, sharded=x).last.parts[UPDATE] for x in (False, True))
    assert (whole, parts) == (0.08, 0.02)


# What steps of several machines cost besides -----------------------------------------------------


@pytest.mark.parametrize("method", ["all-reduce", "pipeline"])
def test_run_messages_are_counted_for_several_machines(method):
    machines = Machines(4, run=0.003, task=0.002)
    one, two, four = simulate(Workload(0.1, [1e6]), machines, method=method).rows
    assert RUN not in one.parts
    assert two.parts[RUN] == pytest.approx(0.007)
    assert four.parts[RUN] == pytest.approx(0.011)


def test_run_messages_are_counted_for_servers():
    work, machines = Workload(0.1, [1e6]), Machines(2, run=0.003, task=0.002)
    options = {"method": "parameter-servers", "servers": 1}
    own = simulate(work, machines, **options, own_machines=True).last.parts[RUN]
    assert own == pytest.approx(0.009)
    assert simulate(work, machines, **options).last.parts[RUN] == pytest.approx(0.007)


# Parameter servers -------------------------------------------------------------------------------


def test_synchronous_servers_are_bound_by_their_ports():
    work = Workload(compute_seconds=0.1, gradients=[1e8])
    one = simulate(
        work,
        Machines(10, link=Link(0.0, 1e9)),
        method="parameter-servers",
        servers=1,
        own_machines=True,
    ).last
    # All push into one port and pull out of it, after the passes.
    assert one.seconds == pytest.approx(0.1 + 2 * 10 * 1e8 / 1e9)
    assert one.bottleneck == "ports of the servers"
    ten = simulate(work, Machines(10, link=Link(0.0, 1e9)), method="parameter-servers").last
    assert ten.seconds == pytest.approx(0.1 + 2 * 9 / 10 * 1e8 / 1e9)
    assert ten.traffic == {"link between machines": pytest.approx(2 * 0.9 * 1e8)}


def test_pushes_that_wait_for_the_backward_pass_take_longer():
    work, machines = Workload(0.1, [1e6] * 8), Machines(4)
    late, early = (
        simulate(work, machines, method="parameter-servers", bucket=1e6, overlap=x).last.seconds
        for x in (False, True)
    )
    assert late > early


def test_oversubscribed_networks_slow_servers_but_not_rings():
    work = Workload(compute_seconds=0.1, gradients=[1e8])
    even, narrow = (Machines(16, link=Link(0.0, 1e9, oversubscription=k)) for k in (1.0, 4.0))
    step = lambda machines, **options: simulate(work, machines, **options).last.seconds
    assert step(narrow, algorithm="ring") == step(even, algorithm="ring")
    assert step(narrow, method="parameter-servers") > 2 * step(even, method="parameter-servers")


def test_backup_workers_trade_examples_for_time():
    work = Workload(compute_seconds=0.1, gradients=[1e3])
    machines = Machines(20, jitter=0.3)
    all_wait, some = (
        simulate(work, machines, method="parameter-servers", backup_workers=k).last for k in (0, 2)
    )
    assert some.seconds < all_wait.seconds
    assert some.throughput * some.seconds == pytest.approx(18)


# The slowest of many -----------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "dropped"), [(1, 0), (2, 0), (64, 0), (64, 3), (1000, 0)])
def test_the_mean_of_the_slowest_is_that_of_samples(count, dropped):
    drawn = np.random.default_rng(1).lognormal(-(0.2**2) / 2, 0.2, (4000, count))
    sampled = np.sort(drawn, axis=1)[:, count - 1 - dropped].mean()
    assert slowest(count, 0.2, dropped) == pytest.approx(sampled, rel=0.01)


@given(st.integers(1, 100_000), st.floats(0.0, 1.0))
def test_more_devices_wait_longer(count, jitter):
    assert slowest(count + 1, jitter) >= slowest(count, jitter) * (1 - 1e-15) >= 1 - 1e-6


# Pipelines ---------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 20), st.sampled_from(SCHEDULES))
def test_the_bubble_of_even_stages(stages, microbatches, schedule):
    even = [Stage(1.0, 2.0)] * stages
    ideal = 3.0 * microbatches
    found = makespan(schedule, even, microbatches)
    assert 1 - ideal / found == pytest.approx((stages - 1) / (microbatches + stages - 1))


times = st.floats(0.0, 2.0)


@settings(max_examples=25)
@given(
    st.lists(st.builds(Stage, times, times, times, times), min_size=1, max_size=5),
    st.integers(1, 7),
)
def test_the_formula_and_the_order_of_tasks_agree(stages, microbatches):
    stages[-1] = Stage(*stages[-1][:2])  # which sends nothing further
    formula = makespan("fill-drain", stages, microbatches)
    assert laid_out("fill-drain", stages, microbatches) == pytest.approx(formula)


def test_few_others_compute_in_a_bubble():
    assert company(2, 1, 1) == 0.0
    assert company(2, 2, 1) == pytest.approx(0.5)  # one of three slots has both
    assert company(2, 1000, 1) == pytest.approx(1.0, abs=0.01)
    assert company(1, 4, 3) == pytest.approx(1.0)
    assert company(1, 4, 1) == 0.0
    options = {"method": "pipeline", "microbatches": 1}
    seconds = [
        simulate(Workload(0.1, [1e6]), Machines(2, crowd=c), **options).last.seconds for c in (1, 2)
    ]
    assert seconds[0] == pytest.approx(seconds[1])


def test_one_forward_one_backward_keeps_fewer_activations():
    work = Workload(compute_seconds=0.1, gradients=[1e6] * 8, activations=1e9)
    few, all_ = (
        simulate(work, Machines(4), method="pipeline", microbatches=16, schedule=name).last.memory
        for name in SCHEDULES[::-1]
    )
    assert few < all_ / 2


def test_replicas_of_a_pipeline_sum_their_gradients():
    work = Workload(compute_seconds=0.1, gradients=[1e8] * 8)
    step = lambda n: simulate(work, Machines(n), method="pipeline", stages=4).last
    assert step(8).seconds > step(4).seconds
    found = step(8).traffic["link between machines"]
    assert found == pytest.approx(2 * 1 / 2 * work.size / 4)


# Failures ----------------------------------------------------------------------------------------


def lived_through(failures, count, work, seed):
    """Seconds that some work takes where failures come at random, event by event."""
    rng, mean = random.Random(seed), failures.mean_time / count
    part, now = failures.between(count), 0.0
    for _ in range(round(work / part)):
        while True:
            fails = rng.expovariate(1 / mean)
            if fails > part + failures.checkpoint:
                now += part + failures.checkpoint
                break
            now += fails
            while (again := rng.expovariate(1 / mean)) < failures.restart:
                now += again
            now += failures.restart
    return now


@pytest.mark.parametrize("count", [1, 50, 1000])
def test_the_formula_of_failures_agrees_with_events(count):
    failures = Failures(mean_time=20 * 86400.0, restart=240.0, checkpoint=45.0)
    work = 20_000 * failures.between(count)
    lived = lived_through(failures, count, work, 7)
    assert failures.factor(count) == pytest.approx(lived / work, rel=0.02)


def test_youngs_interval_is_nearly_the_best():
    young = Failures(mean_time=10 * 86400.0, restart=300.0, checkpoint=60.0)
    part = young.between(100)
    others = [replace(young, interval=part * k) for k in (0.25, 0.5, 2, 4)]
    assert all(young.factor(100) < other.factor(100) for other in others)
    # Where failures are rare: checkpoints, and half an interval and a restart for each failure.
    mean = young.mean_time / 100
    first_order = 1 + 60 / part + (part / 2 + 300) / mean
    assert young.factor(100) == pytest.approx(first_order, rel=0.03)


def test_a_cluster_that_fails_all_the_time_never_ends():
    work = Workload(compute_seconds=0.1, gradients=[1e6], batch=8)
    found = simulate(work, Machines(100_000, failures=Failures(86400.0), price=1.0))
    assert math.isinf(found.last.seconds)
    assert found.last.throughput == 0
    assert "never ends" in str(found)
    assert found.last.bottleneck == "failures and checkpoints"
    assert not found.worth


# Errors ------------------------------------------------------------------------------------------

WORK = Workload(compute_seconds=0.1, gradients=[1e6], batch=8)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: Link(latency=-1.0), "latency"),
        (lambda: Link(bandwidth=0), "bandwidth"),
        (lambda: Link.typical("NVLink"), "name"),
        (lambda: Link.typical(["NVLink 4"]), "name"),
        (lambda: Link(bandwidth=math.nan), "bandwidth"),
        (lambda: Link(oversubscription=0.5), "oversubscription"),
        (lambda: Machines(0), "count"),
        (lambda: Machines(2.5), "count"),
        (lambda: Machines(2, link=1e9), "link"),
        (lambda: Machines(2, failures=3.0), "failures"),
        (lambda: Machines(2, jitter="much"), "jitter"),
        (lambda: Failures(0.0), "mean_time"),
        (lambda: Failures(1.0, interval=0.0), "interval"),
        (lambda: Workload(0.0, [1.0]), "compute_seconds"),
        (lambda: Workload(1.0, [-1.0]), "gradients"),
        (lambda: Workload(1.0, [1.0], overhead=2.0), "overhead"),
        (lambda: Workload(1.0, [1.0, 1.0], ready=[0.5]), "ready"),
        (lambda: Link(latency=math.inf), "latency"),
        (lambda: Link(latency=10**400), "latency"),
        (lambda: Machines(True), "count"),
        (lambda: simulate(WORK, 3), "machines"),
        (lambda: ef.cluster.bill(WORK, None), "machines"),
        (lambda: simulate("step", Machines(2)), "step_or_model"),
        (lambda: simulate(WORK, Machines(2), method="magic"), "method"),
        (lambda: simulate(WORK, Machines(2), algorithm="star"), "algorithm"),
        (lambda: simulate(WORK, Machines(4), batch=3), "batch"),
        (lambda: ef.cluster.bill(WORK, Machines(9)), "batch"),
        (lambda: simulate(WORK, Machines(2), method="pipeline", stages=3), "stages"),
        (lambda: simulate(WORK, Machines(2), method="pipeline", schedule="x"), "schedule"),
        (lambda: simulate(WORK, Machines(2), method="pipeline", microbatches=0), "microbatches"),
        (lambda: simulate(WORK, Machines(2), method="parameter-servers", mode="x"), "mode"),
        (lambda: simulate(WORK, Machines(2), method="parameter-servers", servers=0), "servers"),
        (lambda: simulate(WORK, Machines(2), method="parameter-servers", staleness=1), "staleness"),
        (
            lambda: simulate(WORK, Machines(2), method="parameter-servers", backup_workers=2),
            "backup_workers",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, argument):
    with pytest.raises(ArgumentError) as raised:
        call()
    assert raised.value.argument == argument
    assert raised.value.expected


def test_an_option_of_another_method_is_refused():
    with pytest.raises(KeywordError, match="no such option") as raised:
        simulate(WORK, Machines(2), stages=2)
    assert raised.value.argument == "stages"
    assert "algorithm" in raised.value.expected
