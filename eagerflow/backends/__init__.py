"""Array libraries bound in: one module each, loaded when a device of theirs is first used."""

from __future__ import annotations

from typing import Any

from eagerflow.devices import register_device_type

__all__: list[str] = []


def _load_numpy() -> Any:
    from eagerflow.backends.numpy import NumpyBackend

    return NumpyBackend()


def _load_cupy() -> Any:
    from eagerflow.backends.cupy import CupyBackend

    return CupyBackend()


def _count_gpus() -> int:
    from eagerflow.backends.cupy import count_devices

    return count_devices()


register_device_type("cpu", _load_numpy)
register_device_type(
    "gpu",
    _load_cupy,
    _count_gpus,
    install="pip install 'eagerflow[cuda12]' (or cuda13, as the driver's CUDA version is),"
    " on a machine with an NVIDIA GPU",
)
