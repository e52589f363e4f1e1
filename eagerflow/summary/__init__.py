"""Summaries: what a program tells about itself while it runs, in files that TensorBoard shows."""

from __future__ import annotations

from eagerflow.summary.writer import Writer

__all__ = ["Writer"]
