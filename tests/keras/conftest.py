"""Keras, if it is installed, is imported after our hook; without it each file is one skip."""

import importlib.util

import pytest

INSTALLED = importlib.util.find_spec("keras") is not None
if INSTALLED:
    import eagerflow.keras  # noqa: F401


class Missing(pytest.Module):
    def collect(self):
        pytest.skip("Keras is not installed")


def pytest_pycollect_makemodule(module_path, parent):
    return None if INSTALLED else Missing.from_parent(parent, path=module_path)
