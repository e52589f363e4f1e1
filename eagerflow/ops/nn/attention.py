"""Attention: averages of values, weighted by how well queries fit keys."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, FLOATS, DType
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample, Split
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal, greater_equal, isfinite
from eagerflow.ops.elementwise.exponential import exp
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Batch, define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.softmax import softmax, softmax_gradient
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape, unbroadcast
from eagerflow.runtime import threads
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["dot_product_attention"]


# Shapes ------------------------------------------------------------------------------------------


def _attention_spec(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    mask: TensorSpec | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> TensorSpec:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ShapeError(
                f"{x.ndim} axes came",
                argument=name,
                expected="shape (batch, heads, length, width)",
                hint=f"{name}.reshape(...), with sizes of 1 for what there is not",
            )
    for name, x, axis, what in (
        ("k", k, 0, "batch sizes"),
        ("v", v, 0, "batch sizes"),
        ("k", k, 3, "widths"),
    ):
        if x.shape[axis] != q.shape[axis]:
            raise ShapeError(
                f"{what} differ: {q.shape[axis]} in q, {x.shape[axis]} in {name}",
                argument=name,
                expected=f"equal {what} in q, k and v" if axis == 0 else "equal widths in q and k",
            )
    if k.shape[1:3] != v.shape[1:3]:
        raise ShapeError(
            f"k has {k.shape[1]} heads of length {k.shape[2]}, v has {v.shape[1]} of {v.shape[2]}",
            argument="v",
            expected="one value for each key",
        )
    if q.shape[1] != k.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        raise ShapeError(
            f"{q.shape[1]} heads of q cannot share {k.shape[1]} heads of k",
            argument="k",
            expected="as many heads as q, or a number that divides them",
        )
    whole = (*q.shape[:3], k.shape[2])
    if mask is not None and not _fits(mask.shape, whole):
        raise ShapeError(
            f"shape {mask.shape} does not broadcast to {whole}",
            argument="mask",
            expected="(batch, heads, length of q, length of k), or sizes of 1, or fewer axes",
        )
    return q.like((*q.shape[:3], v.shape[3]))


def _fits(shape: Any, whole: Any) -> bool:
    """Whether a shape broadcasts to another."""
    sizes = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in sizes)


@lru_cache(1024, typed=True)
def _check(*shapes: Any) -> None:
    """Refuse shapes that do not fit, which is asked once of each combination."""
    q, k, v, mask = (None if shape is None else TensorSpec(shape, "float32") for shape in shapes)
    _attention_spec(q, k, v, mask)  # type: ignore[arg-type]


def _arrange(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Refuse masks of integers: 0 and 1 would be added to the scores, which nobody means."""
    mask = args[3] if len(args) > 3 else named.get("mask")
    if isinstance(mask, list | tuple):
        mask = as_tensor(mask)
    kind = getattr(getattr(mask, "dtype", None), "kind", "")
    if kind in ("i", "u") or isinstance(mask, int):
        raise DTypeError(
            "a mask of integers could mean two things",
            op="dot_product_attention",
            argument="mask",
            hint="mask.astype('bool'), True where a query may see a key",
            expected="bools, or floats that are added to the scores",
        )
    return args, named


def _scale(q: Any, scale: float | None) -> float:
    if scale is not None:
        return scale
    return 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0


# The kernels -------------------------------------------------------------------------------------


def _biases(xp: Namespace, q: Any, k: Any, mask: Any, is_causal: bool) -> Any:
    """What is added to the scores: the mask, with -inf where a key is hidden; None if nothing."""
    found = None
    hidden = xp.asarray(-math.inf, dtype=q.dtype)
    if mask is not None:
        shown = str(mask.dtype).endswith("bool")
        found = xp.where(mask, xp.zeros_like(hidden), hidden) if shown else mask
        found = xp.astype(found, q.dtype)
    if is_causal:
        rows, columns = (xp.arange(x.shape[2]) for x in (q, k))
        order = xp.where(rows[:, None] >= columns[None, :], xp.zeros_like(hidden), hidden)
        found = order if found is None else found + order
    return found


# Scores are computed in pieces of about this many, which the caches of a core hold.
TILE_SCORES = 2**16


