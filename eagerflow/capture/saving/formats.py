"""The formats of files with graphs: writers and readers, by the file's name."""

from __future__ import annotations

import os
from typing import Any

from eagerflow import capture
from eagerflow.errors import ArgumentError
from eagerflow.files.atomic import as_path
from eagerflow.graph.graph import Graph

SUFFIXES = {"ef": ".ef", "onnx": ".onnx", "python": ".py"}
"""The suffix of each format; all other suffixes are eagerflow's own format."""


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format given, else the one of the file name's suffix.

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
    """The graph in a file written by ``graph.save``, or in an ONNX model.

    The weights of both are Variables, except in models with shapes computed from input values.
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
