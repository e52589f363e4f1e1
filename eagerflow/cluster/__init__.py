"""Clusters."""

from __future__ import annotations

from eagerflow.cluster.data_parallel import DataParallel
from eagerflow.cluster.parameter_server import ParameterServer
from eagerflow.cluster.pipeline import Pipeline
from eagerflow.cluster.split_dense import SplitDense

__all__ = ["DataParallel", "ParameterServer", "Pipeline", "SplitDense"]
