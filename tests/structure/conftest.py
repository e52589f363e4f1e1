"""For tests that read all files: the collector would walk their trees while more are parsed."""

import gc

import pytest

from tests.structure.sources import parsed


@pytest.fixture(autouse=True, scope="module")
def without_collector():
    gc.disable()
    yield
    gc.enable()
    parsed.cache_clear()
