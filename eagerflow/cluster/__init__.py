"""Clusters."""

from __future__ import annotations

from eagerflow.cluster.data_parallel import DataParallel
from eagerflow.cluster.parameter_server import ParameterServer

__all__ = ["DataParallel", "ParameterServer"]
