"""Ops that create tensors from shapes and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, as_dtype, default_dtype
from eagerflow.errors import DTypeError
from eagerflow.number import Number
from eagerflow.op import Cost, Missing
from eagerflow.ops.attributes import DeviceName, DTypeLike, NumberLike, Size, Sizes
from eagerflow.ops.family import ANY, define, split_elementwise, stacked
from eagerflow.ops.shapes.reshaping import broadcast_to, sized
from eagerflow.runtime import buffers
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

_ARRAYS = (Operators, np.ndarray)
_NO_INPUT = Missing("there is no input")


def creation(**facts: Any) -> Callable[[Any], Any]:
    """An op without data arguments; ``dtype`` defaults to float32, ``device`` to the current."""
    own: dict[str, Any] = {
        "dtypes": ANY,
        "vjp": _NO_INPUT,
        "batch": _NO_INPUT,
        "split": _NO_INPUT,
        "cost": lambda *sizes, **more: _written(facts["infer"](*sizes, **more)),
    } | facts
    return define("creation", **own)


def _written(spec: TensorSpec) -> Cost:
    return Cost(0, spec.size * spec.dtype.itemsize)


def _made(shape: Any, dtype: Any = None, device: Any = None, argument: str = "shape") -> TensorSpec:
    return TensorSpec(sized(shape, argument), dtype or default_dtype(float), None, device)


def _constant(value: int) -> Callable[[Any], Any]:
    return creation(fills=True, infer=_made, onnx=lambda w, **_: w.filled(value))


@_constant(0)
def zeros(xp: Namespace, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None) -> Array:
    """A tensor of zeros.

    ``shape`` is an integer or a tuple of sizes, ``dtype`` defaults to float32, ``device`` (a
    name) to the current device. Raises ShapeError for invalid sizes.

    >>> ef.zeros((2,), dtype="int32")
    Tensor([0, 0], int32, cpu:0)
    """
    return xp.zeros(shape, dtype=dtype or default_dtype(float))


@_constant(1)
def ones(xp: Namespace, shape: Sizes, dtype: DTypeLike = None, device: DeviceName = None) -> Array:
    """A tensor of ones.

    ``shape`` is an integer or a tuple of sizes, ``dtype`` defaults to float32, ``device`` (a
    name) to the current device. Raises ShapeError for invalid sizes.

    >>> ef.ones((2, 2))
    Tensor([[1., 1.],
            [1., 1.]], shape=(2, 2), float32, cpu:0)
    """
    return xp.ones(shape, dtype=dtype or default_dtype(float))


def _filled(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> TensorSpec:
    if type(fill_value) not in (bool, int, float, complex):
        raise DTypeError(
            f"{fill_value!r} is not a number",
            argument="fill_value",
            hint="ef.broadcast_to(x, shape) for a tensor",
        )
    return _made(shape, dtype or default_dtype(type(fill_value)), device)


@creation(
    fills=True,
    infer=_filled,
    onnx=lambda w, *, fill_value, **_: w.filled(fill_value),
)
def _full(
    xp: Namespace,
    shape: Sizes,
    fill_value: NumberLike,
    dtype: DTypeLike = None,
    device: DeviceName = None,
) -> Array:
    """A tensor filled with one Python number."""
    return xp.full(shape, fill_value, dtype=dtype or default_dtype(type(fill_value)))


def full(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor filled with one number, or with the values of a tensor repeated.

    ``shape`` is an integer or a tuple of sizes, ``fill_value`` a Python number, or a tensor or
    array that broadcasts to the shape; ``dtype`` defaults to its own (of numbers float32, int64,
    bool or complex64). Gradients reach a tensor. Raises ShapeError, DTypeError or DeviceError.

    >>> ef.full((2,), 7), ef.full((2, 2), ef.tensor([1.0, 2.0]))[1]
    (Tensor([7, 7], int64, cpu:0), Tensor([1., 2.], float32, cpu:0))
    """
    if type(fill_value) is Number:
        dtype = default_dtype(fill_value.python) if dtype is None else dtype
    if isinstance(fill_value, _ARRAYS):
        return broadcast_to(as_tensor(fill_value, dtype, device), shape)
    return _full(shape, fill_value, dtype, device)


def _fill_like(value: int) -> Callable[[Any], Any]:
    def bound(xp: Namespace) -> Any:
        if value and xp is np:
            return _ones_like_numpy
        make = xp.ones if value else xp.zeros
        return lambda x, dtype=None: make(x.shape, dtype or x.dtype)

    return bound


def _ones_like_numpy(x: Any, dtype: Any = None) -> Any:
    out = buffers.empty(x.shape, dtype or x.dtype)  # np.ones takes three times as long
    out.fill(1)
    return out


