"""Clusters: training over several devices and machines, and what that would cost.

    strategy = ef.cluster.DataParallel(devices=["cpu:0", "cpu:1"])
    model.fit(x, y, strategy=strategy)

Strategies make each step on several devices; ``bill`` and ``simulate`` tell what it would take.
"""

from __future__ import annotations

from eagerflow.cluster.data_parallel import DataParallel
from eagerflow.cluster.parameter_server import ParameterServer
from eagerflow.cluster.simulation.bill import bill
from eagerflow.cluster.simulation.calibration import calibrated
from eagerflow.cluster.simulation.machines import Failures, Link, Machines
from eagerflow.cluster.simulation.simulate import simulate
from eagerflow.cluster.simulation.workload import Workload

__all__ = [
    "DataParallel",
    "Failures",
    "Link",
    "Machines",
    "ParameterServer",
    "Workload",
    "bill",
    "calibrated",
    "simulate",
]
