"""Stamps and laps: times that jobs note, on the clock of perf_counter_ns."""

import time

import numpy as np
import pytest

from eagerflow.codegen.llvm import stamps
from eagerflow.codegen.llvm.team import Team
from eagerflow.runtime import machine_code

pytestmark = pytest.mark.skipif(
    not machine_code.available() or not stamps.can_stamp(), reason="there is no clock for jobs"
)


def test_times_are_between_those_of_python_and_in_order():
    made = stamps.Stamps(3)
    row = [made.job() for _ in range(2)]
    note = made.note()
    team = Team([job.address for job in row], row)
    for _ in range(3):
        made.reset()
        begin = time.perf_counter_ns()
        team.run(0)
        note()
        end = time.perf_counter_ns()
        found = made.read()
        assert begin - 1000 <= found[0] <= found[1] <= found[2] <= end + 1000


def test_the_first_thread_leaves_its_time():
    """A stamp that is passed twice keeps the first time until it is reset."""
    made = stamps.Stamps(1)
    job = made.job()
    team = Team([job.address], job)
    made.reset()
    team.run(0)
    (first,) = made.read()
    team.run(0)
    assert made.read() == [first]
    made.reset()
    team.run(0)
    assert made.read()[0] > first


def test_laps_add_up_and_leave_no_time_out():
    once, each = stamps.Laps(2).among([], [], True)
    assert len(once) == 1 and not each
    laps = stamps.Laps(2)
    jobs = [stamps.Stamps(1).job() for _ in range(2)]  # steps that take no time worth telling
    for number, job in enumerate(jobs):
        job.step = number
    once, each = laps.among([], jobs, True)
    assert laps.steps == [0, 1]
    start = Team([job.address for job in once], once)
    turn = Team([job.address for job in each], each)
    laps.reset()
    start.run(0)
    laps.reset()  # what the first lap was is no time of a step
    begin = time.perf_counter_ns()
    for _ in range(10):
        time.sleep(1e-3)
        turn.run(0)
    end = time.perf_counter_ns()
    first, second = laps.read(begin)
    assert 10e6 <= first <= end - begin + 1e6, "each step's time begins where the one before ended"
    assert 0 <= second < first
    assert np.all(np.array(laps.read(begin)) >= 0)
