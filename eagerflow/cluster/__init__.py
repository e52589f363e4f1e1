"""Clusters."""

from __future__ import annotations

from eagerflow.cluster.data_parallel import DataParallel

__all__ = ["DataParallel"]
