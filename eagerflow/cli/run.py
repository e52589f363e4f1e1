"""``eagerflow run``: run the graph in a file on arrays."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.cli.feeds import add_feeds, inputs_of
from eagerflow.cli.graphs import GRAPH_FILE, open_graph
from eagerflow.errors import printable
from eagerflow.graph.run import evaluate
from eagerflow.graph.sizes import Sizes, bind, concrete

__all__ = ["add_run"]


def add_run(commands: Any) -> None:
    """Add the command to the parser's commands."""
    run = commands.add_parser("run", help="run a graph from a file on arrays")
    run.add_argument("file", type=Path, metavar="FILE", help=GRAPH_FILE)
    add_feeds(run)
    run.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="a value to compute, any of those that show lists (default: all outputs)",
    )
    run.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write each value there, as NAME.npy"
    )
    run.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    graph = open_graph(options.file)
    if options.fetch:
        graph = graph.prune(options.fetch)
    inputs = inputs_of(graph, options)
    cells = [ef.asarray(variable.value) for variable in graph.variables.values()]
    sizes = Sizes()
    for value, tensor in zip(graph.inputs, inputs, strict=True):
        bind(sizes, value.shape, tensor.shape)
    outputs, _ = evaluate(concrete(graph, sizes), [*inputs, *cells])
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    for name, tensor, file in zip(
        graph.outputs.names, outputs, file_names(graph.outputs.names), strict=True
    ):
        if options.out:
            path = options.out / file
            np.save(path, tensor.numpy(), allow_pickle=False)
            kind = f"{tensor.dtype.name}{list(tensor.shape)}"
            print(printable(f"{name}: {kind} in {path}"))
        else:
            print(f"{printable(name)} = {tensor!r}")
    return 0


def file_names(names: Iterable[str]) -> list[str]:
    """A file name for each name, without path separators."""
    found: list[str] = []
    for name in names:
        plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "_"
        number, free = 0, plain
        while f"{free}.npy" in found:
            number += 1
            free = f"{plain}_{number}"
        found.append(f"{free}.npy")
    return found
