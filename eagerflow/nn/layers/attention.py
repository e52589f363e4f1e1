"""Attention of queries to values, without projections: by products, or by sums."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.nn.arguments import choice, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.core import Rate
from eagerflow.nn.layers.positions import places
from eagerflow.nn.masks import hidden_score
from eagerflow.ops import random
from eagerflow.ops.nn.regularization import dropout
from eagerflow.ops.operands import floating
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["AdditiveAttention", "Attention"]

ScoreMode = Annotated[str, choice("not a score mode", "dot", "concat")]


def in_order(queries: Tensor, keys: Tensor, axis: int = -2) -> Tensor:
    """The causal mask: keys up to each query's own position, shape (length, keys)."""
    return places(queries, axis)[:, None] >= places(keys, axis)


class SeedOptions(LayerOptions, total=False):
    """The arguments of layers with random generators of their own."""

    seed: int | None


class _Attention(Layer):
    """Base of attention to a list of tensors: all but the scores and their weights."""

    use_scale: bool
    dropout: float
    scale: Variable | None

    @arguments
    def __init__(
        self,
        use_scale: bool = False,
        dropout: Rate = 0.0,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.generator = None if seed is None else random.Generator(seed)

    def build(self, input_shape: Any) -> None:
        self._check_list(input_shape, "inputs")
        self.scale = None

    def _check_list(self, given: Any, argument: str) -> None:
        expected = "a list [query, value] or [query, value, key]"
        ok = isinstance(given, list | tuple) and len(given) in (2, 3)
        ok = ok and not any(isinstance(item, int) for item in given)
        require(ok, given, "not what this layer takes", self._label, argument, expected)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """How well queries (batch, length, width) fit keys: shape (batch, length, keys)."""
        raise NotImplementedError

    def call(
        self,
        inputs: list[Tensor],
        mask: Any = None,
        training: bool = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._check_list(inputs, "inputs")
        if mask is not None:
            self._check_list(mask, "mask")
        query, value, key = [floating(x) for x in (*inputs[:2], inputs[-1])]
        query_mask, value_mask = (None, None) if mask is None else mask[:2]
        bias = self._bias(query, key, value_mask, use_causal_mask)
        dropped = training and self.dropout > 0
        if return_attention_scores or dropped:
            weights = self._weigh(query, key, bias)
            kept = dropout(weights, self.dropout, generator=self.generator) if dropped else weights
            outputs = ops.matmul(kept, value)
        else:
            weights, outputs = None, self.attend(query, key, value, bias)
        if query_mask is not None:
            outputs = ops.where(query_mask[..., None], outputs, 0.0)
        return (outputs, weights) if return_attention_scores else outputs

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """The means of values, weighted by the softmax of the scores and ``bias``."""
        return ops.matmul(self._weigh(query, key, bias), value)

    def _weigh(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
        scores = self.scores(query, key)
        return ops.softmax(scores if bias is None else ops.add(scores, bias), axis=-1)

    def _bias(self, query: Tensor, key: Tensor, value_mask: Any, causal: bool) -> Tensor | None:
        seen = None if value_mask is None else ops.astype(value_mask, "bool")[..., None, :]
        if causal:
            order = in_order(query, key)
            seen = order if seen is None else ops.logical_and(seen, order)
        if seen is None:
            return None
        return ops.where(seen, 0.0, hidden_score(query.dtype)).astype(query.dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return None if previous_mask is None else previous_mask[0]


class Attention(_Attention):
    """Means of values, weighted by how well their keys fit queries (Luong's attention).

    Inputs are a list ``[query, value]`` or ``[query, value, key]`` of shapes (batch, length,
    width), (batch, keys, value width) and (batch, keys, width); values are keys where these are not
    given. Scores are products, with ``score_mode="concat"`` sums of tanh of sums; with
    ``use_scale`` they have a learned factor. ``dropout`` drops weights in training, with a
    generator of its own if there is a ``seed``. In a call, ``mask`` is a list of bools for queries
    and for values, ``use_causal_mask`` hides later keys from queries, and with
    ``return_attention_scores`` the weights are returned with the outputs. Raises ArgumentError for
    other inputs. Source: Luong and others, "Effective approaches to attention-based neural machine
    translation", 2015.

    >>> ef.nn.Attention()([ef.ones((2, 3, 4)), ef.ones((2, 5, 4))]).shape
    (2, 3, 4)
    """

    score_mode: str
    concat_score_weight: Variable | None

    @arguments
    def __init__(
        self,
        use_scale: bool = False,
        score_mode: ScoreMode = "dot",
        dropout: Rate = 0.0,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        if self.use_scale:
            self.scale = self.add_weight((), "ones", "scale")
        self.concat_score_weight = None
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight((), "ones", "concat_score_weight")

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        scale = self.value(self.scale)
        if self.concat_score_weight is None:
            products = ops.matmul(query, key.mT)
            return products if scale is None else products * scale
        sums = query[..., :, None, :] + key[..., None, :, :]
        waves = ops.tanh(sums if scale is None else sums * scale)
        return self.value(self.concat_score_weight) * ops.sum(waves, axis=-1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        if self.score_mode != "dot" or query.ndim != 3:
            return super().attend(query, key, value, bias)
        if self.scale is not None:
            query = query * self.value(self.scale)
        one_head = query[:, None], key[:, None], value[:, None]
        if bias is not None and bias.ndim == 3:
            bias = bias[:, None]
        return ops.dot_product_attention(*one_head, bias, scale=1.0)[:, 0]


class AdditiveAttention(_Attention):
    """Means of values, weighted by sums of tanh of queries and keys (Bahdanau's attention).

    Inputs, calls and ``dropout`` are those of ``Attention``, but queries and keys have the width of
    values if no keys are given. With ``use_scale`` each term of the sums has a learned factor.
    Source: Bahdanau and others, "Neural machine translation by jointly learning to align and
    translate", 2015.

    >>> ef.nn.AdditiveAttention()([ef.ones((2, 3, 4)), ef.ones((2, 5, 4))]).shape
    (2, 3, 4)
    """

    @arguments
    def __init__(
        self,
        use_scale: bool = True,
        dropout: Rate = 0.0,
        **options: Unpack[SeedOptions],
    ) -> None: ...

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        if self.use_scale:
            self.scale = self.add_weight((input_shape[0][-1],), "glorot_uniform", "scale")

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        waves = ops.tanh(query[..., :, None, :] + key[..., None, :, :])
        if self.scale is None:
            return ops.sum(waves, axis=-1)
        return ops.matmul(waves, self.value(self.scale))
