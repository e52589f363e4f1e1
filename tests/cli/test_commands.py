"""The command as a user types it."""

import re
import subprocess
import sys

import pytest

from eagerflow import extras
from eagerflow.cli import main
from eagerflow.errors import MissingExtraError


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "eagerflow.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_demo_trains_to_98_percent_and_draws(tmp_path):
    folder = tmp_path / "made"
    result = run("demo", "--output", str(folder))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ShapeError: matmul" in result.stdout
    assert "of the held-out digits are right" in result.stdout
    assert "layers.Conv2D(32, 3, padding=" in result.stdout  # the code that runs
    end = result.stdout.partition("\nIn short\n")[2]
    assert re.search(r"[\d.]+ times as fast: the captured step", end)
    assert "the same predictions without the model's code" in end
    assert {path.name for path in folder.iterdir()} == {
        ".gitignore",
        "digits.ef",
        "digits.png",
        "graph.svg",
    }
    assert (folder / ".gitignore").read_text() == "*\n"
    picture = folder / "digits.png"
    assert str(picture) in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.soak
def test_demo_says_when_it_misses_its_promise(tmp_path):
    result = run("demo", "--output", str(tmp_path), "--epochs", "0")
    assert result.returncode == 1
    assert "less than the 98%" in result.stdout


def test_devices_are_listed():
    result = run("devices")
    assert result.returncode == 0
    assert result.stdout.startswith("cpu:0   /job:local/task:0/device:cpu:0")


def test_a_missing_extra_is_one_clear_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(extras, "load_if_there", lambda module: None)
    with pytest.raises(MissingExtraError, match="scikit"):
        extras.load("sklearn.datasets", "demo", "eagerflow demo (scikit-learn)")
    assert main(["demo", "--output", str(tmp_path)]) == 2
    assert "pip install 'eagerflow[demo]'" in capsys.readouterr().err


def test_unknown_commands_are_refused():
    result = run("dance")
    assert result.returncode == 2
    assert "invalid choice" in result.stderr
