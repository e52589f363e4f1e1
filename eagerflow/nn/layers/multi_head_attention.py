"""Attention with several heads and projections."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.dims import Shape
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, count, require
from eagerflow.nn.configured import Untracked, arguments
from eagerflow.nn.layers.attention_axes import AttentionAxes
from eagerflow.nn.layers.cells import build_part
from eagerflow.nn.layers.core import KernelBase, KernelOptions, Rate
from eagerflow.nn.layers.einsum_dense import EinsumDense
from eagerflow.nn.layers.key_value_cache import KeyValueCache, KeyValueRows
from eagerflow.nn.layers.positions import places
from eagerflow.nn.masks import hidden_score
from eagerflow.ops import random
from eagerflow.ops.nn.regularization import dropout
from eagerflow.spec import normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["GroupQueryAttention", "MultiHeadAttention"]


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple([count(x) for x in value]) if isinstance(value, Sequence) else (count(value),)


def _axes(value: Any) -> tuple[int, ...]:
    axes = tuple(value) if isinstance(value, Sequence) else (value,)
    ok = bool(axes) and all(isinstance(axis, int) for axis in axes)
    require(ok, value, "not axes", expected="an integer or integers")
    return axes


OutputShape = Annotated[int | Sequence[int], _sizes]
"""A size or sizes."""
AxesLike = Annotated[int | Sequence[int], _axes]
"""An axis or axes."""


class AttentionOptions(KernelOptions, total=False):
    """The arguments that attention layers with heads share and do not list."""

    use_gate: bool
    seed: int | None


class _HeadAttention(KernelBase):
    """Base of multi-head attention, except the numbers of heads."""

    dropout: float
    use_bias: bool
    sliding_window: int | None
    flash_attention: bool | None
    use_gate: bool
    query_dense: EinsumDense
    key_dense: EinsumDense
    value_dense: EinsumDense
    output_dense: EinsumDense
    gate_dense: EinsumDense | None

    @arguments
    def __init__(
        self,
        dropout: Rate = 0.0,
        use_bias: bool = True,
        sliding_window: Count | None = None,
        flash_attention: bool | None = None,
        use_gate: bool = False,
        seed: int | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        self._refuse_flash(self.dropout > 0, "dropout")
        self.generator = None if seed is None else random.Generator(seed)
        # As in Keras, the regularizer applies to the results of the projections.
        self._activity, self.activity_regularizer = self.activity_regularizer, None

    def _refuse_flash(self, wanted: bool, argument: str) -> None:
        if wanted and self.flash_attention:
            raise ArgumentError(
                f"flash attention has no {argument}",
                op=self._label,
                argument=argument,
                hint="flash_attention=None: scores are only in memory where they are needed",
            )

    # Overridden in subclasses ------------------------------------------------------------------

    def _dims(self) -> tuple[int, int, int, int]:
        """Heads of queries, heads of keys, width of keys, width of values."""
        raise NotImplementedError

    def _places_in(self, rank: int) -> tuple[int, ...]:
        """The axes of inputs of this rank that are attended over."""
        return tuple(range(1, rank - 1))

    _outputs: tuple[int, ...] | None = None  # sizes of outputs; None: as queries

    # Weights -------------------------------------------------------------------------------

    def build(  # type: ignore[override]
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> None:
        if value_shape is None:
            received, hint = f"queries of shape {tuple(query_shape)}", "layer(x, x) for x to itself"
            raise self._misfit("there are no values", received, "queries and values", hint)
        key_shape = value_shape if key_shape is None else key_shape
        rank = len(query_shape)
        alike = rank == len(value_shape) and value_shape[:-1] == key_shape[:-1]
        if rank < 3 or not alike:
            raise self._misfit(
                "queries, values and keys do not fit together",
                f"shapes {tuple(query_shape)}, {tuple(value_shape)}, {tuple(key_shape)}",
                "(batch, length, width) each, with a value for each key",
            )
        self._axes = Untracked(AttentionAxes(rank, self._places_in(rank)))
        heads, shared, key_dim, value_dim = self._dims()
        self.query_dense = self._projection("query", query_shape, (heads, key_dim))
        self.key_dense = self._projection("key", key_shape, (shared, key_dim))
        self.gate_dense = None
        if self.use_gate:
            self.gate_dense = self._projection("gate", query_shape, (heads, value_dim))
        self.value_dense = self._projection("value", value_shape, (shared, value_dim))
        last = (query_shape[-1],) if self._outputs is None else self._outputs
        inner = (*query_shape[:-1], heads, value_dim)
        self.output_dense = self._projection("attention_output", inner, last, bound=2)

    def _projection(self, name: str, shape: Any, outputs: Any, bound: int = 1) -> EinsumDense:
        letters = string.ascii_lowercase
        inner, outer = letters[:bound], letters[bound : bound + len(outputs)]
        layer = EinsumDense(
            f"...{inner},{inner}{outer}->...{outer}",
            outputs,
            "sigmoid" if name == "gate" else None,
            outer if self.use_bias else None,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            activity_regularizer=self._activity,
            dtype=self.dtype_policy,
            name=name,
        )
        build_part(layer, shape, self.name)
        return layer

    def make_cache(self, batch_size: int, length: int) -> KeyValueCache:
        """Room for the keys and values of ``batch_size`` sequences of up to ``length`` tokens.

        Passed to calls as ``cache``, it lets sequences grow: a call gets only the new tokens.
        """
        _, heads, key_dim, value_dim = self._dims()
        return KeyValueCache(batch_size, heads, length, key_dim, value_dim, self.compute_dtype)

    # Computing -----------------------------------------------------------------------------

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool = False,
        use_causal_mask: bool = False,
        cache: KeyValueCache | KeyValueRows | None = None,
        position: Any = 0,
    ) -> Any:
        self._refuse_flash(return_attention_scores, "return_attention_scores")
        axes = self._axes.held
        projected = self.query_dense(query)
        q = axes.inward(projected)
        k = axes.inward(self.key_dense(value if key is None else key))
        q, k = self.positioned(q, k, position)
        v = axes.inward(self.value_dense(value))
        masks = [axes.steps(m)[:, None, None] for m in (value_mask, key_mask) if m is not None]
        causal = use_causal_mask or cache is not None
        if cache is not None:
            k, v, masks = self._continued(cache, k, v, position, masks)
        if query_mask is not None:
            masks.append(axes.steps(query_mask)[:, None, :, None])
        if attention_mask is not None:
            masks.append(axes.pairs(attention_mask, query, value))
        dropped = training and self.dropout > 0
        scored = return_attention_scores or dropped
        if scored or self.sliding_window or cache is not None:
            rows = places(q, 2) if cache is None else places(q, 2) + position
            masks += self._near(rows, places(k, 2), causal)
            causal = False  # it is in the masks
        mask = reduce(ops.logical_and, masks) if masks else None
        if scored:
            outputs, weights = self._weighted(q, k, v, mask, dropped)
        else:
            outputs, weights = ops.dot_product_attention(q, k, v, mask, is_causal=causal), None
        outputs = axes.outward(outputs, projected)
        if self.gate_dense is not None:
            outputs = outputs * self.gate_dense(query)
        outputs = self.output_dense(outputs)
        if return_attention_scores:
            return outputs, axes.scores(weights, query, value)
        return outputs

    def positioned(self, q: Tensor, k: Tensor, position: Any) -> tuple[Tensor, Tensor]:
        """Queries and keys (batch, heads, places, width) before their products; unchanged here.

        A subclass may rotate them by ``rotary_embedding``; the first have the index ``position``.
        """
        return q, k

    def _weighted(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, dropped: bool) -> Any:
        """The result of ``dot_product_attention``, with dropout of weights, and all weights."""
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = ops.repeat(k, groups, axis=1), ops.repeat(v, groups, axis=1)
        scores = ops.matmul(q * q.shape[-1] ** -0.5, k.mT)
        if mask is not None:
            scores = ops.where(mask, scores, hidden_score(scores.dtype))
        weights = ops.softmax(scores, axis=-1)
        if mask is not None:  # a query without visible keys has no weights
            weights = ops.where(mask, weights, 0.0)
        kept = dropout(weights, self.dropout, generator=self.generator) if dropped else weights
        return ops.matmul(kept, v), weights

    def _continued(
        self,
        cache: KeyValueCache | KeyValueRows,
        k: Tensor,
        v: Tensor,
        position: Any,
        masks: list[Any],
    ) -> Any:
        """Keys, values and masks of all tokens up to these, which the cache keeps."""
        kinds = (KeyValueCache, KeyValueRows)
        require(isinstance(cache, kinds), cache, "not a cache", self._label, "cache")
        if not self._axes.held.plain:
            raise self._misfit(
                "a cache needs inputs of one sequence", "several", "(batch, length, width)"
            )
        counted = reduce(ops.logical_and, masks)[:, 0, 0] if masks else True
        return cache.write(k, v, places(k, 2) + position, counted)

    def _near(self, rows: Tensor, columns: Tensor, causal: bool) -> list[Tensor]:
        """Masks from those of queries, (length) or (batch, length), and of keys."""
        apart = rows[..., None] - columns
        if apart.ndim > 2:
            apart = apart[:, None]
        found = [apart >= 0] if causal else []
        if self.sliding_window is not None:
            found.append(ops.abs(apart) < self.sliding_window)
        return found


class MultiHeadAttention(_HeadAttention):
    """Attention of several heads, each with its own projections, followed by an output projection.

    Inputs are queries and values, and keys if they differ from the values, of shape (batch, length,
    width); outputs have the shape of queries, or ``output_shape`` in place of their width.
    ``num_heads`` heads have keys of width ``key_dim`` and values of width ``value_dim`` (by default
    ``key_dim``). Inputs may have further axes: ``attention_axes`` are those attended over, by
    default all between the batch and the width. ``sliding_window`` hides keys at that distance or
    beyond, ``use_gate`` multiplies the results of heads by a sigmoid of queries, ``dropout`` drops
    weights in training, with a generator of its own if there is a ``seed``.

    In a call, ``query_mask``, ``value_mask`` and ``key_mask`` are bools of steps,
    ``attention_mask`` bools (batch, queries, keys), also with an axis of heads; a query without
    visible keys gives zeros. ``use_causal_mask`` hides later keys, ``return_attention_scores`` also
    returns the weights, shape (batch, heads, queries, keys). With a ``cache`` (see ``make_cache``)
    inputs are the tokens from ``position`` on, an integer or a tensor, and queries see all tokens
    up to their own. Raises ShapeError for mismatched inputs. Source: Vaswani and others, "Attention
    is all you need", 2017.

    >>> layer = ef.nn.MultiHeadAttention(num_heads=2, key_dim=3)
    >>> x = ef.ones((1, 5, 8))
    >>> layer(x, x).shape, [w.shape for w in layer.weights[:2]]
    ((1, 5, 8), [(8, 2, 3), (2, 3)])
    """

    _renewed = frozenset({"output_shape"})
    num_heads: int
    key_dim: int
    value_dim: int
    attention_axes: tuple[int, ...] | None

    @arguments
    def __init__(
        self,
        num_heads: Count,
        key_dim: Count,
        value_dim: Count | None = None,
        dropout: Rate = 0.0,
        use_bias: bool = True,
        output_shape: OutputShape | None = None,
        attention_axes: AxesLike | None = None,
        sliding_window: Count | None = None,
        flash_attention: bool | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        self.value_dim = self.value_dim or self.key_dim
        # The attribute's name is that of the shape of the last outputs, in every layer.
        self._outputs, self.output_shape = self.output_shape, None

    def _dims(self) -> tuple[int, int, int, int]:
        return self.num_heads, self.num_heads, self.key_dim, self.value_dim

    def _places_in(self, rank: int) -> tuple[int, ...]:
        if self.attention_axes is None:
            return super()._places_in(rank)
        found = normalize_axes(self.attention_axes, rank, "attention_axes")
        if not all(0 < axis < rank - 1 for axis in found):
            raise self._misfit(
                f"attention_axes {self.attention_axes} has the batch or the width",
                f"{rank} axes",
                f"axes from 1 to {rank - 2}",
            )
        return found


class GroupQueryAttention(_HeadAttention):
    """Grouped-query attention: groups of query heads share a head of keys and values.

    ``num_query_heads`` is a multiple of ``num_key_value_heads``; all heads have the width
    ``head_dim``. Inputs have shape (batch, length, width), outputs that of queries; other
    arguments, and calls, are those of ``MultiHeadAttention``. Raises ArgumentError if the heads
    cannot be grouped. Source: Ainslie and others, "GQA", 2023.

    >>> layer = ef.nn.GroupQueryAttention(3, num_query_heads=4, num_key_value_heads=2)
    >>> x = ef.ones((1, 5, 8))
    >>> layer(x, x, use_causal_mask=True).shape, layer.make_cache(1, 16).keys.shape
    ((1, 5, 8), (1, 2, 16, 3))
    """

    head_dim: int
    num_query_heads: int
    num_key_value_heads: int

    @arguments
    def __init__(
        self,
        head_dim: Count,
        num_query_heads: Count,
        num_key_value_heads: Count,
        dropout: Rate = 0.0,
        use_bias: bool = True,
        sliding_window: Count | None = None,
        flash_attention: bool | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        if self.num_query_heads % self.num_key_value_heads:
            raise ArgumentError(
                f"{self.num_query_heads} heads of queries cannot share {self.num_key_value_heads}",
                op=self._label,
                argument="num_key_value_heads",
                expected="a divisor of num_query_heads",
            )

    def _dims(self) -> tuple[int, int, int, int]:
        return self.num_query_heads, self.num_key_value_heads, self.head_dim, self.head_dim
