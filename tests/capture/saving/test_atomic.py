"""Files are written whole or not at all: killed processes, full disks, and failing systems."""

import errno
import json
import os
import random
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.errors import EagerflowError, FileFormatError
from eagerflow.files import atomic
from tests.capture.saving.saved_programs import dense, spec
from tests.structure.sources import ROOT

KILLS = 50
CALLS = ("open", "write", "fsync", "link", "replace", "fchmod", "close", "scandir", "stat")


def graph_of(number, size=600):
    """A graph with a Variable that holds ``number`` many times."""
    w = ef.Variable(np.full(size, number), name="w", dtype="int64")
    return ef.capture.trace(lambda x: x + w, spec(size, dtype="int64"))


def number_in(path):
    values = ef.capture.load(path).variables["w"].numpy()
    assert (values == values[0]).all()
    return int(values[0])


def run_worker(name, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.capture.saving.{name}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


# Kills -------------------------------------------------------------------------------------------


def check_kills(kills, seed, way, folder):
    found = run_worker("kill_worker", kills, seed, folder, way)
    print(f"{way}: {kills} kills in {found['saves']:,} saves: {found}")
    assert found["unreadable"] == found["lost"] == 0
    assert found["files"] == ["model.ef"]  # the next save clears up what a kill has left
    if way == "whole" and hasattr(os, "O_TMPFILE"):
        assert found["litter"] <= kills // 4  # between two calls that name the file


def test_saves_survive_kills(tmp_path):
    check_kills(KILLS, 0, "whole", tmp_path)


def test_saves_survive_kills_where_there_are_no_nameless_files(tmp_path):
    check_kills(KILLS // 5, 1, "named", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["whole", "named"])
def test_saves_survive_a_thousand_kills(way, tmp_path):
    check_kills(1000, 2, way, tmp_path)


def test_naive_writes_do_not_survive(tmp_path):
    """The control: the same kills find out a save that writes in place."""
    found = run_worker("kill_worker", KILLS // 2, 0, tmp_path, "naive")
    print(f"naive: {found}")
    assert found["unreadable"] > 0


# Failures of the system --------------------------------------------------------------------------


class Failing:
    """Makes one call of one of the system's functions fail, or counts them."""

    def __init__(self, monkeypatch, name, at=None, error=None):
        self.calls = 0
        original = getattr(os, name)

        def call(*args, **kwargs):
            if self.asleep:
                return original(*args, **kwargs)
            self.calls += 1
            if self.calls - 1 == at:
                if name == "close":
                    original(*args, **kwargs)  # which a system does, and says that it failed
                raise error
            return original(*args, **kwargs)

        self.asleep = False
        monkeypatch.setattr(atomic.os, name, call)


def failures():
    """Every call of every function, with an error that it may have."""
    errors = {"write": (errno.ENOSPC, errno.EIO, errno.EDQUOT), "fsync": (errno.EIO, errno.ENOSPC)}
    for name in CALLS:
        for code in errors.get(name, (errno.EIO, errno.EACCES)):
            yield name, code


@pytest.mark.sampled(2)
@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize(("name", "code"), list(failures()))
def test_a_failure_at_any_call_leaves_the_previous_file(
    name, code, nameless, tmp_path, monkeypatch
):
    path = tmp_path / "model.ef"
    monkeypatch.setattr(atomic, "PIECE", 64)
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    graph_of(1).save(path)
    path.chmod(0o600)
    old, new = path.read_bytes(), file.encode(graph_of(2))
    counting = Failing(monkeypatch, name)
    graph_of(2).save(path)
    count = counting.calls
    assert count >= (50 if name == "write" else 0 if name == "link" else 1)
    refused = 0
    for at in range(count):
        monkeypatch.undo()
        monkeypatch.setattr(atomic, "PIECE", 64)
        if not nameless:
            monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        path.write_bytes(old)
        failing = Failing(monkeypatch, name, at, OSError(code, os.strerror(code)))
        try:
            graph_of(2).save(path)
        except FileFormatError as error:
            refused += 1
            assert os.strerror(code) in str(error) and str(path) in str(error)
        failing.asleep = True
        assert path.read_bytes() in (old, new), (name, at)
        assert os.listdir(tmp_path) == ["model.ef"], (name, at)
        if name == "write":
            assert path.read_bytes() == old
    assert refused >= (count if name == "write" else 0)
    print(f"{name}: {count} calls, {refused} refused")


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    rng = random.Random(0)
    original = os.write
    sizes = []

    def write(descriptor, data):
        count = original(descriptor, data[: rng.randint(1, 100)])
        sizes.append(count)
        return count

    monkeypatch.setattr(atomic.os, "write", write)
    graph_of(5).save(tmp_path / "model.ef")
    monkeypatch.undo()
    assert (tmp_path / "model.ef").read_bytes() == file.encode(graph_of(5))
    assert len(sizes) > 30


def test_a_system_that_writes_nothing(tmp_path, monkeypatch):
    graph_of(1).save(tmp_path / "model.ef")
    monkeypatch.setattr(atomic.os, "write", lambda descriptor, data: 0)
    with pytest.raises(FileFormatError, match="wrote no bytes"):
        graph_of(2).save(tmp_path / "model.ef")
    monkeypatch.undo()
    assert number_in(tmp_path / "model.ef") == 1 and os.listdir(tmp_path) == ["model.ef"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("limit", [0, 1, 1000, 5000, 200_000])
def test_a_limit_of_the_system(limit, tmp_path):
    """Not a fault that a test makes up: the system refuses in the middle of the file."""
    path = tmp_path / "model.ef"
    graph_of(1).save(path)
    error = run_worker("full_disk_worker", path, limit)
    assert "the file cannot be written: File too large" in error
    assert number_in(path) == 1 and os.listdir(tmp_path) == ["model.ef"]


def test_interrupts_leave_nothing(tmp_path, monkeypatch):
    graph_of(1).save(tmp_path / "model.ef")
    failing = Failing(monkeypatch, "fsync", 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        graph_of(2).save(tmp_path / "model.ef")
    assert failing.calls == 1
    monkeypatch.undo()
    assert number_in(tmp_path / "model.ef") == 1 and os.listdir(tmp_path) == ["model.ef"]


@pytest.mark.parametrize("nameless", [True, False])
def test_the_order_of_calls(nameless, tmp_path, monkeypatch):
    """Contents are on the disk before the name, and the name before the save is over."""
    if nameless and not hasattr(os, "O_TMPFILE"):
        pytest.skip("no nameless files here")
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    graph_of(1).save(tmp_path / "model.ef")
    called, kinds = [], {}

    def watch(name):
        original = getattr(os, name)

        def call(*args, **kwargs):
            if isinstance(args[0], int):
                kinds[args[0]] = stat.S_ISDIR(os.fstat(args[0]).st_mode)
                called.append(f"{name} {'folder' if kinds[args[0]] else 'file'}")
            else:
                called.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(atomic.os, name, call)

    for name in ("write", "fsync", "link", "replace"):
        watch(name)
    graph_of(2).save(tmp_path / "model.ef")
    wanted = ["write file"] * called.count("write file")
    wanted += ["fsync file", *(["link"] if nameless else []), "replace", "fsync folder"]
    assert called == wanted and called[0] == "write file"


# Concurrent writers ------------------------------------------------------------------------------


def test_leftovers_are_cleared_up_unless_in_use(tmp_path):
    for name in (".eagerflow-1.tmp", ".eagerflow-2.tmp", ".eagerflow-keep", "other.tmp"):
        (tmp_path / name).write_bytes(b"x")
    os.mkfifo(tmp_path / ".eagerflow-3.tmp")
    with open(tmp_path / ".eagerflow-2.tmp", "rb") as held:
        atomic.lock(held.fileno())
        graph_of(1).save(tmp_path / "model.ef")
        there = set(os.listdir(tmp_path))
    assert there == {"model.ef", ".eagerflow-2.tmp", ".eagerflow-keep", "other.tmp"}
    graph_of(1).save(tmp_path / "model.ef")
    assert set(os.listdir(tmp_path)) == {"model.ef", ".eagerflow-keep", "other.tmp"}


@pytest.mark.parametrize("nameless", [True, False])
def test_many_savers_at_once(nameless, tmp_path, monkeypatch):
    """No file is half of one and half of the other, and no process removes another's."""
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr(atomic, "PIECE", 128)
    failed = []

    def saver(number):
        graph = graph_of(number)
        try:
            for _ in range(10):
                graph.save(tmp_path / "model.ef")
                number_in(tmp_path / "model.ef")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=saver, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert number_in(tmp_path / "model.ef") in range(4) and os.listdir(tmp_path) == ["model.ef"]


def test_links_modes_and_umask(tmp_path):
    path = tmp_path / "model.ef"
    before = os.umask(0o027)
    try:
        graph_of(1).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    (tmp_path / "link.ef").symlink_to("model.ef")
    graph_of(2).save(tmp_path / "link.ef")
    assert (tmp_path / "link.ef").is_symlink() and number_in(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_saving_to_invalid_paths_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "folder", "it is a folder"),
        (tmp_path / "pipe", "a device or a pipe"),
        ("/dev/null", "a device or a pipe"),
        (tmp_path / "none" / "model.ef", "No such file"),
        (tmp_path / ("n" * 300), "File name too long"),
        ("", "is not a path"),
        (7.5, "not a path"),
    ):
        with pytest.raises(FileFormatError, match=words) as caught:
            dense().save(path)
        assert isinstance(caught.value, EagerflowError)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]
