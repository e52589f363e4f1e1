"""The functions of ``keras.ops.numpy`` that make tensors of sizes and numbers."""

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype

import eagerflow as ef
from eagerflow.keras.backend.operands import joined, sizes_of
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "arange",
    "array",
    "bartlett",
    "blackman",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "geomspace",
    "hamming",
    "hanning",
    "identity",
    "kaiser",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]


def array(x, dtype=None):
    return convert_to_tensor(x, dtype=dtype)


def zeros(shape, dtype=None):
    return ef.zeros(sizes_of(shape), dtype=_named(dtype))


def ones(shape, dtype=None):
    return ef.ones(sizes_of(shape), dtype=_named(dtype))


def empty(shape, dtype=None):
    return ef.empty(sizes_of(shape), dtype=_named(dtype))


def full(shape, fill_value, dtype=None):
    dtype = _named(dtype)
    return ef.broadcast_to(convert_to_tensor(fill_value, dtype), sizes_of(shape))


def _named(dtype):
    return standardize_dtype(dtype or config.floatx())


def zeros_like(x, dtype=None):
    x = convert_to_tensor(x)
    return ef.zeros_like(x, dtype=dtype or x.dtype)


def ones_like(x, dtype=None):
    x = convert_to_tensor(x)
    return ef.ones_like(x, dtype=dtype or x.dtype)


def empty_like(x, dtype=None):
    x = convert_to_tensor(x)
    return ef.empty_like(x, dtype=dtype or x.dtype)


def full_like(x, fill_value, dtype=None):
    x = convert_to_tensor(x)
    return ef.broadcast_to(convert_to_tensor(fill_value, dtype or x.dtype), x.shape)


def eye(N, M=None, k=0, dtype=None):
    return ef.eye(N, M, k=k, dtype=_named(dtype))


def identity(n, dtype=None):
    return ef.eye(n, dtype=_named(dtype))


def tri(N, M=None, k=0, dtype=None):
    return ef.tri(N, M, k=k, dtype=_named(dtype))


def arange(start, stop=None, step=None, dtype=None):
    if dtype is None:
        dtype = joined(*(_kind(n) for n in (start, stop, step) if n is not None))
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(n) for n in (start, stop, 1 if step is None else step))
    wide = "float64" if any(isinstance(n, float) for n in (start, stop, step)) else "int64"
    return cast(ef.arange(start, stop, step, dtype=wide), dtype)


def _kind(n):
    """The value or type that determines a number's dtype; a free size counts as an integer."""
    if hasattr(n, "dtype"):
        return n.dtype.name if hasattr(n.dtype, "name") else n.dtype
    return type(n) if isinstance(n, int | float) else int


def _number(n):
    """A Python number, or a free size; a tensor's value is read, as the size depends on it."""
    return n.item() if hasattr(n, "item") else n


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    start, stop, own = _ends(start, stop)
    step = ef.divide(ef.subtract(stop, start), max(num - 1, 1) if endpoint else max(num, 1))
    found = _between(start, stop, num, endpoint)
    found = ef.floor(found) if "int" in str(dtype or own) else found
    found = ef.moveaxis(cast(found, dtype or own), 0, axis)
    return (found, cast(step, own)) if retstep else found


def logspace(start, stop, num=50, endpoint=True, base=10, dtype=None, axis=0):
    start, stop, own = _ends(start, stop)
    exponents = _between(start, stop, num, endpoint)
    return ef.moveaxis(cast(ef.pow(cast(base, "float64"), exponents), dtype or own), 0, axis)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    start, stop, own = _ends(start, stop)
    sign = ef.sign(start)
    logs = _between(ef.log(ef.abs(start)), ef.log(ef.abs(stop)), num, endpoint)
    return ef.moveaxis(cast(ef.multiply(sign, ef.exp(logs)), dtype or own), 0, axis)


def _ends(start, stop):
    """Both ends in float64 and in one shape, and the dtype of the result."""
    own = joined(_kind(start), _kind(stop), float)
    start, stop = convert_to_tensor(start, "float64"), convert_to_tensor(stop, "float64")
    return *ef.broadcast_arrays(start, stop), own


def _between(start, stop, num, endpoint):
    """``num`` numbers from ``start`` to ``stop`` along a new first axis."""
    place = ef.reshape(ef.arange(num, dtype="float64"), (num,) + (1,) * start.ndim)
    share = ef.divide(place, max(num - 1, 1) if endpoint else max(num, 1))
    found = ef.add(ef.multiply(start, ef.subtract(1.0, share)), ef.multiply(stop, share))
    return found


# Windows ------------------------------------------------------------------------------------------


def bartlett(x):
    return _window(np.bartlett(int(x)))


def blackman(x):
    return _window(np.blackman(int(x)))


def hamming(x):
    return _window(np.hamming(int(x)))


def hanning(x):
    return _window(np.hanning(int(x)))


def kaiser(x, beta):
    return _window(np.kaiser(int(x), float(beta)))


def _window(values):
    """The window of a known length."""
    return ef.asarray(values.astype(config.floatx()))
