"""TensorBoard's library, loaded when the first file is written."""

from __future__ import annotations

from functools import cache
from typing import Any

from eagerflow import extras


@cache
def module(name: str) -> Any:
    """A module of TensorBoard; MissingExtraError with the pip line if it is not installed."""
    return extras.load(f"tensorboard.{name}", "tensorboard", "ef.summary")


@cache
def message(file: str, name: str) -> Any:
    """A class of its protocol buffers in this file: ``message("summary", "Summary")``."""
    return getattr(module(f"compat.proto.{file}_pb2"), name)


@cache
def pillow() -> Any:
    """``PIL.Image``, which is installed with TensorBoard."""
    return extras.load("PIL.Image", "tensorboard", "ef.summary")
