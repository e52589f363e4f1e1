r"""The dtypes, the one promotion table, and the rules for Python scalars.

A dtype is a NumPy dtype object. Types join in this lattice, so promotion is associative
and commutative (``docs/decisions/0003-promotion.md``)::

    bool - uint8 - uint16 - uint32 - uint64 -+
         \       \        \         \         \          +- float16 --+
          int8 -- int16 -- int32 --- int64 ---+---------- +- bfloat16 -+- float32 - float64
                                                                           |          |
                                                                       complex64 - complex128
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from eagerflow.errors import DTypeError, short_repr
from eagerflow.handlers import raised_here

DType = np.dtype[Any]

bool_ = np.dtype("bool")
SIGNED_INTEGERS = tuple(np.dtype(f"int{n}") for n in (8, 16, 32, 64))
UNSIGNED_INTEGERS = tuple(np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

BOOL = frozenset({bool_})
INTEGERS: frozenset[DType] = frozenset(SIGNED_INTEGERS + UNSIGNED_INTEGERS)
FLOATS: frozenset[DType] = frozenset({float16, bfloat16, float32, float64})
NARROW: frozenset[DType] = frozenset({float16, bfloat16})
"""Floats that kernels compute in float32."""
COMPLEX: frozenset[DType] = frozenset({complex64, complex128})
FLOAT8 = frozenset({np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)})
REAL = INTEGERS | FLOATS
INEXACT = FLOATS | COMPLEX
NUMERIC = REAL | COMPLEX
STANDARD = BOOL | NUMERIC

_by_name: dict[str, DType] = {dtype.name: dtype for dtype in (*STANDARD, *FLOAT8)}
_known = {dtype: dtype for dtype in _by_name.values()}
_of_python: dict[type, DType] = {
    bool: bool_,
    int: np.dtype("int64"),
    float: float32,
    complex: complex64,
}


def as_dtype(obj: Any) -> DType:
    """The dtype for a name, a NumPy dtype or a Python number type.

    Raises DTypeError for anything else, and for dtypes that eagerflow does not compute with.

    >>> ef.as_dtype(float), ef.as_dtype("int8")
    (dtype('float32'), dtype('int8'))
    """
    if isinstance(obj, np.dtype) and obj in _known:
        return _known[obj]  # NumPy has two equal ones for some integers
    if isinstance(obj, type) and obj in _of_python:
        return _of_python[obj]
    try:
        if isinstance(obj, str):
            return _by_name[obj]
        if isinstance(obj, type | np.dtype):
            return _by_name[np.dtype(obj).name]
    except raised_here(TypeError, KeyError):
        pass
    raise DTypeError(
        f"{short_repr(obj)} is not a dtype of eagerflow",
        expected="one of " + ", ".join(sorted(_by_name)),
        hint="several sizes are one tuple, (3, 4); x.reshape(shape) gives a tensor another shape"
        if isinstance(obj, int | tuple)
        else None,
    )


@cache
def dtype_name(dtype: DType) -> str:
    """NumPy's name of a dtype; cached, as NumPy takes two microseconds to construct it."""
    return dtype.name


def default_dtype(scalar_type: type) -> DType:
    """The dtype of a Python number on its own: float32 for float, int64 for int."""
    return _of_python[scalar_type]


def is_floating(dtype: DType) -> bool:
    """Whether ``dtype`` is a real floating-point type that can be computed with."""
    return dtype in FLOATS


def is_complex(dtype: DType) -> bool:
    """Whether ``dtype`` is complex."""
    return dtype in COMPLEX


def is_inexact(dtype: DType) -> bool:
    """Whether ``dtype`` can carry a gradient: floating or complex."""
    return dtype in INEXACT


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part of ``dtype``."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def _join(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if a in BOOL or b in BOOL:
        return b if a in BOOL else a
    if a in COMPLEX or b in COMPLEX:
        wide = float64 in (real_dtype(a), real_dtype(b))
        return complex128 if wide else complex64
    if a in FLOATS or b in FLOATS:
        floats = {a, b} & FLOATS
        if floats == {float16, bfloat16}:
            return float32
        return max(floats, key=lambda dtype: dtype.itemsize)
    if a.kind == b.kind:
        return max(a, b, key=lambda dtype: dtype.itemsize)
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    # uint64 joins the signed integers at int64: any other choice breaks associativity.
    bits = min(64, max(signed.itemsize * 8, unsigned.itemsize * 16))
    return np.dtype(f"int{bits}")


_table: dict[tuple[DType, DType], DType] = {}


def promote(a: DType, b: DType) -> DType:
    """The common dtype of ``a`` and ``b``."""
    try:
        return _table[a, b]
    except KeyError:
        if a != b and (a in FLOAT8 or b in FLOAT8):
            raise DTypeError(
                f"{a.name} and {b.name} have no common dtype, since float8 is for storage",
                hint="x.astype('float32') before computing",
            ) from None
        return _table.setdefault((a, b), _join(a, b))


def join_scalar(dtype: DType, scalar_type: type) -> DType:
    """The dtype of a tensor of ``dtype`` combined with a Python scalar; it is never wider
    than the scalar's kind (bool, int, float, complex) demands.
    """
    if scalar_type is bool or dtype in COMPLEX:
        return dtype
    if scalar_type is int:
        return default_dtype(int) if dtype in BOOL else dtype
    if scalar_type is float:
        return dtype if dtype not in BOOL | INTEGERS else default_dtype(float)
    return complex128 if dtype == float64 else complex64
