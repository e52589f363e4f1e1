"""Convolution of 8-bit integers, with sums of 32 bits."""

from __future__ import annotations

from typing import Any

from eagerflow import primitives
from eagerflow.op import Into, Missing
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import Batch, define, op_of
from eagerflow.ops.linear_algebra.integer_products import BYTES, SUMS
from eagerflow.ops.nn.convolution import batch_images, conv, of_conv, of_some, windows_for
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["integer_conv"]

_CONV = op_of(conv)


def _spec(x: TensorSpec, w: TensorSpec, **where: Any) -> TensorSpec:
    return of_conv(x, w, **where).y.like(dtype=SUMS)


def _on_numpy(
    xp: Namespace, x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = windows_for(of_conv, x.shape, w.shape, strides, padding, dilation, groups)
    return primitives.integer_products.convolve(x, w, windows, groups)


def _into(x: Any, w: Any, groups: int, **where: Any) -> Into:
    windows = windows_for(of_conv, x.shape, w.shape, groups=groups, **where)

    def call(x: Any, w: Any, out: Any = None) -> Any:
        return primitives.integer_products.convolve(x, w, windows, groups, out)

    def native(x: Any, w: Any, out: Any) -> Any:
        return None if groups > 1 else primitives.byte_convolution.fixed(x, w, out, windows)

    return Into(call, native, "bB")


def _operator(w: Any, x: Any, k: Any, *, groups: int, **where: Any) -> Any:
    """The rule of ONNX, which is channels-first."""
    windows = windows_for(of_conv, x.shape, k.shape, groups=groups, **where)
    given = w.channels_first(x), w.filters_first(k)
    y = w.ConvInteger(*given, dtype=SUMS, group=groups, **w.window(windows))
    return w.channels_last(y, x.ndim)


@define(
    "quantization",
    aliases=False,
    dtypes=BYTES,
    together=(),
    infer=_spec,
    overrides={"numpy": _on_numpy},
    keeps_order=True,
    into=_into,
    trusted=True,
    threaded=False,
    vjp=Missing("integers have no gradient"),
    batch=Batch(batch_images),
    split=_CONV.split,
    cost=_CONV.cost,
    onnx=of_some(_operator),
)
def integer_conv(
    xp: Namespace,
    x: Array,
    w: Array,
    /,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Convolution of channels-last images of 8-bit integers, as int32.

    ``x``, (batch, *spatial, channels), and ``w``, (*window, channels / groups, filters), are int8
    or uint8; attributes are those of ``conv``, padding is 0. The result is exact; beyond 2³¹ it
    wraps. Raises ShapeError as ``conv`` does, DTypeError for other dtypes. ONNX's ConvInteger.

    >>> x, w = ef.full((1, 3, 1), 100, dtype="int8"), ef.full((3, 1, 1), 100, dtype="int8")
    >>> ef.integer_conv(x, w).reshape((3,))
    Tensor([20000, 30000, 20000], int32, cpu:0)
    """
    where = strides, padding, dilation, groups
    return _CONV.kernel(xp, x.astype(SUMS), w.astype(SUMS), *where)
