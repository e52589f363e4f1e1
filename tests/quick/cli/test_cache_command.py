"""``eagerflow cache`` shows and deletes compiled kernels, and nothing else."""

import os
import time

import pytest

from eagerflow.cli import cache as command
from eagerflow.cli import main
from eagerflow.runtime.cache import HEADER, ObjectCache
from tests.runtime.cache_tools import posix

SIZE = f"{3 * (HEADER + len('a') + 1_000) / 1e6:.3g}"  # of the three entries, in MB


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "kernels"
    monkeypatch.setenv("EAGERFLOW_CACHE", str(path))
    return path


@pytest.fixture
def filled(folder):
    cache = ObjectCache(folder)
    for key in "abc":
        cache.store(key, b"x" * 1_000)
    return folder


def test_a_cache_is_shown(filled, capsys):
    two_days = time.time() - 2 * 86_400 - 5
    os.utime(sorted(filled.iterdir())[0], (two_days, two_days))
    assert main(["cache"]) == 0
    where, size, used = capsys.readouterr().out.splitlines()
    assert where == str(filled)
    assert size == f"3 entries, {SIZE} of 256 MB"
    assert used == "last used less than a minute ago; longest unused: 2 days ago"


def test_the_path_alone(filled, capsys):
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{filled}\n"


def test_a_cache_that_is_not_there(folder, capsys):
    assert main(["cache"]) == 0
    assert "0 entries" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "nothing to delete" in capsys.readouterr().out
    assert not folder.exists()


def test_a_cache_that_is_switched_off(monkeypatch, capsys):
    monkeypatch.setenv("EAGERFLOW_CACHE", "off")
    for action in ("show", "path", "clear"):
        assert main(["cache", action]) == 1
        assert "switched off" in capsys.readouterr().out


def test_clearing_deletes_kernels_alone(filled, tmp_path, capsys):
    kernels = list(filled.iterdir())
    outside = tmp_path / "outside"
    outside.write_text("mine")
    kept = [filled / "notes.txt", filled / "a.kernel", filled / ("0" * 64 + ".kernel.old")]
    for path in kept:
        path.write_text("mine")
    (filled / ("1" * 64 + ".kernel")).symlink_to(outside)
    (filled / ("2" * 64 + ".kernel")).mkdir()
    unfinished = filled / ("3" * 64 + ".kernel." + "0" * 16)
    unfinished.write_text("")
    assert main(["cache", "clear", "--yes"]) == 0
    assert capsys.readouterr().out.startswith(f"deleted 4 files, {SIZE} MB")
    assert not unfinished.exists() and not any(path.exists() for path in kernels)
    assert all(path.read_text() == "mine" for path in [*kept, outside])
    assert len(list(filled.iterdir())) == 5


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("YES", 0), ("", 3), ("no", 3), (None, 3)])
def test_clear_asks_for_confirmation_on_a_terminal(filled, monkeypatch, capsys, answer, left):
    def answered(question):
        assert "delete 3 entries" in question and str(filled) in question
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answered)
    assert main(["cache", "clear"]) == (1 if left else 0)
    assert len(list(filled.iterdir())) == left
    assert ("nothing is deleted" in capsys.readouterr().out) == bool(left)


def test_clear_without_terminal_needs_yes(filled, monkeypatch, capsys):
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: False, raising=False)
    assert main(["cache", "clear"]) == 2
    assert "try: eagerflow cache clear --yes" in capsys.readouterr().err
    assert len(list(filled.iterdir())) == 3


@posix
def test_folders_of_others_stay_as_they_are(filled, capsys):
    filled.chmod(0o777)
    assert main(["cache"]) == 1
    assert "it is not used: [Errno 1] other users may write to it" in capsys.readouterr().out
    assert main(["cache", "clear", "--yes"]) == 2
    assert "other users may write to it" in capsys.readouterr().err
    assert len(list(filled.iterdir())) == 3


def test_a_file_in_place_of_the_folder(folder, capsys):
    folder.write_text("mine")
    assert main(["cache", "clear", "--yes"]) == 2
    assert folder.read_text() == "mine" and "Not a directory" in capsys.readouterr().err


def test_options_that_say_nothing_are_refused(filled, capsys):
    assert main(["cache", "show", "--yes"]) == 2
    assert "--yes does not apply to show" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cache", "burn"])
