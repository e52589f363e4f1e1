"""For all tests: the same examples in every run, and no network."""

import os
import socket
import tempfile

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, max_examples=2_000)
settings.load_profile("soak" if os.environ.get("EAGERFLOW_SOAK") == "1" else "ci")

# Kernels compiled here are not the user's: the folder is the run's own.
os.environ.setdefault("EAGERFLOW_CACHE", tempfile.mkdtemp(prefix="eagerflow-tests-"))

LOCAL = ("127.0.0.1", "::1", "localhost", "")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Connections to other machines fail; servers under test listen on this one."""
    for name in ("connect", "connect_ex"):
        original = getattr(socket.socket, name)

        def guarded(self, address, original=original):
            if isinstance(address, tuple) and address[0] not in LOCAL:
                raise RuntimeError(f"a test connects to {address[0]!r}; tests use no network")
            return original(self, address)

        monkeypatch.setattr(socket.socket, name, guarded)
