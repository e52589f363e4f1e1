"""``model.export``: the prediction graph of a model as ``.ef`` or ONNX."""

from __future__ import annotations

from typing import Any, NoReturn

from keras.src import tree
from keras.src.export.export_utils import get_input_signature, make_input_spec
from keras.src.utils import io_utils

import eagerflow as ef
from eagerflow.capture.saving.formats import write

__all__ = ["FORMATS", "ExportArchive", "prediction_graph"]


class ExportArchive:
    """The writer of TensorFlow's SavedModel, which this backend lacks."""

    def track_and_add_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            "`export_saved_model` only currently supports the tensorflow, jax and torch backends. "
            "The eagerflow backend has model.export(path, format='ef') and format='onnx'."
        )

    track = add_endpoint = track_and_add_endpoint


def prediction_graph(model: Any, input_signature: Any = None) -> Any:
    """The graph of ``model(inputs, training=False)``, with named free sizes.

    ``input_signature`` is as for ``model.export``.
    """
    signature = get_input_signature(model) if input_signature is None else input_signature

    def spec(given: Any) -> ef.TensorSpec:
        found = make_input_spec(given)
        return ef.TensorSpec(found.shape, found.dtype, _identifier(found.name))

    specs = tree.map_structure(spec, list(signature))
    called = {"training": False} if model._call_has_training_arg else {}
    return ef.capture.trace(lambda *inputs: model(*inputs, **called), *specs, name=model.name)


def _identifier(name: str | None) -> str | None:
    """A Keras name as the name of a graph's input; None if it is invalid."""
    return name if name and name.isidentifier() else None


def _writer(format: str) -> Any:
    def export(
        model: Any,
        filepath: Any,
        verbose: bool | None = None,
        input_signature: Any = None,
        opset_version: int | None = None,
    ) -> None:
        options = {} if opset_version is None else {"opset": opset_version}
        write(prediction_graph(model, input_signature), filepath, format, **options)
        if verbose is None or verbose:
            io_utils.print_msg(f"Saved artifact at '{filepath}'.")

    return export


FORMATS = {"ef": _writer("ef"), "onnx": _writer("onnx")}
"""The writers of models by format."""
