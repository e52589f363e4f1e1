"""``eagerflow serve``: says where it is and what it expects, answers, and ends when told."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.serving.models import scaling

SERVE = sys.executable, "-m", "eagerflow.cli", "serve"


@pytest.fixture
def process(tmp_path):
    scaling(2).save(tmp_path / "scale.ef")
    made = subprocess.Popen(
        [*SERVE, str(tmp_path / "scale.ef"), "--port", "0", "--grpc-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield made
    made.kill()
    made.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_told_to_end(process, number):
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if "curl" in line:
            break
    text = "\n".join(lines)
    url = re.search(r"REST.* on (\S+)", text)[1]
    assert "scale (version 1): x: float32(batch, 3) -> y: float32(batch, 3)" in text
    body, address = re.search(r"curl -d '(.*)' (\S+)", text).groups()
    assert address == f"{url}/v1/models/scale:predict"
    with urllib.request.urlopen(address, body.encode(), timeout=30) as answer:
        assert json.loads(answer.read()) == {"outputs": {"y": [[0.0] * 3], "total": [0.0]}}
    process.send_signal(number)
    assert process.wait(30) == 0


def test_a_missing_file(tmp_path):
    done = subprocess.run(
        [*SERVE, str(tmp_path / "none.ef"), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "there is no file or folder" in done.stderr
    assert "Traceback" not in done.stderr
