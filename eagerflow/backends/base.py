"""What every backend does: bind ops to an array library and move arrays in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from eagerflow.codegen.numpy.pointwise import whole
from eagerflow.devices import as_device, current_device, device_of
from eagerflow.dtypes import COMPLEX, NARROW, DType, bfloat16, float16, float32
from eagerflow.errors import DeviceError
from eagerflow.handlers import raised_here
from eagerflow.op import Op

if TYPE_CHECKING:  # the machinery of regions is loaded when it is first used
    from eagerflow.codegen.layout import Entry
    from eagerflow.codegen.region import Region

__all__ = ["Backend", "PlacedBackend"]

# Ops that only move data around need no arithmetic, so every dtype is fine as it is.
MOVERS = frozenset({"shape", "indexing", "creation", "random", "control", "communication"})


MANY = 1 << 14
"""Elements from which an op of one array may have another kernel."""
LARGE = 1 << 17
"""Elements from which one of two may have another: threads share its work from here on."""


class _AsGiven(dict[Any, Any]):
    """Any key's value is the key."""

    def __missing__(self, key: Any) -> Any:
        return key


AS_GIVEN = _AsGiven()


class Backend:
    """An array library: its namespace, its array type, and how ops reach its functions."""

    name: str
    xp: Any
    array_type: type[Any]
    host = False
    """Whether its arrays are those of NumPy in this process's memory, its devices shares of the
    processor's cores, and work is done when a call returns."""
    fuses = False
    """Whether regions of captured functions become kernels that take its arrays; those of a
    backend that is not ``host`` are made by ``region_call``."""
    records = False
    """Whether what is started on a device can be recorded (``record``), to be started again."""
    peers: Any = None
    """What sends arrays to devices of other processes, without the host's memory; see ``nccl``."""
    marks = False
    """Whether calls return before their work is done, so that ``mark`` has to tell when that is."""

    def on(self, index: int) -> Any:
        """Context in which what is computed and allocated is on the device with this index."""
        return nullcontext()

    def kernel_module(self) -> Any:
        """What collects kernels that are compiled together."""
        raise NotImplementedError(f"{type(self).__name__}.kernel_module")

    def region_call(
        self,
        region: Region,
        sizes: dict[str, int],
        inputs: Sequence[Entry],
        outputs: Sequence[Entry],
        index: int,
        module: Any,
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """A function of arrays to read and arrays to write that computes a region.

        They are on one device, most likely that with this index, which is current in its calls.
        Its kernels are in ``module``, from ``kernel_module``, with those of others.
        """
        raise NotImplementedError(f"{type(self).__name__}.region_call")

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What starts again what ``work()`` starts on the current device, in one launch.

        That is for the same addresses: the caller answers for that. Now it is only recorded.
        Raises whatever the library does where ``work`` cannot be recorded.
        """
        raise NotImplementedError(f"{type(self).__name__}.record")

    def products(self, index: int) -> Callable[..., bool] | None:
        """What starts products with epilogues on a device, if it is there: see ``cublaslt``."""
        return None

    def queue(self) -> Any:
        """In which order, of several, work is done on the current device that is started now."""
        return None

    def address(self, array: Any) -> int:
        """Where an array of this library begins in memory."""
        found: int = array.ctypes.data
        return found

    def renamed(self, array: Any) -> Any:
        """Another array in the same memory, in row-major order, of which views are views."""
        raise NotImplementedError(f"{type(self).__name__}.renamed")

    def store(self, array: Any, values: Any) -> None:
        """Give an array of the current device the values of one of any backend.

        They are those of the moment, whatever happens to ``values`` later; on a device, it waits
        only for values that lie elsewhere and are many.
        """
        self.xp.copyto(array, values)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of arbitrary values."""
        return self.xp.empty(shape, dtype)

    def bind(self, op: Op, dtype: DType) -> Callable[..., Any]:
        """The function of arrays and recorded attributes that computes ``op``."""
        several = op.scalar is op.kernel  # steps, each of which would round
        general = whole(op.kernel) if several else op.kernel
        kernel: Callable[..., Any] = partial(op.overrides.get(self.name, general), self.xp)
        if op.ufunc and self.name not in op.overrides:
            try:
                kernel = attrgetter(op.ufunc)(self.xp)
            except raised_here(AttributeError):  # the body of the op does without
                pass
        if op.family in MOVERS:
            return kernel
        if dtype in COMPLEX and (own := op.overrides.get("complex")):
            return partial(own, self.xp)
        if dtype in NARROW and (small := op.overrides.get(f"{self.name}, small floats")):
            return partial(small, self.xp)
        if dtype == bfloat16 or (dtype == float16 and (several or op.family != "elementwise")):
            return partial(self._through_float32, kernel, dtype)
        return kernel

    def bind_by_size(self, op: Op, dtype: DType) -> tuple[Any, Any]:
        """What computes ``op`` on few elements, and on many if that is something else.

        These are MANY of one array, and LARGE ones of two.
        """
        return self.bind(op, dtype), None

    def bind_direct(self, op: Op, dtype: DType) -> Callable[..., Any] | None:
        """The function of the first array and the user's attributes, for the hot path."""
        others = NARROW | COMPLEX if "complex" in op.overrides else NARROW
        if op.direct is None or (op.family not in MOVERS and dtype in others):
            return None
        try:
            function: Callable[..., Any] = op.direct(self.xp)
        except raised_here(AttributeError):  # a speed-up that this library does not offer
            return None
        return function

    def _through_float32(
        self, kernel: Callable[..., Any], dtype: DType, /, *arrays: Any, **attributes: Any
    ) -> Any:
        """Compute small floats in float32 and round the results, as BLAS knows no others."""
        wide = [a.astype(float32) if getattr(a, "dtype", None) == dtype else a for a in arrays]
        result = kernel(*wide, **attributes)
        if isinstance(result, tuple):
            return tuple(self._narrow(part, dtype) for part in result)
        return self._narrow(result, dtype)

    def _narrow(self, array: Any, dtype: DType) -> Any:
        return array.astype(dtype) if getattr(array, "dtype", None) == float32 else array

    def numbers(self, kernel: Any, scalar: type, dtype: DType) -> Mapping[Any, Any]:
        """What an element-wise kernel of a dtype gets for Python numbers of a type."""
        return AS_GIVEN

    def wrapper(self, index: int) -> Callable[[Any], Any]:
        """What makes an array on device ``index`` of a kernel's result that is a scalar."""
        return partial(self.asarray, dtype=None, index=index)

    def asarray(self, obj: Any, dtype: DType | None, index: int = 0) -> Any:
        """``obj``, a NumPy array or a number, as an array of this library on device ``index``.

        Nothing is copied where it is one already.
        """
        return self.xp.asarray(obj, dtype=dtype)

    def locate(self, array: Any) -> int:
        """Index of the device that holds an array of this library."""
        return 0

    def receive(self, array: Any, index: int = 0) -> Any:
        """An array of any backend on this one's device ``index``; no copy if it is there."""
        if isinstance(array, self.array_type):
            return array
        home = device_of(array)
        values = array if home is None else home.backend.to_numpy(array)
        return self.asarray(values, values.dtype, index)

    def copy(self, array: Any) -> Any:
        """A copy in memory of its own."""
        return self.xp.asarray(array, copy=True)

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """The values in a NumPy array, shared where they can be."""
        raise NotImplementedError(f"{type(self).__name__}.to_numpy")

    def synchronize(self) -> None:
        """Wait until all kernels that were started have ended."""

    def mark(self) -> Any:
        """A point in what the current device does one after the other; where it ``marks``."""
        raise NotImplementedError(f"{type(self).__name__}.mark")

    def seconds_between(self, first: Any, last: Any) -> float:
        """The time from one mark of a device to a later one, that is waited for."""
        raise NotImplementedError(f"{type(self).__name__}.seconds_between")

    def memory_stats(self, index: int) -> dict[str, int]:
        """Bytes in use on the device with this index, where the library can tell."""
        return {}

    def set_memory_limit(self, index: int, size: int | None) -> None:
        """Refuse allocations beyond ``size`` bytes on the device; None lifts the limit."""
        raise DeviceError(f"{self.name} cannot limit the memory of a device")

    def empty_cache(self, index: int) -> None:
        """Give memory back that is kept for arrays to come, where the library keeps any."""


class PlacedBackend(Backend):
    """A library that computes on one current device of several, as CUDA's do.

    Kernels and allocations run where their arrays are, whatever device is current; users
    never set it themselves.
    """

    def on(self, index: int) -> Any:
        """Context in which the device with this index is the library's current one."""
        raise NotImplementedError(f"{type(self).__name__}.on")

    def bind(self, op: Op, dtype: DType) -> Callable[..., Any]:
        return partial(self._at_home, super().bind(op, dtype))

    def bind_direct(self, op: Op, dtype: DType) -> Callable[..., Any] | None:
        direct = super().bind_direct(op, dtype)
        return None if direct is None else partial(self._at_home, direct)

    def _at_home(self, kernel: Callable[..., Any], *args: Any, **attributes: Any) -> Any:
        """``kernel`` on the device of its first array or, without one, where the result goes."""
        for x in args:
            if isinstance(x, self.array_type):
                with self.on(self.locate(x)):
                    return kernel(*args, **attributes)
        named = attributes.get("device")
        place = current_device() if named is None else as_device(named)
        with self.on(place.index):
            return kernel(*args, **attributes)
