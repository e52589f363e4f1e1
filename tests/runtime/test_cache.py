"""The disk cache of compiled kernels: only what was stored comes back, and nothing ever raises."""

import hashlib
import itertools
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagerflow.runtime import cache
from eagerflow.runtime.cache import ObjectCache, default_folder
from tests.runtime.cache_tools import (
    ROOT,
    emptied,
    entries,
    entry,
    fixture_folder,  # noqa: F401
    fixture_home,  # noqa: F401
    fixture_kind,  # noqa: F401
    fixture_told,  # noqa: F401
    forks,
    in_child,
    names,
    posix,
    take,
    within,
)

# Storing and loading ------------------------------------------------------------------------------


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("key", ["", "a", "k" * 100_000, "σ × 2\n\0", "\ud800 alone"])
@pytest.mark.parametrize("content", [b"", b"\0", random.Random(1).randbytes(100_000)])
def test_stored_entries_are_loaded(folder, key, content):
    objects = ObjectCache(folder)
    assert objects.load(key) is None
    objects.store(key, b"old")
    objects.store(key, content)
    assert objects.load(key) == content
    assert ObjectCache(str(folder)).load(key) == content
    assert objects.load(key + "!") is None
    assert len(names(folder)) == 1


def test_hits_and_misses_and_a_folder_that_is_emptied(folder):
    objects = ObjectCache(folder)
    assert (objects.hits, objects.misses) == (0, 0)
    objects.store("a", b"1")
    objects.store("b", b"2" * 1000)
    for key in "abc":
        objects.load(key)
    assert (objects.hits, objects.misses, len(entries(folder))) == (2, 1, 2)
    emptied(folder)
    assert names(folder) == []
    assert objects.load("a") is None
    objects.store("a", b"1")
    assert objects.load("a") == b"1"


@posix
def test_only_the_user_can_read_and_write(tmp_path):
    objects, before = ObjectCache(tmp_path / "a" / "b" / "c"), os.umask(0)
    try:
        objects.store("key", b"content")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c", entry(objects.folder, "key")]
    assert [oct(stat.S_IMODE(p.stat().st_mode)) for p in made] == ["0o700"] * 3 + ["0o600"]


def test_nothing_but_the_standard_library_is_imported():
    code = "import sys, eagerflow\nold = set(sys.modules)\nimport eagerflow.runtime.cache\n"
    code += "print(*{n.partition('.')[0] for n in set(sys.modules) - old} - {'eagerflow'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= set(sys.stdlib_module_names)
    assert "hashlib" in done.stdout  # else `old` held everything and this test sees nothing


# Which folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "{home}/.cache/eagerflow/kernels"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/eagerflow/kernels"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "{home}/.cache/eagerflow/kernels"),
        ("linux", {"XDG_CACHE_HOME": "/x", "EAGERFLOW_CACHE": "/y/z"}, "/y/z"),
        ("linux", {"EAGERFLOW_CACHE": "~/mine"}, "{home}/mine"),
        ("linux", {"EAGERFLOW_CACHE": ""}, "{home}/.cache/eagerflow/kernels"),
        ("darwin", {}, "{home}/Library/Caches/eagerflow/kernels"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "/x/eagerflow/kernels"),
        ("win32", {"LOCALAPPDATA": "/local", "XDG_CACHE_HOME": "/x"}, "/local/eagerflow/Cache"),
        ("win32", {}, "{home}/AppData/Local/eagerflow/Cache"),
    ],
)
@posix  # the tables of other systems are written with this one's separator
def test_default_folder(monkeypatch, home, platform, environment, expected):
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_folder() == expected.format(home=home)


def test_the_default_folder_is_looked_up_at_first_use(monkeypatch, tmp_path, home):
    objects = ObjectCache()
    monkeypatch.setenv("EAGERFLOW_CACHE", str(tmp_path / "first"))
    objects.store("key", b"content")
    monkeypatch.setenv("EAGERFLOW_CACHE", str(tmp_path / "second"))
    assert objects.load("key") == b"content"
    assert objects.folder == str(tmp_path / "first")
    assert ObjectCache().load("key") is None
    assert names(home) == []


@pytest.mark.parametrize("value", ["0", "off", "OFF"])
def test_switched_off(monkeypatch, home, tmp_path, value):
    monkeypatch.setenv("EAGERFLOW_CACHE", value)
    monkeypatch.chdir(home)
    objects = ObjectCache()
    objects.store("key", b"content")
    assert default_folder() is None and objects.folder is None
    assert objects.load("key") is None
    assert (objects.hits, objects.misses) == (0, 1)
    assert names(home) == [] and names(tmp_path) == ["home"]


def test_without_a_home_folder(monkeypatch, told):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    objects = ObjectCache()
    objects.store("key", b"content")
    assert objects.load("key") is None and objects.folder is None
    take(told, "no home folder")


# Damage -------------------------------------------------------------------------------------------

KEYS = ("first key", "other key")  # of one length: their files differ in nothing but the key
CONTENTS = (bytes(range(256)) * 3, b"\x90" * 500)


