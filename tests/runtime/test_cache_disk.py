"""The disk cache when the disk gives trouble, when it is full, and when many use it at once."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from eagerflow.runtime import cache
from eagerflow.runtime.cache import DEFAULT_MAX_BYTES, HEADER, ObjectCache
from tests.runtime.cache_tools import (
    ROOT,
    age,
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
)

HOUR = 3600

# Trouble with the disk ----------------------------------------------------------------------------


def fails(number, when=lambda *args: True, original=None):
    """A system call that fails with an error number, where ``when`` says so."""

    def call(*args, **options):
        if when(*args):
            raise OSError(number, os.strerror(number))
        return original(*args, **options)

    return call


def makes_file(path, flags, *_):
    return bool(flags & os.O_CREAT)


TROUBLE = [
    *(("open", number, makes_file) for number in (errno.EACCES, errno.EROFS, errno.ENOSPC)),
    ("open", errno.EMFILE, lambda *_: True),
    ("open", errno.EIO, lambda path, flags, *_: not flags & os.O_CREAT),
    *(("write", number, lambda *_: True) for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO)),
    *(("replace", number, lambda *_: True) for number in (errno.ENOSPC, errno.EXDEV)),
    ("scandir", errno.EIO, lambda *_: True),
]


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("call", "number", "when"), TROUBLE)
def test_calls_that_fail(monkeypatch, folder, told, call, number, when):
    ObjectCache(folder).store("old", b"old content")
    objects = ObjectCache(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails(number, when, getattr(os, call)))
        for _ in range(3):
            objects.store("old", b"new content")
            objects.store("key", b"content")
            objects.load("old")
            objects.load("key")
    take(told, os.strerror(number))
    complete = [name for name in names(folder) if name.endswith(".kernel")]
    assert names(folder) == complete  # nothing half made is left
    # Looking at sizes comes after storing; a folder that is not opened cannot fail to open.
    stored = call == "scandir" or (number == errno.EIO and call == "open" and not cache.PINNED)
    assert objects.load("old") == (b"new content" if stored else b"old content")
    objects.store("key", b"content")
    assert objects.load("key") == b"content"  # it works again when the trouble is over


def test_folders_that_cannot_be_made(monkeypatch, folder, told):
    objects = ObjectCache(folder / "deeper")
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", fails(errno.EROFS))
        for _ in range(2):
            objects.store("key", b"content")
            assert objects.load("key") is None
    take(told, "Read-only")
    objects.store("key", b"content")
    assert objects.load("key") == b"content"


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_file_in_place_of_the_folder(tmp_path, told, below):
    (tmp_path / "file").write_text("a letter")
    objects = ObjectCache(tmp_path / "file" / below)
    for _ in range(2):
        objects.store("key", b"content")
        assert objects.load("key") is None
    assert (objects.hits, objects.misses) == (0, 2)
    take(told, "irectory")
    assert (tmp_path / "file").read_text() == "a letter"


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\ud800"])
def test_folders_that_no_system_has(tmp_path, told, name):
    objects = ObjectCache(os.path.join(tmp_path, name))
    objects.store("key", b"content")
    assert objects.load("key") is None
    assert len(told) == 1
    told.clear()


@pytest.mark.skipif(sys.platform != "linux", reason="a read-only folder")
def test_folder_that_cannot_be_created(told):
    objects = ObjectCache("/proc/eagerflow/kernels")
    objects.store("key", b"content")
    assert objects.load("key") is None
    take(told, "/proc/eagerflow")


@posix
@forks
def test_a_folder_that_is_read_only_for_real(told):
    with tempfile.TemporaryDirectory() as place:  # tmp_path is for its user only
        os.chmod(place, 0o755)
        folder = Path(place, "kernels")
        ObjectCache(folder).store("key", b"content")
        age(entry(folder, "key"), 9 * HOUR)
        folder.chmod(0o500)
        if os.geteuid() == 0:  # permissions do not bind root
            for path in (folder, entry(folder, "key")):
                os.chown(path, 65534, 65534)

        def visit():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            objects = ObjectCache(folder)
            objects.store("other", b"other")
            objects.store("key", b"new")
            emptied(folder)
            return objects.load("key"), objects.load("other"), told

        *found, warned = in_child(visit)()
        folder.chmod(0o700)
    told.extend(warned)
    assert found == [b"content", None]
    take(told, "Permission denied")


@posix
@forks
def test_a_disk_that_ends_in_the_middle_of_a_file(folder, told):
    resource = pytest.importorskip("resource")
    ObjectCache(folder).store("key", b"old")

    def visit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        objects = ObjectCache(folder)
        objects.store("key", b"x" * 20_000)
        objects.store("small", b"y" * 1000)
        return objects.load("key"), objects.load("small"), told

    *found, warned = in_child(visit)()
    told.extend(warned)
    assert found == [b"old", b"y" * 1000]
    assert len(names(folder)) == 2
    take(told, "File too large")


def test_calls_that_do_part_of_the_work(monkeypatch, folder):
    read, write = os.read, os.write
    monkeypatch.setattr(os, "read", lambda fd, count: read(fd, min(count, 7)))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
    objects = ObjectCache(folder)
    objects.store("key", bytes(range(256)))
    assert objects.load("key") == bytes(range(256))


@posix
def test_a_file_in_the_writers_way_is_not_written_to(monkeypatch, folder, told):
    objects, letter = ObjectCache(folder), folder / "letter.txt"
    objects.store("old", b"content")
    letter.write_text("not ours")
    monkeypatch.setattr(os, "urandom", lambda count: bytes(count))
    for put in (Path.symlink_to, Path.hardlink_to):
        way = folder / f"{entry(folder, 'key').name}.{bytes(8).hex()}"
        put(way, letter)
        objects.store("key", b"content")
        way.unlink()
    assert letter.read_text() == "not ours"
    assert objects.load("key") is None and objects.load("old") == b"content"
    take(told, "File exists")


@pytest.mark.usefixtures("kind")
def test_every_file_is_closed(monkeypatch, folder, told):
    def first_free():
        number = os.open(os.devnull, os.O_RDONLY)
        os.close(number)
        return number

    before, objects = first_free(), ObjectCache(folder)
    for _ in range(3):
        objects.load("key")
        objects.store("key", b"content")
        assert objects.load("key") == b"content"
        assert len(entries(folder)) == 1
        entry(folder, "key").write_bytes(b"damaged")
        assert objects.load("key") is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fails(errno.ENOSPC))
            objects.store("key", b"content")
        folder.chmod(0o777)
        objects.load("key")
        folder.chmod(0o700)
        emptied(folder)
    told.clear()
    assert first_free() == before


def test_an_interrupted_store_leaves_nothing(monkeypatch, folder):
    objects = ObjectCache(folder)
    objects.store("key", b"content")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "write", interrupt)
        objects.store("key", b"new")
    assert objects.load("key") == b"content"
    assert len(names(folder)) == 1


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("call", ["open", "write", "replace", "scandir"])
def test_a_folder_that_vanishes(monkeypatch, folder, call):
    objects, original, left = ObjectCache(folder), getattr(os, call), [1]

    def vanish(*args, **options):
        if left:
            left.pop()
            shutil.rmtree(folder)
        return original(*args, **options)

    for _ in range(3):
        objects.store("key", b"content")
        assert objects.load("key") == b"content"
        shutil.rmtree(folder)
        assert objects.load("key") is None
        assert entries(folder) == []
    objects.store("key", b"content")
    emptied(folder)
    objects = ObjectCache(folder)  # looks at the whole folder with its first store
    monkeypatch.setattr(os, call, vanish)
    objects.store("key", b"content")
    assert left == []
    # An open folder can be listed when it is gone: the store then ends without a second try.
    gone = call == "scandir" and cache.PINNED
    assert objects.load("key") == (None if gone else b"content")


WARN = """
import os, sys
from eagerflow.runtime.cache import ObjectCache
for name in ("a", "b"):
    objects = ObjectCache(os.path.join(sys.argv[1], name))
    for i in range(3):
        objects.store(str(i), b"content")
        assert objects.load(str(i)) is None
