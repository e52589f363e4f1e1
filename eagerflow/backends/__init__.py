"""Bindings of array libraries, one module each; a library is loaded with its first device."""

from __future__ import annotations

from eagerflow.backends.cupy import CupyBackend, count_devices
from eagerflow.backends.numpy import NumpyBackend
from eagerflow.devices import register_device_type

__all__: list[str] = []

register_device_type("cpu", NumpyBackend)
register_device_type(
    "gpu",
    CupyBackend,
    count_devices,
    install="pip install 'eagerflow[cuda12]' (or cuda13, as the driver's CUDA version is),"
    " on a machine with an NVIDIA GPU",
)