def damages():
    """Functions that change the two files of ``KEYS``; the first never stays as it was."""
    place, byte = st.integers(0, 10**6), st.integers(1, 255)

    def flip(at, mask, a, b):
        return a[: at % len(a)] + bytes([a[at % len(a)] ^ mask]) + a[at % len(a) + 1 :], b

    def drop(at, count, a, b):
        return a[: at % len(a)] + a[at % len(a) + count :], b

    def insert(at, piece, a, b):
        at %= len(a) + 1
        return a[:at] + piece + a[at:], b

    def blank(at, a, b):
        return a[: at % len(a)].ljust(len(a), b"\0"), b[: at % len(b)]

    return st.one_of(
        st.builds(partial, st.just(flip), place, byte),
        st.builds(partial, st.just(drop), place, st.integers(1, 5000)),
        st.builds(partial, st.just(insert), place, st.binary(min_size=1, max_size=40)),
        st.builds(partial, st.just(blank), place),
        st.just(lambda a, b: (b, a)),
        st.builds(lambda junk: lambda a, b: (junk, b + junk), st.binary(max_size=300)),
    )


def put_file(path, raw):
    path.write_bytes(raw)
    path.chmod(0o600)  # whatever the umask


def damage_problems(objects, damage):
    """The faults in how a cache handles damaged files."""
    files = [entry(objects.folder, key) for key in KEYS]
    for key, content in zip(KEYS, CONTENTS, strict=True):
        objects.store(key, content)
    before = [file.read_bytes() for file in files]
    after = damage(*before)
    problems = []
    for key, content, file, old, new in zip(KEYS, CONTENTS, files, before, after, strict=True):
        put_file(file, new)
        expected = content if new == old else None
        if objects.load(key) != expected:
            problems.append(f"{key}: the wrong content")
        if file.exists() != (new == old):
            problems.append(f"{key}: the file is {'still' if file.exists() else 'not'} there")
    return problems


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "kernels"


@settings(max_examples=200)
@given(damage=damages())
def test_damaged_files_are_misses(shared_folder, damage):
    assert damage_problems(ObjectCache(shared_folder), damage) == []


def test_every_byte_counts(folder):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    good = entry(folder, "key").read_bytes()
    for at, mask in itertools.product(range(len(good)), (1, 128, 255)):
        bad = bytearray(good)
        bad[at] ^= mask
        put_file(entry(folder, "key"), bad)
        assert objects.load("key") is None, at
    for length in range(len(good)):
        put_file(entry(folder, "key"), good[:length])
        assert objects.load("key") is None, length
    put_file(entry(folder, "key"), good)
    assert objects.load("key") == b"content"


def test_planted_blindness_is_found(monkeypatch, folder):
    objects = ObjectCache(folder)
    flip = lambda a, b: (a[:-1] + bytes([a[-1] ^ 1]), b)
    swap = lambda a, b: (b, a)
    assert damage_problems(objects, flip) == damage_problems(objects, swap) == []
    with monkeypatch.context() as planted:  # a digest is not looked at
        planted.setattr(cache, "unpack", lambda raw, key: raw[cache.HEADER + len(key) :])
        assert "first key: the wrong content" in damage_problems(objects, flip)
    with monkeypatch.context() as planted:  # the key is not looked at
        right = cache.unpack
        planted.setattr(
            cache,
            "unpack",
            lambda raw, key: next(filter(None, (right(raw, k.encode()) for k in KEYS))),
        )
        assert "first key: the wrong content" in damage_problems(objects, swap)
    with monkeypatch.context() as planted:  # damaged files stay
        planted.setattr(cache.Folder, "discard", lambda self, name: False)
        assert "first key: the file is still there" in damage_problems(objects, flip)


@pytest.mark.parametrize("key_length", [0, 2, 3, 4, 2**32 - 1])
@pytest.mark.parametrize("length", [0, 6, 7, 8, 2**64 - 1])
def test_lengths_must_be_those_of_the_file(folder, key_length, length):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    fields = b"eagerflow-kernel" + struct.pack("<IIQ", 1, key_length, length)
    digest = hashlib.sha256(fields + b"keycontent").digest()
    put_file(entry(folder, "key"), fields + digest + b"keycontent")
    assert objects.load("key") == (b"content" if (key_length, length) == (3, 7) else None)


def test_other_formats_are_misses(monkeypatch, folder):
    objects = ObjectCache(folder)
    for name, value in (("VERSION", cache.VERSION + 1), ("MAGIC", b"someone's-kernel")):
        with monkeypatch.context() as other:
            other.setattr(cache, name, value)
            objects.store("key", b"content")
            assert objects.load("key") == b"content"
        assert objects.load("key") is None
        assert names(folder) == []


def test_huge_files_are_not_read(monkeypatch, folder):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    os.truncate(entry(folder, "key"), cache.MAX_FILE_BYTES + 1)  # takes no room on most disks
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda *_: pytest.fail("it is read"))
        assert objects.load("key") is None
    assert names(folder) == []
    monkeypatch.setattr(cache, "MAX_FILE_BYTES", 1000)
    objects.store("key", b"x" * 1000)
    assert names(folder) == []


