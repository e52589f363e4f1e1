"""Plans: graphs made ready for given shapes, as straight-line programs over arrays."""

from eagerflow.capture.plan.plan import Plan

__all__ = ["Plan"]
