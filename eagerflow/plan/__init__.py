"""Plans: graphs made ready for given shapes, as straight-line programs over arrays."""

from eagerflow.plan.plan import Plan

__all__ = ["Plan"]
