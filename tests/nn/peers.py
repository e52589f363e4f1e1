"""PyTorch as an oracle: a test that asks for it is skipped, and says so, where it is not there."""

import pytest


class _Peer:
    def __getattr__(self, name):
        if name.startswith(("_", "pytest")):  # names that pytest looks up in all modules
            raise AttributeError(name)
        return getattr(pytest.importorskip("torch"), name)


torch = _Peer()
