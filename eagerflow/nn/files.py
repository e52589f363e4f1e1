"""Files of texts and arrays in the safetensors format, for models and their weights.

They are written completely or not at all, and reading executes nothing in them. Headers are checked
against the file's size before memory is allocated.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import FileFormatError
from eagerflow.files import container
from eagerflow.files.atomic import as_path, refuse, write_whole
from eagerflow.guard import OpenFile
from eagerflow.handlers import raised_here

__all__ = ["Contents", "Seal", "loads", "read", "write", "write_sealed"]

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


_KERAS = "in Keras model.save_weights('x.weights.h5'), and model.load_weights(path) here"
_TORCH = "safetensors.torch.save_file(module.state_dict(), path), and ef.nn.from_torch(model, path)"
_OTHERS = {".keras": _KERAS, ".h5": _KERAS, ".hdf5": _KERAS, ".pt": _TORCH, ".pth": _TORCH}
"""Hints for files of other libraries, by suffix."""


class Contents(NamedTuple):
    """The contents of a file: texts and arrays, by name."""

    texts: dict[str, str]
    arrays: dict[str, np.ndarray[Any, Any]]


class Seal(NamedTuple):
    """The identity of a written file: its size, and a hash of its contents."""

    nbytes: int
    blake2b: str


def write(
    path: Any, texts: Mapping[str, str], arrays: Mapping[str, np.ndarray[Any, Any]], op: str
) -> None:
    """Write these texts and arrays to a file; FileFormatError for errors of the file system."""
    _write(path, list(container.pack(texts, arrays)), op)


def write_sealed(
    path: Any, texts: Mapping[str, str], arrays: Mapping[str, np.ndarray[Any, Any]], op: str
) -> Seal:
    """As ``write``, and return the file's identity."""
    pieces = list(container.pack(texts, arrays))
    _write(path, pieces, op)
    hashed = hashlib.blake2b()
    for piece in pieces:
        hashed.update(piece)
    return Seal(sum(memoryview(piece).nbytes for piece in pieces), hashed.hexdigest())


def _write(path: Any, pieces: Sequence[Any], op: str) -> None:
    try:
        write_whole(path, pieces)
    except FileFormatError as error:
        _tell(error, op, path)
        raise


def read(path: Any, op: str, seal: Seal | None = None) -> Contents:
    """The texts and arrays of a file; FileFormatError for an invalid file.

    With a ``seal`` it is to be the very file that was written with it.
    """
    try:
        name = as_path(path)
        # Not blocking, so that a pipe without a writer is opened immediately, and then refused.
        opened = OpenFile(name, _FLAGS)
        with opened, io.FileIO(opened.fd, closefd=False) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FileFormatError("it is a pipe or a device", expected="a file")
            if seal is not None:
                _check(seal, file, found.st_size)
            return _read(file, found.st_size)
    except FileFormatError as error:
        _tell(error, op, path)
        error.hint = error.hint or _OTHERS.get(os.path.splitext(str(path))[1])
        raise
    except raised_here(OSError) as error:
        refuse(error, "read", str(path))


def loads(text: str) -> Any:
    """The value of a JSON text from a file; FileFormatError for invalid JSON."""
    try:
        return container.loads(text)
    except raised_here(ValueError, RecursionError) as error:
        raise FileFormatError(f"the text in the file is not JSON: {error}") from None


def _tell(error: FileFormatError, op: str, path: Any) -> None:
    error.op, error.argument = error.op or op, error.argument or str(path)


def _check(seal: Seal, file: io.FileIO, size: int) -> None:
    """FileFormatError where a file is not the one of a seal."""
    if size != seal.nbytes:
        raise FileFormatError(
            "the size of the file has changed since it was written",
            received=f"{size:,} bytes",
            expected=f"{seal.nbytes:,} bytes",
        )
    if hashlib.file_digest(file, "blake2b").hexdigest() != seal.blake2b:
        raise FileFormatError("the file is damaged: the checksum does not match")


def _read(file: io.FileIO, size: int) -> Contents:
    def fill(start: int, memory: Any) -> Any:
        file.seek(start)
        done = 0
        while done < len(memory) and (count := file.readinto(memoryview(memory)[done:])):
            done += count
        if done < len(memory):
            raise FileFormatError("the file was cut off while it was read")
        return memory

    header = container.parse(size, lambda start, count: fill(start, bytearray(count)))
    arrays = {}
    for name, place in header.places.items():
        array = container.as_array(place, place.dtype)
        if array.nbytes:
            fill(header.begin + place.start, array.reshape(-1).view(np.uint8).data)
        arrays[name] = container.finished(array)
    return Contents(header.texts, arrays)
