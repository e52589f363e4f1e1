"""The gradients of attention."""

from __future__ import annotations

from functools import partial
from typing import Any

from eagerflow import primitives
from eagerflow.dtypes import BOOL, FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Into
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import add, multiply, negative, subtract
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.attention_parts import (
    check_shapes,
    cut_heads,
    examples_as_batch,
    folded,
    rows_of,
    scale_of,
    weights_of,
)
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import reshape, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec

__all__: list[str] = []


def _check(
    q: Any, k: Any, v: Any, g: Any, y: Any, log_sums: Any, mask: Any, of_log_sums: Any
) -> None:
    """Refuse shapes that do not fit."""
    check_shapes(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
    averages = (*q.shape[:3], v.shape[3])
    for name, x, shape in (
        ("g", g, averages),
        ("y", y, averages),
        ("log_sums", log_sums, averages[:3]),
        ("of_log_sums", of_log_sums, averages[:3]),
    ):
        if x is not None and x.shape != shape:
            raise ShapeError(
                f"{name} has shape {x.shape}", argument=name, expected=f"shape {shape}"
            )


def _spec(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    g: TensorSpec,
    y: TensorSpec,
    log_sums: TensorSpec,
    mask: TensorSpec | None = None,
    of_log_sums: TensorSpec | None = None,
    **attributes: Any,
) -> tuple[TensorSpec, ...]:
    _check(q, k, v, g, y, log_sums, mask, of_log_sums)
    return q, k, v


def _numpy(
    xp: Namespace,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    y: Any,
    log_sums: Any,
    mask: Any,
    of_log_sums: Any,
    is_causal: bool,
    scale: float | None,
) -> Any:
    _check(q, k, v, g, y, log_sums, mask, of_log_sums)
    options = primitives.attention.Options(mask, is_causal, scale_of(q, scale))
    return primitives.attention.gradient((g, of_log_sums), (y, log_sums), q, k, v, options)


def _into(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    y: Any,
    log_sums: Any,
    mask: Any = None,
    of_log_sums: Any = None,
    *,
    is_causal: bool,
    scale: float | None,
) -> Into | None:
    """The kernel that writes the results in place; None if machine code does not support it."""
    compiled = primitives.compiled_attention
    if not compiled.takes(q, v):
        return None

    def native(*arrays: Any) -> Any:
        q, k, v, g, y, log_sums, mask, of_log_sums, *made = arrays
        options = compiled.Options(mask, is_causal, scale_of(q, scale))
        own = (g, of_log_sums), (y, log_sums), q, k, v, made
        return compiled.native(partial(compiled.gradient_call, *own, options), *arrays)

    return Into(None, native, "fd?")


def gradient_of_scores(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    y: Any,
    log_sums: Any,
    mask: Any,
    of_log_sums: Any,
    is_causal: bool,
    scale: float | None,
) -> tuple[Any, Any, Any]:
    """Weights, the deviations of their gradients from the mean, and the product of both.

    All are folded, a row for each query: the product is the gradient of the scores' bias.
    """
    weights = weights_of(q, k, log_sums, mask, is_causal, scale_of(q, scale))
    means = total(multiply(g, y), axis=-1)
    if of_log_sums is not None:
        means = subtract(means, of_log_sums)
    apart = subtract(matmul(folded(g, k), transposed(v)), rows_of(means, k))
    return weights, apart, multiply(weights, apart)


def _rules(
    c: Any,
    _: Any,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    y: Any,
    log_sums: Any,
    mask: Any,
    of_log_sums: Any,
    is_causal: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    """Gradients of the three gradients, each of which is a product with weights or slopes."""
    own = q, k, v, g, y, log_sums, mask, of_log_sums, is_causal, scale
    weights, apart, slopes = gradient_of_scores(*own)
    factor = scale_of(q, scale)
    c_q, c_k, c_v = c
    rows, outer, pulled = folded(q, k), folded(g, k), folded(c_q, k)
    by_slopes = add(matmul(pulled, transposed(k)), matmul(rows, transposed(c_k)))
    by_slopes = multiply(by_slopes, factor)
    by_weights = add(matmul(outer, transposed(c_v)), multiply(by_slopes, apart))
    by_apart, by_scores = multiply(by_slopes, weights), multiply(by_weights, weights)
    by_means = reshape(negative(total(by_apart, axis=-1)), log_sums.shape)
    of_rows = add(matmul(slopes, c_k), matmul(by_scores, k))
    of_k = add(matmul(transposed(slopes), pulled), matmul(transposed(by_scores), rows))
    of_outer = add(matmul(weights, c_v), matmul(by_apart, v))
    spread = reshape(by_means, (*by_means.shape, 1))
    by_mask = None
    if mask is not None and mask.dtype in FLOATS:
        whole = reshape(by_scores, (*q.shape[:3], k.shape[2]))
        by_mask = astype(unbroadcast(whole, mask.shape), mask.dtype)
    return (
        multiply(reshape(of_rows, q.shape), factor),
        multiply(of_k, factor),
        matmul(transposed(by_apart), outer),
        add(reshape(of_outer, g.shape), multiply(spread, y)),
        multiply(spread, g),
        reshape(negative(total(by_scores, axis=-1)), log_sums.shape),
        by_mask,
        None if of_log_sums is None else negative(by_means),
    )


def _cost(q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, **more: Any) -> Cost:
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    sizes = 2 * (q.size + k.size + v.size) + 2 * q.size
    return Cost(scores * (6 * q.shape[3] + 4 * v.shape[3] + 17), sizes * q.dtype.itemsize)


_TENSORS = (FLOATS,) * 6


@define(
    "contraction",
    dtypes=(*_TENSORS, BOOL | FLOATS, FLOATS),
    together=(*range(6), 7),
    infer=_spec,
    trusted=True,
    outputs=3,
    overrides={"numpy": _numpy},
    into=_into,
    vjp=in_float32(_rules),
    saves="q k v g y log_sums mask of_log_sums",
    batch=examples_as_batch(6, 3),
    split=lambda *specs, **attributes: cut_heads(6, *specs),
    cost=_cost,
    threaded=False,
    ulp=64,
)
def dot_product_attention_gradient(
    xp: Namespace,
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    y: Array,
    log_sums: Array,
    mask: Array = None,
    of_log_sums: Array = None,
    /,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """The gradients of ``dot_product_attention`` with respect to q, k and v.

    ``g`` weighs the averages ``y``, and ``of_log_sums`` (default: nothing) the logarithms of sums
    ``log_sums``, both from that op; the rest is as there. Weights are recomputed from scores and
    ``log_sums``; where those are 1024 or larger in size, too few of their digits are of the sum,
    and the weights of a query are divided by theirs. Raises ShapeError where shapes do not fit. T.
    Dao, FlashAttention-2, arXiv:2307.08691.

    >>> x = ef.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> ef.grad(lambda v: ef.dot_product_attention(x, x, v, is_causal=True, scale=0.0).sum())(x)
    Tensor([[[[1.5, 1.5],
              [0.5, 0.5]]]], shape=(1, 1, 2, 2), float32, cpu:0)
    """
    _check(q, k, v, g, y, log_sums, mask, of_log_sums)
    batch, heads, length, _ = q.shape
    shared, keys = k.shape[1:3]
    if 0 in (*q.shape[:3], keys):
        return tuple(xp.zeros(x.shape, dtype=x.dtype) for x in (q, k, v))
    shape, factor = (batch, shared, heads // shared * length), scale_of(q, scale)
    rows, outer = (xp.reshape(x, (*shape, x.shape[3])) for x in (q, g))
    scores = xp.reshape(xp.matmul(rows, k.mT), (batch, heads, length, keys)) * factor
    biases = primitives.attention.biases(xp, q, k, mask, is_causal)
    scores = primitives.attention.masked(xp, scores, biases)
    levels = xp.reshape(log_sums, (*shape, 1))
    weights = xp.exp(xp.reshape(scores, (*shape, keys)) - levels)
    sums = xp.sum(weights, axis=-1, keepdims=True)
    exact = (xp.abs(levels) < primitives.attention.MAX_LOG_SUM) | (sums == 0)
    weights = weights / xp.where(exact, xp.ones_like(sums), sums)
    means = xp.sum(g * y, axis=-1)
    if of_log_sums is not None:
        means = means - of_log_sums
    slopes = weights * (xp.matmul(outer, v.mT) - xp.reshape(means, (*shape, 1))) * factor
    of_q = xp.reshape(xp.matmul(slopes, k), q.shape)
    return of_q, xp.matmul(slopes.mT, rows), xp.matmul(weights.mT, outer)
