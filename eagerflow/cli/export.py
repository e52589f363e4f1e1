"""``eagerflow export``: convert the graph in a file to another format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from eagerflow.capture.saving.formats import SUFFIXES, format_of, write
from eagerflow.cli.graphs import GRAPH_FILE, open_graph
from eagerflow.errors import ArgumentError, printable

__all__ = ["add_export"]


def add_export(commands: Any) -> None:
    """Add the command to the parser's commands."""
    export = commands.add_parser(
        "export", help="write a graph for others: an ONNX model, or a program for NumPy alone"
    )
    export.add_argument("file", type=Path, metavar="FILE", help=GRAPH_FILE)
    export.add_argument(
        "--to", choices=[*SUFFIXES], metavar="FORMAT", help=f"one of {', '.join(SUFFIXES)}"
    )
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: the name of the first, with the ending of the format)",
    )
    export.add_argument(
        "--opset",
        type=int,
        metavar="NUMBER",
        help="the version of ONNX's operators, if not the default",
    )
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    format, path = _target(options)
    if path.exists() and path.samefile(options.file):
        raise ArgumentError(f"{path} is the file itself", hint="choose another file with -o")
    settings = {} if options.opset is None else {"opset": options.opset}
    if settings and format != "onnx":
        raise ArgumentError(
            f"--opset does not apply to the format {format!r}", expected="--to onnx"
        )
    graph = open_graph(options.file)
    write(graph, path, format, **settings)
    print(printable(f"{path}: {graph!r}, {path.stat().st_size:,} bytes"))
    return 0


def _target(options: argparse.Namespace) -> tuple[str, Path]:
    """The format and the file, either of which can follow from the other."""
    if options.to is None and options.output is None:
        raise ArgumentError(
            "no output format is given", expected="--to FORMAT or -o FILE", hint="--to onnx"
        )
    if options.output is None:
        return options.to, options.file.with_suffix(SUFFIXES[options.to])
    return format_of(options.output, options.to), options.output
