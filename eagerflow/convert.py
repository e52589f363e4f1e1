"""Anything a user may hand in, as a Tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.devices import Device, as_device, device_of
from eagerflow.dtypes import FLOAT8, STANDARD, DType, as_dtype, default_dtype
from eagerflow.errors import DTypeError, OutOfMemoryError, ShapeError, short_repr
from eagerflow.op import MAX_DEPTH, ops
from eagerflow.tensor import Operators, Tensor, new_tensor

__all__ = ["SCALARS", "as_tensor", "from_array"]

SCALARS = frozenset({bool, int, float, complex})
_KNOWN = STANDARD | FLOAT8
_CUDA = 2  # DLPack's number for memory of NVIDIA GPUs


def as_tensor(obj: Any, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """``obj`` as a Tensor of this dtype on this device.

    Tensors, NumPy arrays and what offers ``__dlpack__`` or ``__array__`` keep their dtype;
    Python floats become float32, ints int64. ``copy=True`` gives memory of its own,
    ``copy=None`` shares where it can, ``copy=False`` raises where it cannot.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Operators):
        return _from_tensor(obj, wanted, device, copy)
    place = as_device(device)
    if isinstance(obj, list | tuple) and _holds_tensors(obj):
        return _from_tensor(ops["stack"].call([as_tensor(x) for x in obj]), wanted, device, None)
    if (home := _home(obj)) is not None:
        array = home.backend.copy(obj) if copy else home.backend.asarray(obj, None, home.index)
        return _from_tensor(new_tensor(array, home.kind(array.dtype)), wanted, device, copy)
    values, own = _values(obj, wanted, copy)
    if copy is False and place.type != "cpu":
        raise DTypeError(f"copy=False, but values on the way to {place} are copied")
    return from_array(values, place, copy is True and not own)


def _home(obj: Any) -> Device | None:
    """The device other than the CPU that holds an array of another library."""
    if isinstance(obj, np.ndarray) or not hasattr(obj, "__dlpack_device__"):
        return None
    kind, index = obj.__dlpack_device__()
    return as_device(f"gpu:{index}") if kind == _CUDA else device_of(obj)


def _from_tensor(obj: Any, dtype: DType | None, device: Any, copy: bool | None) -> Tensor:
    tensor: Tensor = obj if type(obj) is Tensor else obj.value
    if device is not None and as_device(device) is not tensor.device:
        if copy is False:
            raise DTypeError(f"copy=False, but {tensor.device} to {device} needs a copy")
        tensor = ops["to_device"].call(tensor, str(as_device(device)))
    if dtype is not None and dtype != tensor.dtype:
        if copy is False:
            raise DTypeError(f"copy=False, but {tensor.dtype} to {dtype} needs a copy")
        tensor = ops["astype"].call(tensor, dtype)
    return tensor  # immutable, so a copy could not be told from the original


def _holds_tensors(items: Any, depth: int = 0) -> bool:
    if depth > MAX_DEPTH:  # it may hold itself, and twice at that, so go no further
        raise ShapeError("the lists are nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    inner = [_holds_tensors(x, depth + 1) for x in items if isinstance(x, list | tuple)]
    return any(inner) or any(isinstance(x, Operators) for x in items)


def from_array(values: Any, device: Device, copy: bool = False) -> Tensor:
    """A Tensor of a NumPy array's values; the memory is shared where the device can."""
    backend = device.backend
    array = backend.asarray(values, values.dtype, device.index)
    return new_tensor(backend.copy(array) if copy else array, device.kind(array.dtype))


def _values(obj: Any, dtype: DType | None, copy: bool | None) -> tuple[np.ndarray[Any, Any], bool]:
    """A NumPy array of a dtype that eagerflow knows, and whether nobody else has its memory."""
    cls = type(obj)
    own = cls in SCALARS or isinstance(obj, list | tuple | np.generic)
    if cls in SCALARS and dtype is None:
        dtype = default_dtype(cls)
    array = _read(obj)
    native = array.dtype.newbyteorder("=") if array.dtype.kind in "iufc" else array.dtype
    if native not in _KNOWN:
        _refuse(obj, array.dtype)
    if dtype is None:
        dtype = native
        if not hasattr(obj, "dtype"):  # Python numbers, nested or not
            dtype = default_dtype({"f": float, "c": complex, "i": int}.get(native.kind, bool))
    if array.dtype == dtype and not (own and copy is False):
        return array, own
    if copy is False:
        what = f"a {cls.__name__}" if own else array.dtype
        raise DTypeError(f"copy=False, but {what} to {dtype} needs a copy")
    return _cast(obj, array, np.dtype(dtype)), True


def _read(obj: Any) -> np.ndarray[Any, Any]:
    if obj is None or isinstance(obj, str | bytes | dict | set):
        _refuse(obj)
    try:
        if hasattr(obj, "__dlpack__") and not isinstance(obj, np.ndarray | np.generic):
            try:
                return np.from_dlpack(obj)
            except (BufferError, RuntimeError, TypeError):
                if not hasattr(obj, "__array__"):  # else: NumPy's DLPack knows no bfloat16
                    raise
        return np.asarray(obj)
    except MemoryError as error:
        raise OutOfMemoryError(f"the values do not fit into memory: {error}") from error
    except OverflowError as error:
        raise DTypeError(f"an integer does not fit into 64 bits: {error}") from None
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        if "inhomogeneous" in str(error):
            raise ShapeError(
                "the nested lists are ragged",
                received=short_repr(obj),
                expected="lists of equal lengths at each depth",
                hint="pad the rows, or keep a Python list of tensors",
            ) from None
        raise DTypeError(f"{type(obj).__name__}: {error}") from error


def _cast(obj: Any, array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype.kind in "iu" and array.dtype.kind in "iu" and not hasattr(obj, "dtype"):
        limits = np.iinfo(dtype)
        if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
            raise DTypeError(
                f"{str(obj)[:40]} does not fit into {dtype}",
                expected=f"integers from {limits.min} to {limits.max}",
            )
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and dtype.kind != "c":
            raise DTypeError(
                f"{array.dtype} to {dtype} would drop the imaginary part",
                hint="ef.real(x) or ef.imag(x)",
            )
        return array.astype(dtype)


def _refuse(obj: Any, dtype: Any = None) -> None:
    name = type(obj).__name__
    what = f"{'an' if name[0] in 'aeiou' else 'a'} {name}" if obj is not None else "None"
    if dtype is not None and hasattr(obj, "dtype"):
        what = f"an array of dtype {dtype}"
    raise DTypeError(
        f"{what} is not a tensor, an array or a number",
        expected="Tensors, Variables, NumPy arrays, numbers, or nested lists of numbers",
    )
