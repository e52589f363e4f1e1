"""Device names, the devices that exist, and the registry of device types."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from eagerflow.dtypes import DType, is_inexact
from eagerflow.errors import ArgumentError, DeviceError
from eagerflow.guard import ScopeGuard
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.records import Record, fresh

_NAME = re.compile(
    r"(?:/job:(?P<job>[a-z][a-z0-9_]*))?(?:/task:(?P<task>\d+))?"
    r"(?:/device:|(?<=.)/|)(?:(?P<type>[a-zA-Z_]\w*)(?::(?P<index>\d+|\*))?)?"
)


class DeviceType(Record):
    """A registered type: the loader of its backend and its number of devices.

    A task of a cluster has types of its own; ``task`` is its name, and ``sharing`` how many
    tasks share its machine.
    """

    name: str
    load: Callable[[], Any]
    count: Callable[[], int]
    install: str | None
    logical: int | None = None
    devices: dict[int, Device] = fresh(default_factory=dict)
    backend: Any = None
    task: str = ""
    sharing: int = 1


device_types: dict[str, DeviceType] = {}
task_types: dict[str, dict[str, DeviceType]] = {}
"""The device types of clusters' tasks, kept after the cluster ends, as tensors refer to them."""
_lock = reentrant_lock()
HERE = "/job:local/task:0"
HOST_TYPE = "cpu"
"""The type of device that exists in each process."""


class Kind:
    """A dtype on a device: interned, so that "same dtype and same device" is one ``is``."""

    __slots__ = ("array_type", "device", "dtype", "is_complex", "is_inexact", "lasting", "wrap")

    def __init__(self, device: Device, dtype: DType) -> None:
        self.device = device
        self.dtype = dtype
        self.lasting = self  # the kind for tables; kinds of recorders are dropped with them
        self.is_complex = dtype.kind == "c"
        self.is_inexact = is_inexact(dtype)
        self.array_type: type = device.backend.array_type
        self.wrap: Callable[[Any], Any] = device.backend.wrapper(device.index)

    def __repr__(self) -> str:
        return f"{self.dtype.name} on {self.device}"


class SymbolicKind(Kind):
    """The kind of tensors without values, whose calls all go to a ``recorder`` of their own."""

    __slots__ = ("recorder",)

    def __init__(self, device: Device, dtype: DType, recorder: Any) -> None:
        super().__init__(device, dtype)
        self.recorder, self.lasting = recorder, device.kind(dtype)


class Device:
    """A named device for tensors, such as ``cpu:0``; one object for each device.

    >>> ef.devices()[0]
    Device('cpu:0')
    >>> ef.devices()[0].full_name
    '/job:local/task:0/device:cpu:0'
    """

    __slots__ = ("_kinds", "_type", "index")

    def __init__(self, device_type: DeviceType, index: int) -> None:
        self._type = device_type
        self.index = index
        self._kinds: dict[DType, Kind] = {}

    @property
    def type(self) -> str:
        """Name of the device's type, such as ``cpu``."""
        return self._type.name

    @property
    def full_name(self) -> str:
        """Name with job and task, as used in a cluster."""
        return f"{self.task or HERE}/device:{self.type}:{self.index}"

    @property
    def task(self) -> str:
        """The task of a cluster with this device, ``"/job:ps/task:0"``; "" for this process."""
        return self._type.task

    @property
    def sharers(self) -> int:
        """The number of devices of its type that share its machine, including itself."""
        return self._type.sharing * _count(self._type)

    @property
    def backend(self) -> Any:
        """The array library behind this device, loaded at first use."""
        return _backend(self._type)

    def kind(self, dtype: DType) -> Kind:
        """The interned pair of ``dtype`` and this device."""
        try:
            return self._kinds[dtype]
        except KeyError:
            return self._kinds.setdefault(dtype, Kind(self, dtype))

    def __str__(self) -> str:
        return self.full_name if self._type.task else f"{self._type.name}:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_device, (str(self),)


def register_device_type(
    name: str,
    load: Callable[[], Any],
    count: Callable[[], int] = lambda: 1,
    install: str | None = None,
) -> None:
    """Add a type of device, such as ``"npu"``.

    ``load()`` returns the backend (see ``docs/backends.md``) and is called at first use;
    ``count()`` returns the number of devices; ``install`` tells a user without any
    what to do. Raises DeviceError for a name that is taken or that is not an identifier.

    >>> ef.register_device_type("cpu", load=lambda: None)
    Traceback (most recent call last):
    ...
    eagerflow.errors.DeviceError: device type 'cpu' is registered already
    """
    if not name.isidentifier() or name != name.lower():
        raise DeviceError(f"{name!r} cannot name a device type", expected="a lowercase identifier")
    made = DeviceType(name, load, count, install)
    if device_types.setdefault(name, made) is not made:
        raise DeviceError(f"device type {name!r} is registered already")


