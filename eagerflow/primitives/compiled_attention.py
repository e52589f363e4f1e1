"""Attention and its gradients as machine code: supported arrays, and division of work.

The division of work depends only on shapes, so results are bit-identical for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.llvm.attention_forward import (
    MAX_PIECE_QUERIES,
    QUERIES,
    AttentionForwardWriter,
)
from eagerflow.primitives.llvm.attention_gradient import AttentionGradientWriter
from eagerflow.primitives.llvm.attention_writer import AttentionConfig, AttentionWriter
from eagerflow.primitives.llvm.staged_kernel import (
    Held,
    Room,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.primitives.llvm.vectors import round_up
from eagerflow.runtime import buffers
from eagerflow.spec import Array

MIN_PRODUCTS = 1 << 17  # multiplications of scores and values from which compiling a kernel pays
MIN_SHARED_PRODUCTS = 1 << 22  # threshold for using another thread
MIN_QUERIES = 8  # of a head; fewer leave most lanes idle
MIN_PIECES = 8  # of work, if heads have enough queries


class Options(NamedTuple):
    """The parameters of attention besides its arrays."""

    mask: Any
    """Bools, floats that are added to scores, or None."""
    is_causal: bool
    scale: float


def takes(q: Array, v: Array) -> bool:
    """Whether machine code supports arrays of these shapes, and pays."""
    if q.dtype.char not in "fd" or q.shape[2] < MIN_QUERIES or 0 in (*q.shape, *v.shape):
        return False
    return generated.pays(_products(q, v), MIN_PRODUCTS)


def _products(q: Array, v: Array) -> int:
    return prod(q.shape[:3]) * v.shape[2] * (q.shape[3] + v.shape[3])


@kept
def _kernel(writer: type[AttentionWriter], config: AttentionConfig) -> StagedKernel[Any]:
    return StagedKernel(writer, config, *processor(config.dtype))


def forward(q: Array, k: Array, v: Array, options: Options) -> tuple[Any, Any]:
    """The averages of values, in the memory order of ``q``, and the log-sum-exp."""
    q, k, v = (_in_rows(x) for x in (q, k, v))
    y = _like(q, (*q.shape[:3], v.shape[3]))
    log_sums = np.empty(q.shape[:3], q.dtype)
    forward_call(q, k, v, y, log_sums, options).run()
    return y, log_sums


def forward_call(
    q: Array, k: Array, v: Array, y: Array, log_sums: Array, options: Options
) -> StagedCall:
    """The kernel of averages and logarithms; the last axes of all arrays are contiguous."""
    batch, heads, length, _ = q.shape
    mask = _Mask(q, k, options.mask)
    kernel = _kernel(AttentionForwardWriter, mask.config(q, v, options.is_causal))
    pieces = -(-MIN_PIECES // (batch * heads))
    span = min(round_up(-(-length // pieces), QUERIES), MAX_PIECE_QUERIES)
    return StagedCall(
        kernel,
        (batch * heads, length, 1, span),
        _products(q, v) >= MIN_SHARED_PRODUCTS,
        q=_place(q),
        k=_place(k),
        v=_place(v),
        y=_place(y),
        mask=_place(mask.array),
        log_sums=log_sums,
        scale=Held(np.array([options.scale], q.dtype)),
        heads=heads,
        group=heads // k.shape[1],
        keys=k.shape[2],
    )


def gradient(
    given: tuple[Array, Any],
    found: tuple[Array, Array],
    q: Array,
    k: Array,
    v: Array,
    options: Options,
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, each in its memory order, from those of the results.

    The gradient of the logarithms may be None.
    """
    (g, of_log_sums), (y, log_sums) = given, found
    if of_log_sums is not None:
        of_log_sums = np.ascontiguousarray(of_log_sums)
    g, y, q, k, v = (_in_rows(x) for x in (g, y, q, k, v))
    made = (_like(q, q.shape), _like(k, k.shape), _like(v, v.shape))
    own = (g, of_log_sums), (y, np.ascontiguousarray(log_sums))
    gradient_call(*own, q, k, v, made, options).run()
    return made


