"""``eagerflow check``: whether a file holds a graph that keeps every rule."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from eagerflow.cli.show import open_graph
from eagerflow.errors import CaptureError, FileFormatError, printable

__all__ = ["add_check"]


def add_check(commands: Any) -> None:
    """Add the command to the parser's commands."""
    check = commands.add_parser(
        "check", help="whether files hold graphs that can run; exit status 1 if one does not"
    )
    check.add_argument("files", type=Path, nargs="+", metavar="FILE")
    check.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    status = 0
    for path in options.files:
        try:
            graph = open_graph(path)
            graph.check()
        except (CaptureError, FileFormatError) as error:
            print(f"{printable(str(path))}: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{printable(str(path))}: {graph!r} keeps all rules")
    return status
