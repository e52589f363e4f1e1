"""examples/elsewhere: the exported network and its training in C++, Node and a browser.

Nothing is fetched here: what a program needs is there, or its test is skipped with the reason.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "elsewhere"


def script(name):
    """A program of the folder, as a module."""
    spec = importlib.util.spec_from_file_location(f"elsewhere_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = script("run")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder with the exported network, its training step, and what they have to give."""
    for package in ("onnx", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path_factory.mktemp("elsewhere") / "digits"
    subprocess.run([sys.executable, FOLDER / "digits.py", folder], check=True, timeout=300)
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", run.RUN)
def test_programs_elsewhere(kind, digits):
    reason = run.missing(kind, run.WORK)
    if reason is not None:
        pytest.skip(reason)
    logits, right, *steps = run.RUN[kind](run.WORK, digits).splitlines()
    expected = json.loads((digits / "expected.json").read_text())

    found = [float(word) for word in logits.removeprefix("logits of the first: ").split()]
    np.testing.assert_allclose(found, expected["logits"], atol=2e-4)
    assert right == f"{expected['right']} of 359 digits are right"
    assert expected["right"] > 340

    losses = [float(line.split()[-1]) for line in steps]
    assert steps[6].startswith("step 7 loss ") and len(losses) == 100
    # The first steps agree, random numbers of Dropout included. Later a difference of rounding
    # may turn a maximum or a sign, after which losses differ a little; without its state a driver
    # stays above 2, and with other random numbers it is off by 0.1 and more.
    np.testing.assert_allclose(losses[:3], expected["losses"][:3], atol=1e-5)
    np.testing.assert_allclose(losses, expected["losses"], atol=0.05)
    assert losses[-1] < 0.2


@pytest.mark.parametrize("name", ["classify.py", "train.py"])
def test_the_python_programs_know_nothing_of_eagerflow(name):
    assert "import eagerflow" not in (FOLDER / "python" / name).read_text()


def test_missing_programs_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(run.shutil, "which", lambda name: f"/bin/{name}")
    assert "set_up.py" in run.missing("node", tmp_path)
    assert "set_up.py" in run.missing("browser", tmp_path)
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    assert run.missing("cpp", tmp_path) == "there is no C++ compiler"
    assert run.missing("node", tmp_path) == "Node is not installed"
    assert run.missing("browser", tmp_path) == "there is no Chromium or Chrome"


def test_nothing_is_fetched_into_the_repository():
    with pytest.raises(SystemExit, match="is in the repository"):
        script("set_up").main(FOLDER / "cpp")


def test_failing_program_raises_its_message():
    with pytest.raises(RuntimeError, match="no such thing"):
        run.printed([sys.executable, "-c", "raise SystemExit('no such thing')"], FOLDER)
