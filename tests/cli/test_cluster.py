"""``eagerflow cluster``: what it remembers of what it has started, and ends."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from eagerflow.cli import cluster, main


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    return tmp_path


def remember(home, **facts):
    (home / ".ray" / "eagerflow.json").write_text(json.dumps(facts), encoding="utf-8")


def sleeper():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_without_a_cluster_there_is_nothing_to_show_and_to_stop(home, capsys):
    for action in ("status", "stop"):
        assert main(["cluster", action]) == 1
        assert capsys.readouterr().out == "no cluster that eagerflow has started runs here\n"


@pytest.mark.parametrize("facts", [{}, {"pid": "x"}, {"pid": os.getpid(), "began": "0"}])
def test_processes_that_it_has_not_started_are_left_alone(home, capsys, facts):
    remember(home, address="127.0.0.1:1", **facts)
    assert main(["cluster", "stop"]) == 1


def test_stop_ends_the_started_process(home, capsys):
    process = sleeper()
    threading.Thread(target=process.wait, daemon=True).start()  # else it would stay as a zombie
    try:
        began = cluster.began_at(process.pid)
        remember(home, pid=process.pid, began=began, address="127.0.0.1:1")
        assert main(["cluster", "start"]) == 2
        assert "a cluster runs here already, at 127.0.0.1:1" in capsys.readouterr().err
        assert main(["cluster", "stop"]) == 0
        assert process.wait(20) == -signal.SIGTERM
        assert not (home / ".ray" / "eagerflow.json").exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak  # Ray takes its time
def test_a_cluster_of_its_own_is_joined_and_stopped(home):
    program = """
import numpy as np
import eagerflow as ef
with ef.cluster.Cluster({"worker": 1}, address="127.0.0.1:6397") as made:
    graph = ef.capture.trace(lambda x: {"y": x * 2.0}, ef.TensorSpec((2,), "float32"))
    print(ef.capture.Session(graph, cluster=made).run("y", {"x": np.ones(2, "float32")}).numpy())
"""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(*words, **more):
        return subprocess.run(
            [sys.executable, *words], env=settings | more, capture_output=True, text=True
        )

    try:
        started = run("-m", "eagerflow.cli", "cluster", "start", "--port", "6397")
        assert "a Ray cluster runs at 127.0.0.1:6397" in started.stdout, started.stderr
        joined = run("-c", program)
        assert joined.stdout == "[2. 2.]\n", joined.stderr
        assert "127.0.0.1:6397" in run("-m", "eagerflow.cli", "cluster", "status").stdout
    finally:
        stopped = run("-m", "eagerflow.cli", "cluster", "stop")
    assert stopped.returncode == 0