# Not files ----------------------------------------------------------------------------------------


def put_link(path):
    path.symlink_to("target")


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # addresses of sockets are short
        server.bind("socket")
        os.replace("socket", path)


@posix
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("put", [put_link, put_socket, os.mkfifo])
def test_links_pipes_and_sockets_are_not_opened(folder, put):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    os.rename(entry(folder, "key"), folder / "target")
    put(entry(folder, "key"))
    assert within(10, lambda: objects.load("key")) is None
    assert names(folder) == ["target"]
    put(entry(folder, "key"))
    within(10, lambda: objects.store("key", b"new"))
    assert objects.load("key") == b"new"
    assert (folder / "target").read_bytes().endswith(b"content")


@posix
def test_a_planted_follower_of_links_is_found(monkeypatch, folder):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    os.rename(entry(folder, "key"), folder / "target")
    put_link(entry(folder, "key"))
    monkeypatch.setattr(cache, "READ_FLAGS", os.O_RDONLY)
    assert objects.load("key") == b"content"


@posix
def test_a_planted_wait_for_a_pipe_is_found(monkeypatch, folder):
    objects = ObjectCache(folder)
    folder.mkdir(0o700)
    os.mkfifo(entry(folder, "key"))
    monkeypatch.setattr(cache, "READ_FLAGS", os.O_RDONLY | os.O_NOFOLLOW)
    with pytest.raises(AssertionError, match="it hangs"):
        within(0.2, lambda: objects.load("key"))
    os.close(os.open(entry(folder, "key"), os.O_WRONLY))  # lets the waiting thread go on


@pytest.mark.usefixtures("kind")
def test_a_folder_in_place_of_a_file(folder, told):
    objects = ObjectCache(folder)
    objects.store("other", b"other")
    entry(folder, "key").mkdir()
    if os.name == "posix":  # elsewhere opening it fails
        assert objects.load("key") is None
        assert told == []
    objects.store("key", b"content")
    assert objects.load("key") is None and objects.load("other") == b"other"
    assert len(names(folder)) == 2
    take(told, "directory")


# Other users --------------------------------------------------------------------------------------


@posix
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("mode", [0o020, 0o002, 0o022])
@pytest.mark.parametrize("which", ["folder", "file"])
def test_entries_writable_by_other_users_are_refused(folder, told, which, mode):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    path = folder if which == "folder" else entry(folder, "key")
    private = stat.S_IMODE(path.stat().st_mode)
    path.chmod(private | mode)
    assert objects.load("key") is None and objects.load("key") is None
    if which == "folder":
        objects.store("other", b"other")
    assert names(folder) == [entry(folder, "key").name]
    take(told, f"other users may write to it (mode {oct(private | mode)})")
    path.chmod(private | 0o044)  # may be read
    assert objects.load("key") == b"content"


def seen_as_foreign(monkeypatch, path):
    """Makes a file look like another user's."""
    inode = path.lstat().st_ino

    def as_seen(original, *args, **options):
        status = original(*args, **options)
        if status.st_ino == inode:
            status = os.stat_result((*status[:4], status.st_uid + 1, *status[5:]))
        return status

    for name in ("stat", "fstat", "lstat"):
        monkeypatch.setattr(os, name, partial(as_seen, getattr(os, name)))


@posix
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("which", ["folder", "file"])
def test_entries_owned_by_other_users_are_refused(monkeypatch, folder, told, which):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    with monkeypatch.context() as patch:
        seen_as_foreign(patch, folder if which == "folder" else entry(folder, "key"))
        assert objects.load("key") is None
        if which == "folder":
            objects.store("other", b"other")
    assert names(folder) == [entry(folder, "key").name]  # not ours to delete
    take(told, "owned by another user")
    assert objects.load("key") == b"content"


@posix
@pytest.mark.parametrize("put", [put_link, os.mkfifo])
def test_files_of_other_users_are_not_deleted(monkeypatch, folder, put):
    folder.mkdir(0o700)
    put(entry(folder, "key"))
    seen_as_foreign(monkeypatch, entry(folder, "key"))
    assert ObjectCache(folder).load("key") is None
    assert names(folder) == [entry(folder, "key").name]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root only")
@forks
@pytest.mark.parametrize("owner", [0, 65534])
def test_another_user_is_refused_for_real(tmp_path, told, owner):
    with tempfile.TemporaryDirectory() as place:  # tmp_path is for its user only
        os.chmod(place, 0o755)
        folder = Path(place, "kernels")
        ObjectCache(folder).store("key", b"content")
        folder.chmod(0o755)
        entry(folder, "key").chmod(0o644)
        for path in (folder, entry(folder, "key")):
            os.chown(path, owner, owner)

        def visit():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            objects = ObjectCache(folder)
            found = objects.load("key")
            objects.store("other", b"other")
            return found, len(names(folder)), told

        found, count, warned = in_child(visit)()
    told.extend(warned)
    if owner:
        assert (found, count) == (b"content", 2)
    else:
        assert (found, count) == (None, 1)
        take(told, "owned by another user (uid 0)")
