"""The account of a run: the cases that were left out and why, and the seconds of each room.

A room is a folder of ``tests``. With ``EAGERFLOW_TEST_BUDGETS=1``, as in CI, a room that takes more
than half as long again as its budget fails the run. ``EAGERFLOW_TEST_SKIPPED`` names a file for the
tests that are skipped because a package is not installed, for ``EAGERFLOW_TEST_ONLY`` elsewhere.
"""

import collections
import functools
import os
import pathlib
import re
import time

import pytest

from tests import sampling

TESTS = pathlib.Path(__file__).parent
ENFORCED = "EAGERFLOW_TEST_BUDGETS"
SKIPPED = "EAGERFLOW_TEST_SKIPPED"
MISSING = "not installed", "could not import"
REFERENCE_SECONDS = 0.03
"""The result of ``machine_seconds`` on the machine on which budgets were set."""


def budgets():
    """Seconds of each room, from ``budgets.txt``."""
    lines = (TESTS / "budgets.txt").read_text(encoding="utf-8").splitlines()
    return {room: float(seconds) for room, seconds in (line.split() for line in lines)}


def machine_seconds():
    """The time of a fixed piece of Python, the least of five: how slow this machine is."""
    least = float("inf")
    for _ in range(5):
        begin, total = time.perf_counter(), 0
        for i in range(1_000_000):
            total += i & 7
        least = min(least, time.perf_counter() - begin)
    return least


def room_of(nodeid):
    """The room of a test: ``quick``, or a folder or file of the whole tier."""
    return pathlib.PurePosixPath(nodeid.partition("::")[0]).parts[1].removesuffix(".py")


def passed_budgets(seconds, limits, slowness):
    """A line for each room that took more than 1.5 times its budget; those without one too."""
    found = []
    for room, took in sorted(seconds.items()):
        limit = 1.5 * max(slowness, 1) * limits.get(room, 0)
        if took > limit:
            found.append(f"{room}: {took:.0f} s, budget {limits.get(room, 0):.0f} s")
    return found


class Account:
    """A plugin of pytest: counts in each worker, prints in the process that the user started."""

    def __init__(self, config):
        self.config = config
        self.of_other_days = self.of_the_extended_tier = 0
        self.skips, self.seconds = collections.Counter(), collections.Counter()
        self.missing = set()  # tests that are skipped because a package is not installed

    def pytest_report_header(self):
        return f"sampled cases: {sampling.DAY}={sampling.day()}"

    @pytest.hookimpl(trylast=True)
    def pytest_deselected(self, items):
        self.of_the_extended_tier += sum(
            item.get_closest_marker("soak") is not None for item in items
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            counts = self.of_other_days, self.of_the_extended_tier
            session.config.workeroutput["left_out"] = counts
        elif self.over_budget():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """All workers collect the same."""
        counts = getattr(node, "workeroutput", {}).get("left_out")
        if counts:
            self.of_other_days, self.of_the_extended_tier = counts

    def pytest_runtest_logreport(self, report):
        self.seconds[room_of(report.nodeid)] += report.duration
        self.count_skip(report)

    def pytest_collectreport(self, report):
        self.count_skip(report, " (whole files)")

    def count_skip(self, report, unit=""):
        """Count a skip by its reason, without the name of an op; list it where a package lacks."""
        if not (report.skipped and isinstance(report.longrepr, tuple)):
            return
        reason = report.longrepr[2].removeprefix("Skipped: ")
        self.skips[re.sub(r"^[\w ]+ of [\w.]+: ", "", reason) + unit] += 1
        if any(words in reason for words in MISSING):
            self.missing.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter):
        if hasattr(self.config, "workerinput"):
            return
        if path := os.environ.get(SKIPPED):
            lines = "".join(f"{nodeid}\n" for nodeid in sorted(self.missing))
            pathlib.Path(path).write_text(lines, encoding="utf-8")
        write = terminalreporter.write_line
        terminalreporter.section("left out")
        write(f"{self.of_other_days:6} cases of sampled tests: {sampling.DAY}=all runs them")
        write(f"{self.of_the_extended_tier:6} tests of the extended tier: python -m tests.extended")
        for reason, count in self.skips.most_common():
            write(f"{count:6} skipped: {reason}")
        terminalreporter.section("seconds by room")
        for room, took in self.seconds.most_common():
            write(f"{took:8.1f} {room}")
        for line in self.over_budget():
            write(f"FAILED {line}")

    @functools.cache  # noqa: B019 (one account for a process)
    def over_budget(self):
        """The rooms that fail the run."""
        if not os.environ.get(ENFORCED):
            return []
        return passed_budgets(self.seconds, budgets(), machine_seconds() / REFERENCE_SECONDS)
