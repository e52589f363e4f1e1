"""The pages of newcomers' mistakes show the messages that come, and stay short enough to read."""

import importlib.util
import linecache
import runpy

import pytest

import eagerflow as ef
from tests.site.newcomer_mistakes import PAGES, SECTIONS, SETUP, Mistake, with_tables

MISTAKES = [mistake for listed in SECTIONS.values() for mistake in listed]
NEEDED = {"h5": "h5py", "pd.": "pandas"}  # packages of programs with these characters


def message_of(program, folder):
    path = folder / "program.py"
    path.write_text(f"{SETUP}\n{program}", encoding="utf-8")
    linecache.checkcache()
    try:
        runpy.run_path(str(path))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.shown)
def test_messages_are_those_of_the_pages(mistake, tmp_path, monkeypatch):
    for part, package in NEEDED.items():
        if part in mistake.program and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if "gpu:0" in mistake.program and any(str(d).startswith("gpu") for d in ef.devices()):
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    message = message_of(mistake.program, tmp_path)
    assert mistake.misses(message) == [], message


def test_pages_are_written_from_the_table():
    assert len(MISTAKES) == 60
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert with_tables(text) == text, "python -m tests.site.newcomer_mistakes writes the tables"
        assert len(text.split()) <= 1500
    whole = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(mistake.row in whole for mistake in MISTAKES)
    shown = SETUP.strip().replace("\n\n", "\n").replace("\n", "\n>>> ")
    assert f">>> {shown}\n" in whole


def test_another_message_is_found():
    mistake = Mistake("x.size()\n", "x.size()", "TypeError: … not callable")
    assert mistake.misses("TypeError: 'int' object is not callable") == []
    assert mistake.misses("TypeError: no") == ["not callable"]
    assert mistake.misses("TypeError: it is not callable at all") == ["at", "all"]
    planted = "## Dtypes\n\n| mistake | message | before |\n|---|---|---|\n| old |\n\nend\n"
    assert "old" not in with_tables(planted) and with_tables(planted).endswith("|\n\nend\n")