def _like(value: int) -> Callable[[Any], Any]:
    """An op that returns a constant of its argument's shape, without a gradient."""
    return define(
        "creation",
        fills=True,
        dtypes=ANY,
        infer=lambda x, dtype=None: x.like(dtype=dtype),
        also={"device": None},
        direct=_fill_like(value),
        vjp=Missing("the values of the argument are not used"),
        batch=stacked,
        split=split_elementwise,
        onnx=lambda w, x, **_: w.filled(value),
    )


@_like(0)
def zeros_like(xp: Namespace, x: Array, /, dtype: DTypeLike = None) -> Array:
    """Zeros of the shape and, unless ``dtype`` and ``device`` are given, those of a tensor.

    >>> ef.zeros_like(ef.tensor([1.0, 2.0]))
    Tensor([0., 0.], float32, cpu:0)
    """
    return xp.zeros(x.shape, dtype=dtype or x.dtype)


@_like(1)
def ones_like(xp: Namespace, x: Array, /, dtype: DTypeLike = None) -> Array:
    """Ones of the shape and, unless ``dtype`` and ``device`` are given, those of a tensor.

    >>> ef.ones_like(ef.tensor([1.0, 2.0]))
    Tensor([1., 1.], float32, cpu:0)
    """
    return xp.ones(x.shape, dtype=dtype or x.dtype)


def full_like(x: Any, /, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """One number in the shape and, unless ``dtype`` and ``device`` are given, those of a tensor.

    ``x`` is a tensor, ``fill_value`` a number or a tensor that broadcasts to its shape.
    Raises DTypeError for a number with a fraction where the dtype has none.

    >>> ef.full_like(ef.tensor([1, 2]), 5)
    Tensor([5, 5], int64, cpu:0)
    """
    x = as_tensor(x)
    made = x.dtype if dtype is None else as_dtype(dtype)
    of_python = type(fill_value) is Number and fill_value.own is None and fill_value.python
    if (type(fill_value) is float or of_python is float) and made in BOOL | INTEGERS:
        raise DTypeError(
            f"{fill_value!r} does not fit into {made.name}",
            op="full_like",
            argument="fill_value",
            received=summary(fill_value),
            hint="dtype='float32'",
        )
    return broadcast_to(as_tensor(fill_value, made, device or x.device), x.shape)


def _eye_operator(w: Any, **attributes: Any) -> Any:
    return w.evaluated(eye, **attributes)


@creation(
    infer=lambda n_rows, n_cols=None, k=0, dtype=None, device=None: _made(
        (n_rows, n_rows if n_cols is None else n_cols), dtype, device, "n_rows"
    ),
    onnx=_eye_operator,
)
def eye(
    xp: Namespace,
    n_rows: Size,
    n_cols: Size = None,
    k: int = 0,
    dtype: DTypeLike = None,
    device: DeviceName = None,
) -> Array:
    """A matrix with ones on a diagonal and zeros elsewhere.

    ``n_rows`` and ``n_cols`` (default: the same) are sizes, ``k`` is the diagonal, counted to
    the right; ``dtype`` defaults to float32. Raises ShapeError for invalid sizes.

    >>> ef.eye(2)
    Tensor([[1., 0.],
            [0., 1.]], shape=(2, 2), float32, cpu:0)
    """
    columns = n_rows if n_cols is None else n_cols
    return xp.eye(n_rows, columns, k=k, dtype=dtype or default_dtype(float))


def empty(shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of any values; here they are zeros, so that every run is the same.

    ``shape`` is an integer or a tuple of sizes, ``dtype`` defaults to float32. Raises
    ShapeError for invalid sizes.

    >>> ef.empty((2, 3)).shape
    (2, 3)
    """
    return zeros(shape, dtype, device)


def empty_like(x: Any, /, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of any values in the shape and, unless given, dtype and device of another.

    >>> ef.empty_like(ef.ones((2, 3))).shape
    (2, 3)
    """
    return zeros_like(x, dtype, device=device)


def from_dlpack(x: Any, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of the values of any object that offers ``__dlpack__``.

    The memory is shared if possible; ``copy=True`` copies, ``copy=False`` raises if a copy is
    needed. Raises DTypeError for objects without ``__dlpack__``.

    >>> ef.from_dlpack(np.arange(3))
    Tensor([0, 1, 2], int64, cpu:0)
    """
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(
            f"a {type(x).__name__} offers no __dlpack__",
            op="from_dlpack",
            argument="x",
            received=summary(x),
            expected="an array of any library",
            hint="ef.asarray(x)",
        )
    return as_tensor(x, None, device, copy)
