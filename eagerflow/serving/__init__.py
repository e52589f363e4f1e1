"""Serving: graphs behind a port, by the protocols that clients speak already.

    with ef.serving.Server("digits.ef", port=0) as server:
        print(server.url)

``eagerflow serve digits.ef`` does it from the command line. Needs the extra ``serving``.
"""

from __future__ import annotations

from eagerflow.serving.access import Access, ForbiddenError
from eagerflow.serving.application import Limits
from eagerflow.serving.batching import Batching
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.refusals import (
    BusyError,
    LateError,
    TooLargeError,
    UnavailableError,
    UnknownModelError,
    UnknownSequenceError,
)
from eagerflow.serving.repository import Policy
from eagerflow.serving.sequences import SequenceLimits
from eagerflow.serving.server import Server
from eagerflow.serving.signature import Signature

__all__ = [
    "Access",
    "Batching",
    "BusyError",
    "ForbiddenError",
    "LateError",
    "Limits",
    "ModelVersion",
    "Policy",
    "SequenceLimits",
    "Server",
    "Signature",
    "TooLargeError",
    "UnavailableError",
    "UnknownModelError",
    "UnknownSequenceError",
]
