"""The same training in one process, on devices, in threads and in processes: the same numbers."""

import pytest

import eagerflow as ef
from tests.capture.placement.several_devices import COSTS
from tests.cluster.trainings import (
    NUMERICS,
    ROUNDING,
    TRAININGS,
    check_cut,
    check_same,
    on_devices,
    on_workers,
    trained,
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", TRAININGS)
def test_parts_of_a_batch_train_as_the_whole(name, numerics):
    whole = trained(name, numerics=numerics)
    assert whole.losses[-1] < whole.losses[0] or name == "gpt"  # its words are random
    for count in (2, 4):
        found = on_devices(name, numerics, count)
        assert found.losses == pytest.approx(whole.losses, rel=ROUNDING)
        assert found.error(whole) < ROUNDING


@pytest.mark.sampled(6)
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_tasks_train_bitwise_like_devices(name, numerics, kind, request):
    check_same(name, numerics, request.getfixturevalue(kind), 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRAININGS)
def test_threads_and_processes_have_the_same_bits(name, request):
    with ef.cluster.Cluster({"worker": 2, "ps": 1}, local=True, costs=COSTS) as local:
        threads = on_workers(name, "fast", local, 2)
    processes = on_workers(name, "fast", request.getfixturevalue("processes"), 2)
    assert threads.bits == processes.bits


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_a_step_cut_by_costs_equals_one_device_bitwise(kind, request):
    check_cut(request.getfixturevalue(kind))
