"""Shared by import and export: the package ``onnx``, and the producer name."""

from __future__ import annotations

from typing import Any

from eagerflow.extras import load

PRODUCER = "eagerflow"
"""The producer name in exported models."""


def onnx_package() -> Any:
    """The package ``onnx``; MissingExtraError with the pip line if it is not installed."""
    return load("onnx", "onnx", "ONNX")
