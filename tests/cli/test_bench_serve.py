"""``eagerflow bench-serve``: asks a server what it expects, and measures it."""

import json

import pytest

import eagerflow as ef
from eagerflow.cli import main

pytest.importorskip("uvicorn")
SECRET = "a-secret-of-some-length"


@pytest.fixture
def served(tmp_path):
    spec = ef.TensorSpec(("batch", 2), "float32")
    flag = ef.TensorSpec(("batch",), "bool")
    graph = ef.capture.trace(lambda x, on: ef.where(on[:, None], x, -x), spec, flag)
    graph.save(tmp_path / "turn.ef")
    (tmp_path / "tokens").write_text(f"{SECRET}\n")
    access = ef.serving.Access((SECRET,))
    with ef.serving.Server(tmp_path / "turn.ef", port=0, access=access) as server:
        yield server, str(tmp_path / "tokens")


def test_a_table_of_rates(served, capsys):
    server, tokens = served
    words = [server.url, "--tokens", tokens, "--seconds", "0.2", "--rate", "50", "100"]
    assert main(["bench-serve", *words, "--rows", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["requests/s", "good/s"]
    assert [line.split()[0] for line in lines[1:]] == ["50", "100"]


def test_json_and_a_body_of_ones_own(served, capsys, tmp_path):
    server, tokens = served
    body = tmp_path / "body.json"
    body.write_text('{"inputs": {"x": [[1.0, 2.0]], "on": [true]}}')
    words = [server.url, "--tokens", tokens, "--seconds", "0.2", "--rate", "50", "--json"]
    words += ["--data", str(body), "--path", "/v1/models/turn:predict"]
    assert main(["bench-serve", *words]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["statuses"] == {"200": 10}
    assert 0 < found["latency_seconds"]["0.5"] <= found["latency_seconds"]["1.0"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--model", "nope"], "answered 404"),
        (["--rate", "-1"], "rate"),
        (["--path", "no-path"], "not a path"),
    ],
)
def test_errors_are_printed(served, capsys, change, told):
    server, tokens = served
    words = ["bench-serve", server.url, "--tokens", tokens, "--seconds", "0.1", *change]
    assert main(words) != 0
    assert told in capsys.readouterr().err


def test_no_server_and_no_address(capsys):
    assert main(["bench-serve", "http://127.0.0.1:9"]) != 0
    assert "eagerflow serve MODELS" in capsys.readouterr().err
    assert main(["bench-serve", "nowhere"]) != 0
    assert "is not an address" in capsys.readouterr().err
