"""Export of graphs as Python programs that need only NumPy, with a file of weights."""

from __future__ import annotations

import io
import os
import zipfile
from typing import Any

import numpy as np

from eagerflow.capture.control.silence import without_prints
from eagerflow.capture.subject import graph_of
from eagerflow.capture.taps import without_taps
from eagerflow.errors import ArgumentError, CaptureError, short_repr
from eagerflow.files.atomic import as_path, write_whole
from eagerflow.files.container import pack
from eagerflow.recorder import with_recorder
from eagerflow.standalone.module import Module

READERS = {"npz": "load_weights", "safetensors": "load_safetensors"}
"""Suffixes of weight files, and the functions that read them."""


def export_python(graph: Any, path: str | os.PathLike[str], weights: str = "npz") -> None:
    r"""Write a graph, a captured function or a model as a Python program that needs only NumPy.

    ``graph`` is a Graph, an ``ef.function`` with one graph, or an ``ef.nn`` model, whose prediction
    is written for any batch size. ``path`` is a file name that ends in ``.py``; Variables and large
    constants go into a file beside it, in the format ``weights``: ``"npz"`` or ``"safetensors"``.
    The program has a function with the graph's name, one for each scope, and those that NumPy
    lacks; the results match eager calls up to rounding, including random numbers. Variables that
    the graph assigns are in a nest of dicts, the state, which each call updates. Raises
    CaptureError, with the user's line, for an op without a NumPy form and for bfloat16 and float8,
    ArgumentError for other kinds of files. Names in the graph never become code.

    >>> from tempfile import TemporaryDirectory
    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec(("n", 3), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     ef.capture.export_python(graph, f"{folder}/model.py")
    ...     text = open(f"{folder}/model.py").read()
    >>> print(text[text.index("return np") :].partition("\n")[0])
    return np.tanh(x) * 2.0
    """
    name = as_path(path)
    if weights not in READERS or not name.endswith(".py"):
        wrong = "path" if weights in READERS else "weights"
        raise ArgumentError(
            f"{short_repr(name if wrong == 'path' else weights)} is not fit for a program",
            op="export_python",
            argument=wrong,
            expected="a name that ends in .py" if wrong == "path" else "'npz' or 'safetensors'",
        )
    whole = without_prints(without_taps(graph_of(graph, "export_python")))
    stem, suffix = os.path.basename(name).removesuffix(".py"), f".{weights}"
    module = with_recorder(None, lambda: Module(whole, stem, suffix, READERS[weights]))
    text, arrays = module.text(), module.arrays
    if arrays:
        beside = name.removesuffix(".py") + suffix
        write_whole(beside, [_archive(arrays)] if weights == "npz" else _packed(arrays))
    write_whole(name, [text.encode()])


def _packed(arrays: dict[str, Any]) -> list[Any]:
    """Arrays in the safetensors format, which has no complex numbers."""
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            raise CaptureError(
                f"safetensors has no {array.dtype.name}", argument=name, hint="weights='npz'"
            )
    return list(pack({}, arrays))


def _archive(arrays: dict[str, Any]) -> bytes:
    """Arrays in the format of ``np.savez``; the same arrays give the same bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            with file.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
    return whole.getvalue()
