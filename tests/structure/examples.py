"""Runs examples as they stand in docstrings and pages, and compares what they show."""

import doctest
import importlib

import numpy as np

from tests.structure.sources import PACKAGE, ROOT

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_example(doc, name, path, line, names):
    """Runs one docstring; (examples tried, report of the failures)."""
    test = doctest.DocTestParser().get_doctest(doc, dict(names), name, path, line - 1)
    report = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    result = runner.run(test, out=report.append)
    assert bool(result.failed) == bool(report)
    return result.attempted, "".join(report)


def user_names():
    """What an example may use without importing it."""
    return {"ef": importlib.import_module(PACKAGE), "np": np}


def run_page(path, names):
    """Runs the sessions of a page, one after another; (examples tried, report of the failures)."""
    # Without the fences, which would be read as expected output.
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    text = "\n".join("" if line.startswith("```") else line for line in lines)
    return run_example(text, path, path, 1, names)


def one_device(monkeypatch):
    """Examples begin with one logical device, and leave as many as there were."""
    devices = importlib.import_module("eagerflow.devices")  # ef.devices is the function
    known = devices.device_types["cpu"]
    monkeypatch.setattr(known, "logical", None)
    monkeypatch.setattr(known, "devices", {i: d for i, d in known.devices.items() if i == 0})
