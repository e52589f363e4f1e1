"""The CPU: NumPy."""

from __future__ import annotations

import gc
import math
import platform
import weakref
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from eagerflow.backends.base import AS_GIVEN, LARGE, MANY, Backend
from eagerflow.codegen import generated
from eagerflow.codegen.instructions import SAME_BITS
from eagerflow.dtypes import DType
from eagerflow.errors import OutOfMemoryError
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.runtime import allocation, buffers

__all__ = [
    "NumpyBackend",
    "copied_alike",
    "is_shared",
    "lend",
    "lent",
    "owner_of",
    "quiet_runner",
    "quietly",
]

KEPT_BYTES = 31 << 20


def quiet_runner() -> Callable[..., Any]:
    """A function ``run(f, *args)`` that calls ``f`` with NumPy's floating-point warnings off.

    NumPy keeps its error state in a context variable. A context of our own costs 20 ns a
    call, an ``errstate`` 1 µs, and neither the user's settings nor the warning filters are
    touched. A context can be entered once at a time, so each thread has one.
    """
    context = allocation.context()
    context.run(np.seterr, all="ignore")
    return context.run


_shared = quiet_runner()


def quietly(f: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    """Call ``f`` as kernels are called; on MemoryError, collect garbage and retry once.

    ``f`` must have no side effects. Raises OutOfMemoryError.
    """
    run, again = _shared, False
    while True:
        try:
            return run(f, *args, **named)
        except raised_here(RuntimeError) as error:
            # another thread, or an outer call, has entered the context already
            if "cannot enter context" not in str(error) or run is not _shared:
                raise
            run = quiet_runner()
        except raised_here(MemoryError) as error:
            if isinstance(error, OutOfMemoryError):
                raise
            if again:
                raise OutOfMemoryError(allocation.refusal_text(error), hint=buffers.HINT) from error
            again = True
            gc.collect()


_SHARED = SAME_BITS | (
    {"maximum", "minimum"} if platform.machine() in ("x86_64", "AMD64") else set()
)
"""Instructions with NumPy's bits in machine code. Of two zeros, maximum and minimum give the
second on x86; other processors order zeros by sign."""


def _compiled(body: Any, kernel: Any, least: int) -> Any:
    """A body compiled for contiguous arrays of at least so many elements, otherwise a kernel."""

    def many(*arrays: Any) -> Any:
        if least:
            size, dtype = 0, None
            for a in arrays:
                if a.__class__ is not np.ndarray or not _plain(a):
                    return kernel(*arrays)
                if a.dtype is not (dtype or a.dtype):
                    return kernel(*arrays)
                size, dtype = max(size, a.size), a.dtype
            if size < least:
                return kernel(*arrays)
        return generated.elementwise(body, *arrays)

    return many


def _plain(array: Any) -> bool:
    """Whether an array is contiguous in row-major order, or a single number repeated."""
    return array.flags.c_contiguous or not any(array.strides)


# Numbers ---------------------------------------------------------------------------------------

MAX_NUMBERS = 256  # cached per type and dtype
_FULL_WIDTH = frozenset("fdlqi")  # dtypes for which ufuncs take Python numbers unchanged


class _Numbers(dict[Any, Any]):
    """Python numbers of one type as 0-d arrays, which halve the time of ufuncs.

    Numbers that do not fit the dtype stay as they are; ufuncs handle them.
    """

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._zeros = [quietly(np.array, zero, dtype) for zero in (0.0, -0.0)]

    def __missing__(self, number: Any) -> Any:
        if number == 0:  # 0.0 and -0.0 would share one key of a dict
            return self._zeros[math.copysign(1.0, number) < 0]
        try:
            made = quietly(np.array, number, self._dtype)
        except raised_here(OverflowError, TypeError, ValueError):
            return number
        if len(self) < MAX_NUMBERS:
            self[number] = made
        return made


@cache
def _numbers(scalar: type, dtype: DType) -> _Numbers:
    return _Numbers(dtype)


# Foreign memory --------------------------------------------------------------------------------

lent: dict[int, weakref.ref[Any]] = {}
"""By identity, foreign arrays with memory shared by tensors."""


def owner_of(array: Any) -> Any:
    """The NumPy array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def lend(array: Any) -> None:
    """Remember that tensors share the memory of this array, which other code may write."""
    owner = owner_of(array)
    lent[id(owner)] = weakref.ref(owner, partial(lent.pop, id(owner)))


def is_shared(array: Any) -> bool:
    """Whether the memory of an array is shared with a foreign array."""
    return isinstance(array, np.ndarray) and id(owner_of(array)) in lent


def unshared(array: Any) -> Any:
    """An array, or a copy with the same layout if its memory is shared with a foreign array."""
    own = type(array) is np.ndarray and array.base is None and id(array) not in lent
    return copied_alike(array) if not own and is_shared(array) else array


def copied_alike(array: Any) -> Any:
    """A copy with the same strides, gaps included: rounding in NumPy's functions depends on them.

    >>> copied_alike(np.arange(6)[::-2]).strides
    (-16,)
    """
    if not isinstance(array, np.ndarray):
        return array.copy()  # of another backend
    if array.flags.forc:
        return np.array(array)
    low, high = byte_bounds(array)
    memory, start = np.empty(high - low, np.uint8), array.__array_interface__["data"][0]
    made: Any = np.ndarray(array.shape, array.dtype, memory, start - low, array.strides)
    np.copyto(made, array)
    return made


def is_foreign(array: Any) -> bool:
    """Whether the memory of an array was allocated by neither NumPy nor the pool.

    >>> is_foreign(np.ones(3)), is_foreign(np.frombuffer(bytearray(8), "u1"))
    (False, True)
    """
    owner = owner_of(array)
    own = owner.flags.owndata if owner.base is None else buffers.has_made(owner)
    return type(owner) is not np.ndarray or not own


class NumpyBackend(Backend):
    """Arrays of NumPy on the CPU."""

    name = "numpy"
    xp = np
    array_type = np.ndarray
    host = fuses = True
    empty = staticmethod(buffers.empty)

    def __init__(self) -> None:
        # glibc returns freed memory above a threshold to the system, and mapping fresh pages costs
        # more than arithmetic on them. The threshold follows the largest block freed, up to 32 MiB,
        # so freeing one block, whose pages are never touched, lets steps that allocate the same
        # sizes repeatedly keep their pages.
        np.empty(KEPT_BYTES, np.uint8)

    def bind(self, op: Op, dtype: DType) -> Callable[..., Any]:
        few, many = self.bind_by_size(op, dtype)
        if many is None or op.scalar in _SHARED:
            return few  # plans pass ``out`` to it

        def kernel(x: Any) -> Any:
            return few(x) if x.size < MANY else many(x)

        return kernel

    def bind_by_size(self, op: Op, dtype: DType) -> tuple[Any, Any]:
        kernel, name = super().bind(op, dtype), str(op.scalar)
        shared = op.scalar in _SHARED and dtype in op.allowed(0)
        if not (op.compiled or shared) or dtype.char not in "fd" or not generated.enabled():
            return kernel, None

        def body(s: Any, *operands: Any) -> Any:
            return getattr(s, name)(*operands)

        body.__name__ = name
        return kernel, _compiled(body, kernel, LARGE if shared else 0)

    def numbers(self, kernel: Any, scalar: type, dtype: DType) -> Mapping[Any, Any]:
        fits = scalar in (bool, int) or (scalar is float and dtype.kind == "f")
        plain = type(kernel) is np.ufunc and dtype.char in _FULL_WIDTH
        return _numbers(scalar, dtype) if fits and plain else AS_GIVEN

    def wrapper(self, index: int) -> Callable[[Any], Any]:
        return np.asarray

    def asarray(self, obj: Any, dtype: DType | None, index: int = 0) -> Any:
        return np.asarray(obj, dtype)

    def copy(self, array: Any) -> Any:
        return quietly(np.array, array)

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        view: np.ndarray[Any, Any] = array.view()
        return view

    def memory_stats(self, index: int) -> dict[str, int]:
        return buffers.stats()

    def set_memory_limit(self, index: int, size: int | None) -> None:
        buffers.set_limit(size)

    def empty_cache(self, index: int) -> None:
        buffers.release()
