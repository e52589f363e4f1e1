"""What reading and writing share: the package ``onnx``, and the producer of a model."""

from __future__ import annotations

from typing import Any

from eagerflow.extras import load

PRODUCER = "eagerflow"
"""The name in models that eagerflow has written."""


def onnx_package() -> Any:
    """The package ``onnx``; MissingExtraError with the pip line where it is not installed."""
    return load("onnx", "onnx", "ONNX")
