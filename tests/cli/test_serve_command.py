"""``eagerflow serve``: says where it is and what it expects, answers, and ends when told."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_signalled(process, number):
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


def test_the_example_says_where_the_token_goes(tmp_path):
    scaling(2).save(tmp_path / "scale.ef")
    (tmp_path / "tokens").write_text("a secret of 16 letters\n")
    options = ["--port", "0", "--no-grpc", "--tokens", str(tmp_path / "tokens")]
    process = subprocess.Popen(
        [*SERVE, str(tmp_path / "scale.ef"), *options], stdout=subprocess.PIPE, text=True
    )
    try:
        text = lines_until(process.stdout, "curl")
    finally:
        process.kill()
        process.wait()
    assert "curl -H 'Authorization: Bearer TOKEN' -d" in text


CONFIGURED = """
port = 0
grpc = false
poll = 0.05
workers = {workers}
leave = 0.3
log = "json"

[models.scale]
path = "scale.ef"
max_wait = 600.0
"""


def lines_until(stream, word):
    """The lines of a stream up to the one that has a word."""
    found = []
    for line in stream:
        found.append(line)
        if word in line:
            return "".join(found)
    raise AssertionError(f"no {word}: {''.join(found)}")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [0, 1])
def test_received_requests_are_answered_after_the_signal(tmp_path, workers):
    scaling(2).save(tmp_path / "scale.ef")
    scaling(3).save(tmp_path / "other.ef")
    file = tmp_path / "serve.toml"
    file.write_text(CONFIGURED.format(workers=workers))
    process = subprocess.Popen(
        [*SERVE, "--config", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = re.search(r"REST.* on (\S+)", lines_until(process.stdout, "curl"))[1]
        if hasattr(signal, "SIGHUP"):
            with file.open("a") as more:
                more.write('[models.other]\npath = "other.ef"\n')
            process.send_signal(signal.SIGHUP)
            lines_until(process.stdout, "other 1 is ready")
        answers = []

        def ask():
            body = b'{"inputs": [[1.0, 2.0, 3.0]]}'
            with urllib.request.urlopen(f"{url}/v1/models/scale:predict", body, 30) as answer:
                answers.append(json.loads(answer.read())["outputs"]["total"])

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(urllib.error.HTTPError, match="503"):  # it tells that it ends
            urllib.request.urlopen(f"{url}/v2/health/ready", timeout=30)
        asking.join(30)
        assert process.wait(30) == 0
        assert answers == [[12.0]]
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(f"{url}/v2/health/live", timeout=30)
        told = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert [(line["path"], line["status"]) for line in told if "path" in line] == [
            ("/v2/health/ready", 503),
            ("/v1/models/scale:predict", 200),
        ]
    finally:
        process.kill()
        process.communicate()


def test_a_missing_file(tmp_path):
    done = subprocess.run(
        [*SERVE, str(tmp_path / "none.ef"), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "there is no file or folder" in done.stderr
    assert "Traceback" not in done.stderr
