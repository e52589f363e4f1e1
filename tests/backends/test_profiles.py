"""Profiles of devices whose calls return before their work is done."""

import sys
import time

import pytest

import eagerflow as ef
from eagerflow.profiling import device_events
from tests.backends.test_recordings import numbers, recorded, two_steps


def test_ops_have_the_time_between_marks(gpus):
    x = ef.ones((8, 8), device="gpu:1")
    ef.tanh(x)
    with ef.profile(1, 1) as p:
        z = ef.tanh(x) + x
    assert z.device == x.device
    assert {(row.name, row.calls) for row in p.by("op")} == {("tanh", 1), ("add", 1)}
    assert [row.name for row in p.by("device")] == ["gpu:1"]
    assert [row.name for row in p.by("thread")] == ["gpu:1"], "a track of its own"
    first, second = sorted(p.events, key=lambda event: event.begin)
    assert p.begin <= first.begin < first.end <= second.begin < second.end <= p.end
    assert not device_events.started
    assert p.accounted == 0, "the thread of Python's has done nothing of it"


@pytest.mark.sampled(2)
def test_captured_steps_are_started_one_by_one(gpus):
    captured = recorded(two_steps, x := numbers((5, 7)))
    expected = [y.numpy() for y in captured(x)]
    with ef.profile(1, 1) as p:
        found = [y.numpy() for y in captured(x)]
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()
    assert len({row.name for row in p.by("op")}) >= 3
    assert "gpu:1" in {row.name for row in p.by("thread")}


@pytest.mark.parametrize("wrong", [False, True])
def test_wrong_time_unit_is_detected(gpus, monkeypatch, wrong):
    """Planted: a library that gives seconds for milliseconds puts work outside of the profile."""
    if "lookalike" not in type(gpus).__module__:
        pytest.skip("the driver's clock cannot be moved")
    if wrong:
        real = sys.modules["cupy"].cuda.get_elapsed_time
        monkeypatch.setattr(gpus.cuda, "get_elapsed_time", lambda a, b: 1e9 + real(a, b))
    x = ef.ones((8, 8), device="gpu:1")
    with ef.profile(1, 1) as p:
        ef.tanh(x)
        ef.exp(x)
    first, second = sorted(p.events, key=lambda event: event.begin)
    assert (first.begin == p.begin == second.begin) == wrong


def test_a_thread_that_is_held_up_beside_a_mark_moves_no_work(gpus, monkeypatch):
    real, looks = device_events.clock, []

    def held_up():
        looks.append(real())
        if len(looks) == 2:
            time.sleep(0.05)
        return real()

    x = ef.ones((8, 8), device="gpu:1")
    monkeypatch.setattr(device_events, "clock", held_up)
    with ef.profile(1, 1) as p:
        ef.tanh(x)
    assert len(looks) > 2
    (event,) = p.events
    assert p.begin <= event.begin < event.end <= p.end, "and not pushed against the end"
