"""A folder of generated files, in which only what has changed is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Folder:
    """Files that a build makes; at the end of a ``with`` block all others are gone.

    Sphinx reads again what is newer than its last build, so a file that stays as it was keeps its
    time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: set[Path] = set()

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            for path in self.path.rglob("*"):
                if path.is_file() and path not in self._kept:
                    path.unlink()

    def write(self, name: str, content: str | bytes) -> None:
        """A file of this content, under a path relative to the folder."""
        path = self.keep(name)
        data = content.encode() if isinstance(content, str) else content
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def keep(self, name: str) -> Path:
        """The path of a file that stays, if it is there, as it is."""
        path = self.path / name
        self._kept.add(path)
        return path
