"""GPT: a decoder of text that predicts the next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Count, TensorLike, is_count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.initializers import RandomNormal
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.layers.core import Dense, Input, Rate
from eagerflow.nn.layers.embedding import ReversibleEmbedding
from eagerflow.nn.layers.key_value_cache import KeyValueCache, KeyValueRows
from eagerflow.nn.layers.multi_head_attention import MultiHeadAttention
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.normalization import LayerNormalization
from eagerflow.nn.layers.positions import PositionEmbedding
from eagerflow.nn.model import Model
from eagerflow.ops import random
from eagerflow.tensor import Tensor

__all__ = ["GPT", "next_token"]


class _Block(Layer):
    """Attention to earlier tokens, then a network of two layers, each added to its inputs."""

    width: int
    heads: int
    dropout: float

    @arguments
    def __init__(
        self, width: Count, heads: Count, dropout: Rate = 0.0, **options: Unpack[LayerOptions]
    ) -> None:
        small = RandomNormal(stddev=0.02)
        how: dict[str, Any] = {"kernel_initializer": small, "dtype": self.dtype_policy}
        self.attention_norm = LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy)
        self.attention = MultiHeadAttention(heads, width // heads, dropout=dropout, **how)
        self.norm = LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy)
        self.wide = Dense(4 * width, ops.gelu, **how)
        self.narrow = Dense(width, **how)
        self.drop = Dropout(dropout, dtype=self.dtype_policy)

    def call(
        self,
        inputs: Tensor,
        cache: KeyValueCache | KeyValueRows | None = None,
        position: Any = 0,
    ) -> Tensor:
        x = self.attention_norm(inputs)
        x = self.attention(x, x, use_causal_mask=True, cache=cache, position=position)
        x = inputs + self.drop(x)
        return x + self.drop(self.narrow(self.wide(self.norm(x))))


class GPT(Model):
    """The text decoder of GPT-2: logits of the next token at each position of a sequence.

    Inputs are integers (batch, length) below ``vocabulary``, of up to ``context`` tokens; outputs
    are logits (batch, length, vocabulary). ``depth`` blocks have ``heads`` heads each, which divide
    ``width``. The defaults are the small model, of 124,439,808 parameters; width, depth and heads
    are 1024, 24, 16 in the medium one (354,823,168), 1280, 36, 20 in the large one (774,030,080)
    and 1600, 48, 25 in the one called XL (1,557,611,200). Normalization precedes each part,
    positions are learned, and the output layer shares the weights of the embedding. Unlike in
    GPT-2, the output projections of attention and blocks are not initialized smaller than others.
    Raises ArgumentError for heads that do not divide the width. Source: Radford and others,
    "Language models are unsupervised multitask learners", 2019.

    >>> model = ef.nn.networks.GPT(vocabulary=50, context=16, width=8, depth=2, heads=2)
    >>> model(ef.tensor([[1, 2, 3]])).shape, model.count_params()
    ((1, 3, 50), 2288)
    """

    def __init__(
        self,
        vocabulary: int = 50_257,
        context: int = 1024,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        dropout: float = 0.1,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        require(width % heads == 0, heads, "not a divisor of the width", self._label, "heads")
        self.context = context
        how: dict[str, Any] = {"dtype": self.dtype_policy}
        small = RandomNormal(stddev=0.02)
        self.tokens = ReversibleEmbedding(
            vocabulary, width, embeddings_initializer=small, name="tokens", **how
        )
        self.positions = PositionEmbedding(
            context, RandomNormal(stddev=0.01), name="positions", **how
        )
        self.drop = Dropout(dropout, **how)
        self.blocks: list[_Block] = []
        for i in range(depth):  # with separate weights, so that limits on them apply at any depth
            block = _Block(width, heads, dropout, name=f"block_{i}", **how)
            block.compute_output_shape((None, None, width))
            self.blocks.append(block)
        self.norm = LayerNormalization(epsilon=1e-5, name="norm", **how)
        self(Input((None,), dtype="int64", name="tokens"))  # creates the weights

    def call(
        self,
        inputs: Tensor,
        caches: Sequence[KeyValueCache | KeyValueRows | None] | None = None,
        position: Any = 0,
    ) -> Tensor:
        x = self.tokens(inputs)
        x = self.drop(x + self.positions(x, start_index=position))
        known = [None] * len(self.blocks) if caches is None else caches
        for block, cache in zip(self.blocks, known, strict=True):
            x = block(x, cache=cache, position=position)
        return self.tokens(self.norm(x), reverse=True)

    def generate(
        self,
        tokens: TensorLike,
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """The sequences ``tokens``, each with ``count`` more tokens that the model draws.

        ``tokens`` are integers (batch, length), length at least 1; the result is (batch, length +
        count). Tokens are drawn among the ``top_k`` most probable ones (all without it), with
        logits divided by ``temperature``; 0 takes the most probable one. With a ``seed`` the
        result is always the same. Raises ShapeError for sequences that are empty or become longer
        than the context, ArgumentError for values out of range.

        >>> model = ef.nn.networks.GPT(vocabulary=50, context=16, width=8, depth=2, heads=2)
        >>> model.generate([[1, 2, 3], [4, 5, 6]], 4, top_k=5, seed=0).shape
        (2, 7)
        """
        found = as_tensor(tokens)
        require(is_count(count), count, "not a number of tokens", self._label, "count")
        fits = found.ndim == 2 and found.dtype in INTEGERS and found.shape[1] > 0
        if not fits or found.shape[1] + count > self.context:
            raise ShapeError(
                f"no {count} tokens can follow",
                op=self._label,
                argument="tokens",
                received=summary(found),
                expected=f"integers (batch, length), length from 1 to {self.context - count}",
            )
        generator = random.default_generator if seed is None else random.Generator(seed)
        whole = found.shape[1] + count
        caches = [block.attention.make_cache(found.shape[0], whole) for block in self.blocks]
        new, at = found, 0
        while found.shape[1] < whole:
            logits = self(new, caches=caches, position=at, training=False)[:, -1]
            at = found.shape[1]
            new = next_token(logits, temperature, top_k, generator)[:, None].astype(found.dtype)
            found = ops.concat([found, new], axis=1)
        return found


def next_token(
    logits: Tensor, temperature: float, top_k: int | None, generator: random.Generator
) -> Tensor:
    """An index along the last axis of ``logits``, drawn as described at ``GPT.generate``."""
    require(temperature >= 0, temperature, "not a temperature", "generate", "temperature")
    most = logits.shape[-1]
    fits = top_k is None or (is_count(top_k) and top_k <= most)
    require(fits, top_k, "out of range", "generate", "top_k", f"an integer from 1 to {most}")
    if temperature == 0:
        return ops.argmax(logits, axis=-1)
    if top_k is not None:
        least = ops.top_k(logits, top_k)[0][..., -1:]
        logits = ops.where(logits < least, -float("inf"), logits)
    return generator.categorical(ops.divide(logits, temperature))
