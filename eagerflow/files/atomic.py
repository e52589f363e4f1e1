"""Atomic writes: a file is written completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any, NoReturn

from eagerflow.errors import FileFormatError, short_repr
from eagerflow.guard import OpenFile, ScopeGuard
from eagerflow.handlers import raised_here, suppress

try:
    import fcntl
except ImportError:  # Windows, where a file in use cannot be deleted, so that no lock is needed
    fcntl = None  # type: ignore[assignment]

PIECE = 8 << 20  # bytes of one write call: large ones can fail in the middle
_PREFIX, _SUFFIX = ".eagerflow-", ".tmp"
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # pipes do not block


def as_path(path: Any) -> str:
    """The text of a path; FileFormatError for other objects."""
    try:
        name = os.fsdecode(path)
    except raised_here(TypeError):
        name = ""
    if not name or "\0" in name:
        raise FileFormatError(
            f"{short_repr(path)} is not a path", expected="a file name, or a pathlib.Path"
        )
    return name


def refuse(error: OSError, verb: str, path: str) -> NoReturn:
    """Raise FileFormatError for an OSError on reading or writing a file."""
    hints = {
        FileNotFoundError: "check the path; folders are not made",
        IsADirectoryError: "give the name of a file in it",
        PermissionError: "check the owner of the file and of its folder",
    }
    raise FileFormatError(
        f"the file cannot be {verb}: {error.strerror or error}",
        argument=path,
        hint=next((hint for kind, hint in hints.items() if isinstance(error, kind)), None),
    ) from error


def write_whole(path: str | os.PathLike[str], parts: Sequence[Any]) -> None:
    """Make the file ``path`` hold ``parts``, which are bytes or one-dimensional arrays of them.

    The parts go into a nameless or temporary file in the same folder, which gets the name when all
    of it is on the disk. A failure at any point, or the end of the process, leaves the previous
    file unchanged. A link is followed, so that its target is replaced. Raises FileFormatError for
    errors of the system: a full disk, a missing folder, a device.
    """
    name = as_path(path)
    try:
        target = os.path.realpath(name)
        mode = _mode_before(target)
        folder = os.path.dirname(target)
        remove_leftovers(folder)
        if os.name == "nt":  # Windows cannot open folders
            _replace(_Temporary, -1, target, parts, mode)
            return
        with OpenFile(folder, os.O_RDONLY) as place:
            if not _replace(Nameless, place.fd, target, parts, mode):
                _replace(_Temporary, place.fd, target, parts, mode)
            os.fsync(place.fd)  # so that the new name is durable
    except raised_here(OSError) as error:
        refuse(error, "written", name)


def _mode_before(target: str) -> int | None:
    """The permissions of the file to be replaced; None if there is none."""
    try:
        found = os.stat(target).st_mode
    except raised_here(FileNotFoundError):
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(0, "it is a folder")
    if not stat.S_ISREG(found):
        raise OSError(0, "it is a device or a pipe, not a regular file")
    return stat.S_IMODE(found) if hasattr(os, "fchmod") else None


def _new_name() -> str:
    return f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}"


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        written = os.write(descriptor, data[:PIECE])
        if written <= 0:
            raise OSError(0, "the system wrote no bytes")
        data = data[written:]


class _Temporary(ScopeGuard):
    """A file with a temporary name until it is complete."""

    def __init__(self, folder: str, place: int) -> None:
        self.place = place
        self.folder = folder
        self.name = ""  # deleted with the file
        self._file = self._made()

    def acquire(self) -> None:
        """Create the file, locked, so that ``remove_leftovers`` of other processes skips it."""
        self._file.acquire()
        while not self._locked():
            self._file.release()
            self._file = self._made()
            self._file.acquire()

    @property
    def descriptor(self) -> int:
        """The file descriptor."""
        return self._file.fd

    def _locked(self) -> bool:
        """Lock the file; False if another process has removed it just before."""
        try:
            lock(self.descriptor, wait=True)
        except raised_here(OSError):  # some file systems have no locks; nothing is removed there
            return True
        return not self.name or os.name == "nt" or os.fstat(self.descriptor).st_nlink > 0

    def _made(self) -> OpenFile:
        self.name = os.path.join(self.folder, _new_name())
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        return OpenFile(self.name, flags, 0o666)

    def take_name(self, target: str) -> None:
        """Replace ``target``."""
        if os.name == "nt":  # which does not rename open files
            self._file.release()
        os.replace(self.name, target)
        self.name = ""

    def release(self) -> Exception | None:
        """Close the file, and remove its temporary name."""
        problem = self._file.release()
        if self.name:
            with suppress(OSError):  # removed, or not created
                os.unlink(self.name)
        return problem


class Nameless(_Temporary):
    """An unnamed file, which vanishes if the process is killed."""

    def _made(self) -> OpenFile:
        if not hasattr(os, "O_TMPFILE"):
            raise NotHereError
        return OpenFile(self.folder, os.O_TMPFILE | os.O_WRONLY, 0o666)

    def acquire(self) -> None:
        """Create the file."""
        try:
            super().acquire()
        except raised_here(OSError):
            raise NotHereError from None

    def take_name(self, target: str) -> None:
        """Replace ``target``."""
        self.name = os.path.join(self.folder, _new_name())
        try:
            # Links in /proc are only followed with a folder descriptor for the source.
            source = f"/proc/self/fd/{self.descriptor}"
            os.link(source, self.name, src_dir_fd=self.place, follow_symlinks=True)
        except raised_here(OSError):
            raise NotHereError from None
        super().take_name(target)


class NotHereError(Exception):
    """The system has no unnamed files in this folder."""


def _replace(
    kind: type[_Temporary], place: int, target: str, parts: Sequence[Any], mode: int | None
) -> bool:
    """Write a file and rename it to the target; False where this kind of file is not supported."""
    try:
        with kind(os.path.dirname(target), place) as file:
            for part in parts:
                _write(file.descriptor, memoryview(part).cast("B"))
            if mode is not None and mode != stat.S_IMODE(os.fstat(file.descriptor).st_mode):
                os.fchmod(file.descriptor, mode)
            os.fsync(file.descriptor)
            file.take_name(target)
    except NotHereError:
        return False
    return True


def remove_leftovers(folder: str) -> None:
    """Delete temporary files of processes that were killed during a write."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        found = [e.path for e in entries if e.name.startswith(_PREFIX) and e.name.endswith(_SUFFIX)]
    for path in found:
        # In use, or removed already.
        with suppress(OSError), OpenFile(path, os.O_RDONLY | _CAREFUL) as file:
            lock(file.fd)
            os.unlink(path)


def lock(descriptor: int, wait: bool = False) -> None:
    """Lock a file; OSError without support for locks, or if another process holds it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
