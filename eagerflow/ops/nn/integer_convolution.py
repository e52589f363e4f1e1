"""Convolution of 8-bit integers, with sums of 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import primitives
from eagerflow.dtypes import DType
from eagerflow.op import Into, Missing, Sample
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import Batch, define, op_of
from eagerflow.ops.linear_algebra.integer_products import BYTES, SUMS, of_bytes
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


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """Those of ``conv``, with the whole range of numbers."""
    found = []
    for i, sample in enumerate(_CONV.samples(rng, np.dtype(np.float32))):
        kinds = dtype, np.dtype(("int8", "uint8")[i % 2])
        arrays = []
        for x, kind in zip(sample.args, kinds, strict=True):
            limits = np.iinfo(kind)
            whole = rng.integers(limits.min, limits.max, x.T.shape, endpoint=True).astype(kind)
            arrays.append(whole.T if i % 3 else np.ascontiguousarray(whole.T))
        found.append(Sample(tuple(arrays), sample.attributes))
    return found


def _reference(x: Any, w: Any, **attributes: Any) -> Any:
    reference: Any = _CONV.reference
    found = reference(x.astype(np.int64), w.astype(np.int64), **attributes)
    return found.astype(SUMS)


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
    samples=_samples,
    errors=of_bytes(_CONV.errors),
    reference=_reference,
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
