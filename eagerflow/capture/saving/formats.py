"""The formats of files that hold graphs: how each is written, and read, by the file's name."""

from __future__ import annotations

import os
from typing import Any

from eagerflow import capture
from eagerflow.errors import ArgumentError
from eagerflow.files.atomic import as_path
from eagerflow.graph.graph import Graph

SUFFIXES = {"ef": ".ef", "onnx": ".onnx", "python": ".py"}
"""How files of each format end; files that end in another way are eagerflow's own."""


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format that is asked for, else the one that the file's name says.

    >>> format_of("model.onnx"), format_of("model"), format_of("model", "python")
    ('onnx', 'ef', 'python')
    """
    if format is None:
        end = os.path.splitext(as_path(path))[1].lower()
        return next((name for name, suffix in SUFFIXES.items() if suffix == end), "ef")
    if format not in SUFFIXES:
        raise ArgumentError(
            f"{format!r} is not a format for graphs",
            op="export",
            argument="format",
            expected=" or ".join(map(repr, SUFFIXES)),
        )
    return format


def write(
    graph: Graph, path: str | os.PathLike[str], format: str | None = None, **options: Any
) -> None:
    """Write a graph into a file; ``options`` are those of the format, such as an ``opset``."""
    format = format_of(path, format)
    if format == "ef":
        graph.save(path, **options)
    else:
        getattr(capture, f"export_{format}")(graph, path, **options)


def read(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file that ``graph.save`` wrote, or in an ONNX model.

    The weights of both are Variables, but for models whose shapes follow from values of inputs.
    """
    if format_of(path) != "onnx":
        return capture.load(path)
    try:
        found: Graph = capture.import_onnx(path, trainable=True)
    except ArgumentError as error:
        if error.argument != "trainable":
            raise
        found = capture.import_onnx(path)
    return found
