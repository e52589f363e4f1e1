"""What docs/command-line.md says that commands print is what they print."""

import re
import shlex

import pytest

import eagerflow as ef
from eagerflow.cli import main, make_parser
from eagerflow.cli.completion import read_commands
from tests.structure.sources import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
OF_ONE_MACHINE = {"devices", "info", "cache"}  # whose lines begin alike everywhere
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands():
    """Each command of the page with the lines that follow it."""
    texts = "\n\n".join(text for kind, text in BLOCKS if kind == "text")
    parts = re.split(r"^\$ eagerflow ", texts, flags=re.MULTILINE)[1:]
    return [(line, shown.strip()) for line, _, shown in (part.partition("\n") for part in parts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder that the page's own code fills."""
    path = tmp_path_factory.mktemp("page")
    code = next(text for kind, text in BLOCKS if kind == "python")
    lines = [line[4:] for line in code.splitlines() if line.startswith((">>> ", "... "))]
    names = {"ef": ef}
    exec(compile("\n".join(lines).replace("{folder.name}", str(path)), "line.py", "exec"), names)
    names["folder"].cleanup()
    return path


def plain(text):
    """Output without what comes from where and when it was run."""
    text = re.sub(r"\w+\.py:\d+", "line.py", text)
    return re.sub(r"[\d,]+ bytes", "bytes", text)


def test_commands_print_the_documented_output(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EAGERFLOW_CACHE", str(folder / "kernels"))
    for line, shown in commands():
        words = shlex.split(line)
        status = main(words)
        printed = capsys.readouterr().out.strip()
        assert status == (1 if words[0] == "diff" else 0), line
        if words[0] in OF_ONE_MACHINE:
            continue
        assert plain(printed) == plain(shown), line


def test_info_has_the_documented_lines(folder, monkeypatch, capsys):
    monkeypatch.setenv("EAGERFLOW_CACHE", str(folder / "kernels"))
    told = {}
    for line, shown in commands():
        if line.split()[0] == "info":
            assert main(["info"]) == 0
            told = [
                re.match(r" *\S+", row)[0] for row in capsys.readouterr().out.split("\n") if row
            ]
            listed = [re.match(r" *\S+", row)[0] for row in shown.split("\n") if row]
            assert {row for row in listed if row.strip() != "no"} <= set(told)
    assert told


def test_every_command_is_on_the_page():
    names = {command.name for command in read_commands(make_parser())}
    table = re.findall(r"^\| (\[`.*?) \| ", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", " ".join(table))) == names
    used = {line.split()[0] for line, _ in commands()}
    assert names - used == {"demo", "completion", "serve", "bench-serve", "cluster"}
