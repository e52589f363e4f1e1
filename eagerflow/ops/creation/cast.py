"""Ops that change a tensor's device, dtype or gradient."""

from __future__ import annotations

from typing import Any

from eagerflow.devices import as_device
from eagerflow.dtypes import COMPLEX, as_dtype, is_complex, is_inexact
from eagerflow.errors import DTypeError
from eagerflow.op import Missing
from eagerflow.ops.attributes import DTypeLike
from eagerflow.ops.family import ANY, define, split_elementwise, stacked
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["astype", "stop_gradient", "to_device"]


def _cast_spec(x: TensorSpec, dtype: Any) -> TensorSpec:
    wanted = as_dtype(dtype)
    if x.dtype in COMPLEX and wanted not in COMPLEX:
        raise DTypeError(
            f"{x.dtype.name} to {wanted.name} would drop the imaginary part",
            argument="x",
            expected="a complex dtype",
            hint="ef.real(x), ef.imag(x) or ef.abs(x)",
        )
    return x.like(dtype=wanted)


def _cast_back(g: Any, y: Any, x: Any, dtype: Any) -> Any:
    if not is_inexact(x.dtype) or not is_inexact(dtype):
        return None
    if is_complex(dtype) and not is_complex(x.dtype):
        g = g.real()
    return astype(g, x.dtype)


@define(
    "shape",
    dtypes=ANY,
    infer=_cast_spec,
    vjp=(_cast_back,),
    jvp=lambda tangents, y, x, dtype: (
        astype(tangents[0], dtype) if is_inexact(as_dtype(dtype)) else None
    ),
    batch=stacked,
    split=split_elementwise,
    also={"copy": True, "device": None},
    onnx=lambda w, x, *, dtype: w.cast(x, dtype),
)
def astype(xp: Namespace, x: Array, /, dtype: DTypeLike) -> Array:
    """The values in another dtype; a tensor that has it already is shared.

    ``x`` is a tensor, ``dtype`` a name or dtype; ``device`` is that of the result. Floats are
    truncated to integers. Raises DTypeError for complex values to a real dtype. Gradients are cast
    back.

    >>> ef.astype(ef.tensor([1.5, -2.5]), "int32")
    Tensor([ 1, -2], int32, cpu:0)
    """
    return x if x.dtype == dtype else x.astype(dtype)


@define(
    "shape",
    views="all",
    dtypes=ANY,
    infer=lambda x: x,
    vjp=Missing("stop_gradient is there to end it"),
    batch=stacked,
    split=split_elementwise,
    onnx=lambda w, x, **_: x,
)
def stop_gradient(xp: Namespace, x: Array, /) -> Array:
    """The same values, through which no gradient passes.

    ``x`` is a tensor of any shape and dtype.

    >>> x = ef.tensor(3.0)
    >>> ef.grad(lambda x: x * ef.stop_gradient(x))(x)
    Tensor(3., float32, cpu:0)
    """
    return x


@define(
    "control",
    views="some",
    dtypes=ANY,
    infer=lambda x, device: TensorSpec(x.shape, x.dtype, None, as_device(device)),
    vjp=(lambda g, y, x, device: to_device(g, str(x.device)),),
    jvp="linear",
    batch=stacked,
    split=split_elementwise,
    onnx=lambda w, x, **_: x,
    method="to",
)
def to_device(xp: Namespace, x: Array, /, device: str) -> Array:
    """The tensor on another device.

    ``x`` is a tensor, ``device`` a device's name. Raises DeviceError if it does not exist.

    >>> ef.tensor([1.0]).to("cpu:0").device
    Device('cpu:0')
    """
    place = as_device(device)
    return place.backend.receive(x, place.index)


def own_value(x: Any) -> Any:
    """A Tensor; in a trace, a value of its own, like the copy of an array."""
    return x if type(x._array) is x._kind.array_type else astype(x, x.dtype)