def gradient_call(
    given: tuple[Array, Any],
    found: tuple[Array, Array],
    q: Array,
    k: Array,
    v: Array,
    made: tuple[Array, Array, Array],
    options: Options,
) -> StagedCall:
    """The kernel of the three gradients; the last axes of all arrays are contiguous."""
    batch, heads, length, _ = q.shape
    shared, keys = k.shape[1:3]
    group = heads // shared
    (g, of_log_sums), (y, log_sums), (of_q, of_k, of_v) = given, found, made
    mask = _Mask(q, k, options.mask)
    kernel = _kernel(AttentionGradientWriter, mask.config(q, v, options.is_causal))
    wanted = -(-MIN_PIECES // (batch * shared))  # parts of each head of keys
    chunk = min(round_up(-(-length * group // wanted), QUERIES), kernel.writer.chunk)
    parts = min(wanted, group * -(-length // chunk))
    return StagedCall(
        kernel,
        (batch * shared, parts, 1, 1),
        _products(q, v) >= MIN_SHARED_PRODUCTS,
        q=_place(q),
        k=_place(k),
        v=_place(v),
        y=_place(y),
        g=_place(g),
        of_q=_place(of_q),
        of_k=_place(of_k),
        of_v=_place(of_v),
        sums_k=_sums(of_k, parts),
        sums_v=_sums(of_v, parts),
        mask=_place(mask.array),
        log_sums=log_sums,
        of_log_sums=Held(np.zeros_like(log_sums)) if of_log_sums is None else of_log_sums,
        scale=Held(np.array([options.scale], q.dtype)),
        shared=shared,
        group=group,
        queries=length,
        keys=keys,
        chunk=chunk,
    )


def native(make: Callable[..., StagedCall], *arrays: Any) -> StagedCall | None:
    """The result of ``make()``; None if the last axis of an array is not contiguous."""
    return make() if all(x is None or x.strides[-1] == x.itemsize for x in arrays) else None


def _sums(x: Array, parts: int) -> tuple[Any, ...]:
    """Memory for the partial results of each part, like ``x``; ``x`` itself for a single part."""
    if parts == 1:
        return (*_place(x), 0)
    strides = [x.shape[2] * x.shape[1], x.shape[2], 1]
    return (Room(parts * x.nbytes), *(n * x.shape[3] * x.itemsize for n in strides), x.nbytes)


class _Mask:
    """The mask's bias, with four axes, the last of which is that of keys."""

    def __init__(self, q: Array, k: Array, mask: Any) -> None:
        self.kind, self.by_query, self.array = "", False, None
        if mask is None:
            return
        if mask.dtype != np.bool_:
            mask = mask.astype(q.dtype, copy=False)
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        self.kind, self.by_query = dtype_name(mask.dtype), mask.shape[2] > 1
        mask = _in_rows(np.broadcast_to(mask, (*mask.shape[:3], k.shape[2])))
        self.array = np.broadcast_to(mask, (*q.shape[:3], k.shape[2]))

    def config(self, q: Array, v: Array, is_causal: bool) -> AttentionConfig:
        """The properties of a mask that a kernel depends on."""
        sizes = q.shape[3], v.shape[3]
        return AttentionConfig(dtype_name(q.dtype), *sizes, is_causal, self.kind, self.by_query)


def _in_rows(x: Array) -> Array:
    """The array, or a copy, with a contiguous last axis."""
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)


def _like(x: Array, shape: tuple[int, ...]) -> Array:
    """A new array with the first axes in the memory order of ``x``."""
    order = sorted(range(3), key=lambda axis: -abs(x.strides[axis]))
    made = buffers.empty((*(shape[axis] for axis in order), shape[3]), x.dtype)
    return made.transpose(*(order.index(axis) for axis in range(3)), 3)


def _place(x: Any) -> tuple[Any, ...]:
    """The kernel's arguments for an array: its address, and the strides of heads and rows."""
    return (0, 0, 0, 0) if x is None else (x, *x.strides[:3])
