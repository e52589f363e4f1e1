"""``eagerflow show``, ``check`` and ``diff``: inspect graph files without running them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import eagerflow as ef
from eagerflow.capture.saving.formats import read
from eagerflow.errors import ArgumentError, CaptureError, FileFormatError, printable
from eagerflow.nn.saving import holds_model

__all__ = ["GRAPH_FILE", "add_check", "add_diff", "add_show", "numbers", "open_graph", "pairs"]

GRAPH_FILE = "a file of graph.save or model.save, or an ONNX model (.onnx)"


def add_show(commands: Any) -> None:
    """Add the command to the parser's commands."""
    show = commands.add_parser("show", help="the contents of a graph: listing, picture, costs")
    show.add_argument("file", type=Path, metavar="FILE", help=GRAPH_FILE)
    form = show.add_mutually_exclusive_group()
    form.add_argument("--dot", action="store_true", help="in the language of Graphviz")
    form.add_argument("--costs", action="store_true", help="operations, bytes and memory")
    form.add_argument(
        "--draw", type=Path, metavar="PICTURE", help="write a .svg, .dot, .png or .pdf"
    )
    show.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="with --costs: the size of a named dimension",
    )
    show.add_argument(
        "--no-lines",
        dest="lines",
        action="store_false",
        help="leave out the lines of the code that it comes from",
    )
    show.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    graph = open_graph(options.file)
    if options.dot:
        print(graph.to_dot())
    elif options.costs:
        print(graph.costs(numbers(options.size)))
    elif options.draw:
        print(graph.draw(options.draw).resolve())
    else:
        print(graph.text(lines=options.lines))
    return 0


def add_check(commands: Any) -> None:
    """Add the command to the parser's commands."""
    check = commands.add_parser(
        "check", help="whether files hold graphs that can run; exit status 1 if one does not"
    )
    check.add_argument("files", type=Path, nargs="+", metavar="FILE", help=GRAPH_FILE)
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    status = 0
    for path in options.files:
        try:
            graph = open_graph(path)
            graph.check()
        except (ArgumentError, CaptureError, FileFormatError) as error:
            print(f"{printable(str(path))}: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{printable(str(path))}: {graph!r} keeps all rules")
    return status


def add_diff(commands: Any) -> None:
    """Add the command to the parser's commands."""
    diff = commands.add_parser(
        "diff", help="what differs between two graphs; exit status 1 if something does"
    )
    diff.add_argument("old", type=Path, metavar="OLD", help=GRAPH_FILE)
    diff.add_argument("new", type=Path, metavar="NEW", help="likewise")
    diff.add_argument("--quiet", action="store_true", help="give the exit status alone")
    diff.set_defaults(run=_diff)


def _diff(options: argparse.Namespace) -> int:
    found = open_graph(options.old).diff(open_graph(options.new))
    if found and not options.quiet:
        print(found)
    return 1 if found else 0


def open_graph(path: Path) -> Any:
    """The graph in a file, of a model the predicting one; FileNotFoundError without a file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return read(path)
    except FileFormatError:
        if not holds_model(path):
            raise
    return ef.nn.load_model(path, compile=False).prediction_graph()


def pairs(given: list[str], option: str) -> list[tuple[str, str]]:
    """The texts before and after the first ``=`` of each; ArgumentError without a ``=``."""
    found = []
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ArgumentError(f"{option} {text} has no name and value", expected="NAME=VALUE")
        found.append((name, value))
    return found


def numbers(given: list[str]) -> dict[str, int]:
    """The sizes in ``--size NAME=NUMBER``, by name."""
    found = pairs(given, "--size")
    for name, text in found:
        if not text.isdecimal():
            raise ArgumentError(f"--size {name}={text} is not a size", expected="a number")
    return {name: int(text) for name, text in found}
