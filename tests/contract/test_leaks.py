"""Training and computing for long takes no more memory than doing so for a while."""

import json
import os
import subprocess
import sys

import pytest

from tests.contract.cases import SOAK
from tests.structure.sources import ROOT

STEPS, CALLS = (20_000, 200_000) if SOAK else (2_000, 20_000)
GROWTH = 0.02  # of resident memory
TRACED = 16 * 1024  # bytes, over 200 steps


def measured(*options):
    """What the worker measured."""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("resident memory is read from /proc")
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.leak_worker", *map(str, options)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(found):
    """Which limits are broken."""
    broken = []
    growth = found["end"] / found["start"] - 1
    if growth >= GROWTH:
        broken.append(f"resident memory grew by {growth:.1%}")
    if found["traced"] >= TRACED:
        broken.append(f"Python's memory grew by {found['traced']} bytes")
    if found["after"]["entries"] or found["after"]["tapes"] > found["before"]["tapes"]:
        broken.append(f"tapes live on: {found['before']} became {found['after']}")
    if found["after"]["tensors"] > found["before"]["tensors"]:
        broken.append(f"tensors live on: {found['before']} became {found['after']}")
    return broken


def test_memory_stays(capsys):
    found = measured(STEPS, CALLS)
    with capsys.disabled():
        print(
            f"\n{STEPS} steps, {CALLS} eager ops: resident memory {found['start'] / 2**20:.1f} MiB"
            f" {found['end'] / found['start'] - 1:+.2%}, traced {found['traced']} bytes,"
            f" {found['after']}"
        )
    assert found["last"] < found["first"], "nothing was learned"
    assert problems(found) == []


def test_planted_leak_is_found():
    found = measured(2_000, 400, "leak")
    assert len(problems(found)) == 3, found
