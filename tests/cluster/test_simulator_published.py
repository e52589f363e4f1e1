"""The simulator against published measurements of known machines and models."""

import pytest

from tests.cluster.published import ANNOUNCED, CURVES, HOROVOD, horovod

POINTS = [(curve, gpus) for curve in CURVES for gpus in curve.rates if gpus > 1]
NAMES = [f"{curve.name}-{curve.batch}-{gpus}" for curve, gpus in POINTS]


@pytest.mark.parametrize(("curve", "gpus"), POINTS, ids=NAMES)
def test_published_curves_are_predicted(curve, gpus):
    assert curve.predicted(gpus) == pytest.approx(curve.measured(gpus), rel=0.15)


def test_the_mean_error_is_far_below_the_bound():
    errors = [abs(curve.predicted(gpus) / curve.measured(gpus) - 1) for curve, gpus in POINTS]
    assert sum(errors) / len(errors) < 0.05


@pytest.mark.parametrize("gpus", ANNOUNCED)
def test_the_announced_speedups_are_predicted(gpus):
    assert CURVES[0].predicted(gpus) == pytest.approx(ANNOUNCED[gpus], rel=0.15)


def test_the_curves_tell_a_model_from_ideal_scaling():
    # 64 GPUs that lose nothing would be within 15 % of 58: it is the others that say something.
    hard = [(curve, gpus) for curve, gpus in POINTS if curve.measured(gpus) < gpus / 1.15]
    assert len(hard) >= 5
    closer = [
        abs(curve.predicted(gpus) / curve.measured(gpus) - 1)
        < abs(gpus / curve.measured(gpus) - 1) / 2
        for curve, gpus in hard
    ]
    assert all(closer)


@pytest.mark.parametrize("name", HOROVOD)
def test_published_512_gpu_times_lie_between_overlap_bounds(name):
    assert horovod(name, overlap=False) < HOROVOD[name][2] < horovod(name, overlap=True)
