"""Pictures of models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from eagerflow.errors import ArgumentError

__all__ = ["plot_model"]


def plot_model(model: Any, to_file: str | os.PathLike[str] = "model.svg") -> Path:
    """Draw the layers of a model and their connections to a file.

    ``to_file`` ends with ``.svg``, ``.png``, ``.pdf`` or ``.dot``; all but the first and the last
    need graphviz. The model is one from symbolic tensors, or has an ``Input`` at its head. Raises
    ArgumentError for other models.

    >>> import tempfile
    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    >>> ef.nn.plot_model(model, tempfile.mkdtemp() + "/model.svg").name
    'model.svg'
    """
    graph = model.graph
    if graph is None:
        raise ArgumentError(
            "the model has no graph of layers to draw",
            op="plot_model",
            argument="model",
            received=repr(model),
            hint="ef.nn.Model(inputs, outputs), or ef.nn.Input at the head of a Sequential; "
            "ef.capture.trace(model, spec).draw(path) draws all ops",
        )
    drawn: Path = graph.draw(to_file)
    return drawn
