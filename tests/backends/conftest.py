import sys

import pytest

import eagerflow as ef
from eagerflow.backends import cupy as module
from eagerflow.capture.guards.lookup import FOREIGN, origins
from eagerflow.devices import device_types
from tests.backends import lookalike, lookalike_cublaslt, lookalike_streams
from tests.backends.strict import DEVICES, StrictBackend

ef.register_device_type("strict", StrictBackend, lambda: len(DEVICES))


@pytest.fixture
def strict():
    """Name of the first device of the third-party backend."""
    return "strict:0"


@pytest.fixture(params=["lookalike", pytest.param("cupy", marks=pytest.mark.gpu)])
def gpus(request, monkeypatch):
    """At least two devices of type gpu; their backend is loaded anew for each test."""
    monkeypatch.setattr(device_types["gpu"], "backend", None)
    monkeypatch.setattr(device_types["gpu"], "devices", {})
    monkeypatch.setattr(device_types["gpu"], "logical", None)
    if request.param == "lookalike":
        monkeypatch.setitem(sys.modules, "cupy", lookalike.Lookalike())
        for part in (lookalike, lookalike_cublaslt, lookalike_streams):
            # To what a trace relies on, its code is a library's, as CuPy's is.
            monkeypatch.setitem(origins, part.__file__, FOREIGN)
    module.count_devices.cache_clear()
    if not module.count_devices():
        pytest.skip("there is no GPU")
    if module.count_devices() == 1:
        ef.set_logical_devices("gpu", 2)
    yield sys.modules["cupy"]
    module.count_devices.cache_clear()
