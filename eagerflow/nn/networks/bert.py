"""An encoder of text of BERT's kind."""

from __future__ import annotations

from functools import partial

from eagerflow import ops
from eagerflow.dims import Dim
from eagerflow.nn.arguments import require
from eagerflow.nn.initializers import TruncatedNormal
from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.embedding import Embedding
from eagerflow.nn.layers.merging import Add
from eagerflow.nn.layers.multi_head_attention import MultiHeadAttention
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.normalization import LayerNormalization
from eagerflow.nn.layers.positions import PositionEmbedding
from eagerflow.nn.model import Model
from eagerflow.tensor import Tensor

__all__ = ["bert"]


def _added(x: Tensor, inner: Tensor, dropout: float) -> Tensor:
    return LayerNormalization(epsilon=1e-12)(Add()([x, Dropout(dropout)(inner)]))


def bert(
    vocabulary: int = 30_522,
    context: int = 512,
    width: int = 768,
    depth: int = 12,
    heads: int = 12,
    segments: int = 2,
    dropout: float = 0.1,
    name: str = "bert",
) -> Model:
    """The encoder of BERT: a vector for each token of a text, and one for the whole.

    Inputs are a dict of ``tokens`` and ``segments``, integers (batch, length), length up to
    ``context``; tokens are below ``vocabulary``, and those that are 0 fill a sequence up and are
    not seen; segments are below ``segments``. Outputs are a dict of ``sequence``, (batch, length,
    width), and ``pooled``, (batch, width). ``depth`` blocks have ``heads`` heads each, which divide
    ``width``. The defaults are the base model, of 109,482,240 parameters; the large one has
    ``width=1024``, ``depth=24`` and ``heads=16``, and 335,141,888 parameters. Raises ArgumentError
    for heads that do not divide the width. Source: Devlin and others, "BERT: pre-training of deep
    bidirectional transformers for language understanding", 2018.

    >>> model = ef.nn.networks.bert(vocabulary=50, context=16, width=8, depth=2, heads=2)
    >>> tokens = ef.tensor([[1, 2, 3, 0]])
    >>> found = model({"tokens": tokens, "segments": tokens * 0})
    >>> found["sequence"].shape, found["pooled"].shape, model.count_params()
    ((1, 4, 8), (1, 8), 2376)
    """
    require(width % heads == 0, heads, "not a divisor of the width", "bert", "heads")
    first = TruncatedNormal(stddev=0.02)
    dense = partial(Dense, kernel_initializer=first)
    length = Dim("length")
    tokens = Input((length,), dtype="int64", name="tokens")
    kinds = Input((length,), dtype="int64", name="segments")
    x = Embedding(vocabulary, width, first, name="token_embedding")(tokens)
    places = PositionEmbedding(context, first, name="position_embedding")(x)
    x = Add()([x, places, Embedding(segments, width, first, name="segment_embedding")(kinds)])
    x = Dropout(dropout)(LayerNormalization(epsilon=1e-12)(x))
    seen = ops.not_equal(tokens, 0)[:, None, :]
    for _ in range(depth):
        attention = MultiHeadAttention(
            heads, width // heads, dropout=dropout, kernel_initializer=first
        )
        x = _added(x, attention(x, x, attention_mask=seen), dropout)
        inner = dense(4 * width, "gelu")(x)
        x = _added(x, dense(width)(inner), dropout)
    pooled = dense(width, "tanh", name="pooled")(x[:, 0])
    ends = {"tokens": tokens, "segments": kinds}, {"sequence": x, "pooled": pooled}
    return Model(*ends, name=name)
