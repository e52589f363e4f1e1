"""NumPy's own allocations, counted and limited while kernels run.

NumPy keeps its allocator in a context variable, and kernels run in contexts with an allocator
of ours, which at first calls the same functions as NumPy's own, so it costs nothing. The
first limit replaces them with machine code that counts bytes in one atomic number and refuses
allocations over the limit, before the system is asked. An array keeps the allocator that made it,
so its bytes are subtracted when the array is freed, in any context.

Counted blocks begin with their size in eight bytes, so the address of their data is no
multiple of 16, unlike that of the system's blocks: this distinguishes the two kinds.
"""

from __future__ import annotations

import contextvars
import ctypes
import math
from functools import cache
from typing import Any

import numpy as np

from eagerflow.handlers import raised_here
from eagerflow.runtime import machine_code

SET_HANDLER = 304  # index of PyDataMem_SetHandler in NumPy's table of functions, then the next
NAME = b"eagerflow"
USED, LENT, LIMIT, PEAK, REALLOC, FREE = range(6)
"""Indices in ``counters``: the bytes of NumPy's arrays, those of the pool, the limit of both, the
peak of both, and the addresses of NumPy's functions."""
NO_LIMIT = 2**63 - 1

counters = (ctypes.c_int64 * 6)(0, 0, NO_LIMIT, 0, 0, 0)
"""The counters of the allocator."""

_CODE = """
declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)

define internal i1 @take(ptr %counters, i64 %size) {
  %before = atomicrmw add ptr %counters, i64 %size seq_cst
  %at_lent = getelementptr i64, ptr %counters, i64 1
  %at_limit = getelementptr i64, ptr %counters, i64 2
  %at_peak = getelementptr i64, ptr %counters, i64 3
  %lent = load atomic i64, ptr %at_lent seq_cst, align 8
  %limit = load atomic i64, ptr %at_limit seq_cst, align 8
  %own = add i64 %before, %size
  %all = add i64 %own, %lent
  %fits = icmp sle i64 %all, %limit
  %small = icmp ult i64 %size, 4611686018427387904
  %good = and i1 %fits, %small
  br i1 %good, label %yes, label %no
yes:
  %most = atomicrmw max ptr %at_peak, i64 %all monotonic
  ret i1 1
no:
  %undone = atomicrmw sub ptr %counters, i64 %size seq_cst
  ret i1 0
}

define internal ptr @begun(ptr %counters, ptr %block, i64 %size) {
  %gone = icmp eq ptr %block, null
  br i1 %gone, label %no, label %yes
no:
  %undone = atomicrmw sub ptr %counters, i64 %size seq_cst
  ret ptr null
yes:
  store i64 %size, ptr %block, align 8
  %data = getelementptr i8, ptr %block, i64 8
  ret ptr %data
}

define internal i1 @counted(ptr %data) {
  %address = ptrtoint ptr %data to i64
  %low = and i64 %address, 15
  %odd = icmp eq i64 %low, 8
  ret i1 %odd
}

define ptr @limited_malloc(ptr %counters, i64 %size) {
  %taken = call i1 @take(ptr %counters, i64 %size)
  br i1 %taken, label %yes, label %no
yes:
  %whole = add i64 %size, 8
  %block = call ptr @malloc(i64 %whole)
  %data = call ptr @begun(ptr %counters, ptr %block, i64 %size)
  ret ptr %data
no:
  ret ptr null
}

define ptr @limited_calloc(ptr %counters, i64 %count, i64 %each) {
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {i64, i1} %product, 0
  %over = extractvalue {i64, i1} %product, 1
  br i1 %over, label %no, label %ask
ask:
  %taken = call i1 @take(ptr %counters, i64 %size)
  br i1 %taken, label %yes, label %no
yes:
  %whole = add i64 %size, 8
  %block = call ptr @calloc(i64 %whole, i64 1)
  %data = call ptr @begun(ptr %counters, ptr %block, i64 %size)
  ret ptr %data
no:
  ret ptr null
}

define ptr @limited_realloc(ptr %counters, ptr %data, i64 %size) {
  %own = call i1 @counted(ptr %data)
  br i1 %own, label %grow, label %theirs
theirs:
  %at = getelementptr i64, ptr %counters, i64 4
  %realloc = load ptr, ptr %at, align 8
  %made = call ptr %realloc(ptr null, ptr %data, i64 %size)
  ret ptr %made
grow:
  %block = getelementptr i8, ptr %data, i64 -8
  %before = load i64, ptr %block, align 8
  %taken = call i1 @take(ptr %counters, i64 %size)
  br i1 %taken, label %yes, label %no
yes:
  %whole = add i64 %size, 8
  %moved = call ptr @realloc(ptr %block, i64 %whole)
  %now = call ptr @begun(ptr %counters, ptr %moved, i64 %size)
  %failed = icmp eq ptr %now, null
  br i1 %failed, label %no, label %done
done:
  %given = atomicrmw sub ptr %counters, i64 %before seq_cst
  ret ptr %now
no:
  ret ptr null
}

define void @limited_free(ptr %counters, ptr %data, i64 %size) {
  %own = call i1 @counted(ptr %data)
  br i1 %own, label %ours, label %theirs
theirs:
  %at = getelementptr i64, ptr %counters, i64 5
  %free = load ptr, ptr %at, align 8
  call void %free(ptr null, ptr %data, i64 %size)
  ret void
ours:
  %block = getelementptr i8, ptr %data, i64 -8
  %held = load i64, ptr %block, align 8
  %given = atomicrmw sub ptr %counters, i64 %held seq_cst
  call void @free(ptr %block)
  ret void
}
"""


class Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("counters", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


MAKE, END = ("malloc", "calloc"), ("realloc", "free")


@cache
def _functions() -> tuple[Any, Any]:
    """NumPy's functions that set and get the handler of the current context."""
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    inner = vars(np)["_core"]
    table = ctypes.cast(
        find(inner._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p)
    )
    return (
        ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[SET_HANDLER]),
        ctypes.PYFUNCTYPE(ctypes.py_object)(table[SET_HANDLER + 1]),
    )


def _kept(*parts: Any) -> None:
    """Keep objects alive forever: arrays may be freed last in a process, and need them."""
    for part in parts:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


@cache
def handlers() -> tuple[Any, Handler, Handler]:
    """Our handler as NumPy's capsule and as a struct, and NumPy's own."""
    capsule = contextvars.Context().run(_functions()[1])
    find = ctypes.pythonapi.PyCapsule_GetPointer
    theirs = Handler.from_address(find(capsule, b"mem_handler"))
    ours = Handler(NAME, 1, ctypes.addressof(counters))
    for name in (*MAKE, *END):
        setattr(ours, name, getattr(theirs, name))
    counters[REALLOC], counters[FREE] = theirs.realloc, theirs.free
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    made = new(ctypes.addressof(ours), b"mem_handler", None)
    _kept(counters, ours, made, capsule)
    return made, ours, theirs


@cache
def _machine_code() -> dict[str, int]:
    """Addresses of the counting functions; empty without llvmlite, or without these C functions."""
    names = [f"limited_{name}" for name in (*MAKE, *END)]
    if not machine_code.available():
        return {}
    try:
        library = machine_code.link(machine_code.compile_object(_CODE), *names)
    except raised_here(RuntimeError, OSError):
        return {}
    _kept(library)
    return {name.removeprefix("limited_"): library.address(name) for name in names}


def context() -> contextvars.Context:
    """A context for kernels, in which limits hold."""
    made = contextvars.Context()
    made.run(_functions()[0], handlers()[0])
    return made


def limit(size: int | None, lent: int) -> bool:
    """Limit NumPy's arrays and those of the pool to ``size`` bytes in all; None lifts the limit.

    ``lent`` is the number of bytes in use from the pool. False if NumPy's arrays are not counted.
    """
    _, ours, theirs = handlers()
    if size is None:
        counters[LIMIT] = NO_LIMIT
        for name in MAKE:
            setattr(ours, name, getattr(theirs, name))
        return ours.free != theirs.free
    found = _machine_code()
    if not found:
        return False
    counters[LENT], counters[LIMIT] = lent, size
    for name in (*END, *MAKE):  # blocks made by the last two need the first two
        setattr(ours, name, found[name])
    return True


def counted_bytes() -> int:
    """Bytes of live NumPy arrays that were made under a limit."""
    return max(0, counters[USED])


def refusal_text(error: MemoryError) -> str:
    """The text of NumPy's error: the size requested, the limit, and the bytes in use."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if counters[LIMIT] == NO_LIMIT or shape is None or dtype is None:
        return str(error)
    asked = math.prod(shape) * dtype.itemsize
    used = counted_bytes() + counters[LENT]
    if used + asked <= counters[LIMIT]:
        return str(error)  # the system is out of memory
    return (
        f"an array of {asked:,} bytes exceeds the limit of {counters[LIMIT]:,}; {used:,} are in use"
    )
