"""Bits read as numbers of another dtype, and complex numbers put together from their parts."""

from __future__ import annotations

from typing import Any

from eagerflow.dims import Dim
from eagerflow.dtypes import (
    BOOL,
    COMPLEX,
    FLOATS,
    NARROW,
    DType,
    as_dtype,
    complex64,
    complex128,
    default_dtype,
    float64,
    is_inexact,
    real_dtype,
)
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.op import Missing, Split
from eagerflow.ops.attributes import DTypeLike
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import multiply
from eagerflow.ops.elementwise.trigonometric import cos, sin
from eagerflow.ops.family import ANY, Batch, define
from eagerflow.ops.shapes.joining import stack
from eagerflow.ops.shapes.reshaping import broadcast_arrays, squeeze
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["complex", "polar", "view"]


# Bits --------------------------------------------------------------------------------------------


def _viewed(x: TensorSpec, dtype: Any) -> TensorSpec:
    made = as_dtype(dtype)
    if made in BOOL and x.dtype not in BOOL:
        raise DTypeError(
            f"bits of {x.dtype.name} are no truth values",
            argument="dtype",
            expected="another dtype",
            hint="ef.not_equal(x, 0)",
        )
    old, new = x.dtype.itemsize, made.itemsize
    if old == new:
        return x.like(dtype=made)
    if x.ndim == 0:
        raise ShapeError(
            f"{old} bytes without an axis, as {made.name}",
            argument="dtype",
            expected="a dtype of the same size, or x with an axis",
        )
    size = x.shape[-1]
    found = size * old // new
    if found * new != size * old:
        error = CaptureError if isinstance(size, Dim) else ShapeError
        raise error(
            f"{size} times {old} bytes are not whole numbers of {new} bytes",
            argument="dtype",
            expected=f"a last axis whose size is a multiple of {new // old}",
        )
    return x.like((*x.shape[:-1], found), made)


def _same_parts(a: DType, b: DType) -> bool:
    """Whether bits of one dtype are real and imaginary parts of the other, or the same numbers."""
    return is_inexact(a) and is_inexact(b) and real_dtype(a) == real_dtype(b)


def _view_back(g: Any, y: Any, x: Any, dtype: Any) -> Any:
    return view(g, x.dtype) if _same_parts(x.dtype, as_dtype(dtype)) else None


def _view_forward(tangents: Any, y: Any, x: Any, dtype: Any) -> Any:
    return view(tangents[0], dtype) if _same_parts(x.dtype, as_dtype(dtype)) else None


def _batched_view(call: Any, args: Any, batched: Any, size: Any, dtype: Any) -> Any:
    (x,) = args
    _viewed(TensorSpec(x.shape[1:], x.dtype), dtype)
    return call(x, dtype)


@define(
    "shape",
    dtypes=ANY,
    aliases=lambda given, made: True,  # the same bytes, in any dtype
    infer=_viewed,
    vjp=(_view_back,),
    jvp=_view_forward,
    batch=Batch(_batched_view),
    split=lambda x, dtype: [
        Split((i,), i) for i in range(x.ndim - (x.dtype.itemsize != as_dtype(dtype).itemsize))
    ],
    onnx=Missing("ONNX has no operator that reads bits as another dtype"),
)
def view(xp: Namespace, x: Array, /, dtype: DTypeLike) -> Array:
    """The bits of a tensor, read as numbers of another dtype.

    Where the sizes of the two differ, the last axis becomes longer or shorter, as in
    ``numpy.ndarray.view``: complex numbers are pairs of floats, and floats become bytes. ``dtype``
    is a name or dtype. Gradients pass between complex numbers and their parts alone. Raises
    ShapeError for bits that are not whole numbers, DTypeError for bools of other dtypes.

    >>> ef.view(ef.tensor([1.0, 2.0]), "int32"), ef.view(ef.tensor([1 + 2j]), "float32")
    (Tensor([1065353216, 1073741824], int32, cpu:0), Tensor([1., 2.], float32, cpu:0))
    """
    if x.dtype.itemsize != dtype.itemsize and x.ndim and not x.flags.c_contiguous:
        x = xp.ascontiguousarray(x)
    return x.view(dtype)


# Complex numbers ---------------------------------------------------------------------------------


def _parts(first: Any, second: Any, names: tuple[str, str]) -> tuple[Any, Any, DType]:
    """Two real tensors of one shape and dtype, and the dtype of their complex combination."""
    found = []
    for x, name in ((first, names[0]), (second, names[1])):
        if x.dtype in COMPLEX:
            raise DTypeError(
                f"{x.dtype.name} is complex already", argument=name, expected="a real tensor"
            )
        small = x.dtype not in FLOATS or x.dtype in NARROW
        found.append(astype(x, default_dtype(float)) if small else x)
    made = complex128 if float64 in (found[0].dtype, found[1].dtype) else complex64
    a, b = broadcast_arrays(*(astype(x, real_dtype(made)) for x in found))
    return a, b, made


@composed(
    dtypes=FLOATS,
)
def complex(real: Any, imag: Any, /) -> Tensor:
    """Complex numbers of their real and imaginary parts.

    ``real`` and ``imag`` are real tensors, arrays or numbers of shapes that broadcast; float64
    gives complex128, others complex64. Infinite and NaN parts are preserved. Raises ShapeError
    where the shapes do not broadcast, DTypeError for complex ones.

    >>> ef.complex(ef.tensor([1.0, 2.0]), 0.5)
    Tensor([1.+0.5j, 2.+0.5j], complex64, cpu:0)
    """
    a, b, made = _parts(real, imag, ("real", "imag"))
    return squeeze(view(stack([a, b], axis=-1), made), -1)


@composed(
    dtypes=FLOATS,
)
def polar(abs: Any, angle: Any, /) -> Tensor:
    """Complex numbers of their absolute values and angles, in radians.

    ``abs`` and ``angle`` are real tensors, arrays or numbers of shapes that broadcast; float64
    gives complex128, others complex64. Raises ShapeError where the shapes do not broadcast,
    DTypeError for complex ones.

    >>> ef.polar(2.0, ef.tensor([0.0, np.pi / 2])).imag()
    Tensor([0., 2.], float32, cpu:0)
    """
    r, phi, _ = _parts(abs, angle, ("abs", "angle"))
    return complex(multiply(r, cos(phi)), multiply(r, sin(phi)))
