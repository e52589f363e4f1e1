"""Attention, and the rotary embedding of positions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import dtype_of


class _Operands(NamedTuple):
    """Queries, keys and values as (batch, heads, length, width), after the ``past`` ones."""

    q: Any
    k: Any
    v: Any
    past: Any
    filled: Any


class _Mask(NamedTuple):
    """The visible keys of each query, and the bias of the scores; None if there is none."""

    seen: Any
    added: Any

    def whole(self, dtype: Any) -> Any:
        """The mask for ``ef.dot_product_attention``: bools if there is no bias."""
        return self.seen if self.added is None else self.bias(dtype)

    def bias(self, dtype: Any) -> Any:
        """Mask and bias as one bias, -inf for invisible keys."""
        if self.seen is None:
            return self.added
        zero = 0 if self.added is None else self.added
        return ops.astype(ops.where(self.seen, zero, -np.inf), dtype)


def _heads(call: Call, x: Any, count: int | None) -> Any:
    """(batch, length, heads * width) as (batch, heads, length, width)."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not count or x.shape[2] % count:
        call.refuse(f"{x.ndim} axes of which the last does not hold {count} heads")
    split = ops.reshape(x, (*x.shape[:2], count, x.shape[2] // count))
    return ops.permute_dims(split, (0, 2, 1, 3))


def _and(a: Any, b: Any) -> Any:
    return b if a is None else a & b


def _mask(call: Call, given: Any, operands: _Operands, causal: int, left: int, right: int) -> _Mask:
    """The visibility from the mask, causality and the number of valid keys."""
    lengths = operands.q.shape[2], operands.k.shape[2]
    seen = added = None
    if given is not None:
        short = lengths[1] - given.shape[-1]
        if not isinstance(short, int) or short > 0:
            sides = [(0, 0)] * (given.ndim - 1) + [(0, short)]
            none = False if given.dtype.kind == "b" else -np.inf
            given = ops.pad(given, tuple(sides), constant_values=none)
        seen, added = (given, None) if given.dtype.kind == "b" else (None, given)
    keys = ops.reshape(ops.arange(lengths[1]), (1, -1))
    if causal or left >= 0 or right >= 0:
        offset: Any = operands.past
        if operands.filled is not None and not operands.past:
            offset = ops.reshape(operands.filled, (-1, 1, 1, 1)) - lengths[0]
        behind = ops.reshape(ops.arange(lengths[0]), (-1, 1)) + offset - keys
        right = min(right, 0) if causal and right >= 0 else (0 if causal else right)
        if right >= 0:
            seen = _and(seen, behind >= -right)
        if left >= 0:
            seen = _and(seen, behind <= left)
    if operands.filled is not None:
        seen = _and(seen, keys < ops.reshape(operands.filled, (-1, 1, 1, 1)))
    return _Mask(seen, added)


def _scores(call: Call, operands: _Operands, mask: _Mask, scale: float, softcap: float) -> Any:
    """The scores at each stage: raw, capped, and masked."""
    q, k, _, _, _ = operands
    groups = q.shape[1] // k.shape[1]
    k = ops.repeat(k, groups, axis=1) if groups > 1 else k
    # Rounded to the dtype, as in ONNX's definition.
    root = abs(scale) ** 0.5
    left, right = (as_tensor(t, dtype=q.dtype) for t in (root, root if scale >= 0 else -root))
    products = (q * left) @ ops.swapaxes(k * right, 2, 3)
    capped = ops.tanh(products / softcap) * softcap if softcap > 0 else products
    bias = mask.bias(q.dtype)
    return products, capped, capped if bias is None else capped + bias, bias


def _explicit(
    call: Call,
    operands: _Operands,
    mask: _Mask,
    scale: float,
    softcap: float,
    precision: int | None,
    mode: int,
) -> Any:
    """Attention in separate steps, with the intermediate scores that ``mode`` selects."""
    q, _, v, _, _ = operands
    products, capped, biased, bias = _scores(call, operands, mask, scale, softcap)
    wide = biased if precision is None else ops.astype(biased, dtype_of(precision))
    if bias is None:
        weights = ops.softmax(wide)
    else:
        # The weights of a query without visible keys are 0.
        blind = ops.max(bias, axis=-1, keepdims=True) == -np.inf
        weights = ops.where(blind, 0, ops.softmax(ops.where(blind, 0, wide)))
    weights = ops.astype(weights, q.dtype)
    groups = q.shape[1] // v.shape[1]
    y = weights @ (ops.repeat(v, groups, axis=1) if groups > 1 else v)
    return y, ops.astype((products, capped, biased, weights)[mode], q.dtype)


@operator("Attention")
def attention(
    call: Call,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Any:
    """Attention with masks, windows and a cache of keys and values."""
    if (past_key is None) != (past_value is None):
        call.refuse("a past of keys or of values alone")
    if qk_matmul_output_mode not in range(4):
        call.refuse(f"there is no qk_matmul_output_mode {qk_matmul_output_mode}")
    flat = q.ndim == 3
    q, k, v = (
        _heads(call, t, count)
        for t, count in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        k, v = (ops.concat([old, new], axis=2) for old, new in ((past_key, k), (past_value, v)))
    operands = _Operands(q, k, v, past, nonpad_kv_seqlen)
    mask = _mask(call, attn_mask, operands, is_causal, left_window_size, right_window_size)
    scale = float(q.shape[3]) ** -0.5 if scale is None else scale
    plain = not (softcap or softmax_precision or call.wants(3))
    if plain:
        y, scores = ops.dot_product_attention(q, k, v, mask.whole(q.dtype), scale=scale), None
    else:
        y, scores = _explicit(
            call, operands, mask, scale, softcap, softmax_precision, qk_matmul_output_mode
        )
    if flat:
        y = ops.permute_dims(y, (0, 2, 1, 3))
        y = ops.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
    return y, k, v, scores


# Rotary embedding --------------------------------------------------------------------------------


@operator("RotaryEmbedding")
def rotary_embedding(
    call: Call,
    x: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Pairs of elements, rotated by angles that grow with the position."""
    heads = _heads(call, x, num_heads)
    if position_ids is not None:
        cos_cache, sin_cache = (ops.take(t, position_ids, axis=0) for t in (cos_cache, sin_cache))
    cos, sin = (ops.expand_dims(t, 1) for t in (cos_cache, sin_cache))
    size = rotary_embedding_dim or heads.shape[3]
    turned, rest = heads[..., :size], heads[..., size:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
    parts = [cos * a - sin * b, sin * a + cos * b]
    if interleaved:
        y = ops.reshape(ops.stack(parts, axis=-1), turned.shape)
    else:
        y = ops.concat(parts, axis=-1)
    if size != heads.shape[3]:
        y = ops.concat([y, rest], axis=-1)
    if x.ndim == 4:
        return y
    return ops.reshape(ops.permute_dims(y, (0, 2, 1, 3)), x.shape)
