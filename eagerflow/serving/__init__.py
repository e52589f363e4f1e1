"""Serving: graphs behind a port, by protocols that clients already speak.

    with ef.serving.Server("digits.ef", port=0) as server:
        print(server.url)

``eagerflow serve digits.ef`` does it from the command line. Needs the extra ``serving``.
"""

from __future__ import annotations

from eagerflow.serving.access import Access, ForbiddenError
from eagerflow.serving.batching import Batching
from eagerflow.serving.deployment import Deployment, Scaling, deploy
from eagerflow.serving.errors import (
    BusyError,
    CrashedError,
    LateError,
    TooLargeError,
    UnavailableError,
    UnknownModelError,
    UnknownSequenceError,
)
from eagerflow.serving.limits import Limits
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.processes import WorkerSettings
from eagerflow.serving.repository import ModelOptions, Policy
from eagerflow.serving.sequences import SequenceLimits
from eagerflow.serving.server import Server
from eagerflow.serving.signature import Signature
from eagerflow.serving.traffic import Shadowing, Traffic

__all__ = [
    "Access",
    "Batching",
    "BusyError",
    "CrashedError",
    "Deployment",
    "ForbiddenError",
    "LateError",
    "Limits",
    "ModelOptions",
    "ModelVersion",
    "Policy",
    "Scaling",
    "SequenceLimits",
    "Server",
    "Shadowing",
    "Signature",
    "TooLargeError",
    "Traffic",
    "UnavailableError",
    "UnknownModelError",
    "UnknownSequenceError",
    "WorkerSettings",
    "deploy",
]


def __dir__() -> list[str]:
    return sorted(__all__)
