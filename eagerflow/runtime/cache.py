"""Machine code on disk: objects of compiled kernels, kept for later processes.

Loading an object executes code, so it must have been written by this user. Three
rules ensure that: the folder and the file belong to the user and no other may write to them;
links are not followed; a file holds its whole key, and a digest over all of it, so damaged,
truncated, renamed and foreign files are misses. The digest is no signature: it guards against
accidents, the permissions against people.

A cache must never make a program fail: disk errors cause one warning in
the process, and kernels are compiled again.

The folder is the only shared state: there are no locks, so threads, forks and other processes are
safe with each other. A call makes one open, one rename or one deletion of a file, each of
which is atomic for other processes.

Layout of a file, little-endian: magic (16 bytes), format version (4), length of the key in bytes
(4), length of the content (8), SHA-256 of these 32 bytes, the key and the content (32), the key
in UTF-8, the content.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import stat
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from types import FrameType

from eagerflow.guard import OpenFile, ScopeGuard
from eagerflow.handlers import raised_here, suppress
from eagerflow.settings import setting, switched_off

MAGIC = b"eagerflow-kernel"
VERSION = 1
FIELDS = struct.Struct("<16sIIQ")
HEADER = FIELDS.size + sha256().digest_size

MEGABYTE = 10**6
MAX_FILE_BYTES = 64 * MEGABYTE
DEFAULT_MAX_BYTES = 256 * MEGABYTE
KEPT_WHEN_FULL = 0.8
# Between two checks of the whole folder a process stores at most this share of the limit, so
# eight processes that do not know of each other exceed it by an eighth.
SHARE_BETWEEN_CHECKS = 1 / 64

HOUR = 3600.0
# After a second dot comes the writer's mark: an incomplete file. The names are
# strict because files are deleted by them, and the folder may hold unrelated files of the user.
NAMES = re.compile(r"[0-9a-f]{64}\.kernel(\.[0-9a-f]{16})?")

# Zero if a system has no such flag; there the kind of a file is checked before it is opened.
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a pipe in a file's place must not wait for a writer
BINARY = getattr(os, "O_BINARY", 0)
READ_FLAGS = os.O_RDONLY | NOFOLLOW | _NONBLOCK | BINARY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | BINARY
# Names are looked up in an open folder, so that the folder used is the folder checked.
PINNED = hasattr(os, "O_DIRECTORY") and (
    {os.open, os.rename, os.stat, os.unlink} <= os.supports_dir_fd
)
# Errors of opening a link, a socket or a device without driver, by system.
_NOT_A_FILE = {errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EOPNOTSUPP}


# Location -----------------------------------------------------------------------------------------


def default_folder() -> str | None:
    """The folder for compiled kernels, None if there is none.

    The environment variable ``EAGERFLOW_CACHE`` names it, or switches the cache off with "0" or
    "off". Without it, the folder is a part of the user's cache folder: ``XDG_CACHE_HOME`` (XDG
    Base Directory Specification 0.8) or ``~/.cache`` on Linux, ``~/Library/Caches`` on macOS,
    ``%LOCALAPPDATA%`` on Windows. A user without a home folder has none.

    >>> folder = default_folder()
    >>> folder is None or os.path.isabs(folder)
    True
    """
    if switched_off("EAGERFLOW_CACHE"):
        return None
    if chosen := setting("EAGERFLOW_CACHE"):
        parts = [chosen]
    elif sys.platform == "win32":
        parts = [setting("LOCALAPPDATA") or "~/AppData/Local", "eagerflow", "Cache"]
    else:
        base = setting("XDG_CACHE_HOME")
        if not os.path.isabs(base):  # to be ignored, says the specification
            base = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
        parts = [base, "eagerflow", "kernels"]
    path = os.path.expanduser(os.path.join(*parts))
    return None if path.startswith("~") else os.path.abspath(path)


def size_limit() -> int:
    """The maximum total size of all entries, in bytes."""
    text = setting("EAGERFLOW_CACHE_MB")
    if not text:
        return DEFAULT_MAX_BYTES
    try:
        size = float(text)
    except raised_here(ValueError):
        size = math.nan
    if not 0 <= size < math.inf:
        _complain(f"EAGERFLOW_CACHE_MB is {text!r}, not a number of megabytes; 256 are used")
        return DEFAULT_MAX_BYTES
    return int(size * MEGABYTE)


# Trouble ------------------------------------------------------------------------------------------

# Counters of itertools are atomic; the first caller gets 0 and warns.
_complaints = itertools.count()


def _complain(problem: str) -> None:
    """Warn once per process, attributed to the first caller outside of this package."""
    if next(_complaints):
        return
    frame = _first_frame_outside(sys._getframe(1))
    try:
        warnings.warn_explicit(
            problem,
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            frame.f_globals.get("__name__", "<unknown>"),
            frame.f_globals.setdefault("__warningregistry__", {}),
        )
    except raised_here(Exception):
        # Warnings are errors here (-W error), or a foreign hook fails. Results of kernels
        # do not depend on the cache, so the program continues and the message is printed.
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # stderr may be closed
                print(f"RuntimeWarning: {problem}", file=sys.stderr)


def _first_frame_outside(frame: FrameType) -> FrameType:
    package = __name__.partition(".")[0]
    while f"{frame.f_globals.get('__name__')}.".startswith(f"{package}.") and frame.f_back:
        frame = frame.f_back
    return frame


def _complain_of(error: Exception, path: str | None) -> None:
    _complain(
        f"trouble with the folder of compiled kernels ({path}), so kernels are compiled again: "
        f"{error}. Set EAGERFLOW_CACHE to a folder that only you can write to, or to 'off'"
    )


def _distrust(status: os.stat_result, path: str) -> None:
    """Raise PermissionError for a file or folder that others own or may change."""
    if not hasattr(os, "geteuid"):  # Windows: the user's folders are private by inheritance
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"owned by another user (uid {status.st_uid})", path)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = oct(stat.S_IMODE(status.st_mode))
        raise PermissionError(errno.EPERM, f"other users may write to it (mode {mode})", path)


# The folder and its files -------------------------------------------------------------------------


class Folder(ScopeGuard):
    """A context with an open folder that only this user can write to.

    Raises OSError if there is none, or if it cannot be trusted.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = OpenFile(path, os.O_RDONLY | os.O_DIRECTORY) if PINNED else None

    @property
    def fd(self) -> int | None:
        """The open folder, if the system can open folders."""
        return None if self._file is None else self._file.fd

    def acquire(self) -> None:
        """Open the folder, and check its owner."""
        if self._file is not None:
            self._file.acquire()
        status = os.stat(self.path if self.fd is None else self.fd)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)
        _distrust(status, self.path)

    def release(self) -> Exception | None:
        """Close the folder."""
        return None if self._file is None else self._file.release()

    def at(self, name: str) -> str:
        """A file's name for system calls with ``dir_fd=self.fd``."""
        return name if self.fd is not None else os.path.join(self.path, name)

    def discard(self, name: str) -> bool:
        """Delete a file, link or pipe if it is this user's; False if it remains."""
        try:
            status = os.stat(self.at(name), dir_fd=self.fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                return False
            if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
                return False
            os.unlink(self.at(name), dir_fd=self.fd)
        except raised_here(FileNotFoundError):
            return True
        except raised_here(OSError):  # read-only, or in use on Windows: it stays and is rejected
            return False
        return True

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Name and status of every regular file with a name in this module's format."""
        with os.scandir(self.path if self.fd is None else self.fd) as found:
            for item in found:
                if not NAMES.fullmatch(item.name):
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except raised_here(FileNotFoundError):  # deleted by another process
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield item.name, status


def _make(path: str) -> None:
    """Make a folder and its parents, all of them for this user only."""
    missing = [path]
    while not os.path.isdir(parent := os.path.dirname(missing[-1])) and parent != missing[-1]:
        missing.append(parent)
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process made it first
            os.mkdir(folder, stat.S_IRWXU)


def _name(key: bytes) -> str:
    return sha256(key).hexdigest() + ".kernel"


def _encode(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")  # accept any text


def _pack(key: bytes, content: bytes) -> bytes:
    fields = FIELDS.pack(MAGIC, VERSION, len(key), len(content))
    return b"".join([fields, sha256(b"".join([fields, key, content])).digest(), key, content])


def unpack(raw: bytes, key: bytes) -> bytes | None:
    """The content of a file if it is complete, of this format, and of this key."""
    if len(raw) < HEADER + len(key):
        return None
    magic, version, key_length, length = FIELDS.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        return None
    if key_length != len(key) or length != len(raw) - HEADER - key_length:
        return None
    view = memoryview(raw)
    digest = sha256(view[: FIELDS.size])
    digest.update(view[HEADER:])
    start = HEADER + key_length
    if digest.digest() != view[FIELDS.size : HEADER] or view[HEADER:start] != key:
        return None
    return raw[start:]


def _read(folder: Folder, name: str, key: bytes) -> bytes | None:
    """The content of an entry, None if there is no valid one; invalid entries are deleted."""
    content = None
    try:
        if not NOFOLLOW and not stat.S_ISREG(os.lstat(folder.at(name)).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        file = OpenFile(folder.at(name), READ_FLAGS, dir_fd=folder.fd)
        with file:
            content = _read_open(file.fd, os.path.join(folder.path, name), key)
    except raised_here(FileNotFoundError):
        return None
    except raised_here(OSError) as error:
        if error.errno not in _NOT_A_FILE:
            raise
    if content is None:
        # A valid file just stored by another process may be deleted too: one more miss.
        folder.discard(name)
    return content


def _read_open(fd: int, path: str, key: bytes) -> bytes | None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return None
    _distrust(status, path)
    if status.st_size > MAX_FILE_BYTES:
        return None
    pieces, left = [], status.st_size
    while left and (piece := os.read(fd, left)):
        pieces.append(piece)
        left -= len(piece)
    content = unpack(b"".join(pieces), key)
    # The modification time is roughly the last use, so that most loads write nothing. Times in
    # the future come from a wrong clock.
    if content is not None and abs(time.time() - status.st_mtime) > HOUR:
        with suppress(OSError):  # a read-only folder: nothing is evicted there either
            os.utime(fd if os.utime in os.supports_fd else path)
    return content


def _write(folder: Folder, name: str, packed: bytes) -> None:
    """Store an entry atomically: readers see the old file, or none, until it is complete.

    There is no fsync: if the machine stops, a file may be left empty
    or with holes, which the digest detects when it is loaded.
    """
    # Not the process id: processes on other machines, or in containers, may share it.
    temporary = f"{name}.{os.urandom(8).hex()}"
    mode = stat.S_IRUSR | stat.S_IWUSR
    try:
        with OpenFile(folder.at(temporary), _WRITE, mode, dir_fd=folder.fd) as file:
            left = memoryview(packed)
            while left:
                left = left[os.write(file.fd, left) :]
        os.replace(
            folder.at(temporary), folder.at(name), src_dir_fd=folder.fd, dst_dir_fd=folder.fd
        )
    except raised_here(FileExistsError):  # another process has made it
        raise
    except BaseException:
        folder.discard(temporary)
        raise


# The cache ----------------------------------------------------------------------------------------


class ObjectCache:
    """Compiled kernels in a folder of the user, by key; safe for many processes and threads.

    ``folder`` is made at the first store; None stands for ``default_folder()``, looked up
    at first use. All files together take at most 256 MB, or ``EAGERFLOW_CACHE_MB``:
    a store beyond it deletes the least recently used files, down to four fifths. ``hits``
    and ``misses`` count this object's loads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = ObjectCache(folder)
    ...     cache.store("softmax float32, AVX-512", b"machine code")
    ...     print(cache.load("softmax float32, AVX-512"), cache.load("softmax float32, NEON"))
    b'machine code' None
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._chosen = folder
        self._folder: str | None = None
        self._looked_up = False
        self.hits = 0
        self.misses = 0
        # Bytes to store before the next check of the whole folder. Threads may miss each other's
        # changes, which shifts that check by a file.
        self._room = 0

    @property
    def folder(self) -> str | None:
        """The path of the folder; None if the cache is switched off or no folder can be named."""
        if not self._looked_up:
            try:
                self._folder = self._look_up()
            except raised_here(OSError, ValueError) as error:
                # a relative path without a current folder
                _complain_of(error, None)
            self._looked_up = True
        return self._folder

    def _look_up(self) -> str | None:
        if self._chosen is not None:
            return os.path.abspath(os.fspath(self._chosen))
        path = default_folder()
        if path is None and not switched_off("EAGERFLOW_CACHE"):
            raise FileNotFoundError(errno.ENOENT, "the user has no home folder")
        return path

    def load(self, key: str) -> bytes | None:
        """The content stored under ``key``, None if there is no valid entry.

        A damaged or mismatched entry is deleted. Disk errors
        are not raised.
        """
        content = None
        encoded = _encode(key)
        if (path := self.folder) is not None:
            try:
                with Folder(path) as folder:
                    content = _read(folder, _name(encoded), encoded)
            except raised_here(FileNotFoundError):
                pass  # no folder yet, or deleted: an ordinary miss
            except raised_here(OSError, ValueError) as error:
                # ValueError: an invalid path
                _complain_of(error, path)
        if content is None:
            self.misses += 1
        else:
            self.hits += 1
        return content

    def store(self, key: str, content: bytes) -> None:
        """Store ``content`` under ``key``, replacing an existing entry.

        Disk errors are not raised. Content above 64 MB is not stored.
        """
        if (path := self.folder) is None:
            return
        encoded = _encode(key)
        limit = size_limit()
        if HEADER + len(encoded) + len(content) > min(limit, MAX_FILE_BYTES):
            return
        packed = _pack(encoded, content)
        try:
            try:
                self._put(path, _name(encoded), packed, limit)
            except raised_here(FileNotFoundError):
                # The folder does not exist yet, or another process just deleted it or the file.
                _make(path)
                with suppress(FileNotFoundError):  # deleted again: nothing is stored
                    self._put(path, _name(encoded), packed, limit)
        except raised_here(OSError, ValueError) as error:
            # Windows does not replace a file that is being read; it has the same content.
            if not (os.name == "nt" and isinstance(error, PermissionError)):
                _complain_of(error, path)

    def load_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The content stored under ``key``, or else the result of ``make()``, which is stored."""
        content = self.load(key)
        if content is None:
            content = make()
            self.store(key, content)
        return content

    def entries(self) -> list[os.stat_result]:
        """The status of the file of each entry; its modification time is roughly its last use.

        Raises OSError for a folder that cannot be trusted or read.
        """
        if (path := self.folder) is not None:
            with suppress(FileNotFoundError), Folder(path) as folder:
                return [status for name, status in folder.files() if name.endswith(".kernel")]
        return []

    def clear(self) -> tuple[int, int]:
        """Delete all entries and unfinished files of writers; returns numbers of files and bytes.

        Other files stay, and so does the folder itself. Raises OSError as ``entries`` does.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = ObjectCache(folder)
        ...     cache.store("softmax", b"machine code")
        ...     len(cache.entries()), cache.clear()[0], len(cache.entries())
        (1, 1, 0)
        """
        count = size = 0
        if (path := self.folder) is not None:
            with suppress(FileNotFoundError), Folder(path) as folder:
                for name, status in list(folder.files()):
                    if folder.discard(name):
                        count += 1
                        size += status.st_size
        return count, size

    def _put(self, path: str, name: str, packed: bytes, limit: int) -> None:
        with Folder(path) as folder:
            _write(folder, name, packed)
            self._room -= len(packed)
            if self._room < 0:
                self._tidy(folder, limit)

    def _tidy(self, folder: Folder, limit: int) -> None:
        """Keep the folder within its limit, and delete unfinished files of writers."""
        now, total, entries = time.time(), 0, []
        for name, status in folder.files():
            if not name.endswith(".kernel"):  # not complete
                if abs(now - status.st_mtime) > HOUR:
                    folder.discard(name)
            else:
                # A wrong clock must not keep a file forever.
                used = status.st_mtime if status.st_mtime < now + HOUR else 0.0
                entries.append((used, name, status.st_size))
                total += status.st_size
        if total > limit:
            for _, name, size in sorted(entries):
                if total <= KEPT_WHEN_FULL * limit:
                    break
                if folder.discard(name):
                    total -= size
        self._room = min(limit - total, int(limit * SHARE_BETWEEN_CHECKS))
