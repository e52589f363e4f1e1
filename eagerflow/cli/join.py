"""``eagerflow join``: consecutive graphs as one, such as preprocessing, a model, and the rest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from eagerflow.capture.saving.formats import write
from eagerflow.cli.graphs import GRAPH_FILE, open_graph, pairs
from eagerflow.errors import ArgumentError, printable

__all__ = ["add_join"]


def add_join(commands: Any) -> None:
    """Add the command to the parser's commands."""
    join = commands.add_parser("join", help="write graphs that run one after the other as one")
    join.add_argument("first", type=Path, metavar="FIRST", help=GRAPH_FILE)
    join.add_argument("others", type=Path, nargs="+", metavar="NEXT", help="likewise, in order")
    join.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the file to write"
    )
    join.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="INPUT=VALUE",
        help="the value of the graphs before that an input gets, where their names differ",
    )
    join.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="NAME",
        help="a value of a graph before the last that becomes an output too",
    )
    join.set_defaults(run=_join)


def _join(options: argparse.Namespace) -> int:
    graphs = [open_graph(path) for path in (options.first, *options.others)]
    asked = dict(pairs(options.feed, "--feed"))
    strange = asked.keys() - {name for graph in graphs[1:] for name in graph.inputs.names}
    if strange:
        raise ArgumentError(
            f"no graph has an input {min(strange)!r}",
            argument="--feed",
            expected="; ".join(f"{g.name}: {', '.join(g.inputs.names)}" for g in graphs[1:]),
        )
    joined = graphs[0]
    for path, graph in zip(options.others, graphs[1:], strict=True):
        same = {name: name for name in graph.inputs.names if name in joined.outputs.names}
        feeds = same | {name: asked[name] for name in graph.inputs.names if name in asked}
        last = graph is graphs[-1]
        keep = options.keep if last else [n for n in options.keep if n in joined.outputs.names]
        joined = joined.compose(graph, feeds or None, keep, scope=path.stem)
    write(joined, options.output)
    print(printable(f"{options.output}: {joined!r}, {options.output.stat().st_size:,} bytes"))
    return 0
