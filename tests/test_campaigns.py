"""Campaigns report wrong results, crashes and time limits of programs, and shrink the programs."""

import os
import signal
import time

import pytest

from tests import campaigns
from tests.campaigns import Campaign, Failure, ProgramTester, fails


class EndsTheProcess(list):
    """The result of a program that breaks its process, which shows when the program is over."""

    def __del__(self):
        os._exit(3)


def check(number, modes=()):
    """Check a program that is a number; four of them fail."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    if number == 5:
        raise Failure("fast", 2, "value", "wrong")
    if number == 7:
        os.kill(os.getpid(), signal.SIGXCPU)
    modes = [("fast", "same", {})]
    return EndsTheProcess(modes) if number == 9 else modes, 4


NUMBERS = ProgramTester(int, check, lambda program: ["fast"], lambda program: [], str, str)


def test_failures_are_reported_and_the_other_programs_run(capsys, monkeypatch):
    monkeypatch.setattr(campaigns, "IMPORTED", [])
    campaign = Campaign(NUMBERS, 10, 0, jobs=2, shrink_seconds=1, batch=4)
    found = {message["seed"]: message["kind"] for message in campaign.run()}
    assert found == {3: "crash", 5: "value", 7: "hang", 9: "crash"}
    assert (campaign.programs, campaign.steps) == (10, 7 * 4)
    assert {"--- seed 3, fast:", "--- seed 5, fast:"} < set(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("kind", ["value", "crash"])
def test_a_timeout_while_shrinking_is_no_failure(kind, monkeypatch):
    monkeypatch.setattr(campaigns, "SHRINK_SECONDS", 1)
    slow = ProgramTester(int, lambda *_: time.sleep(10), list, list, str, str)
    assert not fails(slow, 1, "fast", kind)
