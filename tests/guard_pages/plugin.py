"""Lets a whole run of pytest use guard pages, and notes which test it is at.

    python -m pytest -p tests.guard_pages.plugin --guard behind --contents nan tests/plan

``--journal`` names a file with a line for the beginning of each test and one for its outcome, so
that the caller of the run knows which test ended it; ``--begin-at`` leaves out so many tests.
"""

import json
import os

import pytest

from tests.guard_pages import memory


def pytest_addoption(parser):
    group = parser.getgroup("guard pages")
    group.addoption("--guard", choices=memory.MODES, default="behind")
    group.addoption("--contents", choices=memory.CONTENTS, default="pattern")
    group.addoption("--journal")
    group.addoption("--begin-at", type=int, default=0)


def pytest_configure(config):
    # Late: the tests' own conftest has to run before the library is loaded.
    if reason := memory.why_not():
        pytest.exit(f"no guard pages: {reason}", 2)
    from tests.guard_pages import scratch

    mode, contents = config.option.guard, config.option.contents
    errors = os.dup(2)  # it stays the terminal's while a test's own output is kept
    scratch.install(mode, contents)
    memory.install(mode, contents, errors)
    if config.option.journal:
        config.pluginmanager.register(Journal(config.option.journal))


def pytest_sessionstart():
    memory.watch()  # Python's faulthandler, which pytest has begun by now, comes after it


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    del items[: config.option.begin_at]


def pytest_terminal_summary(terminalreporter):
    numbers = ", ".join(f"{count:,} {word}" for word, count in memory.figures().items())
    terminalreporter.write_line(f"guard pages: {numbers} arrays")


class Journal:
    """Writes down where a run is, at once, as it may end at any moment."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        self.told = dict.fromkeys(memory.figures(), 0)

    def write(self, *words):
        self.file.write(f"{json.dumps(words)}\n")

    def pytest_runtest_logstart(self, nodeid):
        self.write("begun", nodeid)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = getattr(crash, "message", "").splitlines() or [""]
            self.write(report.outcome, report.nodeid, f"{lines[0]} ... {lines[-1]}"[:300])

    def pytest_runtest_logfinish(self):
        now = memory.figures()
        for word in ("guarded", "unguarded"):
            self.write(word, now[word] - self.told[word])
        self.told = now
