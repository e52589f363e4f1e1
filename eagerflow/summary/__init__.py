"""Summaries: metrics, images and graphs of a run, in files for TensorBoard."""

from __future__ import annotations

from eagerflow.summary.writer import Writer

__all__ = ["Writer"]


def __dir__() -> list[str]:
    return sorted(__all__)
