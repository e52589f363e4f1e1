"""Conversion of arbitrary arguments to Tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from eagerflow.backends.numpy import is_shared, lend, quietly
from eagerflow.columns import array_of_columns, has_columns
from eagerflow.devices import Device, as_device, device_of
from eagerflow.dims import Dim
from eagerflow.dlpack import exchanged
from eagerflow.dtypes import (
    FLOAT8,
    STANDARD,
    DType,
    as_dtype,
    bfloat16,
    default_dtype,
    join_scalar,
    promote,
)
from eagerflow.errors import ArgumentError, DTypeError, ShapeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.number import Number, size_as_number
from eagerflow.op import MAX_DEPTH, ops
from eagerflow.recorder import recording
from eagerflow.tensor import Operators, Tensor, new_tensor
from eagerflow.unsupported import unsupported

_RANK: tuple[type, ...] = (bool, int, float, complex)
_NUMPYS = (np.bool_, np.integer, np.floating, np.complexfloating)
SCALARS = frozenset(_RANK)
_KNOWN = STANDARD | FLOAT8
_SMALL = {dtype.type for dtype in FLOAT8 | {bfloat16}}
_DLPACK_CUDA = 2  # DLPack's number for memory of NVIDIA GPUs


def as_tensor(
    obj: Any,
    dtype: Any = None,
    device: Device | str | None = None,
    copy: bool | None = None,
    kept: bool = True,
) -> Tensor:
    """``obj`` as a Tensor of this dtype on this device.

    Tensors, NumPy arrays and objects with ``__dlpack__`` or ``__array__`` keep their dtype;
    Python floats become float32, ints int64. ``copy=True`` allocates new memory,
    ``copy=None`` shares if possible, ``copy=False`` raises if it is not. ``kept=False``
    promises that the Tensor is used at once and dropped.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if type(obj) is Dim and recording():
        obj = size_as_number(obj)
    if wanted is not None:
        obj = obj.meeting(wanted) if type(obj) is Number else plain_number(obj)
    if isinstance(obj, Operators):
        return _from_tensor(obj, wanted, device, copy)
    place = as_device(device)
    if isinstance(obj, list | tuple) and any(issubclass(c, Operators) for c in _leaf_types(obj)):
        # Numbers take on the dtype of the tensors they meet, or the one wanted.
        if wanted is None and (kind := number_type(obj)) is not None:
            wanted = default_dtype(kind)
        parts = obj if wanted is None else [as_tensor(x, wanted, device) for x in obj]
        return _from_tensor(ops["stack"].call(parts), wanted, device, None)
    if (home := _home(obj)) is not None:
        array = home.backend.copy(obj) if copy else home.backend.asarray(obj, None, home.index)
        return _from_tensor(new_tensor(array, home.kind(array.dtype)), wanted, device, copy)
    values, own = _values(obj, wanted, copy)
    if kept and not own and not copy:
        lend(values)
    if copy is False and not place.backend.host:
        raise ArgumentError(f"copy=False, but values on the way to {place} are copied")
    return from_array(values, place, copy is True and not own)


def _home(obj: Any) -> Device | None:
    """The device other than the CPU that holds an array of another library."""
    if isinstance(obj, np.ndarray) or not hasattr(obj, "__dlpack_device__"):
        return None
    kind, index = obj.__dlpack_device__()
    return as_device(f"gpu:{index}") if kind == _DLPACK_CUDA else device_of(obj)


def _from_tensor(
    obj: Any, dtype: DType | None, device: Device | str | None, copy: bool | None
) -> Tensor:
    tensor: Tensor = obj if type(obj) is Tensor else obj.value
    if device is not None and as_device(device) is not tensor.device:
        if copy is False:
            raise ArgumentError(f"copy=False, but {tensor.device} to {device} needs a copy")
        tensor = ops["to_device"].call(tensor, str(as_device(device)))
    if dtype is not None and dtype != tensor.dtype:
        if copy is False:
            raise ArgumentError(f"copy=False, but {tensor.dtype} to {dtype} needs a copy")
        tensor = ops["astype"].call(tensor, dtype)
    if copy and is_shared(tensor._array):
        tensor = ops["where"].call(True, tensor, tensor)  # a copy that gradients pass through
    return tensor  # immutable, so a copy would be indistinguishable


