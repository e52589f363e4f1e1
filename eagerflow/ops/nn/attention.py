"""Attention: averages of values, weighted by how well queries fit keys."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from eagerflow import primitives
from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, FLOATS, NARROW, float32
from eagerflow.errors import EagerflowError
from eagerflow.op import Cost, Into, Split, spec_of
from eagerflow.ops import random
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import zeros_like
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import define
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.nn.attention_gradient import dot_product_attention_gradient, gradient_of_scores
from eagerflow.ops.nn.attention_parts import (
    attention_spec,
    check_shapes,
    cut_heads,
    cuts_along,
    examples_as_batch,
    refuse_integers,
    scale_of,
    scores_of,
)
from eagerflow.ops.nn.regularization import dropout
from eagerflow.ops.reductions.softmax import softmax
from eagerflow.ops.shapes.reshaping import reshape, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["dot_product_attention"]


def dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    generator: random.Generator | None = None,
) -> Tensor:
    """Averages of values, weighted by the softmax of the products of queries and keys.

    ``q`` is a tensor of floats, shape (batch, heads, length, width), ``k`` one of shape (batch,
    heads, keys, width), ``v`` of shape (batch, heads, keys, value width); the result has shape
    (batch, heads, length, value width). ``k`` and ``v`` may have fewer heads, a number that divides
    those of ``q``: each is then shared by that many consecutive heads. ``mask`` broadcasts to
    (batch, heads, length, keys): bools, True where a query sees a key, or floats that are added to
    the scores. With ``is_causal`` query i sees keys 0 to i. ``scale`` multiplies the products, by
    default ``width ** -0.5``. A query without visible keys gives zeros. ``dropout_p`` is the
    probability that a weight is 0, while the rest is scaled up so that their mean is preserved;
    they are drawn by ``generator``, by default the global one. Raises ShapeError for mismatched
    shapes, DTypeError for a mask of integers, ArgumentError for invalid probabilities. A. Vaswani
    et al., Attention is all you need, NeurIPS 2017; heads that share keys as in J. Ainslie et al.,
    arXiv:2305.13245.

    >>> x = ef.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> ef.dot_product_attention(x, x, x, is_causal=True, scale=1000.0)
    Tensor([[[[1., 0.],
              [0., 1.]]]], shape=(1, 1, 2, 2), float32, cpu:0)
    """
    if dropout_p:
        return _dropped(q, k, v, mask, is_causal, scale, dropout_p, generator)
    y, _ = attention_with_log_sums(q, k, v, mask, is_causal=is_causal, scale=scale)
    return y


def _dropped(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any, rate: float, generator: Any
) -> Any:
    """Attention with materialized weights, so that some of them can be dropped."""
    refuse_integers(q, k, v, mask)
    q, k, v = (as_tensor(x) for x in (q, k, v))
    mask = None if mask is None else as_tensor(mask)
    specs = [None if x is None else spec_of(x) for x in (q, k, v, mask)]
    try:
        attention_spec(*specs)  # type: ignore[arg-type]
    except EagerflowError as error:
        error.op = "dot_product_attention"
        raise
    dtype = q.dtype
    q, k = (astype(x, float32) if dtype in NARROW else x for x in (q, k))
    scores = scores_of(q, k, mask, is_causal, scale_of(q, scale))
    seen = greater(scores, -math.inf)
    weights = softmax(where(seen, scores, float(np.finfo(scores.dtype).min) / 2), axis=-1)
    kept = dropout(where(seen, weights, 0), rate, generator=generator)
    found = matmul(astype(kept, v.dtype), v)
    return reshape(found, (*q.shape[:3], v.shape[3]))


def _numpy(
    xp: Namespace,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    is_causal: bool,
    scale: float | None,
) -> Any:
    check_shapes(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
    options = primitives.attention.Options(mask, is_causal, scale_of(q, scale))
    return primitives.attention.forward(q, k, v, options)


def _into(
    q: Any, k: Any, v: Any, mask: Any = None, *, is_causal: bool, scale: float | None
) -> Into | None:
    """The kernel that writes the results in place; None if machine code does not support it."""
    compiled = primitives.compiled_attention
    if not compiled.takes(q, v):
        return None

    def native(q: Any, k: Any, v: Any, mask: Any, y: Any, log_sums: Any) -> Any:
        options = compiled.Options(mask, is_causal, scale_of(q, scale))
        own = q, k, v, y, log_sums
        return compiled.native(partial(compiled.forward_call, *own, options), *own)

    return Into(None, native, "fd?", like_first=True)


def _rules(
    g: Any,
    found: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    is_causal: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    more: dict[str, Any] = {"is_causal": is_causal, "scale": scale}
    dtype, (of_y, of_log_sums) = q.dtype, g
    narrow = dtype in NARROW
    if narrow:  # weights from logarithms of few digits would be off
        q, k, v, of_y, of_log_sums = (
            None if x is None else astype(x, float32) for x in (q, k, v, *g)
        )
        found = attention_with_log_sums(q, k, v, mask, **more)
    of_y = zeros_like(found[0]) if of_y is None else of_y
    own = q, k, v, of_y, *found, mask, of_log_sums
    parts = dot_product_attention_gradient(*own, **more)
    if narrow:
        parts = tuple(astype(part, dtype) for part in parts)

    def by_mask() -> Any:
        slopes = reshape(gradient_of_scores(*own, **more)[2], (*q.shape[:3], k.shape[2]))
        return astype(unbroadcast(slopes, mask.shape), mask.dtype)

    floats = mask is not None and mask.dtype in FLOATS
    return (*parts, by_mask if floats else None)


_rules.takes_none = True  # type: ignore[attr-defined]  # the logarithms are not used


# The other facts ---------------------------------------------------------------------------------


def _split(q: TensorSpec, *specs: Any, **attributes: Any) -> list[Split]:
    found = cut_heads(3, q, *specs)
    if not attributes.get("is_causal"):
        cuts = cuts_along(2, 3, q, *specs)
        found.append(Split((cuts[0], None, None, cuts[3]), 2))
    return found


def _cost(q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, **more: Any) -> Cost:
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    flops = scores * (2 * q.shape[3] + 2 * v.shape[3] + 14)
    return Cost(flops, (2 * q.size + k.size + v.size) * q.dtype.itemsize)


@define(
    "contraction",
    name="dot_product_attention",
    version=2,
    shorter=(1,),
    dtypes=(FLOATS, FLOATS, FLOATS, BOOL | FLOATS),
    together=(0, 1, 2),
    arrange=refuse_integers,
    infer=attention_spec,
    trusted=True,
    outputs=2,
    overrides={"numpy": _numpy},
    into=_into,
    vjp=_rules,
    saves="y q k v mask",
    batch=examples_as_batch(3, 2),
    split=_split,
    cost=_cost,
    threaded=False,
    ulp=64,
)
def attention_with_log_sums(
    xp: Namespace,
    q: Array,
    k: Array,
    v: Array,
    mask: Array = None,
    /,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """The result of ``dot_product_attention``, with additional values for its gradient.

    The second result is, for each query, the logarithm of the sum of the exponentials of its
    scores, shape (batch, heads, length); 0 without visible keys. Raises the errors of that
    function.

    >>> x = ef.ones((1, 1, 3, 2))
    >>> ef.dot_product_attention(x, x, x).shape
    (1, 1, 3, 2)
    """
    check_shapes(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
    batch, heads, length, width = q.shape
    shared, keys = k.shape[1:3]
    if 0 in (*q.shape[:3], keys):
        averages = xp.zeros((batch, heads, length, v.shape[3]), dtype=q.dtype)
        return averages, xp.zeros(q.shape[:3], dtype=q.dtype)
    rows = xp.reshape(q * scale_of(q, scale), (batch, shared, heads // shared * length, width))
    scores = xp.reshape(xp.matmul(rows, k.mT), (batch, heads, length, keys))
    biases = primitives.attention.biases(xp, q, k, mask, is_causal)
    scores = primitives.attention.masked(xp, scores, biases)
    top = xp.max(scores, axis=-1, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    powers = xp.exp(scores - top)
    sums = xp.sum(powers, axis=-1, keepdims=True)
    sums = xp.where(sums == 0, xp.ones_like(sums), sums)
    weights = powers / sums
    out = xp.matmul(xp.reshape(weights, (*rows.shape[:3], keys)), v)
    log_sums = xp.reshape(xp.log(sums) + top, (batch, heads, length))
    return xp.reshape(out, (batch, heads, length, v.shape[3])), log_sums