def set_logical_devices(type: str, count: int) -> None:
    """Split a physical device into ``count`` logical ones, for trying out several devices.

    ``type`` is a device type such as ``"cpu"``, ``count`` at least 1. Devices that exist
    do not change; the number can grow but not shrink below a device in use.

    >>> ef.set_logical_devices("cpu", 2)
    >>> [str(d) for d in ef.devices("cpu")]
    ['cpu:0', 'cpu:1']
    """
    known = _type_named(type)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise DeviceError(f"{count!r} is not a number of devices", expected="an integer from 1")
    if not known.count():
        raise DeviceError(f"there is no device of type {type!r} to split", hint=known.install)
    in_use = max([d.index for d in known.devices.copy().values() if d._kinds], default=-1) + 1
    if count < in_use:
        raise DeviceError(f"{type}:{in_use - 1} is in use", expected=f"at least {in_use}")
    known.logical = count


def devices(type: str | None = None) -> list[Device]:
    """All available devices, or those of one type.

    >>> str(ef.devices("cpu")[0])
    'cpu:0'
    """
    types = list(device_types.values()) if type is None else [_type_named(type)]
    return [_device(known, i) for known in types for i in range(_count(known))]


def device_of(array: Any) -> Device | None:
    """The device that holds ``array``; None if no active backend has arrays of its type."""
    for known in device_types.values():
        if known.backend is not None and isinstance(array, known.backend.array_type):
            return _device(known, known.backend.locate(array))
    return None


def _backend(known: DeviceType) -> Any:
    if known.backend is None:
        with Locked(_lock):
            known.backend = known.backend or known.load()
    return known.backend


def _type_named(name: str) -> DeviceType:
    try:
        return device_types[name]
    except (KeyError, TypeError):
        raise DeviceError(
            f"there is no device type {name!r}",
            expected="one of " + ", ".join(sorted(device_types)),
            hint="'gpu:0' for a GPU of NVIDIA; x.astype(dtype) for another dtype",
        ) from None


def _count(known: DeviceType) -> int:
    return known.count() if known.logical is None else known.logical


def _device(known: DeviceType, index: int) -> Device:
    if index not in known.devices:
        known.devices.setdefault(index, Device(known, index))
    return known.devices[index]


def as_device(place: Device | str | None) -> Device:
    """The device that ``place`` names; None is the current device.

    Short (``gpu:1``, ``gpu``) and full (``/job:local/task:0/device:gpu:1``) names are
    understood. Missing parts of a name are taken from the current device, if that
    fits the rest, or else 0. Raises DeviceError for a device that does not exist.
    """
    if place is None:
        return current_device()
    if isinstance(place, Device):
        return place
    match = _NAME.fullmatch(place) if isinstance(place, str) else None
    if match is None or not place or place.endswith("/device:"):
        raise DeviceError(
            f"{place!r} is not a device name",
            expected="a name such as 'cpu', 'gpu:1' or '/job:local/task:0/device:cpu:0'",
        )
    current = current_device()
    if match["job"] not in (None, "local") or match["task"] not in (None, "0"):
        known = _type_in_task(place, match, current)
    else:
        known = _type_named((match["type"] or current.type).lower())
    if match["index"] not in (None, "*"):
        number = int(match["index"])
    else:
        number = current.index if current._type is known else 0
    if number >= _count(known):
        there = devices() if not known.task else _devices_of(known.task)
        raise DeviceError(
            f"there is no device {place!r}",
            expected="one of " + ", ".join(map(str, there)),
            hint=None if known.task else _remedy(known, number),
        )
    return _device(known, number)


# Tasks of a cluster ------------------------------------------------------------------------------


def add_task(task: str, counts: Mapping[str, int], sharing: int = 1, own: bool = False) -> None:
    """Register the devices of a cluster's task, by the number of each type.

    In the task's ``own`` process they are the existing ones. Elsewhere values on them are
    held in the memory of the host, until they are sent. ``sharing`` tasks share its machine.
    """
    types = task_types.setdefault(task, {})
    for name, count in counts.items():
        known = types.get(name)
        if known is None:
            load = partial(_backend, _type_named(name if own else HOST_TYPE))
            known = types[name] = DeviceType(name, load, int, None, task=task)
        known.logical, known.sharing = count, sharing


def remove_task(task: str) -> None:
    """Remove the names of a task's devices; tensors on them stay as they are."""
    for known in task_types.get(task, {}).values():
        known.logical = 0


