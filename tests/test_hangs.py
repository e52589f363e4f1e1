"""A process in which a test hangs is ended, and no other."""

import subprocess
import sys

import pytest

from tests.structure.sources import ROOT

HANGING = """
import time
from tests import hangs

hangs.LIMIT = 0.5
watch = hangs.Watch()
{}
time.sleep(1)
print("went on")
"""


@pytest.mark.parametrize(
    ("calls", "ends"),
    [
        ("watch.begin(limited=True)", True),
        ("watch.begin(limited=True); watch.begin(limited=True)", True),
        ("watch.begin(limited=True); watch.end(); watch.begin(limited=True)", True),
        ("watch.begin(limited=True); watch.end()", False),
        ("watch.begin(limited=True); watch.begin(limited=False)", False),
        ("watch.begin(limited=False)", False),
    ],
)
def test_hanging_process_is_ended(calls, ends):
    command = [sys.executable, "-c", HANGING.format(calls)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == ends
    assert done.stdout == ("" if ends else "went on\n")
    assert ("Timeout (0:00:00" in done.stderr and 'File "<string>"' in done.stderr) == ends
