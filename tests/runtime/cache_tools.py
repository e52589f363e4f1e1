"""Helpers of the tests of the disk cache: a home of their own, the warnings given, children."""

import hashlib
import itertools
import os
import pickle
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from eagerflow.runtime import cache

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="users and modes as POSIX has them")


def forks(test):
    """Marks tests that fork."""
    test = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")(test)


SETTINGS = ("EAGERFLOW_CACHE", "EAGERFLOW_CACHE_MB", "XDG_CACHE_HOME", "LOCALAPPDATA")


@pytest.fixture(autouse=True, name="home")
def fixture_home(monkeypatch, tmp_path):
    """A home folder of the test's own, and no settings."""
    path = tmp_path / "home"
    path.mkdir()
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(path))
    return path


@pytest.fixture(autouse=True, name="told")
def fixture_told(monkeypatch):
    """The warnings given, (text, category, file); a test must take those that it expects."""
    given_so_far = []

    def note(message, category, filename, *_):
        given_so_far.append((message, category, filename))

    monkeypatch.setattr(warnings, "warn_explicit", note)
    monkeypatch.setattr(cache, "_complaints", itertools.count())
    yield given_so_far
    assert given_so_far == []


def take(told, text):
    """Takes the one warning that there must be."""
    ((message, category, filename),) = told
    assert text in message, message
    assert category is RuntimeWarning
    assert filename == sys._getframe(1).f_code.co_filename  # not one of the package
    told.clear()


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    return tmp_path / "kernels"


@pytest.fixture(params=[True, False], ids=["flags", "plain"], name="kind")
def fixture_kind(request, monkeypatch):
    """With the flags of POSIX's open, and as on systems that have none of them."""
    if not request.param:
        monkeypatch.setattr(cache, "PINNED", False)
        monkeypatch.setattr(cache, "NOFOLLOW", 0)
        monkeypatch.setattr(cache, "READ_FLAGS", os.O_RDONLY | cache.BINARY)


def entry(folder, key):
    """The file of a key, named as the module's description says."""
    return Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()}.kernel"


def names(folder):
    return sorted(os.listdir(folder))


def entries(folder):
    """The complete files of a folder, if there is one."""
    return list(Path(folder).glob("*.kernel"))


def emptied(folder):
    """Deletes the files of a folder, as a user may at any time."""
    for path in Path(folder).glob("*.kernel*"):
        with suppress(OSError):
            path.unlink()


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


def in_child(function):
    """Starts a forked child; returns a function that waits for the result of ``function``."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(writer, pickle.dumps(function()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)

    def wait():
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        assert os.waitpid(pid, 0)[1] == 0
        return pickle.loads(answer)

    return wait


def within(seconds, function):
    """The result of a function; fails instead of hanging if it takes too long."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return results[0]
