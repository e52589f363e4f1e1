"""DLPack, also for the dtypes that NumPy's lacks: bfloat16 and float8.

Of these NumPy exchanges integers of the same width, and the type code in the capsule is changed: a
byte of the structure ``DLTensor``, whose layout is DLPack's ABI.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import DTypeError
from eagerflow.handlers import raised_here

_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}  # DLDataTypeCode
_UNSIGNED = 1
_PLACES = {b"dltensor": 20, b"dltensor_versioned": 52}
"""Bytes before the code: data, device and number of axes; the versioned structure has more."""

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _set_code(capsule: Any, code: int) -> Any:
    name = _name_of(capsule)
    ctypes.c_uint8.from_address(_address_of(capsule, name) + _PLACES[name]).value = code
    return capsule


def capsule_of(array: np.ndarray[Any, Any], **told: Any) -> Any:
    """The capsule of an array of any dtype; ``told`` are the arguments of ``__dlpack__``."""
    code = _CODES.get(array.dtype.name)
    if code is None:
        return array.__dlpack__(**told)
    return _set_code(array.view(f"u{array.itemsize}").__dlpack__(**told), code)


class _Integers:
    """An array of another library whose elements are given out as unsigned integers."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __dlpack__(self, **told: Any) -> Any:
        return _set_code(self.obj.__dlpack__(**told), _UNSIGNED)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.obj.__dlpack_device__()
        return found


def _small_floats(obj: Any) -> np.ndarray[Any, Any] | None:
    name = str(getattr(obj, "dtype", None)).rpartition(".")[2]  # such as torch.bfloat16
    if name not in _CODES:
        return None
    dtype: DType = as_dtype(name)
    return np.from_dlpack(_Integers(obj)).view(dtype)


def exchanged(obj: Any) -> np.ndarray[Any, Any]:
    """The array of an object with ``__dlpack__``, in its memory; DTypeError where there is none."""
    try:
        try:
            return np.from_dlpack(obj)
        except raised_here(BufferError, RuntimeError, TypeError):
            if (found := _small_floats(obj)) is not None:
                return found
            if not hasattr(obj, "__array__"):
                raise
        return np.asarray(obj)
    except raised_here(ValueError, TypeError, RuntimeError, BufferError) as error:
        detached = "x.detach(): gradients do not pass from library to library"
        raise DTypeError(
            f"{type(obj).__name__}: {error}",
            hint=detached if getattr(obj, "requires_grad", False) else None,
        ) from error
