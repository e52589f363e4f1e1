"""Keras's own tests on our backend: ``python -m tests.keras.upstream [folders] [--jax folder]``.

Folders are those of ``keras/src``, such as ``layers`` or ``ops``, or single files in them. Prints a
table of how many pass, and the others by cause. With ``--on-jax --keep FOLDER`` they run on Keras's
own JAX backend; with ``--jax FOLDER`` those tests count that passed in such a run.
"""

import argparse
import collections
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

FOLDERS = (
    "backend/common backend/tests testing utils tree initializers regularizers constraints "
    "activations dtype_policies losses metrics optimizers random ops layers models trainers "
    "callbacks saving export quantizers legacy datasets visualization wrappers distillation "
    "applications"
).split()

HOME = os.path.dirname(importlib.util.find_spec("keras").origin)
CONFTEST = """
import pytest
from keras.src import backend


def skip_if_backend(name, reason):
    return pytest.mark.skipif(backend.backend() == name, reason=reason)
"""
"""A module that Keras's tests import and its wheel does not have."""
HOOK = """
from eagerflow.keras import hook

trainer = "from eagerflow.keras.backend.trainer import Trainer"
hook.CHOICES["keras.src.trainers.trainer_test"] = (trainer,)
"""
"""One test asks for backends by name."""
BRANCHES = """
from tests.keras import branches

branches.install()
"""
CONFTESTS = {
    "jax": CONFTEST,
    "plain": HOOK + CONFTEST,
    "eagerflow": HOOK + BRANCHES + CONFTEST,
}


def results(path):
    """Outcome and message of each test in a JUnit file, by its name below ``keras.src``."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        place = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        outcome, message = "passed", ""
        for part in case:
            if part.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if part.tag == "skipped" else "failed"
                message = part.get("message") or (part.text or "").strip()[-300:]
        found[re.sub("0x[0-9a-f]+", "0x", place.removeprefix("src."))] = outcome, message
    return found


def run(folder, processes, report, kind):
    """Run the tests of a folder in a process of their own, on a backend of ``CONFTESTS``."""
    command = [sys.executable, "-m", "pytest", place_of(folder), "-q", "--tb=line", "--no-header"]
    options = [] if kind == "jax" else ["-p", "eagerflow.keras"]
    options += ["-p", "conftest", "-p", "no:cacheprovider"]
    options += ["-c", os.devnull, "--rootdir", HOME, "--junitxml", report]
    options += ["-W", "ignore", "--continue-on-collection-errors"]
    options += ["-n", str(processes)] if processes > 1 else []
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "conftest.py"), "w") as file:
            file.write(CONFTESTS[kind])
        places = os.pathsep.join([os.getcwd(), home, os.environ.get("PYTHONPATH", "")])
        environment = dict(os.environ, KERAS_HOME=home, PYTHONPATH=places)
        environment |= {"KERAS_BACKEND": "jax"} if kind == "jax" else {}
        subprocess.run([*command, *options], env=environment, cwd=home, stdout=subprocess.DEVNULL)


def place_of(folder):
    """Where a folder or file of ``keras/src`` is."""
    return os.path.join(HOME, "src", *folder.split("/"))


def cause(message):
    """A message without the parts that differ from test to test."""
    lines = [line for line in message.splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    if "Exception encountered when calling" in text and len(lines) > 1:
        text = f"{text.split(':')[0]}: {lines[1]}"
    text = re.sub(r"\x1b\[\d+m|#x1B\[\d+m", "", text)
    text = re.sub(r"0x[0-9a-f]+|\b\d+(\.\d+)?(e-?\d+)?\b", "N", text)
    return text[:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--jax", help="the folder with the results of the JAX backend")
    parser.add_argument("--keep", help="a folder for the results")
    parser.add_argument("--reuse", action="store_true", help="take results that are there")
    parser.add_argument("--processes", type=int, default=1)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--plain",
        action="store_const",
        const="plain",
        dest="kind",
        default="eagerflow",
        help="take no branches that name JAX",
    )
    kinds.add_argument(
        "--on-jax",
        action="store_const",
        const="jax",
        dest="kind",
        help="run on Keras's own JAX backend",
    )
    parser.add_argument("--names", action="store_true", help="print the names of all that fail")
    given = parser.parse_args()
    keep = given.keep or tempfile.mkdtemp()
    os.makedirs(keep, exist_ok=True)
    found = {}
    print("| folder | pass there | pass here | fail here | skipped here |\n|---|---|---|---|---|")
    for folder in given.folders:
        report = report_of(keep, folder)
        if not (given.reuse and os.path.exists(report)):
            run(folder, given.processes, report, given.kind)
        expected = results(report_of(given.jax, folder)) if given.jax else None
        own = wanted(results(report), expected)
        found |= own
        print(f"| {folder} | {' | '.join(map(str, counts(own)))} |", flush=True)
    show(found, given.names)


def report_of(home, folder):
    """Where the results of a folder are kept, as JUnit XML."""
    return os.path.join(os.path.abspath(home), folder.replace("/", "_") + ".xml")


def wanted(found, expected):
    """The results that count: of tests that pass on JAX, or of all that are not skipped."""
    if expected is None:
        return {name: result for name, result in found.items() if result[0] != "skipped"}
    names = [name for name, (outcome, _) in expected.items() if outcome == "passed"]
    lost = "failed", "it was not collected"
    return {name: found.get(name, lost) for name in names}


def counts(found):
    """How many tests count, and how many of them pass, fail and are skipped here."""
    each = collections.Counter(outcome for outcome, _ in found.values())
    return len(found), each["passed"], each["failed"], each["skipped"]


def show(found, named):
    """All in one line, and the tests that do not pass, by cause."""
    every, passed, failed, skipped = counts(found)
    print(f"| all | {every} | {passed} | {failed} | {skipped} |\n")
    print(f"{100 * passed / max(every, 1):.2f} % of all pass", end=", ")
    print(f"{100 * passed / max(passed + failed, 1):.2f} % of those that are not skipped")
    causes = collections.defaultdict(list)
    for name, (outcome, message) in sorted(found.items()):
        if outcome != "passed":
            causes[f"{outcome}: {cause(message)}"].append(name)
    for why, names in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(names):5}  {why}")
        for name in names if named else names[:2]:
            print(f"         {name}")


if __name__ == "__main__":
    main()
