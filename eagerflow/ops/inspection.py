"""Inspection of dtypes and of the library itself, as in the Array API standard."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from eagerflow.convert import join_numbers, number_type
from eagerflow.devices import Device, as_device, current_device, devices
from eagerflow.dtypes import (
    BOOL,
    COMPLEX,
    FLOAT8,
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMERIC,
    DType,
    as_dtype,
    default_dtype,
    promote,
    real_dtype,
)
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.records import Frozen
from eagerflow.spec import MAX_RANK

__all__ = ["__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS = {
    "bool": BOOL,
    "signed integer": frozenset(t for t in INTEGERS if t.kind == "i"),
    "unsigned integer": frozenset(t for t in INTEGERS if t.kind == "u"),
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": NUMERIC,
}


def _dtype_of(obj: Any, op: str, argument: str) -> DType:
    """The dtype of an array, or for a name or type."""
    named = isinstance(obj, str | type | np.dtype)  # the class np.float32 has a .dtype, too
    try:
        return as_dtype(obj if named else getattr(obj, "dtype", obj))
    except EagerflowError as error:
        error.op, error.argument = op, argument
        raise


# Promotion ----------------------------------------------------------------------------------------


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The result dtype of arrays, dtypes and Python numbers in an op such as ``ef.add``.

    Each argument is a tensor or another array, a dtype or its name, or a number of Python's or
    NumPy's, which never widens a dtype of its own kind or a higher one. Raises ArgumentError
    without arguments, DTypeError for other objects and for float8, which does not promote.

    >>> ef.result_type(ef.float32, ef.int64), ef.result_type(ef.tensor([1, 2]), 0.5)
    (dtype('float32'), dtype('float32'))
    """
    if not arrays_and_dtypes:
        raise ArgumentError(
            "there is nothing to find a dtype for", op="result_type", expected="arrays or dtypes"
        )
    dtype: DType | None = None
    numbers = [x for x in arrays_and_dtypes if not isinstance(x, list) and number_type(x)]
    known = set(map(id, numbers))
    for i, x in enumerate(arrays_and_dtypes):
        if id(x) not in known:
            own = _dtype_of(x, "result_type", f"arrays_and_dtypes[{i}]")
            dtype = own if dtype is None else _meet(dtype, own)
    dtype = join_numbers(dtype, numbers)
    assert dtype is not None  # there is at least one argument, and each of them has set it
    return dtype


def _meet(a: DType, b: DType) -> DType:
    try:
        return promote(a, b)
    except EagerflowError as error:
        error.op = "result_type"
        raise


def can_cast(from_: Any, to: Any) -> bool:
    """Whether promotion leads from one dtype to another.

    ``from_`` is an array, a dtype or its name, ``to`` a dtype or its name. True if an op on
    both computes in ``to``; so integers lead to all floats, even where these round them.
    Raises DTypeError for other objects than dtypes.

    >>> ef.can_cast(ef.int32, ef.int64), ef.can_cast(ef.float64, ef.float32)
    (True, False)
    """
    own, wanted = _dtype_of(from_, "can_cast", "from_"), _dtype_of(to, "can_cast", "to")
    if own != wanted and (own in FLOAT8 or wanted in FLOAT8):
        return False  # float8 meets no other dtype
    return promote(own, wanted) == wanted


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind.

    ``dtype`` is a dtype or its name; ``kind`` is a dtype, or one of ``"bool"``, ``"signed
    integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``, ``"complex floating"``
    and ``"numeric"``, or a tuple of these, one of which must fit. bfloat16 is real floating;
    float8, which is for storage, is a kind of its own. Raises DTypeError for other objects,
    ArgumentError for another kind.

    >>> ef.isdtype(ef.float32, "real floating"), ef.isdtype(ef.int8, ("bool", ef.int16))
    (True, False)
    """
    try:
        own = as_dtype(dtype)
    except EagerflowError as error:
        error.op, error.argument = "isdtype", "dtype"
        raise
    members = [_members(k) for k in (kind if isinstance(kind, tuple) else (kind,))]
    return any(own in dtypes for dtypes in members)


def _members(kind: Any) -> frozenset[DType]:
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    try:
        return frozenset({as_dtype(kind)})
    except raised_here(DTypeError):
        raise ArgumentError(
            f"{short_repr(kind)} is not a kind of dtypes",
            op="isdtype",
            argument="kind",
            expected=f"a dtype, {', '.join(map(repr, _KINDS))}, or a tuple of these",
        ) from None


# Limits -------------------------------------------------------------------------------------------


class FloatLimits(Frozen):
    """The limits of a floating-point dtype, in Python numbers."""

    bits: int
    """Bits of a number; for complex dtypes, of its real part."""
    eps: float
    """Difference of 1 and the next larger number."""
    max: float
    """Largest finite number."""
    min: float
    """Smallest finite number: the negative of the largest."""
    smallest_normal: float
    """Smallest positive number of full precision."""
    smallest_subnormal: float
    """Smallest positive number."""
    dtype: DType
    """The real dtype."""

    @property
    def tiny(self) -> float:
        """Another name of ``smallest_normal``."""
        return self.smallest_normal


class IntegerLimits(Frozen):
    """The limits of an integer dtype, in Python integers."""

    bits: int
    """Bits of a number."""
    max: int
    """Largest number."""
    min: int
    """Smallest number."""
    dtype: DType
    """The dtype."""


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype.

    ``type`` is a dtype, its name, or an array; complex dtypes have those of their real part.
    The result has ``bits``, ``eps``, ``max``, ``min``, ``smallest_normal`` (also ``tiny``),
    ``smallest_subnormal`` and ``dtype``. As everywhere, ``float`` stands for float32. Raises
    DTypeError for other dtypes.

    >>> ef.finfo(ef.float32).eps, ef.finfo(ef.bfloat16).bits
    (1.1920928955078125e-07, 16)
    """
    dtype = _dtype_of(type, "finfo", "type")
    if dtype not in INEXACT | FLOAT8:
        raise DTypeError(
            f"{dtype.name} is not a floating-point dtype",
            op="finfo",
            argument="type",
            expected="a real or complex floating-point dtype",
            hint="ef.iinfo is for integers",
        )
    return _float_limits(real_dtype(dtype))