print("computed")
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "script.py:7: RuntimeWarning: "),
        (["-W", "error"], "RuntimeWarning: "),
        (["-W", "ignore"], ""),
    ],
)
def test_one_warning_in_a_process(tmp_path, options, expected):
    (tmp_path / "file").write_text("in place of a folder")
    (tmp_path / "script.py").write_text(WARN)
    command = [sys.executable, *options, tmp_path / "script.py", tmp_path / "file"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "computed\n"), done.stderr
    assert done.stderr.count("trouble with the folder of compiled kernels") == bool(expected)
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


# Size ---------------------------------------------------------------------------------------------


def total(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_least_recently_used_go(monkeypatch, folder):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", "0.1")
    objects = ObjectCache(folder)
    size = 9_950 - HEADER - 1
    for i in range(10):
        objects.store(str(i), bytes(size))
        age(entry(folder, str(i)), (20 - i) * HOUR)
    assert len(names(folder)) == 10  # 99,500 bytes
    assert objects.load("0") == bytes(size)  # the oldest, now used
    (folder / "letter.txt").write_bytes(b"not ours")
    objects.store("x", bytes(size))
    kept = {key for key in "0123456789x" if entry(folder, key).exists()}
    assert kept == set("05678" + "9x") | {"4"}
    assert total(folder) <= 80_000
    assert (folder / "letter.txt").exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [1, 8])
