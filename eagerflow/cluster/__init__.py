"""Clusters: graphs over jobs and tasks, on one machine or several.

    with ef.cluster.Cluster({"worker": 2, "ps": 1}) as cluster:
        session = ef.capture.Session(graph, cluster=cluster)

Ray starts, places and restarts the processes of tasks; what goes between them, and what they
compute, is eagerflow's own. Needs the extra ``cluster``, but for ``local=True``.
"""

from __future__ import annotations

from eagerflow.cluster.client import RemoteTask
from eagerflow.cluster.cluster import Cluster
from eagerflow.cluster.status import Status, TaskStatus

__all__ = ["Cluster", "RemoteTask", "Status", "TaskStatus"]
