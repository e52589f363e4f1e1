"""Arrays in memory that detects foreign accesses: poisoned borders and protected pages.

An array of a stride pattern lies in a larger buffer. In a poisoned buffer all bytes that belong
to no element hold a pattern; ``touched`` counts those that do so no longer. In a guarded one the
array ends right before, or begins right after, a page without any permission, so that the first
byte read or written beyond it ends the process: such runs belong in a process of their own.
"""

import ctypes
import mmap
import sys

import numpy as np

PATTERNS = "contiguous|fortran|step 2|step 3|negative|broadcast|offset|column".split("|")
"""How the elements of an array may lie in memory."""

BORDER = 256  # bytes, twice the widest vector, on either side of a poisoned array
PAGE = mmap.PAGESIZE
_POISON = np.frombuffer(bytes([0xA5, 0x5A, 0xC3, 0x3C, 0x96, 0x69, 0xF1]), np.uint8)


def layout(shape, itemsize, pattern):
    """(strides, first, extent) in bytes: the first element's place in the bytes that are spanned.

    The pattern "broadcast" lets the elements along the first axis share their place.
    """
    order = range(len(shape)) if pattern == "fortran" else range(len(shape))[::-1]
    step, strides = itemsize, [0] * len(shape)
    if pattern in ("step 2", "step 3"):
        step *= int(pattern[-1])
    elif pattern == "column":  # a column of a matrix with five
        step *= 5
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1) + (pattern == "offset")  # rows that are not aligned either
    if shape and pattern == "broadcast":
        strides[0] = 0
    if pattern == "negative":
        strides = [-s for s in strides]
    if 0 in shape:
        return tuple(strides), 0, 0
    reach = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    first = -sum(r for r in reach if r < 0)
    return tuple(strides), first, sum(map(abs, reach)) + itemsize


class Poisoned:
    """An array in a buffer whose other bytes hold a pattern."""

    def __init__(self, shape, dtype, pattern="contiguous"):
        dtype = np.dtype(dtype)
        strides, first, extent = layout(shape, dtype.itemsize, pattern)
        # NumPy aligns to 16 bytes at least; an odd number of items more fits no vector.
        before = BORDER + (dtype.itemsize if pattern == "offset" else 0)
        self._memory = np.resize(_POISON, before + extent + BORDER)
        self.array = np.ndarray(shape, dtype, self._memory, before + first, strides)
        self._own = np.zeros(len(self._memory), bool)
        bits = f"V{dtype.itemsize}"
        own = np.ndarray(shape, bits, self._own, before + first, strides)
        own[...] = np.ones(dtype.itemsize, bool).view(bits)[0]

    def touched(self):
        """How many bytes beside the elements no longer hold the pattern."""
        changed = self._memory != np.resize(_POISON, len(self._memory))
        return int((changed & ~self._own).sum())


class Guarded:
    """An array between pages without permissions: one right after its end, or before its start.

    ``before`` places it at the start of its pages, else it lies at their end.
    """

    def __init__(self, shape, dtype, pattern="contiguous", before=False):
        dtype = np.dtype(dtype)
        strides, first, extent = layout(shape, dtype.itemsize, pattern)
        pages = -(-extent // PAGE)
        self._memory = mmap.mmap(-1, (pages + 2) * PAGE)
        bytes_ = np.frombuffer(self._memory, np.uint8)
        base = bytes_.ctypes.data
        for page in (base, base + (pages + 1) * PAGE):
            _protect(page, PAGE, 0)
        place = PAGE if before else (pages + 1) * PAGE - extent
        bytes_[PAGE : PAGE + pages * PAGE] = np.resize(_POISON, pages * PAGE)
        self.array = np.ndarray(shape, dtype, bytes_, place + first, strides)

    def touched(self):
        """0: a process that touches a guard page ends at once."""
        return 0


def guard_pages_work():
    """Whether this system can take the permissions away from a page."""
    return sys.platform.startswith("linux")


def _protect(address, length, permissions):
    """Change the permissions of pages: 0 is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), permissions):
        raise OSError(ctypes.get_errno(), "mprotect failed")