@cache
def _float_limits(dtype: DType) -> FloatLimits:
    # NumPy does not know the limits of the dtypes that ml_dtypes adds.
    found: Any = np.finfo(dtype) if dtype.isbuiltin == 1 else ml_dtypes.finfo(dtype)
    names = ("eps", "max", "min", "smallest_normal", "smallest_subnormal")
    numbers = {name: float(getattr(found, name)) for name in names}
    return FloatLimits(bits=dtype.itemsize * 8, dtype=dtype, **numbers)


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype.

    ``type`` is a dtype, its name, or an array. The result has ``bits``, ``max``, ``min`` and
    ``dtype``. As everywhere, ``int`` stands for int64. Raises DTypeError for other dtypes.

    >>> ef.iinfo("int8")
    IntegerLimits(bits=8, max=127, min=-128, dtype=dtype('int8'))
    """
    dtype = _dtype_of(type, "iinfo", "type")
    if dtype not in INTEGERS:
        raise DTypeError(
            f"{dtype.name} is not an integer dtype",
            op="iinfo",
            argument="type",
            expected="a signed or unsigned integer dtype",
            hint="ef.finfo is for floats",
        )
    found = np.iinfo(dtype)
    return IntegerLimits(bits=found.bits, max=found.max, min=found.min, dtype=dtype)


# The library --------------------------------------------------------------------------------------


class NamespaceInfo:
    """The capabilities of eagerflow, in terms of the Array API standard."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """The optional features of indexing in the standard, and the number of axes."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_RANK,
        }

    def default_device(self) -> Device:
        """The default device of this thread for new tensors."""
        return current_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes that Python numbers and indices get, on any device."""
        as_device(device)
        return {
            "real floating": default_dtype(float),
            "complex floating": default_dtype(complex),
            "integral": default_dtype(int),
            "indexing": default_dtype(int),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes that the standard names, by name; ``kind`` is as for ``ef.isdtype``."""
        as_device(device)
        names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64"
        known = {name: as_dtype(name) for name in (*names.split(), "complex128")}
        return {n: dtype for n, dtype in known.items() if kind is None or isdtype(dtype, kind)}

    def devices(self) -> list[Device]:
        """All devices that can be used now."""
        return devices()


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 - the standard's name
    """The capabilities of the library: its devices, its dtypes, and the defaults.

    The result has the methods ``capabilities()``, ``default_device()``,
    ``default_dtypes(device=None)``, ``dtypes(device=None, kind=None)`` and ``devices()``. The
    dtypes are those of the Array API standard; eagerflow has float16, bfloat16 and float8 on
    top of them.

    >>> ef.__array_namespace_info__().dtypes(kind="real floating")
    {'float32': dtype('float32'), 'float64': dtype('float64')}
    """
    return NamespaceInfo()
