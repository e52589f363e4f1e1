"""The extended tier: ``python -m tests.extended``.

Makes an environment with all extras and the libraries that the tests compare with, runs each room
there with all cases, then random programs and models, guard pages and the tests of other projects,
then each room with the large counts, which take many hours: ``--without-large-counts`` ends before
these, ``--only cluster keras`` runs some parts. ``benchmarks/results/extended.json`` has the latest
run of each part.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import venv
from typing import NamedTuple

from tests import account, sampling

ROOT = pathlib.Path(__file__).parents[1]
EXTRAS = "test,docs,keras,keras-weights,cluster,ray-serve,peers"
MORE = "tensorflow", "xarray"  # that only tests use
OTHER_MACHINES = "tests/backends/", "tests/cli/test_completion.py"  # a GPU; fish and zsh
RESULTS = ROOT / "benchmarks" / "results" / "extended.json"
FINE = 0, 5  # pytest's exit statuses where nothing failed
LARGE = ", large counts"


class Part(NamedTuple):
    """A command of the tier and its environment variables."""

    name: str
    command: list[str]
    environment: dict[str, str]


class Result(NamedTuple):
    """How a part went: its exit status, its time, and its last line."""

    name: str
    status: int
    seconds: float
    last: str
    missing: list[str]
    """Tests that were skipped for want of a package: nothing runs them."""


def rooms():
    """All folders and files of tests, as pytest takes them."""
    folders = [path for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()]
    return sorted(folders) + sorted((ROOT / "tests").glob("test_*.py"))


def room_part(path, large):
    """The part that runs a room, with the ``large`` counts or without."""
    marks, where = "" if large else "not soak", path.relative_to(ROOT).as_posix()
    command = ["-m", "pytest", "-n", "2", "-q", "-m", marks, "-p", "no:cacheprovider", where]
    return Part(path.stem + LARGE * large, command, {"EAGERFLOW_SOAK": "1"} if large else {})


def parts(programs, models):
    """Everything that the tier runs, in order."""
    found = [room_part(path, large=False) for path in rooms()]
    found.append(Part("random programs", ["-m", "tests.programs", "--count", str(programs)], {}))
    found.append(Part("random models", ["-m", "tests.fits", "--count", str(models)], {}))
    found.append(Part("guard pages", ["-m", "tests.guard_pages"], {}))
    found.append(Part("Keras's own tests", ["-m", "tests.keras.upstream"], {}))
    return found + [room_part(path, large=True) for path in rooms()]


def make_environment(folder):
    """A new environment with all extras; its Python."""
    venv.create(folder, with_pip=True)
    python = str(pathlib.Path(folder, "bin", "python"))
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[{EXTRAS}]", *MORE], check=True
    )
    return python


def run(part, python, folder):
    """Run one part and show its output as it comes."""
    print(f"== {part.name}", flush=True)
    skipped = pathlib.Path(folder, "skipped.txt")
    skipped.write_text("", encoding="utf-8")
    given = {sampling.DAY: sampling.ALL, account.SKIPPED: str(skipped)}
    begin, lines = time.monotonic(), []
    process = subprocess.Popen(
        [python, *part.command],
        cwd=ROOT,
        env={**os.environ, **given, **part.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    for line in process.stdout:
        print(line, end="", flush=True)
        lines = [*lines[-20:], line]
    status, seconds = process.wait(), time.monotonic() - begin
    last = lines[-1].strip() if lines else ""
    missing = skipped.read_text(encoding="utf-8").splitlines()
    missing = [test for test in missing if not test.startswith(OTHER_MACHINES)]
    return Result(part.name, status, seconds, last, missing)


def setting(python):
    """Date, commit, machine and versions of a run."""
    freeze = [python, "-m", "pip", "list", "--format", "json"]
    listed = json.loads(subprocess.run(freeze, capture_output=True, check=True).stdout)
    names = {"numpy", "llvmlite", "torch", "jax", "keras", "ray", "onnxruntime"}
    commit = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": str(datetime.date.today()),
        "commit": found.stdout.strip(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {p["name"]: p["version"] for p in listed if p["name"] in names},
    }


def latest():
    """The latest run of each part, by name."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def note(result, told):
    """Put a run of a part in the place of its last one."""
    ran = {"status": result.status, "seconds": round(result.seconds), "last": result.last}
    runs = latest() | {result.name: ran | {"missing": result.missing} | told}
    RESULTS.write_text(f"{json.dumps(runs, indent=1)}\n", encoding="utf-8")


def report(chosen):
    """A table of parts with their latest runs."""
    runs, lines = latest(), ["| part | date | commit | seconds | result |", "|---|---|---|---|---|"]
    for part in chosen:
        if (run := runs.get(part.name)) is None:
            lines.append(f"| {part.name} | never | | | |")
            continue
        failed = "FAILED: " if run["status"] not in FINE else ""
        cells = part.name, run["date"], run["commit"], str(run["seconds"]), failed + run["last"]
        lines += [f"| {' | '.join(cells)} |", *(f"Nothing runs {x}" for x in run["missing"])]
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.extended", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="PART", help="names of parts")
    parser.add_argument("--list", action="store_true", help="print the parts and end")
    parser.add_argument("--without-large-counts", action="store_true", help="leave these parts out")
    parser.add_argument("--here", action="store_true", help="use this environment as it is")
    parser.add_argument("--programs", type=int, default=1_000, help="random programs")
    parser.add_argument("--models", type=int, default=500, help="random models")
    given = parser.parse_args(arguments)
    chosen = parts(given.programs, given.models)
    if given.only:
        unknown = set(given.only) - {part.name for part in chosen}
        if unknown:
            parser.error(f"no such part: {', '.join(sorted(unknown))}; --list shows all")
        chosen = [part for part in chosen if part.name in given.only]
    if given.without_large_counts:
        chosen = [part for part in chosen if not part.name.endswith(LARGE)]
    if given.list:
        print(*(part.name for part in chosen), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="eagerflow-extended-") as folder:
        python = sys.executable if given.here else make_environment(folder)
        told = setting(python)
        results = []
        for part in chosen:  # the file says what has run when the command is ended early
            results.append(run(part, python, folder))
            note(results[-1], told)
    print(report(parts(given.programs, given.models)), RESULTS, sep="\n")
    return int(any(result.status not in FINE or result.missing for result in results))


if __name__ == "__main__":
    sys.exit(main())
