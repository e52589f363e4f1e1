"""Shards: the files of a checkpoint written in parallel by tasks, each with the values it holds.

The checkpoint's own file is written last, and lists them with their sizes and hashes: without it
they are ignored, and if one of them is missing it is damaged. Their names begin with its name, so
that it cannot list other files, and have random digits, so that a late task of an earlier attempt
overwrites nothing.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import FileFormatError, printable
from eagerflow.handlers import suppress
from eagerflow.nn import files

__all__ = ["ShardFile", "check_there", "is_name", "listed", "new_prefix", "read", "remove", "write"]

_NAME = re.compile(r"(checkpoint-\d{8,16})-[0-9a-f]{16}-\d{4}\.shard")
_TEXTS = {"format": "eagerflow.shard", "version": "1"}
ENTRY = "shards"
"""The text of a checkpoint's file that lists them."""


class ShardFile(NamedTuple):
    """A file with a part of a checkpoint, its writer, and its identity."""

    name: str
    task: str
    seal: files.Seal


def new_prefix(stem: str) -> str:
    """The prefix of the names of a new checkpoint's shards; ``stem`` is that of its own file."""
    return f"{stem}-{secrets.token_hex(8)}"


def is_name(name: str) -> bool:
    """Whether a file name is valid: without a path to another folder.

    >>> is_name("checkpoint-00000001-0123456789abcdef-0000.shard"), is_name("../weights")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], op: str) -> files.Seal:
    """Write a shard; FileFormatError where the system refuses."""
    return files.write_sealed(path, _TEXTS, arrays, op)


def listed(some: Sequence[ShardFile]) -> str:
    """The text that lists shards."""
    return json.dumps([[one.name, one.task, *one.seal] for one in some])


def check_there(folder: Path, some: Sequence[ShardFile], op: str) -> None:
    """Raise FileFormatError if files written by tasks are not visible here."""
    for one in some:
        path = folder / one.name
        if not path.is_file() or path.stat().st_size != one.seal.nbytes:
            raise FileFormatError(
                f"what {one.task} has written cannot be seen from here",
                op=op,
                argument=str(path),
                expected=f"a file of {one.seal.nbytes:,} bytes",
                hint="a folder that all machines share; or strategy.merge(), and save without it",
            )


def read(path: Any, op: str) -> files.Contents:
    """The texts and arrays of a checkpoint's file, and of the shards that it lists, if any.

    FileFormatError if one of them is missing or has changed.
    """
    found = files.read(path, op)
    if ENTRY not in found.texts:
        return found
    arrays = dict(found.arrays)
    for one in _checked(files.loads(found.texts[ENTRY]), Path(path)):
        more = files.read(Path(path).parent / one.name, op, one.seal).arrays
        twice = arrays.keys() & more.keys()
        if twice:
            raise FileFormatError(
                f"two files of the checkpoint have {printable(min(twice)[:100])!r}",
                op=op,
                argument=str(path),
            )
        arrays |= more
    return files.Contents(found.texts, arrays)


def _checked(rows: Any, path: Path) -> list[ShardFile]:
    """The shards listed by a checkpoint; FileFormatError for an invalid list."""
    for row in rows if isinstance(rows, list) else [None]:
        fits = isinstance(row, list) and [type(x) for x in row] == [str, str, int, str]
        match = _NAME.fullmatch(row[0]) if row is not None and fits else None
        if match is None or match[1] != path.stem:
            raise FileFormatError(
                "the file lists other files than those of its checkpoint",
                op="Checkpoint.restore",
                argument=str(path),
                received=printable(str(row)[:100]),
                expected=f"names that begin with {path.stem!r}, sizes and hashes",
            )
    return [ShardFile(name, task, files.Seal(size, digest)) for name, task, size, digest in rows]


def remove(folder: Path, kept: Collection[str]) -> None:
    """Delete all shards except those with these prefixes: those of deleted or unfinished
    checkpoints.
    """
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None and not path.name.startswith(tuple(kept)):
            with suppress(OSError):  # already deleted by another process; a later save tries again
                path.unlink(missing_ok=True)
