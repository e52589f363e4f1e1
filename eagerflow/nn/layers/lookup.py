"""Words and integers by their index in a vocabulary: StringLookup, IntegerLookup."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import choice, is_count, require
from eagerflow.nn.configured import Untracked, arguments
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.hashing import Salt, as_words, buckets
from eagerflow.nn.layers.preprocessing import (
    MODES,
    Adapted,
    Dense,
    HostLayer,
    encode,
    modes,
    rows_of,
)

__all__ = ["IntegerLookup", "StringLookup"]

NOWHERE = np.iinfo(np.int64).max  # the index of keys without an output


def _least(least: int) -> Any:
    def check(value: Any) -> int:
        require(is_count(value, least), value, "too small", expected=f"an integer from {least} on")
        return int(value)

    return check


class LookupOptions(LayerOptions, total=False):
    """The arguments of lookups besides those that they list."""

    salt: Any


class Lookup(HostLayer, Adapted):
    """Base of lookups; ``keys`` is the type of the keys.

    The indices are, in this order: 0 for the ``mask_token`` (where ``output_mode`` is ``"int"``),
    ``num_oov_indices`` for unknown keys, and the vocabulary.
    """

    max_tokens: int | None
    num_oov_indices: int
    mask_token: Any
    oov_token: Any
    idf_weights: Any
    invert: bool
    output_mode: str
    pad_to_max_tokens: bool
    salt: tuple[int, int] | None
    oov_method = "farmhash"
    keys: type = str

    @arguments
    def __init__(
        self,
        max_tokens: Annotated[int, _least(2)] | None = None,
        num_oov_indices: Annotated[int, _least(0)] = 1,
        mask_token: Any = None,
        oov_token: Any = None,
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: Annotated[str, modes(*MODES, "tf_idf")] = "int",
        pad_to_max_tokens: bool = False,
        sparse: Dense = False,
        salt: Salt | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.built = True
        self._require(not invert or self.output_mode == "int", "invert", "output_mode 'int'")
        self._require(not pad_to_max_tokens or max_tokens, "pad_to_max_tokens", "max_tokens")
        weighted = self.output_mode == "tf_idf"
        self._require(idf_weights is None or weighted, "idf_weights", "output_mode 'tf_idf'")

    def _start(self, vocabulary: Any, idf_weights: Any) -> None:
        """Begin with a vocabulary, or without one; at the end of a subclass's constructor."""
        self._fixed = vocabulary is not None
        self._take([], None)
        self.begin()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    @property
    def key_type(self) -> type:
        return int if self.invert else self.keys

    def _require(self, ok: Any, argument: str, other: str) -> None:
        if not ok:
            raise ArgumentError(f"it needs {other}", op=self._label, argument=argument)

    # The vocabulary ------------------------------------------------------------------------------

    @property
    def _first_oov(self) -> int:
        return 1 if self.mask_token is not None and self.output_mode == "int" else 0

    @property
    def _first_token(self) -> int:
        return self._first_oov + self.num_oov_indices

    def _take(self, tokens: list[Any], idf: Any) -> None:
        """Work with these tokens from now on, and their weights."""
        index = {token: place for place, token in enumerate(tokens, self._first_token)}
        self._tokens, self._index = Untracked(tokens), Untracked(index)  # too many to look through
        self.idf_weights = None if idf is None else np.asarray(idf, np.float32)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """The tokens by their indices; without the special ones, from the first other one on."""
        special = [self.mask_token] * self._first_oov + [self.oov_token] * self.num_oov_indices
        return [*special, *self._tokens.held] if include_special_tokens else list(self._tokens.held)

    def vocabulary_size(self) -> int:
        """The number of indices, those of special tokens included."""
        return self._first_token + len(self._tokens.held)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Take a list or an array of tokens, or the path of a file with one on each line.

        It may begin with special tokens. ``idf_weights`` are needed for ``"tf_idf"``. Raises
        ArgumentError for duplicate tokens, or too many.
        """
        tokens = self._listed(vocabulary)
        if (idf_weights is not None) != (self.output_mode == "tf_idf"):
            raise ArgumentError(
                "a vocabulary has weights where output_mode is 'tf_idf', and only there",
                op=self._label,
                argument="idf_weights",
            )
        special = self.get_vocabulary()[: self._first_token]
        complete = tokens[: len(special)] == special
        own = tokens[len(special) :] if complete else tokens
        self._check(own)
        self._take(own, None if idf_weights is None else self._padded(tokens, idf_weights, own))

    def _listed(self, vocabulary: Any) -> list[Any]:
        if isinstance(vocabulary, str | os.PathLike):
            try:
                lines = Path(vocabulary).read_text(encoding=self.encoding).splitlines()
            except raised_here(OSError) as error:
                raise ArgumentError(
                    f"the file cannot be read: {error}", op=self._label, argument="vocabulary"
                ) from error
            return [self.keys(line) for line in lines]
        found: list[Any] = (
            self.as_keys(vocabulary, self.keys).ravel().tolist() if len(vocabulary) else []
        )
        return found

    def _check(self, tokens: list[Any]) -> None:
        counted = Counter(tokens)
        reserved = [self.mask_token] + [self.oov_token] * self.invert
        wrong = {
            "is empty": not tokens,
            f"has {[t for t, n in counted.items() if n > 1][:4]} twice": len(counted) < len(tokens),
            f"has more than max_tokens={self.max_tokens} tokens": self.max_tokens is not None
            and self._first_token + len(tokens) > self.max_tokens,
            f"has a special token, one of {reserved}, in its midst": any(
                token is not None and token in counted for token in reserved
            ),
        }
        for words, is_so in wrong.items():
            if is_so:
                raise ArgumentError(
                    f"the vocabulary {words}", op=self._label, argument="vocabulary"
                )

    def _padded(self, tokens: list[Any], idf_weights: Any, own: list[Any]) -> Any:
        """A weight for each index; that of special tokens is the mean, unless it is given."""
        weights = np.asarray(idf_weights, np.float32)
        if weights.shape != (len(tokens),):
            raise ArgumentError(
                f"weights of shape {weights.shape} for {len(tokens)} tokens",
                op=self._label,
                argument="idf_weights",
            )
        front = self._first_token if len(own) == len(tokens) else 0
        weights = np.concatenate([np.full(front, weights.mean(), np.float32), weights])
        return np.concatenate([weights, np.zeros(self._depth(own) - len(weights), np.float32)])

    def _depth(self, tokens: Sequence[Any]) -> int:
        padded = self.max_tokens if self.pad_to_max_tokens else None
        return self._first_token + len(tokens) if padded is None else padded

    # Learning it ----------------------------------------------------------------------------------

    def batches(self, data: Any) -> Any:
        if isinstance(data, list | tuple) or hasattr(data, "shape"):
            array = self.as_keys(data, self.keys)
            return [array[..., None] if array.ndim == 1 else array]
        return (self.as_keys(batch, self.keys) for batch in data)

    def begin(self) -> None:
        self._counts = Untracked(Counter())
        self._documents = Untracked(Counter())
        self._rows = 0

    def learn(self, batch: Any) -> None:
        if self._fixed:
            raise ArgumentError(
                "the vocabulary was given", op=self._label, hint="a layer without a vocabulary"
            )
        for row in rows_of(batch):
            tokens = np.asarray(row).ravel().tolist()
            self._counts.held.update(tokens)
            self._documents.held.update(set(tokens))
            self._rows += 1

    def finish(self) -> None:
        counts = self._counts.held
        special = {self.mask_token, self.oov_token}
        tokens = [token for token in counts if token not in special]
        tokens.sort(key=lambda token: (counts[token], token), reverse=True)
        if self.max_tokens is not None:
            del tokens[self.max_tokens - self._first_token :]
        if not tokens:
            return
        idf = None
        if self.output_mode == "tf_idf":
            inside = np.array([self._documents.held[token] for token in tokens])
            idf = self._padded(tokens, np.log(1 + self._rows / (1 + inside)), tokens)
        self._take(tokens, idf)
        self.begin()

    # Looking up -----------------------------------------------------------------------------------

    def call(self, inputs: Any) -> Any:
        if self.invert:
            return self._tokens_at(inputs)
        return self.encoded(self.indices(inputs))

    def encoded(self, indices: np.ndarray[Any, Any]) -> Any:
        """Indices in the form of ``output_mode``."""
        depth = self._depth(self._tokens.held)
        if self.output_mode != "tf_idf":
            return encode(as_tensor(indices), self.output_mode, depth, "int64")
        if self.idf_weights is None:
            raise ArgumentError(
                "the weights are not known yet", op=self._label, hint="layer.adapt(data)"
            )
        counts = encode(as_tensor(indices), "count", depth, "float32")
        return ops.multiply(counts, as_tensor(self.idf_weights))

    def indices(self, inputs: Any) -> np.ndarray[Any, Any]:
        """The index of each key; ArgumentError for a key without one."""
        get, keys = self._index.held.get, inputs.ravel().tolist()
        found = [get(key, -1) for key in keys]
        masked = self.mask_token
        if masked is not None:
            where = 0 if self.output_mode == "int" else NOWHERE
            found = [where if k == masked else i for k, i in zip(keys, found, strict=True)]
        array = np.array(found, np.int64).reshape(inputs.shape)
        unknown = array == -1
        if unknown.any():
            array[unknown] = self._oov(inputs[unknown])
        return array

    def _oov(self, keys: Any) -> Any:
        """The indices of unknown keys."""
        if not self.num_oov_indices:
            raise ArgumentError(
                f"{sorted(set(keys.tolist()))[:4]} are not in the vocabulary",
                op=self._label,
                argument="inputs",
                hint="num_oov_indices=1",
            )
        if self.num_oov_indices == 1:
            return self._first_oov
        if self.keys is int and self.oov_method == "floormod":
            return self._first_oov + keys % self.num_oov_indices
        found = buckets(as_words(keys), self.num_oov_indices, self.salt)
        return self._first_oov + np.array(found, np.int64)

    def _tokens_at(self, inputs: Any) -> Any:
        tokens = dict(enumerate(self._tokens.held, self._first_token))
        if self.mask_token is not None:
            tokens[0] = self.mask_token
        found = [tokens.get(place, self.oov_token) for place in inputs.ravel().tolist()]
        array = np.array(found, None if found else str).reshape(inputs.shape)
        return as_tensor(array) if self.keys is int else array

    def get_config(self) -> dict[str, Any]:
        idf = self.idf_weights
        return super().get_config() | {
            "vocabulary": self.get_vocabulary(idf is not None) or None,
            "idf_weights": None if idf is None else idf[: self.vocabulary_size()].tolist(),
        }


class StringLookup(Lookup):
    """Strings as their indices in a vocabulary.

    The indices are those of the ``mask_token`` (0, if there is one and ``output_mode`` is
    ``"int"``), of ``num_oov_indices`` for unknown strings, by a hash if there are several, and of
    the ``vocabulary``: a list, or the path of a file with one string on each line. Without it,
    ``adapt`` takes the most frequent strings of data, up to ``max_tokens`` in all. ``output_mode``
    is ``"int"``, ``"one_hot"``, ``"multi_hot"``, ``"count"`` or ``"tf_idf"`` with ``idf_weights``;
    with ``pad_to_max_tokens`` rows have the length ``max_tokens``. ``invert`` maps indices to
    strings, with ``oov_token`` for unknown ones. Inputs are NumPy arrays, or lists, on the host.
    Raises CaptureError within a graph, ArgumentError for unknown strings without an index.

    >>> layer = ef.nn.StringLookup(vocabulary=["a", "b"])
    >>> layer([["a", "z"], ["b", "a"]])
    Tensor([[1, 0],
            [2, 1]], shape=(2, 2), int64, cpu:0)
    >>> ef.nn.StringLookup(vocabulary=["a", "b"], invert=True)([2, 0])
    array(['b', '[UNK]'], dtype='<U5')
    """

    encoding: str

    @arguments
    def __init__(
        self,
        max_tokens: Annotated[int, _least(2)] | None = None,
        num_oov_indices: Annotated[int, _least(0)] = 1,
        mask_token: str | None = None,
        oov_token: str | None = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: Any = "int",
        pad_to_max_tokens: bool = False,
        sparse: Any = False,
        encoding: str = "utf-8",
        **options: Unpack[LookupOptions],
    ) -> None:
        self._start(vocabulary, idf_weights)


class IntegerLookup(Lookup):
    """Integers as their indices in a vocabulary of integers.

    Arguments are those of StringLookup. With several indices for unknown integers, these are
    divided by their number, ``oov_method="floormod"``, or hashed, ``"farmhash"``.

    >>> ef.nn.IntegerLookup(vocabulary=[12, 36])([[36, 12, 7]])
    Tensor([[2, 1, 0]], shape=(1, 3), int64, cpu:0)
    """

    keys = int
    oov_method: str

    @arguments
    def __init__(
        self,
        max_tokens: Annotated[int, _least(2)] | None = None,
        num_oov_indices: Annotated[int, _least(0)] = 1,
        mask_token: int | None = None,
        oov_token: int | None = -1,
        vocabulary: Any = None,
        vocabulary_dtype: Annotated[str, choice("not a dtype", "int64")] = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: Any = "int",
        sparse: Any = False,
        pad_to_max_tokens: bool = False,
        oov_method: Annotated[str, choice("not a method", "floormod", "farmhash")] = "floormod",
        **options: Unpack[LookupOptions],
    ) -> None:
        self._require(
            self.salt is None or oov_method == "farmhash", "salt", "oov_method 'farmhash'"
        )
        self._start(vocabulary, idf_weights)
