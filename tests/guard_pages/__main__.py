"""Runs folders of tests with guard pages: ``python -m tests.guard_pages``.

Each folder is run in processes of its own, once for each way: every array ends right before a page
that ends the process when it is touched (``behind``), or begins right behind one (``before``); new
memory holds NaN or denormal numbers (``memory.py``, ``scratch.py``). A test that ends its process
is reported with the explanation and the traceback, and the run continues. Prints a table of
counts; the exit status is 1 if a process ended or a test failed that EXPECTED does not name.

    python -m tests.guard_pages                                # all folders, all ways
    python -m tests.guard_pages tests/plan --ways behind-nan   # one folder, one way
    python -m tests.guard_pages --marks ""                     # with the large counts (soak)
    EAGERFLOW_LLVM_FEATURES="-avx512*" python -m tests.guard_pages  # code for other processors
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.guard_pages import memory

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = [f"tests/{name}" for name in ("codegen", "contract", "fusion", "plan", "primitives")]
FOLDERS += [f"tests/quick/{name}" for name in ("codegen", "fusion", "plan")]
FOLDERS += ["tests/capture/test_op_samples.py"]
FOLDERS += [f"tests/guard_pages/{name}.py" for name in ("unwritten", "whole_programs")]
WAYS = [f"{mode}-{contents}" for mode in memory.MODES for contents in ("nan", "denormal")]
COUNTED = ("passed", "skipped", "expected", "failed", "died", "guarded", "unguarded")
TOLD_LINES = 30
EXPECTED = [
    (
        "tests/primitives/test_matrix_product.py::"
        "test_a_last_unit_that_is_read_beyond_its_end_is_found",
        "behind",
        "it plants a kernel that reads beyond its arrays",
    ),
    (
        "tests/codegen/test_cuda.py::",
        "behind",
        "kernels for GPUs are compiled beforehand, for arrays that begin at multiples of 16 bytes",
    ),
    *(
        (
            f"tests/codegen/test_standby.py::{name}",
            "be",
            "helpers with scratch do not stand by here",
        )
        for name in (
            "test_helpers_stand_by_and_then_sleep",
            "test_dismissed_helpers_stop_waiting",
            "test_forked_child_has_no_standby_helpers",
        )
    ),
]
"""Tests that fail or end their process: how their names and the ways begin, and why it is right."""


class Run:
    """A folder, or files, in one way: counts and failures."""

    def __init__(self, paths, way, options):
        self.way = way
        self.mode, _, self.contents = way.partition("-")
        self.paths, self.options = paths, options
        self.counts = collections.Counter()
        self.bad = {}  # tests that failed or ended their process, and their reports

    def finish(self):
        """Run all tests, in as many processes as it takes."""
        begun = 0
        while True:
            status, output, journal = self.process(begun)
            names = [row[1] for row in journal if row[0] == "begun"]
            begun += len(names)
            self.count(journal)
            if status in (0, 5) or (status == 1 and "short test summary" in output):
                return self
            name = names[-1] if names else f"{' '.join(self.paths)}, before any test"
            self.ended(name, f"it ended its process ({status})\n{told(output)}", "died")
            if not names:
                return self

    def process(self, begin_at):
        """One process: its exit status, its output, and the lines of its journal."""
        with tempfile.TemporaryDirectory(prefix="eagerflow-guard-") as folder:
            journal = pathlib.Path(folder, "journal")
            command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-v"]
            command += ["-p", "no:cacheprovider", "-p", "tests.guard_pages.plugin"]
            command += ["--guard", self.mode, "--contents", self.contents]
            command += ["--journal", str(journal), "--begin-at", str(begin_at)]
            command += [*self.options, *self.paths]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            lines = journal.read_text().splitlines() if journal.exists() else []
        return done.returncode, done.stdout, [json.loads(line) for line in lines]

    def count(self, journal):
        for word, value, *why in journal:
            if word in ("passed", "skipped"):
                self.counts[word] += 1
            elif word == "failed":
                self.ended(value, why[0], word)
            elif word in COUNTED:
                self.counts[word] += value

    def ended(self, name, why, word):
        """Count a test that failed or died, unless that is right."""
        if any(name.startswith(n) and self.way.startswith(way) for n, way, _ in EXPECTED):
            self.counts["expected"] += 1
        else:
            self.counts[word] += name not in self.bad  # pulling down may fail as well
            self.bad.setdefault(name, why)


def told(output):
    """The last output of a process that ended: the explanation and the traceback."""
    lines = output.splitlines()
    ends = [i for i, line in enumerate(lines) if line.startswith(("Fatal Python", "Timeout ("))]
    first = ends[-1] if ends else max(0, len(lines) - TOLD_LINES)
    while first and (not lines[first - 1] or lines[first - 1].startswith("guard pages: ")):
        first -= 1
    return "\n".join(lines[first:][:TOLD_LINES])


def table(rows):
    """Rows of words as lines of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(w.ljust(n) if i == 0 else w.rjust(n) for i, (w, n) in enumerate(pairs))
        for pairs in ([*zip(row, widths, strict=True)] for row in rows)
    )


def main(arguments=None):
    parser = argparse.ArgumentParser("python -m tests.guard_pages", description=__doc__)
    parser.add_argument("paths", nargs="*", default=FOLDERS, help="folders or files of tests")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--marks", help="as pytest's -m")
    parser.add_argument("-k", dest="keyword", help="as pytest's -k")
    given = parser.parse_args(arguments)
    if reason := memory.why_not():
        parser.exit(2, f"no guard pages: {reason}\n")
    options = [] if given.marks is None else ["-m", given.marks]
    options += ["-k", given.keyword] if given.keyword else []
    rows, bad = [("", *COUNTED)], 0
    for path in given.paths:
        for way in given.ways:
            run = Run([path], way, options).finish()
            rows.append((f"{path} {way}", *(f"{run.counts[word]:,}" for word in COUNTED)))
            for name, why in run.bad.items():
                print(f"\n{way} {name}: {why}", flush=True)
            bad += len(run.bad)
            print(table([rows[0], rows[-1]]), flush=True)
    print(f"\n{table(rows)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
