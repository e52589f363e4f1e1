"""``eagerflow info`` lists what is installed, and the settings are one table."""

import ast
import json
import re
from importlib import metadata

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import settings
from eagerflow.cli import info, main
from eagerflow.runtime import blas, machine_code, threads
from tests.structure.sources import PACKAGE, ROOT, read_sources

# What looks at variables of the user's, or sets one for another library.
OTHERS = {
    f"{PACKAGE}/settings.py",
    f"{PACKAGE}/capture/guards/calls.py",
    f"{PACKAGE}/capture/guards/evaluation.py",
    f"{PACKAGE}/capture/guards/recording.py",
    f"{PACKAGE}/keras/hook.py",
    f"{PACKAGE}/runtime/blas.py",
}


def run(capsys, *arguments):
    assert main(["info", *arguments]) == 0
    return capsys.readouterr().out


def test_versions_are_those_in_use(capsys):
    found = json.loads(run(capsys, "--json"))
    assert found["eagerflow"]["version"] == ef.__version__
    assert found["numpy"]["version"] == np.__version__
    assert found["numpy"]["blas"]["kernels"] == (blas.kernels() or None)
    assert found["processor"]["threads"] == threads.thread_count()
    assert found["llvmlite"]["used"] == machine_code.available()
    assert [device["name"] for device in found["devices"]] == [str(d) for d in ef.devices()]
    assert found["packages"]["always"]["numpy"]["installed"] == metadata.version("numpy")


def test_text_output_has_the_same_information(capsys, monkeypatch):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", "7\x1b[2J")
    text = run(capsys)
    for words in (
        f"eagerflow  {ef.__version__} in ",
        f"NumPy      {np.__version__}, ",
        "of 256 MB in ",
        "EAGERFLOW_CACHE_MB       7\\x1b[2J",
    ):
        assert words in text
    assert "\x1b" not in text


def test_a_machine_with_little_on_it(monkeypatch, capsys):
    monkeypatch.setattr(machine_code, "available", lambda: False)
    monkeypatch.setattr(blas, "kernels", lambda: "")
    monkeypatch.setattr(np, "show_config", lambda mode: {})
    monkeypatch.setattr(info, "memory_bytes", lambda: 0)
    monkeypatch.setattr(info, "version_of", lambda package: None)
    monkeypatch.setenv("EAGERFLOW_CACHE", "off")
    text = run(capsys)
    assert "a BLAS of no name" in text and "kernels    switched off" in text
    assert "llvmlite   missing: pip install llvmlite" in text
    assert "matplotlib missing: pip install 'eagerflow[plot]'" in text
    assert "pip install eagerflow\n" in text


def test_packages_are_those_of_the_metadata(monkeypatch):
    listed = [
        "numpy<2.6,>=2.0",
        "matplotlib>=3.9; extra == 'plot'",
        'eagerflow[plot,x-y]; extra == "demo"',
        'scikit-learn >= 1.5 ; (python_version > "3") and extra == "demo"',
        'h5py; extra == "x-y"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: listed)
    monkeypatch.setattr(info, "version_of", lambda name: {"numpy": "2.4", "h5py": "3"}.get(name))
    found = info.packages_found()
    assert found == {
        "always": {"numpy": {"required": "<2.6,>=2.0", "installed": "2.4"}},
        "plot": {"matplotlib": {"required": ">=3.9", "installed": None}},
        "x-y": {"h5py": {"required": "", "installed": "3"}},
        "demo": {
            "matplotlib": {"required": ">=3.9", "installed": None},
            "h5py": {"required": "", "installed": "3"},
            "scikit-learn": {"required": ">= 1.5", "installed": None},
        },
    }
    shown = dict(info.package_texts(found))
    assert shown["always"] == "numpy 2.4"
    assert shown["demo"] == (
        "h5py 3; matplotlib, scikit-learn missing: pip install 'eagerflow[demo]'"
    )


def test_without_metadata_no_packages_are_known(monkeypatch, capsys):
    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)
    assert "packages\n  none known" in run(capsys)


# Settings ----------------------------------------------------------------------------------------


def readers_of_the_environment(sources):
    """Files that look at environment variables by themselves."""
    found = set()
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)) if re.search("environ|getenv", text) else ():
            name = getattr(node, "attr", getattr(node, "id", None))
            if name in ("environ", "environb", "getenv", "getenvb"):
                found.add(path)
    return found


def test_variables_are_read_through_the_table():
    assert readers_of_the_environment(read_sources(PACKAGE)) <= OTHERS


def test_planted_readers_are_found():
    planted = {"a.py": "import os\nos.environ['X']", "b.py": "from os import getenv\ngetenv('X')"}
    assert readers_of_the_environment(planted | {"c.py": "x = 1"}) == {"a.py", "b.py"}


def test_every_variable_that_is_named_is_in_the_table():
    text = "\n".join(read_sources(PACKAGE).values())
    named = set(re.findall(r"\b(EAGERFLOW_[A-Z_]+)\b", text))
    assert named == {name for name in settings.SETTINGS if name.startswith("EAGERFLOW_")}


def test_undeclared_settings_cannot_be_read(monkeypatch):
    monkeypatch.setenv("EAGERFLOW_SECRET", "1")
    with pytest.raises(KeyError, match="EAGERFLOW_SECRET"):
        settings.setting("EAGERFLOW_SECRET")


def test_the_page_lists_the_table():
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", page, re.MULTILINE))
    assert listed == settings.SETTINGS