def _attention_numpy(
    xp: Namespace,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    is_causal: bool = False,
    scale: Any = None,
) -> Any:
    """Tile by tile: the scores of all queries and keys are never in memory together."""
    _check(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
    (batch, heads, length, _), (_, shared, keys, width) = q.shape, v.shape
    biases = _biases(np, q, k, mask, is_causal)
    group = heads // shared if shared else 1
    stack, rows = batch * shared, group * length
    out = np.zeros((stack, rows, width), q.dtype)
    if not out.size or not keys:
        return out.reshape(batch, heads, length, width)
    queries = (q * q.dtype.type(_scale(q, scale))).reshape(stack, rows, q.shape[3])
    columns = k.reshape(stack, keys, k.shape[3]).swapaxes(1, 2)
    values = v.reshape(stack, keys, width)
    bias = _bias_of(biases, batch, shared, group, length, keys)
    # Where only the order hides keys, each query sees the first, and all before its tile.
    plain = mask is None and group == 1
    wide = max(1, TILE_SCORES // (rows * keys))
    step = rows if rows * keys <= TILE_SCORES else max(8, TILE_SCORES // keys)
    pieces = -(-rows // step)

    def work(i: int) -> None:
        at = slice(i // pieces * wide, (i // pieces + 1) * wide)
        part = slice(i % pieces * step, min((i % pieces + 1) * step, rows))
        # No query of this tile sees later keys, where the rows are those of one head.
        end = min(keys, part.stop) if is_causal and group == 1 else keys
        block = queries[at, part]
        scores = threads.scratch("scores", (*block.shape[:2], end), q.dtype)
        np.matmul(block, columns[at, :, :end], out=scores)
        if bias is not None:
            start = min(part.start, end) if plain else 0
            for j in range(len(block)):
                scores[j, :, start:] += bias(at.start + j)[part, start:end]
        _normalise(scores, values[at, :end], out[at, part], bias is not None and not plain)

    threads.run(work, -(-stack // wide) * pieces)
    return out.reshape(batch, heads, length, width)


def _bias_of(biases: Any, batch: int, shared: int, group: int, length: int, keys: int) -> Any:
    """A function that gives the biases of one stack of rows; None without any."""
    if biases is None:
        return None
    if biases.ndim < 3 or biases.shape[:-2].count(1) == biases.ndim - 2:
        both = np.broadcast_to(biases.reshape(biases.shape[-2:]), (length, keys))
        one = np.tile(both, (group, 1)) if group > 1 else both
        return lambda i: one
    whole = np.broadcast_to(biases, (batch, shared * group, length, keys))

    def at(i: int) -> Any:
        b, h = divmod(i, shared)
        return whole[b, h * group : (h + 1) * group].reshape(group * length, keys)

    return at


def _normalise(scores: Any, values: Any, out: Any, hidden: bool) -> None:
    """Averages of ``values`` with the exponentials of ``scores`` as weights, into ``out``."""
    top = scores.max(axis=-1, keepdims=True)
    if hidden:
        np.copyto(top, 0, where=top == -math.inf)
    np.subtract(scores, top, scores)
    np.exp(scores, scores)
    np.matmul(scores, values, out=out)
    sums = scores.sum(axis=-1, keepdims=True)
    if hidden:
        np.copyto(sums, 1, where=sums == 0)
    np.divide(out, sums, out)


# The gradient ------------------------------------------------------------------------------------


def _folded(x: Any, k: Any) -> Any:
    """The heads of ``x`` that share a head of ``k`` as rows of one matrix."""
    batch, heads, length, width = x.shape
    if heads == k.shape[1]:
        return x
    return reshape(x, (batch, k.shape[1], heads // k.shape[1] * length, width))


def _weights(q: Any, k: Any, mask: Any, is_causal: bool, factor: float) -> Any:
    """The weight of each key for each query, in rows that are folded as the queries are."""
    scores = multiply(matmul(_folded(q, k), transposed(k)), factor)
    shape = (*q.shape[:3], k.shape[2])
    if mask is not None:
        scores = reshape(scores, shape)
        if mask.dtype in BOOL:
            scores = where(mask, scores, -math.inf)
        else:
            scores = add(scores, astype(mask, q.dtype))
    if is_causal:
        scores = where(_causal(q, k), reshape(scores, shape), -math.inf)
    if mask is None or k.shape[2] == 0:
        return _folded(softmax(scores, axis=-1), k)
    top = largest(scores, axis=-1, keepdims=True)
    powers = exp(subtract(scores, where(isfinite(top), top, 0)))
    sums = total(powers, axis=-1, keepdims=True)
    return _folded(divide(powers, where(equal(sums, 0), 1, sums)), k)


def _causal(q: Any, k: Any) -> Any:
    """Which keys a query sees if it sees none after its own place."""
    places = eye(q.shape[2], k.shape[2], dtype=q.dtype, device=str(q.device))
    return greater_equal(cumulative_sum(places, axis=0), 1)


def _attention_vjp(
    g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any
) -> tuple[Any, ...]:
    """The weights are computed again, as T. Dao et al. do (FlashAttention, arXiv:2205.14135)."""
    factor = _scale(q, scale)
    weights = _weights(q, k, mask, is_causal, factor)
    outer, rows = _folded(g, k), _folded(q, k)
    scores = softmax_gradient(weights, matmul(outer, transposed(v)), axis=-1)
    part = multiply(scores, factor)
    by_mask = None
    if mask is not None and mask.dtype in FLOATS:
        whole = reshape(scores, (*q.shape[:3], k.shape[2]))
        by_mask = astype(unbroadcast(whole, mask.shape), mask.dtype)
    return (
        reshape(matmul(part, k), q.shape),
        matmul(transposed(part), rows),
        matmul(transposed(weights), outer),
        by_mask,
    )


# The other facts ---------------------------------------------------------------------------------


def _attention_batch(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
    """Examples become further entries of the batch."""
    *tensors, mask = args
    inner = tensors[0].shape[batched[0]]
    if mask is not None and (batched[3] or mask.ndim == 4):
        own = mask.shape[1:] if batched[3] else mask.shape
        lead = size if batched[3] else 1
        mask = reshape(mask, (lead, *(1,) * (4 - len(own)), *own))
        mask = broadcast_to(mask, (size, inner, *mask.shape[2:]))
        mask = reshape(mask, (size * inner, *mask.shape[2:]))
    axes = (0, 0, 0, None)
    return call_merged(call, (*tensors, mask), batched, size, axes, (0,), **attributes)


def _attention_split(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, mask: Any = None, **attributes: Any
) -> list[Split]:
    def cut(axis: int) -> int | None:
        at = None if mask is None else axis - 4 + mask.ndim
        return at if at is not None and at >= 0 and mask.shape[at] == q.shape[axis] else None

    found = [Split((0, 0, 0, cut(0)), 0)]
    if q.shape[1] == k.shape[1]:
        found.append(Split((1, 1, 1, cut(1)), 1))
    if not attributes.get("is_causal"):
        found.append(Split((2, None, None, cut(2)), 2))
    return found


def _attention_cost(q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, **more: Any) -> Cost:
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    flops = scores * (2 * q.shape[3] + 2 * v.shape[3] + 14)
    return Cost(flops, (2 * q.size + k.size + v.size) * q.dtype.itemsize)


def _attention_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    def of(q: Any, k: Any, width: int, mask: Any = None, **attributes: Any) -> Sample:
        arrays = [make(rng, dtype, shape, -1, 1) for shape in (q, k, (*k[:3], width))]
        return Sample((*arrays, mask), attributes)

    hidden = np.array([[True, False, True], [False, False, False]])
    full = rng.random((2, 2, 2, 3)) < 0.7
    full[..., 0] = True
    bias = make(rng, dtype, (2, 3))
    found = [
        of((1, 1, 1, 1), (1, 1, 1, 1), 1),
        of((2, 2, 2, 3), (2, 2, 3, 3), 2),
        of((1, 2, 3, 2), (1, 2, 3, 2), 2, is_causal=True),
        of((1, 1, 3, 2), (1, 1, 2, 2), 1, scale=0.5),
        of((1, 1, 2, 2), (1, 1, 4, 2), 2, is_causal=True),
        of((1, 4, 2, 2), (1, 2, 3, 2), 2),
        of((2, 2, 2, 2), (2, 1, 3, 2), 2, is_causal=True),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, hidden),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, full),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, bias),
        of((2, 2, 2, 2), (2, 2, 3, 2), 2, make(rng, dtype, (2, 1, 1, 3)), is_causal=True),
        of((1, 4, 2, 2), (1, 2, 3, 2), 1, full[:1, :1, :, :].repeat(4, 1)),
        of((1, 1, 0, 2), (1, 1, 3, 2), 2),
        of((0, 1, 2, 2), (0, 1, 3, 2), 2),
        of((1, 1, 2, 2), (1, 1, 0, 2), 2),
    ]
    wide = make(rng, dtype, (2, 3, 2, 4), -1, 1)  # (batch, length, heads, width), seen otherwise
    moved = wide.transpose(0, 2, 1, 3)
    return [*found, Sample((moved, moved[:, :, ::-1], moved[..., ::2], None))]


def _attention_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x, wide = np.ones((2, 4, 3, 2)), np.ones((2, 4, 3, 5))
    ints = np.ones((3, 3), int)
    return [
        ErrorSample(("a string", x, x), {}, DTypeError, "str"),
        ErrorSample((x[0], x, x), {}, ShapeError, "3 axes came"),
        ErrorSample((x, wide, x), {}, ShapeError, "widths differ: 2 in q, 5 in k"),
        ErrorSample((x, x[:1], x), {}, ShapeError, "batch sizes differ"),
        ErrorSample((x, x, x[:, :, :2]), {}, ShapeError, "one value for each key"),
        ErrorSample((x, x[:, :3], x[:, :3]), {}, ShapeError, "cannot share 3 heads"),
        ErrorSample((x, x, x, np.ones((4, 3))), {}, ShapeError, "does not broadcast"),
        ErrorSample((x, x, x, ints), {}, DTypeError, "could mean two things"),
    ]


def _attention_reference(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any) -> Any:
    """The definition, one query at a time."""
    (batch, heads, length, width), (_, shared, keys, _) = q.shape, k.shape
    factor = 1 / math.sqrt(width) if scale is None else scale
    out = np.zeros((batch, heads, length, v.shape[3]))
    seen = None if mask is None else np.broadcast_to(mask, (batch, heads, length, keys))
    for b, h, i in np.ndindex(batch, heads, length):
        own = h * shared // heads
        scores = []
        for j in range(keys):
            products = zip(q[b, h, i].tolist(), k[b, own, j].tolist(), strict=True)
            score = math.fsum(x * y for x, y in products) * factor
            if seen is not None and seen.dtype.kind == "b":
                score = score if seen[b, h, i, j] else -math.inf
            elif seen is not None:
                score += float(seen[b, h, i, j])
            scores.append(-math.inf if is_causal and j > i else score)
        top = max(scores, default=0.0)
        powers = [math.exp(s - top) if s > -math.inf else 0.0 for s in scores]
        whole = math.fsum(powers)
        for c in range(v.shape[3]):
            terms = [p * float(v[b, own, j, c]) for j, p in enumerate(powers)]
            out[b, h, i, c] = math.fsum(terms) / whole if whole else 0.0
    return out


@define(
    "contraction",
    dtypes=(FLOATS, FLOATS, FLOATS, BOOL | FLOATS),
    together=(0, 1, 2),
    arrange=_arrange,
    infer=_attention_spec,
    trusted=True,
    overrides={"numpy": _attention_numpy},
    vjp=in_float32(_attention_vjp),
    saves="q k v mask",
    batch=Batch(_attention_batch),
    split=_attention_split,
    cost=_attention_cost,
    onnx=Missing("exported as MatMul, Add, Softmax and MatMul"),
    samples=_attention_samples,
    errors=_attention_errors,
    reference=_attention_reference,
    ulp=64,
)
def dot_product_attention(
    xp: Namespace,
    q: Array,
    k: Array,
    v: Array,
    mask: Array = None,
    /,
    is_causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Averages of values, weighted by the softmax of the products of queries and keys.

    ``q`` is a tensor of floats, shape (batch, heads, length, width), ``k`` one of shape
    (batch, heads, keys, width), ``v`` of shape (batch, heads, keys, value width); the result
    has shape (batch, heads, length, value width). ``k`` and ``v`` may have fewer heads, a
    number that divides those of ``q``: each is then shared by as many heads in a row.
    ``mask`` broadcasts to (batch, heads, length, keys): bools, True where a query sees a key,
    or floats that are added to the scores. With ``is_causal`` query i sees keys 0 to i.
    ``scale`` multiplies the products, by default ``width ** -0.5``. A query that sees no key
    gives zeros. Raises ShapeError where shapes do not fit, DTypeError for a mask of integers.
    A. Vaswani et al., Attention is all you need, NeurIPS 2017; heads that share keys as in
    J. Ainslie et al., arXiv:2305.13245.

    >>> x = ef.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> ef.dot_product_attention(x, x, x, is_causal=True, scale=1000.0)
    Tensor([[[[1., 0.],
              [0., 1.]]]], shape=(1, 1, 2, 2), float32, cpu:0)
    """
    _check(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
    batch, heads, length, width = q.shape
    shared, keys = k.shape[1:3]
    if 0 in (*q.shape[:3], keys):
        return xp.zeros((batch, heads, length, v.shape[3]), dtype=q.dtype)
    rows = xp.reshape(q * _scale(q, scale), (batch, shared, heads // shared * length, width))
    scores = xp.reshape(xp.matmul(rows, k.mT), (batch, heads, length, keys))
    biases = _biases(xp, q, k, mask, is_causal)
    scores = scores if biases is None else scores + biases
    top = xp.max(scores, axis=-1, keepdims=True)
    powers = xp.exp(scores - xp.where(xp.isfinite(top), top, xp.zeros_like(top)))
    sums = xp.sum(powers, axis=-1, keepdims=True)
    weights = powers / xp.where(sums == 0, xp.ones_like(sums), sums)
    out = xp.matmul(xp.reshape(weights, (*rows.shape[:3], keys)), v)
    return xp.reshape(out, (batch, heads, length, v.shape[3]))