def test_the_limit_holds_after_every_store(monkeypatch, folder, count):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", "0.05")
    draw, writers, largest = random.Random(3), [ObjectCache(folder) for _ in range(count)], 0
    # Of several writers, each looks at the folder when it has stored 1/64 of the limit.
    limit = 50_000 if count == 1 else 50_000 * (1 + count / 64)
    for i in range(800):
        key, content = str(draw.randrange(300)), bytes(draw.randrange(600))
        writers[i % count].store(key, content)
        assert writers[0].load(key) == content
        largest = max(largest, total(folder))
    assert 45_000 < largest <= limit


def test_files_of_a_wrong_clock_go_first(monkeypatch, folder):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", "0.011")
    objects = ObjectCache(folder)
    for key in ("old", "future"):
        objects.store(key, bytes(4000))
    age(entry(folder, "old"), HOUR)
    age(entry(folder, "future"), -1000 * HOUR)
    objects.store("new", bytes(4000))
    assert [key for key in ("old", "future", "new") if objects.load(key)] == ["old", "new"]


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(
    ("seconds", "touched"),
    [(HOUR // 2, False), (2 * HOUR, True), (-2 * HOUR, True)],
)
def test_a_load_touches_the_file_at_most_once_an_hour(folder, seconds, touched):
    objects = ObjectCache(folder)
    objects.store("key", b"content")
    age(entry(folder, "key"), seconds)
    before = entry(folder, "key").stat().st_mtime
    assert objects.load("key") == b"content"
    after = entry(folder, "key").stat().st_mtime
    assert (after != before) == touched
    assert not touched or abs(time.time() - after) < 60


def test_files_of_dead_writers_are_swept(folder):
    ObjectCache(folder).store("key", b"content")
    dead, alive, other = (
        folder / f"{'0' * 64}.kernel.{'a' * 15}1",
        folder / f"{'0' * 64}.kernel.{'a' * 15}2",
        folder / "0.kernel.tmp",
    )
    for path in (dead, alive, other):
        path.write_bytes(b"half")
    for path in (dead, other):
        age(path, 2 * HOUR)
    ObjectCache(folder).store("another", b"content")
    assert [path.exists() for path in (dead, alive, other)] == [False, True, True]


@pytest.mark.parametrize("value", ["many", "-1", "nan", "inf", "1e999"])
def test_a_limit_that_is_none(monkeypatch, folder, told, value):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", value)
    ObjectCache(folder).store("key", b"content")
    assert cache.size_limit() == DEFAULT_MAX_BYTES == 256_000_000
    assert ObjectCache(folder).load("key") == b"content"
    take(told, "EAGERFLOW_CACHE_MB")


@pytest.mark.parametrize(("megabytes", "kept"), [("0", False), ("0.001", False), ("0.003", True)])
def test_entry_larger_than_the_limit_is_not_kept(monkeypatch, folder, megabytes, kept):
    objects = ObjectCache(folder)
    objects.store("old", b"content")
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", megabytes)
    objects.store("key", bytes(2000))
    assert (objects.load("key") == bytes(2000)) == kept
    assert objects.load("old") == b"content"


# Many at once -------------------------------------------------------------------------------------


def content_of(key, seed):
    """Content that tells of which key it is and whether it is whole; every seed gives another."""
    rest = random.Random(f"{key} {seed}")
    return seed.to_bytes(8, "little") + rest.randbytes(rest.randrange(20_000))


def is_right(key, content):
    return content == content_of(key, int.from_bytes(content[:8], "little"))


def work(objects, seed, seconds, disturb):
    """Stores and loads keys that all processes use; (loads that hit, wrong ones, errors)."""
    draw, end = random.Random(seed), time.monotonic() + seconds
    hits, wrong, errors = 0, 0, []
    while time.monotonic() < end:
        key = f"key {draw.randrange(8)}"
        try:
            if draw.random() < 0.3:
                objects.store(key, content_of(key, draw.getrandbits(60)))
            elif draw.random() < 0.02:
                disturb(objects, key, draw)
            elif (found := objects.load(key)) is not None:
                hits += 1
                wrong += not is_right(key, found)
        except Exception as error:
            errors.append(repr(error))
    return hits, wrong, errors


def disturb(objects, key, draw):
    """What goes wrong in a folder that others use as well."""
    place = entry(objects.folder, key)
    try:
        match draw.randrange(4):
            case 0:
                emptied(objects.folder)
            case 1:
                shutil.rmtree(objects.folder, ignore_errors=True)
            case 2:
                place.write_bytes(place.read_bytes()[: draw.randrange(10_000)])
            case 3:
                place.write_bytes(draw.randbytes(500))
                place.chmod(0o600)
    except OSError:
        pass  # another one has just deleted it: trouble enough


@posix
@forks
def test_eight_processes_at_once(folder, monkeypatch, told):
    monkeypatch.setenv("EAGERFLOW_CACHE_MB", "0.07")  # so that they evict as well
    waits = [
        in_child(lambda seed=seed: (work(ObjectCache(folder), seed, 1.2, disturb), told))
        for seed in range(8)
    ]
    results = [wait() for wait in waits]
    hits = [done[0] for done, _ in results]
    print(f"{hits} hits")
    assert min(hits) > 0
    assert [done[1:] for done, _ in results] == [(0, [])] * 8
    # Deleting a folder over and over under a store may make it fail twice in a row; no more.
    assert all(len(warned) <= 1 for _, warned in results)
    objects = ObjectCache(folder)
    objects.store("key 0", content_of("key 0", 1))
    assert is_right("key 0", objects.load("key 0"))


class WritesInPlace(ObjectCache):
    """A planted bug: readers see files that are being written, and nothing is checked."""

    def store(self, key, content):
        with open(entry(self.folder, key), "wb", buffering=0) as file:
            for start in range(0, len(content), 500):
                file.write(content[start : start + 500])

    def load(self, key):
        try:
            return entry(self.folder, key).read_bytes()
        except OSError:
            return None


@posix
@forks
def test_planted_writing_in_place_is_found(folder):
    folder.mkdir()
    waits = [
        in_child(lambda seed=seed: work(WritesInPlace(folder), seed, 0.4, lambda *_: None))
        for seed in range(4)
    ]
    assert sum(wait()[1] for wait in waits) > 0


def test_threads_share_a_cache(folder):
    objects, results = ObjectCache(folder), []
    threads = [
        threading.Thread(
            target=lambda seed=seed: results.append(
                work(objects, seed, 0.5, lambda objects, *_: emptied(objects.folder))
            )
        )
        for seed in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done[1:] for done in results] == [(0, [])] * 8
    assert objects.hits > 0


@posix
@forks
def test_a_fork_in_the_middle_of_stores(folder):
    objects, end = ObjectCache(folder), threading.Event()
    objects.store("key", b"content" * 1000)

    def keep_storing():
        while not end.is_set():
            objects.store("key", b"content" * 1000)

    threads = [threading.Thread(target=keep_storing) for _ in range(3)]
    for thread in threads:
        thread.start()

    def visit():
        signal.alarm(20)  # a lock held over the fork would hang the child
        objects.store("mine", b"mine")
        return objects.load("mine"), objects.load("key")

    try:
        for _ in range(10):
            assert in_child(visit)() == (b"mine", b"content" * 1000)
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert len(names(folder)) == 2
