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
    Prepared,
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
    return generated.pays(_products(q.shape, v.shape), MIN_PRODUCTS)


def _products(of_q: tuple[int, ...], of_v: tuple[int, ...]) -> int:
    return prod(of_q[:3]) * of_v[2] * (of_q[3] + of_v[3])


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
    mask = _Mask(q, k, options.mask)
    config = mask.config(q, v, options.is_causal)
    prepared = _prepared_forward(config, q.shape, k.shape, options.scale)
    return _on(prepared, q=q, k=k, v=v, y=y, mask=mask.array, log_sums=log_sums)


@kept
def _prepared_forward(
    config: AttentionConfig, of_q: tuple[int, ...], of_k: tuple[int, ...], scale: float
) -> Prepared:
    """The call for queries and keys of these shapes."""
    (batch, heads, length, _), (_, shared, keys, _) = of_q, of_k
    pieces = -(-MIN_PIECES // (batch * heads))
    span = min(round_up(-(-length // pieces), QUERIES), MAX_PIECE_QUERIES)
    return Prepared(
        _kernel(AttentionForwardWriter, config),
        (batch * heads, length, 1, span),
        _products(of_q, (*of_k[:3], config.value_width)) >= MIN_SHARED_PRODUCTS,
        scale=Held(np.array([scale], config.dtype)),
        heads=heads,
        group=heads // shared,
        keys=keys,
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
    (g, of_log_sums), (y, log_sums), (of_q, of_k, of_v) = given, found, made
    mask = _Mask(q, k, options.mask)
    config = mask.config(q, v, options.is_causal)
    without = of_log_sums is None
    prepared, parts = _prepared_gradient(config, q.shape, k.shape, options.scale, without)
    more = {} if without else {"of_log_sums": of_log_sums}
    if parts == 1:
        more |= {"sums_k": of_k, "sums_v": of_v}
    own = {"q": q, "k": k, "v": v, "y": y, "g": g, "of_q": of_q, "of_k": of_k, "of_v": of_v}
    return _on(prepared, **own, mask=mask.array, log_sums=log_sums, **more)


def _prepared_gradient(
    config: AttentionConfig,
    of_q: tuple[int, ...],
    of_k: tuple[int, ...],
    scale: float,
    without: bool,
) -> tuple[Prepared, int]:
    """The call for queries and keys of these shapes, and the parts of each head of keys.

    Several parts have memory for their sums. ``without`` means that the logarithms have no
    gradient.
    """
    (batch, heads, length, _), (_, shared, keys, width) = of_q, of_k
    kernel, group = _kernel(AttentionGradientWriter, config), heads // shared
    wanted = -(-MIN_PIECES // (batch * shared))
    chunk = min(round_up(-(-length * group // wanted), QUERIES), kernel.writer.chunk)
    parts = min(wanted, group * -(-length // chunk))
    more: dict[str, Any] = {}
    if without:
        more["of_log_sums"] = Held(np.zeros(of_q[:3], config.dtype))
    if parts > 1:
        more["sums_k"] = _sums((batch, shared, keys, width), config, parts)
        more["sums_v"] = _sums((batch, shared, keys, config.value_width), config, parts)
    prepared = Prepared(
        kernel,
        (batch * shared, parts, 1, 1),
        _products(of_q, (*of_k[:3], config.value_width)) >= MIN_SHARED_PRODUCTS,
        scale=Held(np.array([scale], config.dtype)),
        shared=shared,
        group=group,
        queries=length,
        keys=keys,
        chunk=chunk,
        **more,
    )
    return prepared, parts


def _on(prepared: Prepared, **arrays: Any) -> StagedCall:
    """The call on arrays, those of four axes with the strides of all but the last."""
    given = {name: x for name, x in arrays.items() if x is not None}
    return prepared.on(**{n: (x, *x.strides[:3]) if x.ndim > 3 else x for n, x in given.items()})


def native(make: Callable[..., StagedCall], *arrays: Any) -> StagedCall | None:
    """The result of ``make()``; None if the last axis of an array is not contiguous."""
    return make() if all(x is None or x.strides[-1] == x.itemsize for x in arrays) else None


def _sums(shape: tuple[int, ...], config: AttentionConfig, parts: int) -> tuple[Any, ...]:
    """Memory for the partial results of each part, with its strides."""
    size = np.dtype(config.dtype).itemsize
    batch, heads, rows, width = shape
    line = width * size
    whole = batch * heads * rows * line
    return (Room(parts * whole), heads * rows * line, rows * line, line, whole)


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
