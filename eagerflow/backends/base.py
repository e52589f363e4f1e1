"""The base class of backends: bind ops to an array library and move arrays in and out."""

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

# Ops that only move data need no arithmetic, so they take every dtype.
MOVERS = frozenset({"shape", "indexing", "creation", "random", "control", "communication"})


MANY = 1 << 14
"""From so many elements on, an op of one array may have another kernel."""
LARGE = 1 << 17
"""From so many elements on, an op of two arrays may have another: threads share its work."""


class _AsGiven(dict[Any, Any]):
    """Any key's value is the key."""

    def __missing__(self, key: Any) -> Any:
        return key


AS_GIVEN = _AsGiven()


class Backend:
    """An array library: its namespace, its array type, and the binding of ops to its functions."""

    name: str
    xp: Any
    array_type: type[Any]
    host = False
    """Whether its arrays are NumPy's in this process's memory, its devices are groups of CPU
    cores, and calls are synchronous."""
    fuses = False
    """Whether regions of captured functions are compiled to kernels for its arrays; those of a
    backend that is not ``host`` are made by ``region_call``."""
    records = False
    """Whether work on a device can be recorded (``record``) and replayed."""
    peers: Any = None
    """Transfers to devices of other processes that bypass host memory; see ``nccl``."""
    marks = False
    """Whether calls are asynchronous, so that their end is determined by ``mark``."""

    def on(self, index: int) -> Any:
        """Context in which computations and allocations are on the device with this index."""
        return nullcontext()

    def kernel_module(self) -> Any:
        """A container for kernels that are compiled together."""
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
        """A function of input and output arrays that computes a region.

        The arrays are on one device, expected to be that of this index, which is current in calls.
        Its kernels are in ``module``, from ``kernel_module``, together with those of other regions.
        """
        raise NotImplementedError(f"{type(self).__name__}.region_call")

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record the work that ``work()`` starts on the current device: a function that replays it.

        A replay is a single launch and uses the same addresses, which the caller keeps valid.
        Nothing runs during recording. Raises errors of the library if ``work`` cannot be recorded.
        """
        raise NotImplementedError(f"{type(self).__name__}.record")

    def products(self, index: int) -> Callable[..., bool] | None:
        """The launcher of matrix products with epilogues, if available: see ``cublaslt``."""
        return None

    def queue(self) -> Any:
        """The queue, of several on the current device, that receives work started now."""
        return None

    def address(self, array: Any) -> int:
        """The address of an array of this library."""
        found: int = array.ctypes.data
        return found

    def renamed(self, array: Any) -> Any:
        """Another array on the same memory, in row-major order, which is the base of its views."""
        raise NotImplementedError(f"{type(self).__name__}.renamed")

    def store(self, array: Any, values: Any) -> None:
        """Copy the values of an array of any backend into an array of the current device.

        Later changes of ``values`` have no effect; on a device, the call only blocks for large
        arrays from elsewhere.
        """
        self.xp.copyto(array, values)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new uninitialized array."""
        return self.xp.empty(shape, dtype)

    def bind(self, op: Op, dtype: DType) -> Callable[..., Any]:
        """The function of arrays and recorded attributes that computes ``op``."""
        several = op.scalar is op.kernel  # several steps, each of which would round
        general = whole(op.kernel) if several else op.kernel
        kernel: Callable[..., Any] = partial(op.overrides.get(self.name, general), self.xp)
        if op.ufunc and self.name not in op.overrides:
            try:
                kernel = attrgetter(op.ufunc)(self.xp)
            except raised_here(AttributeError):  # the body of the op does not need it
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
        """The function for ``op`` on few elements, and a different one for many, if there is one.

        Many are MANY of one array, and LARGE of two.
        """
        return self.bind(op, dtype), None

    def bind_direct(self, op: Op, dtype: DType) -> Callable[..., Any] | None:
        """The function of the first array and the user's attributes, for the hot path."""
        others = NARROW | COMPLEX if "complex" in op.overrides else NARROW
        if op.direct is None or (op.family not in MOVERS and dtype in others):
            return None
        try:
            function: Callable[..., Any] = op.direct(self.xp)
        except raised_here(AttributeError):  # an optional fast path that this library lacks
            return None
        return function

    def _through_float32(
        self, kernel: Callable[..., Any], dtype: DType, /, *arrays: Any, **attributes: Any
    ) -> Any:
        """Compute small floats in float32 and round the results, as BLAS does not support them."""
        wide = [a.astype(float32) if getattr(a, "dtype", None) == dtype else a for a in arrays]
        result = kernel(*wide, **attributes)
        if isinstance(result, tuple):
            return tuple(self._narrow(part, dtype) for part in result)
        return self._narrow(result, dtype)

    def _narrow(self, array: Any, dtype: DType) -> Any:
        return array.astype(dtype) if getattr(array, "dtype", None) == float32 else array

    def numbers(self, kernel: Any, scalar: type, dtype: DType) -> Mapping[Any, Any]:
        """The replacements of Python numbers of a type in an element-wise kernel of a dtype."""
        return AS_GIVEN

    def wrapper(self, index: int) -> Callable[[Any], Any]:
        """A function that makes an array on device ``index`` of a kernel's scalar result."""
        return partial(self.asarray, dtype=None, index=index)

    def asarray(self, obj: Any, dtype: DType | None, index: int = 0) -> Any:
        """``obj``, a NumPy array or a number, as an array of this library on device ``index``.

        Not copied if it is one already.
        """
        return self.xp.asarray(obj, dtype=dtype)

    def locate(self, array: Any) -> int:
        """Index of the device that holds an array of this library."""
        return 0

    def receive(self, array: Any, index: int = 0) -> Any:
        """An array of any backend on device ``index`` of this one; not copied if it is there."""
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
        """Wait until all started kernels have finished."""

    def mark(self) -> Any:
        """An event in the current device's queue, for backends with ``marks``."""
        raise NotImplementedError(f"{type(self).__name__}.mark")

    def seconds_between(self, first: Any, last: Any) -> float:
        """The seconds between two events of a device; waits for the later one."""
        raise NotImplementedError(f"{type(self).__name__}.seconds_between")

    def memory_stats(self, index: int) -> dict[str, int]:
        """Bytes in use on the device with this index, if the library reports them."""
        return {}

    def set_memory_limit(self, index: int, size: int | None) -> None:
        """Refuse allocations beyond ``size`` bytes on the device; None lifts the limit."""
        raise DeviceError(f"{self.name} cannot limit the memory of a device")

    def empty_cache(self, index: int) -> None:
        """Release cached memory, if the library caches any."""


class PlacedBackend(Backend):
    """A library with a current device among several, as for CUDA.

    Kernels and allocations run on the devices of their arrays, regardless of the current one; users
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
        """Run ``kernel`` on the device of its first array or, without one, of the result."""
        for x in args:
            if isinstance(x, self.array_type):
                with self.on(self.locate(x)):
                    return kernel(*args, **attributes)
        named = attributes.get("device")
        place = current_device() if named is None else as_device(named)
        with self.on(place.index):
            return kernel(*args, **attributes)
