"""A third-party backend over array-api-strict, as a user might write one.

It shows two things: that a device type can be added from outside, and that the ops' kernels
lean on the Array API standard alone. array-api-strict offers the standard and refuses the
rest; what it lacks and both NumPy and CuPy have under the same name stands in ``EXTRAS``.
"""

import threading
import types
from contextlib import contextmanager

import array_api_strict
import numpy as np

from eagerflow.backends.base import PlacedBackend

ARRAY = type(array_api_strict.asarray(0))
DEVICES = [array_api_strict.Device(name) for name in ("CPU_DEVICE", "device1", "device2")]
_NUMPY = {
    getattr(array_api_strict, name): np.dtype(name)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float32 float64 complex64 complex128"
    ).split()
}
_DTYPE_NAMES = {dtype.name for dtype in _NUMPY.values()}
_STRICT = {dtype: strict for strict, dtype in _NUMPY.items()}
_CREATION = {"arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros"}

# In NumPy and in CuPy under this name and with these arguments, but not in the standard.
EXTRAS = {"exp2", "isclose"}
# In the standard for some dtypes; NumPy and CuPy take all.
WIDER = {"logical_and", "logical_not", "logical_or", "logical_xor", "sum"}


class Array:
    """An array of array-api-strict that shows NumPy's dtypes, as eagerflow expects."""

    __slots__ = ("inner",)
    __array_ufunc__ = None
    __hash__ = None

    def __init__(self, inner):
        self.inner = inner

    shape = property(lambda self: self.inner.shape)
    size = property(lambda self: self.inner.size)
    ndim = property(lambda self: self.inner.ndim)
    dtype = property(lambda self: _NUMPY[self.inner.dtype])
    device = property(lambda self: self.inner.device)
    T = property(lambda self: Array(self.inner.T))
    mT = property(lambda self: Array(self.inner.mT))

    def astype(self, dtype, copy=True):
        """Not in the standard, but a method of NumPy's and CuPy's arrays."""
        return Array(array_api_strict.astype(self.inner, _STRICT[np.dtype(dtype)], copy=copy))

    def __getitem__(self, key):
        return Array(self.inner[self._key(key)])

    def __setitem__(self, key, value):
        self.inner[self._key(key)] = unwrap(value)

    def _key(self, key):
        """``key`` with an ellipsis for the axes that it does not mention, as in NumPy and CuPy."""
        parts = key if isinstance(key, tuple) else (key,)
        mask = any(isinstance(part, Array) and part.dtype.kind == "b" for part in parts)
        if not mask and all(part is not Ellipsis for part in parts):
            parts = (*parts, Ellipsis)
        return unwrap(parts if len(parts) > 1 else parts[0])

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.inner.__dlpack__(**options)

    def __repr__(self):
        return f"strict {self.inner!r} on {self.device}"


def _operator(name):
    def operate(self, *others):
        out = getattr(self.inner, name)(*map(unwrap, others))
        return out if out is NotImplemented else wrap(out)

    return operate


for _name in (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift "
    "radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift "
    "eq ne lt le gt ge neg pos abs invert bool int float complex index len"
).split():
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))


def numpy_values(array):
    inner = array.inner.to_device(DEVICES[0])
    try:
        return np.from_dlpack(inner)
    except BufferError:  # it is read-only, which NumPy before 2.1 cannot express
        return np.from_dlpack(array_api_strict.asarray(inner, copy=True))


def wrap(value):
    if isinstance(value, ARRAY):
        return Array(value)
    if isinstance(value, tuple):
        parts = [wrap(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [wrap(part) for part in value]
    return value


def unwrap(value):
    if isinstance(value, Array):
        return value.inner
    if isinstance(value, list | tuple):
        return type(value)(unwrap(part) for part in value)
    if isinstance(value, np.dtype):
        return _STRICT[value]
    if isinstance(value, np.ndarray):
        raise TypeError("a NumPy array came to a kernel of another library")
    return value


class Namespace:
    """Functions of array-api-strict on ``Array``; creation goes to the current device."""

    def __init__(self, module, current):
        self._module = module
        self._current = current

    def __getattr__(self, name):
        if name in _DTYPE_NAMES:
            return np.dtype(name)
        if name in EXTRAS:
            return self._extra(getattr(np, name))
        found = getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return Namespace(found, self._current)
        return self._function(name, found) if callable(found) else found

    def _function(self, name, function):
        def call(*args, **options):
            if name == "reshape" and isinstance(args[1], int):
                args = (args[0], (args[1],))
            if name in WIDER:
                return self._extra(getattr(np, name))(*args, **options)
            if name == "asarray" and isinstance(args[0], np.ndarray):
                args = (array_api_strict.asarray(args[0].copy()), *args[1:])
            if name in _CREATION:
                options.setdefault("device", self._current.device)
            return wrap(function(*self._bools(args), **{k: unwrap(v) for k, v in options.items()}))

        return call

    @staticmethod
    def _bools(args):
        """True next to numbers counts as 1, as in NumPy and CuPy; strict would refuse it."""
        numbers = any(isinstance(x, Array) and x.dtype.kind != "b" for x in args)
        return [int(x) if numbers and isinstance(x, bool) else unwrap(x) for x in args]

    def _extra(self, function):
        def call(*args, **options):
            plain = [numpy_values(x) if isinstance(x, Array) else x for x in args]
            out = array_api_strict.asarray(function(*plain, **options), device=self._current.device)
            return Array(out)

        return call


class _Current(threading.local):
    device = DEVICES[0]


class StrictBackend(PlacedBackend):
    """array-api-strict with its three devices."""

    name = "strict"
    array_type = Array

    def __init__(self):
        self._current = _Current()
        self.xp = Namespace(array_api_strict, self._current)

    @contextmanager
    def on(self, index):
        before = self._current.device
        self._current.device = DEVICES[index]
        try:
            yield
        finally:
            self._current.device = before

    def locate(self, array):
        return DEVICES.index(array.device)

    def asarray(self, obj, dtype, index=0):
        if isinstance(obj, Array):
            return obj
        values = np.array(obj, dtype)
        return Array(array_api_strict.asarray(values, device=DEVICES[index]))

    def receive(self, array, index=0):
        if isinstance(array, Array):
            return Array(array.inner.to_device(DEVICES[index]))
        return super().receive(array, index)

    def copy(self, array):
        return Array(array_api_strict.asarray(array.inner, copy=True, device=array.device))

    def to_numpy(self, array):
        return numpy_values(array)