def _leaf_types(items: Any, depth: int = 0) -> set[type]:
    """The types of the items of a nest of lists and tuples."""
    if depth > MAX_DEPTH:  # it may contain itself, even twice, so go no further
        raise ShapeError("the lists are nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    found = set(map(type, items))
    nests = {cls for cls in found if issubclass(cls, list | tuple)}
    if nests:
        inner = [_leaf_types(x, depth + 1) for x in items if type(x) in nests]
        found = (found - nests).union(*inner)
    return found


def number_type(obj: Any) -> type | None:
    """bool, int, float or complex for a Python or NumPy number; None for everything else.

    For a nest of lists and tuples it is the widest of its numbers, None if it has other
    items. Arrays in a nest count like the numbers in them.
    """
    if not isinstance(obj, list | tuple):
        return obj.python if type(obj) is Number else _type_kind(type(obj))
    kinds = {_type_kind(cls) for cls in _leaf_types(obj)}
    if None in kinds:  # arrays, or numbers that are not known while tracing
        kinds = {_type_kind(x.dtype.type) if type(x) is np.ndarray else number_type(x) for x in obj}
    return None if None in kinds else max(kinds, key=_RANK.index, default=float)


def _kind_of_type(cls: type) -> type | None:
    if cls in SCALARS:
        return cls
    if cls in _SMALL:
        return float
    pairs = zip(_RANK, _NUMPYS, strict=True)
    found = next((kind for kind, base in pairs if issubclass(cls, (kind, base))), None)
    return None if issubclass(cls, np.timedelta64) else found


_type_kind: Callable[[type], type | None] = lru_cache(256)(_kind_of_type)


def _is_foreign_array(cls: type) -> bool:
    """Whether objects of a class are arrays of another library, such as PyTorch's."""
    return hasattr(cls, "__dlpack__") and not issubclass(cls, Operators | np.ndarray | np.generic)


is_foreign_array: Callable[[type], bool] = lru_cache(256)(_is_foreign_array)


def own_dtype(obj: Any) -> DType:
    """The dtype of a tensor or an array, and the default of numbers."""
    if type(obj) is Tensor:
        return obj._kind.dtype
    found: DType | None = getattr(obj, "dtype", None)
    kind = number_type(obj) if found is None else None
    return as_dtype(found) if kind is None else default_dtype(kind)


def join_numbers(dtype: DType | None, numbers: Sequence[Any]) -> DType | None:
    """The dtype of numbers next to tensors of ``dtype``, or next to each other if it is None.

    NumPy numbers have dtypes of their own, which count if there are no tensors.
    """
    if not numbers:
        return dtype
    if dtype is None:
        own = [own_dtype(x) for x in numbers if x.__class__ not in SCALARS]
        dtype = reduce(promote, own) if own else None
    kinds = {number_type(x) for x in numbers}
    for kind in filter(kinds.__contains__, _RANK):
        dtype = default_dtype(kind) if dtype is None else join_scalar(dtype, kind)
    return dtype


def plain_number(obj: Any) -> Any:
    """A NumPy number as the Python number that it counts as; everything else unchanged."""
    kind = _type_kind(type(obj)) if isinstance(obj, np.generic) else None
    return obj if kind is None else kind(obj)


def from_array(values: Any, device: Device, copy: bool = False) -> Tensor:
    """A Tensor of a NumPy array's values; the memory is shared if the device can."""
    backend = device.backend
    array = backend.asarray(values, as_dtype(values.dtype), device.index)
    return new_tensor(backend.copy(array) if copy else array, device.kind(array.dtype))


def _values(obj: Any, dtype: DType | None, copy: bool | None) -> tuple[np.ndarray[Any, Any], bool]:
    """A NumPy array of a supported dtype, and whether it is the only owner of its memory."""
    cls = type(obj)
    own = cls in SCALARS or isinstance(obj, list | tuple | np.generic)
    kind = None if hasattr(obj, "dtype") else number_type(obj)
    if dtype is None and kind is not None:
        dtype = default_dtype(kind)
    array = _read(obj, kind is not None)
    if kind is int and array.dtype.kind not in "iu" and dtype is not None:
        return _whole_numbers(obj, dtype), True  # no NumPy dtype holds them all
    native = array.dtype.newbyteorder("=") if array.dtype.kind in "iufc" else array.dtype
    if native not in _KNOWN:
        raise unsupported(obj, array.dtype)
    if dtype is None:
        dtype = native
        if not hasattr(obj, "dtype") and not hasattr(obj, "__array__"):  # such as a range
            dtype = default_dtype(_type_kind(native.type) or float)
    if array.dtype == dtype and not (own and copy is False):
        return array, own
    if copy is False:
        what = f"a {cls.__name__}" if own else array.dtype
        raise ArgumentError(f"copy=False, but {what} to {dtype} needs a copy")
    return _cast(obj, array, np.dtype(dtype)), True


def _read(obj: Any, own: bool) -> np.ndarray[Any, Any]:
    if obj is None or isinstance(obj, str | bytes | dict | set):
        raise unsupported(obj)
    if not own and has_columns(type(obj)):
        return array_of_columns(obj)
    if is_foreign_array(type(obj)):
        return exchanged(obj)
    try:
        return quietly(np.asarray, obj) if own else np.asarray(obj)
    except raised_here(OverflowError) as error:
        raise DTypeError(f"an integer does not fit into 64 bits: {error}") from None
    except raised_here(ValueError, TypeError, RuntimeError, BufferError) as error:
        if "inhomogeneous" in str(error):
            raise ShapeError(
                "the nested lists are ragged",
                received=short_repr(obj),
                expected="lists of equal lengths at each depth",
                hint="pad the rows, or keep a Python list of tensors",
            ) from None
        raise DTypeError(f"{type(obj).__name__}: {error}") from error


def _whole_numbers(obj: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Python integers of any size as an array."""
    array = np.asarray(obj, object)
    if dtype.kind in "iu":
        _check_limits(obj, array, dtype)
        return array.astype(dtype)
    try:
        return array.astype(np.float64).astype(dtype)
    except raised_here(OverflowError) as error:
        raise DTypeError(f"{str(obj)[:40]} does not fit into {dtype}: {error}") from None


def _check_limits(obj: Any, array: np.ndarray[Any, Any], dtype: DType) -> None:
    limits = np.iinfo(dtype)
    if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
        expected = f"integers from {limits.min} to {limits.max}"
        raise DTypeError(f"{str(obj)[:40]} does not fit into {dtype}", expected=expected)


def _cast(obj: Any, array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype.kind in "iu" and array.dtype.kind in "iu" and not hasattr(obj, "dtype"):
        _check_limits(obj, array, dtype)
    if array.dtype.kind == "c" and dtype.kind != "c":
        problem = f"{array.dtype} to {dtype} would drop the imaginary part"
        raise DTypeError(problem, hint="ef.real(x) or ef.imag(x)")
    return quietly(array.astype, dtype)  # type: ignore[no-any-return]
