"""The same training in one process, on devices, in threads and in processes: the same numbers."""

import pytest

from tests.cluster.trainings import NUMERICS, TRAININGS, check_cut, check_same, on_devices, trained

ROUNDING = 2e-5  # of the largest weight, after steps of float32


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
def test_tasks_train_to_the_bits_of_devices(name, numerics, kind, request):
    check_same(name, numerics, request.getfixturevalue(kind), 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_a_step_cut_by_costs_has_the_bits_of_one_device(kind, request):
    check_cut(request.getfixturevalue(kind))
