"""``eagerflow diff``: what differs between two saved graphs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from eagerflow.cli.show import open_graph

__all__ = ["add_diff"]


def add_diff(commands: Any) -> None:
    """Add the command to the parser's commands."""
    diff = commands.add_parser(
        "diff", help="what differs between two saved graphs; exit status 1 if something does"
    )
    diff.add_argument("old", type=Path, metavar="OLD")
    diff.add_argument("new", type=Path, metavar="NEW")
    diff.add_argument("--quiet", action="store_true", help="give the exit status alone")
    diff.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found = open_graph(options.old).diff(open_graph(options.new))
    if found and not options.quiet:
        print(found)
    return 1 if found else 0
