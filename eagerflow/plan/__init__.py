"""Plans: graphs compiled for given shapes, as straight-line programs over arrays."""

from eagerflow.plan.plan import Plan
from eagerflow.plan.timed import PLANS
from eagerflow.profiling import log

__all__ = ["Plan"]

log.offer(PLANS)
