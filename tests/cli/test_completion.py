"""Completion in real shells offers what the parser takes, as its own help tells it."""

import os
import re
import select
import shutil
import subprocess
import time

import pytest

from eagerflow.cli import completion, main, make_parser
from eagerflow.cli.completion import read_commands
from eagerflow.errors import ArgumentError

SHELLS = ("bash", "zsh", "fish")


def commands_by_help():
    """Command to its flags, as the texts of ``--help`` list them."""
    parser = make_parser()
    names = re.search(r"^  command\n((?:    .*\n)+)", parser.format_help(), re.MULTILINE)[1]
    found = {}
    for name in re.findall(r"^    ([\w-]+)", names, re.MULTILINE):
        text = subcommand(parser, name).format_help()
        rows = re.findall(r"^  (-.*?)(?:  |$)", text.partition("options:")[2], re.MULTILINE)
        found[name] = {flag for row in rows for flag in re.findall(r"(?<![\w-])--?\w[\w-]*", row)}
    return found


def subcommand(parser, name):
    (found,) = (action for action in parser._actions if action.dest == "command")
    return found.choices[name]


BY_HELP = commands_by_help()
WITH_FILES = {"show", "run", "export", "join", "diff", "check", "serve"}


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("a.ef", "b c.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What shells offer -------------------------------------------------------------------------------


class Bash:
    """The function of the script, called as readline calls it."""

    def __init__(self, path):
        self.path = path

    def offers(self, *words):
        quoted = " ".join(f"'{word}'" for word in ("eagerflow", *words))
        code = f"source {self.path}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _eagerflow; "
        code += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True)
        assert not done.stderr
        return set(done.stdout.split("\n")) - {""}

    files = None  # are readline's, where the function offers nothing


class Fish:
    """Fish says itself what it offers."""

    def __init__(self, path):
        self.path = path

    def offers(self, *words):
        line = " ".join(("eagerflow", *words))
        code = f"source {self.path}; complete -C '{line}'"
        done = subprocess.run(["fish", "-N", "-c", code], capture_output=True, text=True)
        assert not done.stderr
        return {row.partition("\t")[0] for row in done.stdout.split("\n")} - {""}

    files = {"a.ef", "b c.onnx", "sub/"}


class Zsh:
    """Zsh completes at a prompt alone, so it gets one."""

    def __init__(self, path):
        self.path = path

    def offers(self, *words):
        terminal, own = pytest.importorskip("pty").openpty()
        environment = os.environ | {"PS1": "READY> ", "TERM": "dumb", "COLUMNS": "300"}
        child = subprocess.Popen(
            ["zsh", "-f", "-i"], stdin=own, stdout=own, stderr=own, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(own)
        self.rest = ""
        try:
            self.read(terminal, "READY> ")
            # A key that lists what is offered, and one that tells that it has done so.
            setup = "autoload -U compinit; compinit -u -D; zstyle ':completion:*' verbose no; "
            setup += f"source {self.path}; bindkey '^I' list-choices; "
            setup += "told() { zle -M 'END' }; zle -N told; bindkey '^T' told; echo SET''UP\n"
            os.write(terminal, setup.encode())
            self.read(terminal, "SETUP")
            self.read(terminal, "READY> ")
            os.write(terminal, " ".join(("eagerflow", *words)).encode() + b"\t\x14")
            shown = self.read(terminal, "END")
        finally:
            os.close(terminal)
            child.kill()
            child.wait()
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.replace("\\ ", "\0"))
        return {word.replace("\0", " ") for word in plain.split()}

    def read(self, terminal, mark):
        """What comes up to a mark; the rest is kept for the next time."""
        end = time.monotonic() + 60
        while mark not in self.rest:
            assert time.monotonic() < end, self.rest
            if select.select([terminal], [], [], 0.1)[0]:
                self.rest += os.read(terminal, 65_536).decode(errors="replace")
        found, _, self.rest = self.rest.partition(mark)
        return found

    files = {"a.ef", "b c.onnx", "sub/"}


@pytest.fixture(params=[Bash, Fish, Zsh], ids=lambda kind: kind.__name__.lower())
def shell(request, folder, capsys):
    name = request.param.__name__.lower()
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    path = folder / f".{name}_script"
    path.write_text(script(name, capsys))
    return request.param(path)


def test_commands_are_offered(shell):
    assert set(BY_HELP) <= shell.offers("")
    assert "show" in shell.offers("sh") and "demo" not in shell.offers("sh")


def test_flags_are_offered(shell):
    for name in ("show", "run", "export", "cache"):
        flags = shell.offers(name, "--")
        assert flags >= {flag for flag in BY_HELP[name] if flag.startswith("--")}
        assert not flags & ({f for own in BY_HELP.values() for f in own} - BY_HELP[name])


def test_choices_are_offered(shell):
    assert {"show", "clear", "path"} <= shell.offers("cache", "")
    assert {"bash", "zsh", "fish"} <= shell.offers("completion", "")
    assert {"onnx", "python", "ef"} <= shell.offers("export", "--to", "")
    assert "--costs" not in shell.offers("cache", "show", "--")


def test_files_are_offered_where_there_are_some(shell):
    if shell.files is None:
        assert not shell.offers("show", "") and not shell.offers("export", "a.ef", "-o", "")
    else:
        assert shell.files <= shell.offers("show", "")
        assert shell.files <= shell.offers("export", "a.ef", "-o", "")
        assert "a.ef" not in shell.offers("demo", "--output", "")
        assert "a.ef" not in shell.offers("info", "")


# What scripts hold -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHELLS)
def test_scripts_hold_all_commands_and_flags(name, capsys):
    text = script(name, capsys)
    for command, flags in BY_HELP.items():
        assert re.search(rf"\b{command}\b", text)
        for flag in flags:
            plain = flag if name != "fish" else flag.lstrip("-")
            assert re.search(rf"(?<!\w){re.escape(plain)}\b", text), (command, flag)


def test_the_parser_is_read_right():
    commands = {command.name: command for command in read_commands(make_parser())}
    assert {n: {f for o in c.options for f in o.flags} for n, c in commands.items()} == BY_HELP
    assert {n for n, c in commands.items() for p in c.places if p.kind == "file"} == WITH_FILES
    options = {option.flags[-1]: option for option in commands["run"].options}
    assert options["--out"].kind == "folder" and options["--fetch"].kind == "text"
    assert options["--random"].optional and options["--feed"].repeated
    assert commands["demo"].options[1].help == "where the picture goes (default: eagerflow-demo)"


@pytest.mark.parametrize("odd", ["$(rm)", "a b", "a;b", "`x`", "a'b"])
def test_words_that_shells_would_take_for_more_are_refused(odd):
    parser = make_parser()
    subcommand(parser, "cache").add_argument("--kind", choices=[odd])
    with pytest.raises(ArgumentError, match="cannot stand in a shell's script"):
        read_commands(parser)


def test_help_in_any_words_stays_text(capsys, folder):
    parser = make_parser()
    odd = 'a\'b "c" $(touch x) `touch x` [d]: e\\ %(default)s'
    subcommand(parser, "cache").add_argument("--odd", help=odd)
    for name in SHELLS:
        if shutil.which(name):
            path = folder / name
            path.write_text("\n".join(completion.SCRIPTS[name](read_commands(parser))))
            before = "compdef() { true }\n" if name == "zsh" else ""
            code = f"{before}source {path}"
            done = subprocess.run([name, "-c", code], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "x").exists()
