"""``eagerflow cache``: the compiled kernels on disk."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from eagerflow.errors import ArgumentError, printable
from eagerflow.runtime.cache import MEGABYTE, ObjectCache, size_limit

__all__ = ["add_cache", "cache_facts"]

_SPANS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def add_cache(commands: Any) -> None:
    """Add the command to the parser's commands."""
    cache = commands.add_parser(
        "cache", help="the compiled kernels that are kept on disk: show them, delete them"
    )
    cache.add_argument(
        "action",
        nargs="?",
        choices=[*_ACTIONS],
        default="show",
        metavar="ACTION",
        help=f"one of {', '.join(_ACTIONS)} (default: %(default)s)",
    )
    cache.add_argument("--yes", action="store_true", help="with clear: do not ask")
    cache.set_defaults(run=_cache)


def _cache(options: argparse.Namespace) -> int:
    if options.yes and options.action != "clear":
        raise ArgumentError(f"--yes does not apply to {options.action}", expected="clear --yes")
    cache = ObjectCache()
    if cache.folder is None:
        print("the disk cache is switched off (EAGERFLOW_CACHE), or there is no home folder for it")
        return 1
    status: int = _ACTIONS[options.action](cache, options)
    return status


def cache_facts(cache: ObjectCache) -> dict[str, Any]:
    """The folder of the entries, their number and bytes, and the seconds since they were used.

    ``problem`` is the reason that the folder cannot be used; the numbers are 0 then.
    """
    facts: dict[str, Any] = {"folder": cache.folder, "max_bytes": size_limit(), "problem": None}
    try:
        entries = cache.entries()
    except OSError as error:
        entries, facts["problem"] = [], str(error)
    ages = [max(time.time() - entry.st_mtime, 0.0) for entry in entries]
    return facts | {
        "entries": len(entries),
        "bytes": sum(entry.st_size for entry in entries),
        "latest_use_seconds": min(ages, default=None),
        "longest_unused_seconds": max(ages, default=None),
    }


def _show(cache: ObjectCache, options: argparse.Namespace) -> int:
    facts = cache_facts(cache)
    print(printable(facts["folder"]))
    if facts["problem"]:
        print(f"it is not used: {printable(facts['problem'])}")
        return 1
    print(size_text(facts))
    if facts["entries"]:
        latest, longest = facts["latest_use_seconds"], facts["longest_unused_seconds"]
        print(f"last used {_ago(latest)}; longest unused: {_ago(longest)}")
    return 0


def size_text(facts: dict[str, Any]) -> str:
    """The number and size of the entries, from ``cache_facts``."""
    count, size, limit = facts["entries"], facts["bytes"], facts["max_bytes"]
    entries = "entry" if count == 1 else "entries"
    return f"{count} {entries}, {size / MEGABYTE:.3g} of {limit / MEGABYTE:.4g} MB"


def _ago(seconds: float) -> str:
    """An elapsed time, in its largest unit; the cache records uses to the hour."""
    for unit, length in _SPANS:
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "less than a minute ago"


def _path(cache: ObjectCache, options: argparse.Namespace) -> int:
    print(cache.folder)
    return 0


def _clear(cache: ObjectCache, options: argparse.Namespace) -> int:
    cache.entries()  # raises for a folder that is not trusted
    facts = cache_facts(cache)
    if not os.path.isdir(cache.folder or ""):
        print(f"there is no folder {printable(str(cache.folder))}: nothing to delete")
        return 0
    question = f"delete {size_text(facts)} in {printable(str(cache.folder))}? [y/N] "
    if not options.yes and not _agreed(question):
        print("nothing is deleted")
        return 1
    count, size = cache.clear()
    print(f"deleted {count} file{'s' * (count != 1)}, {size / MEGABYTE:.3g} MB")
    return 0


def _agreed(question: str) -> bool:
    """Whether the user at the terminal agrees; ArgumentError without a terminal."""
    if not sys.stdin.isatty():
        raise ArgumentError("confirmation needs a terminal", hint="eagerflow cache clear --yes")
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


_ACTIONS = {"show": _show, "clear": _clear, "path": _path}
