"""Links and steps that are fitted to measurements, and predictions for what was not measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster.simulation.collectives import all_reduce
from eagerflow.errors import ArgumentError

Link, Machines, Workload = ef.cluster.Link, ef.cluster.Machines, ef.cluster.Workload
calibrated = ef.cluster.calibrated


@settings(max_examples=50)
@given(
    st.floats(1e-6, 1e-3),
    st.floats(1e8, 1e11),
    st.floats(1e-5, 1e-2),
    st.floats(1e-6, 1e-2),
    st.booleans(),
)
def test_exact_measurements_are_found_again(latency, bandwidth, overhead, example, bus):
    link = Link(latency, bandwidth, bus)
    sums = [(b, n, all_reduce("ring", b, Machines(n, link=link)).seconds) for b, n in ((1e6, 2),)]
    found = calibrated(
        transfers=[(b, link.seconds(b)) for b in (1e3, 1e5, 1e7)],
        all_reduces=sums,
        steps=[(n, overhead + n * example) for n in (8, 64)],
        bus=bus,
    )
    assert found.link.latency == pytest.approx(latency, rel=1e-4, abs=1e-10)
    assert found.link.bandwidth == pytest.approx(bandwidth, rel=1e-4)
    assert found.overhead == pytest.approx(overhead, rel=1e-3, abs=1e-9)
    assert found.example == pytest.approx(example, rel=1e-4)


def test_configurations_are_predicted_from_noisy_measurements():
    rng = np.random.default_rng(0)
    noisy = lambda seconds: seconds * rng.lognormal(0.0, 0.05)
    link = Link(4e-5, 3e9)
    work = Workload(compute_seconds=0.032, gradients=[4e5] * 10, batch=32, overhead=2e-3)
    crowd = {1: 1.0, 2: 1.1, 4: 2.2}

    def truth(tasks, batch):
        machines = Machines(tasks, link=link, crowd=crowd[tasks])
        options = {"algorithm": "ring", "overlap": False}
        return ef.cluster.simulate(work, machines, batch=tasks * batch, **options).last.seconds

    found = calibrated(
        transfers=[(b, noisy(link.seconds(b))) for b in (4e3, 4e3, 4e6, 4e6)],
        steps=[(n, noisy(work.seconds(n))) for n in (8, 8, 64, 64)],
        together=[(n, noisy(factor)) for n, factor in crowd.items() if n > 1],
    )
    for tasks in (1, 2, 4):
        for batch in (8, 16, 32, 64):
            own = found.workload(work, batch)
            options = {"algorithm": "ring", "overlap": False}
            predicted = ef.cluster.simulate(own, found.machines(tasks), **options).last
            assert predicted.seconds == pytest.approx(truth(tasks, batch), rel=0.2)


def test_calibration_from_one_step_and_without_negative_factors():
    found = calibrated(transfers=[(1e6, 2e-3), (2e6, 3e-3)], steps=[(10, 0.5)])
    assert found.overhead == 0.0
    assert found.example == pytest.approx(0.05)
    # Larger batches cannot take less for each example than none at all.
    strange = calibrated(transfers=[(1e6, 1e-3), (2e6, 3e-3)], steps=[(10, 0.1), (20, 0.3)])
    assert strange.overhead == 0.0
    assert strange.example > 0
    assert strange.link.latency == 0.0


def test_numbers_of_tasks_between_the_measured_ones():
    found = calibrated(
        transfers=[(1e3, 1e-4), (1e6, 1e-3)], steps=[(10, 0.5)], together=[(2, 1.2), (4, 2.0)]
    )
    assert found.machines(1).crowd == 1.0
    assert found.machines(3).crowd == pytest.approx(1.6)
    assert found.machines(3).link == found.link


def test_per_step_overhead_is_calibrated():
    given = {"transfers": [(1e3, 1e-4), (1e6, 1e-3)], "steps": [(10, 0.5)]}
    found = calibrated(**given, runs=[(1, 0.005), (3, 0.009)])
    assert (found.run, found.task) == pytest.approx((0.003, 0.002))
    assert found.machines(2).together() == pytest.approx(0.007)
    assert calibrated(**given, runs=[(2, 0.006)]).machines(4).together() == pytest.approx(0.012)
    assert calibrated(**given).machines(4).together() == 0.0


def test_the_update_is_not_divided_by_smaller_batches():
    transfers = [(1e3, 1e-4), (1e6, 1e-3)]
    found = calibrated(transfers=transfers, steps=[(10, 0.11), (20, 0.21)], update=0.01)
    own = found.workload(Workload(1.0, [1e6], batch=4, activations=4e6), 16)
    assert own.update == 0.01
    assert own.compute_seconds == pytest.approx(0.16)
    assert own.activations == pytest.approx(16e6)


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"transfers": [(1e3, 1e-4)]}, "transfers"),
        ({"transfers": [(1e3, 1e-3), (1e3, 0.0)]}, "transfers"),
        ({"transfers": [(0, 1e-3), (1e3, 1e-3)]}, "transfers"),
        ({"transfers": [(1e3, 1e-3), (1e6, 1e-3)]}, "transfers"),
        ({"steps": []}, "steps"),
        ({"steps": [(8, 0.1)], "update": 0.2}, "steps"),
        ({"all_reduces": [(1e3, 1, 1e-3)]}, "all_reduces"),
        ({"together": [(2, 0.0)]}, "together"),
        ({"runs": [(0, 1e-3)]}, "runs"),
        ({"algorithm": "star"}, "algorithm"),
    ],
)
def test_invalid_arguments_are_refused(given, argument):
    good = {"transfers": [(1e3, 1e-4), (1e6, 1e-3)], "steps": [(8, 0.1)]}
    with pytest.raises(ArgumentError) as raised:
        calibrated(**good | given)
    assert raised.value.argument == argument
