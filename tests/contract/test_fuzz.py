"""No bad input to a function kills or hangs the process; it raises our own errors alone."""

import collections
import json
import os
import subprocess
import sys

import pytest

from tests.contract.cases import SOAK, shipped
from tests.contract.composed import ALL
from tests.structure.sources import ROOT

CALLS = 2_000 if SOAK else 50  # of each op
CHUNK = 4 if SOAK else 90  # ops of a process; to begin takes as long as 20 of them
COMPOSED_CALLS = 2_000 if SOAK else 25
NAMES = [op.name for op in shipped()]
COMPOSED_NAMES = [op.name for op in ALL]
CASES = [
    (count, names[i : i + size])
    for count, size, names in ((CALLS, CHUNK, NAMES), (COMPOSED_CALLS, 3 * CHUNK, COMPOSED_NAMES))
    for i in range(0, len(names), size)
]


def fuzzed(names, calls=CALLS, seed=0, module="tests.contract.fuzz_worker"):
    """What the worker says of each op, and the call during which it died, if it did."""
    env = os.environ | {
        "OPENBLAS_NUM_THREADS": "1",  # each thread takes address space of its own
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, str(calls), str(seed), *names],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=len(names) * calls * 0.2 + 60,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode == 0:
        assert [one["op"] for one in found] == names
        return found, None
    return found, f"exit code {done.returncode}, last lines:\n{done.stderr[-1500:]}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("calls", "names"), CASES, ids=["+".join(c)[:60] for _, c in CASES])
def test_bad_input_raises_our_errors_only(calls, names, capsys):
    found, death = fuzzed(names, calls)
    count = collections.Counter()
    for one in found:
        count.update({k: one[k] for k in ("calls", "succeeded", "refused")})
    with capsys.disabled():
        print(f"\n{len(names)} functions fuzzed: {dict(count)}")
    assert death is None, death
    broken = [f"{b['call']}\n    {b['error']}" for one in found for b in one["broken"]]
    assert not broken, f"{len(broken)} of {count['calls']} calls:\n" + "\n".join(broken[:40])
    assert count["succeeded"] >= count["calls"] // 20, "hardly any call succeeds: poor generators"
    assert count["refused"] >= count["calls"] // 20, "hardly any call is refused: poor generators"
