"""Keys and values of a sequence, kept so that attention can continue it."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.nn.module import Module
from eagerflow.ops.attributes import DTypeLike
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["KeyValueCache"]


class KeyValueCache(Module):
    """Keys and values of the tokens that an attention layer has seen, to go on from.

    A layer's ``make_cache`` makes one of the right sizes, for ``batch_size`` sequences of up to
    ``length`` tokens. Entries after the last token are never read, so that a new sequence can begin
    at position 0 without a reset.

    >>> layer = ef.nn.MultiHeadAttention(2, 4)
    >>> cache, tokens = layer.make_cache(1, 8), ef.ones((1, 3, 6))
    >>> whole = layer(tokens, tokens, use_causal_mask=True)
    >>> for i in range(3):
    ...     token = tokens[:, i : i + 1]
    ...     last = layer(token, token, cache=cache, position=i)
    >>> bool(ef.max(ef.abs(last - whole[:, 2:])) < 1e-5)
    True
    """

    def __init__(
        self,
        batch_size: int,
        heads: int,
        length: int,
        key_dim: int,
        value_dim: int,
        dtype: DTypeLike = None,
    ) -> None:
        def empty(name: str, *shape: int, dtype: DTypeLike = dtype) -> Variable:
            values = ops.zeros((batch_size, *shape), dtype=dtype)
            return Variable(values, f"cache/{name}", trainable=False)

        self.keys = empty("keys", heads, length, key_dim)
        self.values = empty("values", heads, length, value_dim)
        self.counted = empty("counted", length, dtype="bool")

    def write(
        self, keys: Tensor, values: Tensor, at: Tensor, counted: Any
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Keep the keys and values of tokens, (batch, heads, tokens, width), at these positions.

        ``counted`` are bools (batch, tokens), False for tokens that are not to be seen. Gives the
        keys and values of all positions, and masks of those that count.
        """
        self.keys.assign(self.keys.value.at[:, :, at].set(keys))
        self.values.assign(self.values.value.at[:, :, at].set(values))
        self.counted.assign(self.counted.value.at[:, at].set(counted))
        return self.keys.value, self.values.value, [self.counted.value[:, None, None]]


class KeyValueRows:
    """Keys and values of sequences each of which is at a position of its own, as plain tensors.

    ``keys`` and ``values`` have shape (batch, heads, length, width); a step puts others in their
    place. Entries after a sequence's last token are never read.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values

    def write(
        self, keys: Tensor, values: Tensor, at: Tensor, counted: Any
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Keep those of tokens at positions (batch, tokens), none of them twice; all count.

        It is done by ops for each element and a sum, by which rows are seen to be apart: a copy of
        all that is kept takes as long.
        """
        here = ops.arange(self.keys.shape[2])[:, None] == at[:, None]  # (batch, length, tokens)
        any_here = ops.any(here, axis=-1)[:, None, :, None]

        def put(new: Tensor, old: Tensor) -> Tensor:
            moved = ops.where(here[:, None, :, :, None], new[:, :, None], 0.0)
            return ops.where(any_here, ops.sum(moved, axis=3), old)

        self.keys, self.values = put(keys, self.keys), put(values, self.values)
        return self.keys, self.values, []
