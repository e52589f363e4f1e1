"""Every tutorial runs from top to bottom, in a process and a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
SHORT = "02_capture"  # the others take up to a minute, and pages are made by running all of them


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem == SHORT else pytest.mark.soak, id=path.stem)
        for path in TUTORIALS
    ],
)
def test_tutorial_runs(path, tmp_path):
    # Threads of BLAS that wait for each other cost ten times the time where tests run side by side.
    alone = {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    environment = os.environ | alone
    result = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
