"""Files that are written whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from typing import Any, NoReturn

from eagerflow.errors import FileFormatError, short_repr

try:
    import fcntl
except ImportError:  # Windows, where a file in use cannot be deleted, so that no lock is needed
    fcntl = None  # type: ignore[assignment]

__all__ = ["as_path", "refuse", "write_whole"]

PIECE = 8 << 20  # bytes of one write call: large ones can fail in the middle
_PREFIX, _SUFFIX = ".eagerflow-", ".tmp"
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # pipes do not block


def as_path(path: Any) -> str:
    """The text of a path; FileFormatError for what cannot be one."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        name = ""
    if not name or "\0" in name:
        raise FileFormatError(
            f"{short_repr(path)} is not a path", expected="a file name, or a pathlib.Path"
        )
    return name


def refuse(error: OSError, verb: str, path: str) -> NoReturn:
    """Raise FileFormatError for what the system has against reading or writing a file."""
    hints = {
        FileNotFoundError: "check the path; folders are not made",
        IsADirectoryError: "give the name of a file in it",
        PermissionError: "check who owns the file and its folder",
    }
    raise FileFormatError(
        f"the file cannot be {verb}: {error.strerror or error}",
        argument=path,
        hint=next((hint for kind, hint in hints.items() if isinstance(error, kind)), None),
    ) from error


def write_whole(path: str | os.PathLike[str], parts: Sequence[Any]) -> None:
    """Make the file ``path`` hold ``parts``, which are bytes or one-dimensional arrays of them.

    The parts go into a nameless or temporary file in the same folder, which takes the name when
    all of it is on the disk. A failure at any point, or the end of the process, leaves the
    previous file as it was. A link is followed, so that what it names is replaced. Raises
    FileFormatError where the system refuses: a full disk, a missing folder, a device.
    """
    name = as_path(path)
    try:
        target = os.path.realpath(name)
        mode = _mode_before(target)
        folder = os.path.dirname(target)
        remove_leftovers(folder)
        place = -1 if os.name == "nt" else os.open(folder, os.O_RDONLY)
        try:
            if not _replace(_Nameless, place, target, parts, mode):
                _replace(_Temporary, place, target, parts, mode)
            if place >= 0:
                os.fsync(place)  # so that the new name lasts
        finally:
            if place >= 0:
                os.close(place)
    except OSError as error:
        refuse(error, "written", name)


def _mode_before(target: str) -> int | None:
    """The permissions of the file that is to be replaced; None where there is none."""
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(0, "it is a folder")
    if not stat.S_ISREG(found):
        raise OSError(0, "it is a device or a pipe, and no file that can be replaced")
    return stat.S_IMODE(found) if hasattr(os, "fchmod") else None


def _new_name() -> str:
    return f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        written = os.write(descriptor, data[:PIECE])
        if written <= 0:
            raise OSError(0, "the system has written nothing")
        data = data[written:]


class _Temporary:
    """A file with a name that it has until all is written."""

    def __init__(self, folder: str, place: int) -> None:
        self.place = place
        self.folder = folder
        self.named = False
        self.descriptor = self._open()
        # Locked, so that whoever clears up sees that it is in use.
        while not self._locked():
            os.close(self.descriptor)
            self.descriptor = self._open()

    def _locked(self) -> bool:
        """Lock the file; False if somebody has cleared it up in the moment before."""
        try:
            _lock(self.descriptor, wait=True)
        except OSError:  # some file systems have no locks; nobody clears up there
            return True
        return not self.named or os.name == "nt" or os.fstat(self.descriptor).st_nlink > 0

    def _open(self) -> int:
        self.name = os.path.join(self.folder, _new_name())
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.name, flags, 0o666)
        self.named = True
        return descriptor

    def take_name(self, target: str) -> None:
        """Stand in the place of ``target`` from now on."""
        if os.name == "nt":  # which does not rename open files
            os.close(self.descriptor)
            self.descriptor = -1
        os.replace(self.name, target)
        self.named = False

    def close(self) -> None:
        """Let go of the file, and of its temporary name."""
        try:
            if self.descriptor >= 0:
                os.close(self.descriptor)
        finally:
            if self.named:
                os.unlink(self.name)


class _Nameless(_Temporary):
    """A file without a name, of which nothing stays if the process is killed."""

    def _open(self) -> int:
        if not hasattr(os, "O_TMPFILE"):
            raise _NotHereError
        try:
            return os.open(self.folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
        except OSError:
            raise _NotHereError from None

    def take_name(self, target: str) -> None:
        """Stand in the place of ``target`` from now on."""
        try:
            # With a folder of the source, and only then, links in /proc are followed.
            source = f"/proc/self/fd/{self.descriptor}"
            name = os.path.join(self.folder, _new_name())
            os.link(source, name, src_dir_fd=self.place, follow_symlinks=True)
        except OSError:
            raise _NotHereError from None
        self.name, self.named = name, True
        super().take_name(target)


class _NotHereError(Exception):
    """The system has no nameless files in this folder."""


def _replace(
    kind: type[_Temporary], place: int, target: str, parts: Sequence[Any], mode: int | None
) -> bool:
    """Write a file and let it take the name; False where there are no files of this kind."""
    file = None
    try:
        file = kind(os.path.dirname(target), place)
        for part in parts:
            _write(file.descriptor, memoryview(part).cast("B"))
        if mode is not None and mode != stat.S_IMODE(os.fstat(file.descriptor).st_mode):
            os.fchmod(file.descriptor, mode)
        os.fsync(file.descriptor)
        file.take_name(target)
    except BaseException as error:
        if file is not None:
            with contextlib.suppress(OSError):  # the first failure is the one to tell
                file.close()
        if isinstance(error, _NotHereError):
            return False
        raise
    file.close()
    return True


def remove_leftovers(folder: str) -> None:
    """Delete temporary files of processes that were killed at the wrong moment."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        found = [e.path for e in entries if e.name.startswith(_PREFIX) and e.name.endswith(_SUFFIX)]
    for path in found:
        with contextlib.suppress(OSError):  # in use, or gone already
            descriptor = os.open(path, os.O_RDONLY | _CAREFUL)
            try:
                _lock(descriptor)
                os.unlink(path)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, wait: bool = False) -> None:
    """Lock a file; OSError where there are no locks, or where somebody else has it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