def knows_task(task: str) -> bool:
    """Whether there is a task of this name in a cluster that this process has entered."""
    return any(_count(x) for x in task_types.get(task, {}).values())


def _devices_of(task: str) -> list[Device]:
    return [_device(known, i) for known in task_types[task].values() for i in range(_count(known))]


def _type_in_task(place: str, match: re.Match[str], current: Device) -> DeviceType:
    """The device type for a name with a task: that of the current device if possible."""
    task = f"/job:{match['job'] or 'local'}/task:{int(match['task'] or 0)}"
    types = {name: known for name, known in task_types.get(task, {}).items() if _count(known)}
    name = match["type"].lower() if match["type"] else current.type
    if name not in types and not match["type"]:
        name = next(iter(types), name)
    if name not in types:
        there = [task for task in task_types if knows_task(task)]
        raise DeviceError(
            f"there is no device {place!r}: this process is {HERE}",
            expected=f"a device of {', '.join(there)}" if there else None,
            hint=None if there else "names of other tasks are known in an ef.cluster.Cluster",
        )
    return types[name]


def _remedy(known: DeviceType, number: int) -> str | None:
    if _count(known):
        return f"ef.set_logical_devices({known.name!r}, {number + 1}) splits the existing ones"
    return known.install


class _ThreadState(threading.local):
    device: Device | None = None


_thread = _ThreadState()


def current_device() -> Device:
    """The device on which new tensors of this thread are made."""
    return _thread.device or _device(device_types[HOST_TYPE], 0)


def scoped_device() -> Device | None:
    """The device that this thread has entered with ``ef.device``; None without one."""
    return _thread.device


class _DeviceContext(ScopeGuard):
    """A context in which a device is this thread's current one."""

    def __init__(self, place: Device) -> None:
        self.place = place
        self._before: list[Device | None] = []

    def __enter__(self) -> Device:  # type: ignore[override]
        self.acquire()
        return self.place

    def acquire(self) -> None:
        self._before.append(_thread.device)
        _thread.device = self.place

    def release(self) -> None:
        if self._before:
            _thread.device = self._before[0]
            self._before.clear()


def device(name: Device | str) -> _DeviceContext:
    """Context in which new tensors of this thread are made on the device ``name``.

    Raises DeviceError for a device that does not exist.

    >>> with ef.device("cpu:0"):
    ...     print(ef.zeros((2,)).device)
    cpu:0
    """
    return _DeviceContext(as_device(name))


# Memory ------------------------------------------------------------------------------------------


def memory_stats(device: Device | str | None = None) -> dict[str, int]:
    """Figures of the memory on a device, such as ``bytes_in_use``.

    ``device`` is a device or its name; None is the current one. On the CPU they describe the
    pool for large results of row-wise ops and of fused element-wise ops:
    ``bytes_in_use``, ``bytes_kept`` in free blocks, ``peak_bytes_in_use``, the number of
    ``allocations`` and of ``reuses`` of kept memory, and ``bytes_limit``, 0 for none. Memory of
    other tensors that were made under a limit counts as in use too. The devices of one machine
    share these figures. Raises DeviceError for a device that does not exist.

    >>> ef.memory_stats("cpu")["bytes_limit"]
    0
    """
    place = as_device(device)
    return place.backend.memory_stats(place.index)  # type: ignore[no-any-return]


def set_memory_limit(device: Device | str | None, size: int | None) -> None:
    """Refuse allocations that would raise the memory of tensors made from now on, and of the pool,
    above ``size`` bytes on a device; on a CPU without llvmlite only that of the pool.

    ``device`` is a device or its name, None the current one; ``size`` is in bytes, and None
    lifts the limit. ``ef.memory_stats`` shows the total: all memory that ops and ``ef.tensor``
    allocate, even temporarily, and none that tensors share with foreign arrays. An allocation over
    the limit frees kept memory first and then raises OutOfMemoryError. Raises
    DeviceError for a device that does not exist or whose library has no limits, and
    ArgumentError for a size that is not a number of bytes.

    >>> ef.set_memory_limit("cpu", 8 * 2**30)
    >>> ef.set_memory_limit("cpu", None)
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ArgumentError(
            f"{size!r} is not a limit of memory",
            op="set_memory_limit",
            expected="a number of bytes from 1, or None for no limit",
        )
    place = as_device(device)
    place.backend.set_memory_limit(place.index, size)


def empty_cache(device: Device | str | None = None) -> None:
    """Return memory kept for later tensors to the system.

    ``device`` is a device or its name, None the current one. Tensors keep theirs. Raises
    DeviceError for a device that does not exist.

    >>> ef.empty_cache()
    >>> ef.memory_stats()["bytes_kept"]
    0
    """
    place = as_device(device)
    place.backend.empty_cache(place.index)
