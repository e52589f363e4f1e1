"""Comparison of arrays: equality of bits, sizes of differences, and their description."""

import ctypes

import ml_dtypes
import numpy as np

SMALL = 4096  # bytes; below, comparing copies takes less time than asking for addresses
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def address(array):
    return array.__array_interface__["data"][0]


def same_bits(a, b):
    """Whether two arrays have equal bits; signs of zeros and kinds of NaN may differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.nbytes < SMALL or not (a.flags.c_contiguous and b.flags.c_contiguous):
        if a.tobytes() == b.tobytes():
            return True
    elif not _memcmp(address(a), address(b), a.nbytes):
        return True
    if a.dtype.kind in "biu":
        return False
    with np.errstate(all="ignore"):
        return bool(((a == b) | ((a != a) & (b != b))).all())


def describe_difference(found, expected):
    """The first difference of two arrays as text."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}"
    with np.errstate(all="ignore"):
        (indices,) = np.nonzero((found != expected).reshape(-1))
    if not len(indices):
        return "signs of zeros or NaNs differ"
    k = indices[0]
    values = f"{found.reshape(-1)[k]} instead of {expected.reshape(-1)[k]}"
    return f"{len(indices)} of {found.size} elements differ, [{k}] is {values}"


def differences(a, b):
    """The absolute difference of each pair of elements; infinite where only one is NaN."""
    with np.errstate(all="ignore"):
        x, y = a.astype("f8"), b.astype("f8")
        equal = (np.isnan(x) & np.isnan(y)) | (x == y)
        found = np.where(equal, 0.0, np.abs(x - y))
    return np.where(np.isnan(found), np.inf, found)


def largest_difference(a, b):
    if a.dtype == b.dtype == "float32":
        with np.errstate(all="ignore"):
            found = float(np.abs(a - b).max(initial=0.0))
        if np.isfinite(found):
            return found
    return float(differences(a, b).max(initial=0.0))


def with_errors(arrays, eps, rng, more=()):
    """Gradients, None among them, with the rounding errors of the largest of them or of ``more``.

    A gradient of 0 may be computed as the rounding errors of terms that cancel, which some
    optimizers amplify to a whole step.
    """
    sizes = [largest_magnitude(a) or 1.0 for a in arrays if a is not None and a.any()]
    error = eps * max([*sizes, *more], default=0.0)
    return [
        None if a is None else (a + error * rng.uniform(-2, 2, a.shape)).astype(a.dtype)
        for a in arrays
    ]


def largest_magnitude(array):
    """The largest finite absolute value, 0 if there is none."""
    if array.dtype.kind != "f" or array.dtype.itemsize == 2:
        array = array.astype("f8")
    with np.errstate(all="ignore"):
        sizes = np.abs(array)
        found = float(sizes.max(initial=0.0))
    return found if np.isfinite(found) else float(sizes[np.isfinite(sizes)].max(initial=0.0))


def epsilon(dtype):
    """The distance from 1 to the next larger number of a floating dtype."""
    return float(ml_dtypes.finfo(dtype).eps)
