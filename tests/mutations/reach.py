"""Records which tests execute each line of the package: a plugin of pytest and what it wrote.

``EAGERFLOW_REACH=FOLDER pytest -p tests.mutations.reach`` writes one file for each process of
pytest. Lines that only other processes execute, such as workers of clusters, are not seen.
"""

import collections
import json
import os
import pathlib
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[2] / "eagerflow"
FOLDER = "EAGERFLOW_REACH"
MOST = 300
"""Tests of a tier that are kept for a line."""
QUICK = "tests/quick/"


class Recorder:
    """The lines that each test executes, by ``sys.monitoring``."""

    def __init__(self):
        self.tests, self.seconds = [], collections.Counter()
        self.lines = collections.defaultdict(list)  # (file, line, quick tier): indices of tests
        self.quick, self.package = False, str(PACKAGE)

    def start(self):
        events = sys.monitoring
        events.use_tool_id(events.COVERAGE_ID, "eagerflow reach")
        events.register_callback(events.COVERAGE_ID, events.events.LINE, self.on_line)
        events.set_events(events.COVERAGE_ID, events.events.LINE)

    def on_line(self, code, line):
        """Each line is reported once for each test."""
        if code.co_filename.startswith(self.package):
            found = self.lines[code.co_filename, line, self.quick]
            test = len(self.tests) - 1
            if len(found) < MOST and (not found or found[-1] != test):
                found.append(test)
        return sys.monitoring.DISABLE

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.tests.append(item.nodeid)
        self.quick = item.nodeid.startswith(QUICK)
        sys.monitoring.restart_events()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self):
        sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        lines = {}
        for (file, line, _), tests in list(self.lines.items()):
            lines.setdefault(os.path.relpath(file, PACKAGE), {}).setdefault(line, []).extend(tests)
        text = json.dumps({"tests": self.tests, "seconds": self.seconds, "lines": lines})
        pathlib.Path(os.environ[FOLDER], f"{os.getpid()}.json").write_text(text, encoding="utf-8")


def pytest_configure(config):
    if FOLDER in os.environ and (
        hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    ):
        pathlib.Path(os.environ[FOLDER]).mkdir(parents=True, exist_ok=True)
        recorder = Recorder()
        recorder.start()
        config.pluginmanager.register(recorder)


def is_quick(test):
    return test.startswith(QUICK)


class Reach:
    """What the recorders of all processes wrote into a folder."""

    def __init__(self, folder):
        self.seconds, self.sizes = {}, collections.Counter()
        self._lines = collections.defaultdict(lambda: collections.defaultdict(set))
        for path in pathlib.Path(folder).glob("*.json"):
            written = json.loads(path.read_text(encoding="utf-8"))
            tests = written["tests"]
            self.seconds |= written["seconds"]
            self.sizes.update(test.partition("::")[0] for test in tests)
            for file, lines in written["lines"].items():
                for line, found in lines.items():
                    # -1 is what ran before the first test: imports.
                    self._lines[file][int(line)].update(tests[i] for i in found if i >= 0)

    def executed(self, file, quick=False):
        """The lines of a file that any test, or one of the quick tier, or an import executes."""
        lines = self._lines[file].items()
        return {n for n, tests in lines if not quick or not tests or any(map(is_quick, tests))}

    def tests_of(self, file, lines):
        """The tests that execute one of the lines, or else any line of the file."""
        of_file = self._lines[file]
        found = set().union(*(of_file[n] for n in lines if n in of_file))
        return found or set().union(*of_file.values())
