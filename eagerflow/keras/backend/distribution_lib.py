"""``keras.distribution`` over the devices of one process.

Tensors are never sharded here: layouts that shard one are refused.
"""

from __future__ import annotations

from typing import Any

import eagerflow as ef
from eagerflow.devices import as_device

__all__ = [
    "distribute_data_input",
    "distribute_tensor",
    "get_device_count",
    "initialize",
    "list_devices",
    "num_processes",
    "process_id",
]


def list_devices(device_type: str | None = None) -> list[str]:
    """The names of all devices of a type; without one, of accelerators if there are any."""
    if device_type is None:
        found = [device for device in ef.devices() if not device.backend.host] or ef.devices()
    else:
        found = ef.devices(device_type.lower())
    return [str(device) for device in found]


def get_device_count(device_type: str | None = None) -> int:
    """The number of devices that ``list_devices`` returns."""
    return len(list_devices(device_type))


def initialize(job_addresses: Any, num_processes: Any, process_id: Any) -> None:
    """Does nothing for one process; NotImplementedError for more."""
    if num_processes not in (None, 1):
        raise NotImplementedError(
            "the eagerflow backend trains in one process; ef.cluster trains ef.nn models in many"
        )


def num_processes() -> int:
    """The number of processes: 1."""
    return 1


def process_id() -> int:
    """The index of this process: 0."""
    return 0


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """The tensor itself; NotImplementedError for a layout that shards it."""
    axes = getattr(layout, "axes", layout)
    if any(axis is not None for axis in axes or ()) and _count(layout) > 1:
        raise NotImplementedError(
            f"the eagerflow backend keeps tensors whole, and cannot lay one out as {layout}"
        )
    return tensor


def distribute_data_input(per_process_batch: Any, layout: Any, batch_dim_name: str) -> Any:
    """The batch itself, as for ``distribute_tensor``."""
    return distribute_tensor(per_process_batch, layout)


def _count(layout: Any) -> int:
    """The number of devices of a layout's mesh."""
    mesh = getattr(layout, "device_mesh", None)
    return 1 if mesh is None else int(mesh.devices.size)


def _to_backend_device(device_name: Any) -> ef.Device:
    return as_device(str(device_name))


def _to_backend_mesh(device_mesh: Any) -> Any:
    return device_mesh


def _to_backend_layout(tensor_layout: Any) -> Any:
    if tensor_layout.device_mesh is None:
        raise ValueError("Cannot create sharding when device mesh is not set for TensorLayout.")
    return tensor_layout
