"""Clusters: graphs and training over jobs and tasks, on one machine or several.

    with ef.cluster.Cluster({"worker": 2, "ps": 1}) as cluster:
        model.fit(x, y, strategy=ef.cluster.DataParallel(cluster))

Ray starts, places and restarts the processes of tasks; communication between them and their
computations are eagerflow's own. Needs the extra ``cluster``, except for ``local=True`` and for
strategies on devices of this process. ``bill`` and ``simulate`` predict the benefit of machines.
"""

from __future__ import annotations

from eagerflow.cluster.client import RemoteTask
from eagerflow.cluster.cluster import Cluster
from eagerflow.cluster.data_parallel import DataParallel
from eagerflow.cluster.parameter_server import ParameterServer
from eagerflow.cluster.pipeline import Pipeline
from eagerflow.cluster.schedule import Event
from eagerflow.cluster.simulation.bill import Bill, bill
from eagerflow.cluster.simulation.calibration import calibrated
from eagerflow.cluster.simulation.machines import Failures, Link, Machines
from eagerflow.cluster.simulation.result import Simulation
from eagerflow.cluster.simulation.simulate import simulate
from eagerflow.cluster.simulation.workload import Workload
from eagerflow.cluster.split_dense import SplitDense
from eagerflow.cluster.status import Status, TaskStatus

__all__ = [
    "Bill",
    "Cluster",
    "DataParallel",
    "Event",
    "Failures",
    "Link",
    "Machines",
    "ParameterServer",
    "Pipeline",
    "RemoteTask",
    "Simulation",
    "SplitDense",
    "Status",
    "TaskStatus",
    "Workload",
    "bill",
    "calibrated",
    "simulate",
]


def __dir__() -> list[str]:
    return sorted(__all__)
