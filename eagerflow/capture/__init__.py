"""Capture: Python functions as graphs that can be read, saved, split over devices and replayed."""

from eagerflow.capture.trace import trace
from eagerflow.recorder import scope

__all__ = ["scope", "trace"]
