"""Export: graphs as programs of Python that need NumPy alone, and a file of weights."""

from __future__ import annotations

import io
import os
import zipfile
from typing import Any

import numpy as np

from eagerflow.capture.sources import graph_of
from eagerflow.files.atomic import as_path, write_whole
from eagerflow.recorder import with_recorder
from eagerflow.standalone.module import Module

SUFFIX = ".npz"


def export_python(graph: Any, path: str | os.PathLike[str]) -> None:
    """Write a graph, a captured function or a model as a program of Python that needs NumPy alone.

    >>> from tempfile import TemporaryDirectory
    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec(("n", 3), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     ef.capture.export_python(graph, f"{folder}/model.py")
    """
    name = as_path(path)
    whole = graph_of(graph, "export_python")
    stem = os.path.basename(name).removesuffix(".py")
    module = with_recorder(None, lambda: Module(whole, stem, SUFFIX))
    text = module.text()
    if module.arrays:
        write_whole(name.removesuffix(".py") + SUFFIX, [_archive(module.arrays)])
    write_whole(name, [text.encode()])


def _archive(arrays: dict[str, Any]) -> bytes:
    """Arrays in the format of ``np.savez``; the same arrays give the same bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            with file.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
    return whole.getvalue()
