"""Plants bugs and counts those that tests detect: ``python -m tests.mutations --reach FOLDER``.

FOLDER holds what a run of both tiers recorded::

    EAGERFLOW_REACH=FOLDER python -m pytest -n 2 -p tests.mutations.reach tests

Each bug is planted into a clone of the last commit. Of the tests that reach it some of files beside
it run first, of the quick tier and then of the whole, and ``--most`` of each tier if none fails; so
the counts are lower bounds. The result is a line of JSON for each bug.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tests import sampling
from tests.mutations.mutants import plant
from tests.mutations.reach import PACKAGE, Reach, is_quick

FIRST, FIRST_FILES = 60, 15  # tests that run first, and their files: each is collected
ROOT = PACKAGE.parent
FAILURE = re.compile(r"^(?:FAILED|ERROR) (.*)$", re.MULTILINE)
NOT_IMPORTED, NO_TESTS = (2, 3, 4), 5
"""Pytest's exit statuses where tests could not be collected, so that the bug is not subtle."""


def tests_for(reach, mutant, quick):
    """The tests of a tier that may detect a bug: of files beside it and short ones, in turn."""
    known = reach.tests_of(mutant.file, mutant.lines)
    room = mutant.file.partition("/")[0]
    if not known or not reach.executed(mutant.file).intersection(mutant.lines):
        # Lines that run at imports only, or in other processes, or never.
        known |= {t for t in reach.seconds if f"/{room}/" in t}
    files = collections.defaultdict(list)
    for test in known:
        if is_quick(test) == quick and (ROOT / test.partition("::")[0]).is_file():
            files[test.partition("::")[0]].append(test)
    near = sorted(files, key=lambda f: (f"/{room}/" not in f, reach.sizes[f]))
    in_turn = []
    for part in (near[:FIRST_FILES], near[FIRST_FILES:]):
        queues = [sorted(files[f], key=lambda t: reach.seconds.get(t, 0)) for f in part]
        in_turn += [t for row in itertools.zip_longest(*queues) for t in row if t]
    return in_turn


class Clone:
    """A clone of the last commit in which bugs are planted one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.passing = set()  # tests that pass alone without any bug
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, folder], check=True)

    def run(self, tests, limit):
        """The exit status of the tests, -1 where they do not end, and the first failure."""
        names = pathlib.Path(self.folder, "chosen-tests.txt")
        names.write_text("\n".join(tests), encoding="utf-8")
        files = sorted({test.partition("::")[0] for test in tests})
        own = {
            "PYTHONPATH": self.folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "EAGERFLOW_CACHE": os.path.join(self.folder, "kernels"),
            sampling.DAY: sampling.ALL,
            sampling.ONLY: str(names),
        }
        options = ["-x", "-q", "-m", "", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=self.folder,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return -1, "no end"
        first = FAILURE.search(output)
        if not first:
            return process.returncode, output[-300:]
        # Names may have " - " inside, which also stands before a message.
        known = [test for test in tests if first[1].startswith(test)]
        return process.returncode, max(known, key=len, default=first[1].partition(" - ")[0])

    def detect(self, mutant, reach, most):
        """The tier that detects a bug, or "none" or "not imported", and how."""
        path = pathlib.Path(self.folder, "eagerflow", mutant.file)
        right = path.read_text(encoding="utf-8")
        groups = []
        for tier in ("quick", "whole"):
            tests = tests_for(reach, mutant, tier == "quick")[:most]
            groups += [(0, tier, tests[:FIRST]), (1, tier, tests[FIRST:])]
        ran = 0
        for _, tier, tests in sorted(groups, key=lambda group: group[0]):
            while tests:
                expected = sum(reach.seconds.get(test, 1) for test in tests)
                path.write_text(mutant.text, encoding="utf-8")
                try:
                    status, how = self.run(tests, 60 + 5 * expected)
                finally:
                    path.write_text(right, encoding="utf-8")
                if status in NOT_IMPORTED:
                    return "not imported", how
                if status in (0, NO_TESTS):
                    ran += len(tests)
                    break
                if status < 0:
                    return tier, how
                is_test = how in tests  # or a file, which cannot be collected
                if not is_test or how in self.passing or self.run([how], 300)[0] == 0:
                    self.passing.add(how)
                    return tier, how
                tests.remove(how)  # it fails alone without any bug
        return "none", f"{ran} tests passed"


def record(mutant, tier, how):
    shown = {"file": mutant.file, "line": mutant.line, "kind": mutant.kind}
    shown |= {"before": mutant.before, "after": mutant.after, "tier": tier, "how": how}
    return json.dumps(shown)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--reach", required=True, help="the folder that the recording wrote")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=sampling.day())
    parser.add_argument("--most", type=int, default=500, help="tests of a tier for each bug")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--out", type=pathlib.Path, help="a file for the results; what it has is not planted again"
    )
    given = parser.parse_args(arguments)
    reach = Reach(given.reach)
    known = given.out.read_text(encoding="utf-8") if given.out and given.out.exists() else ""
    rows = [json.loads(line) for line in known.splitlines()]
    done = {(row["file"], row["line"], row["before"], row["after"]) for row in rows}
    mutants = [
        m
        for m in plant(PACKAGE, given.count, given.seed)
        if (m.file, m.line, m.before, m.after) not in done
    ]
    tiers = collections.Counter(row["tier"] for row in rows)
    with tempfile.TemporaryDirectory(prefix="eagerflow-mutations-") as scratch:
        clones = [Clone(f"{scratch}/{i}") for i in range(given.workers)]
        free = collections.deque(clones)

        def detect(mutant):
            clone = free.popleft()
            try:
                return mutant, *clone.detect(mutant, reach, given.most)
            finally:
                free.append(clone)

        with concurrent.futures.ThreadPoolExecutor(given.workers) as pool:
            running = [pool.submit(detect, m) for m in mutants]
            for future in concurrent.futures.as_completed(running):
                mutant, tier, how = future.result()
                tiers[tier] += 1
                line = record(mutant, tier, how)
                print(f"{tiers.total():4} {tier:12} {line}", flush=True)
                if given.out:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
    planted = tiers.total() - tiers["not imported"]
    if planted:
        print(
            f"seed {given.seed}: {planted} bugs; the quick tier detected {tiers['quick']}, "
            f"both {tiers['quick'] + tiers['whole']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
