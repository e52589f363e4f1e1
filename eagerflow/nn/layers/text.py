"""TextVectorization: texts as the indices of their words."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, is_count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.lookup import StringLookup
from eagerflow.nn.layers.preprocessing import MODES, Adapted, Dense, HostLayer, modes

__all__ = ["TextVectorization"]

STANDARDS = ("lower_and_strip_punctuation", "lower", "strip_punctuation")
SPLITS = ("whitespace", "character")
_WORD = re.compile(r"[^ \t\n\r\f\v]+")
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BARE = str.maketrans("", "", string.punctuation)


def _one_of(wrong: str, *names: str) -> Any:
    def check(value: Any) -> Any:
        ok = value is None or callable(value) or value in names
        expected = ", ".join(map(repr, names)) + ", a function or None"
        require(ok, value, wrong, expected=expected)
        return value

    return check


def _widths(value: Any) -> tuple[int, ...]:
    several = isinstance(value, tuple | list) and all(is_count(x) for x in value)
    require(several or is_count(value), value, "not widths", expected="an integer, or several")
    return tuple(value) if several else tuple(range(1, int(value) + 1))


class TextVectorization(HostLayer, Adapted):
    """Texts as rows of numbers: made alike, split into tokens, and looked up in a vocabulary.

    ``standardize`` is ``"lower_and_strip_punctuation"``, ``"lower"``, ``"strip_punctuation"`` (all
    of ASCII), None, or a function of an array of texts. ``split`` is ``"whitespace"``,
    ``"character"``, None, or a function that returns a list of tokens for each text. ``ngrams``
    joins up to that many adjacent tokens, or the numbers in a tuple. ``vocabulary`` and the
    arguments after it are those of StringLookup: without one, ``adapt`` learns it.
    ``output_mode="int"`` returns the indices, with 0 after the end of a text and 1 for unknown
    tokens, truncated or padded to ``output_sequence_length``.

    Inputs are an array or a list of texts on the host, of shape (batch,) or (batch, 1); outputs
    have shape (batch, tokens). Raises CaptureError within a graph, ShapeError for other shapes.

    >>> layer = ef.nn.TextVectorization(output_sequence_length=4)
    >>> layer.adapt(["A cat, a dog.", "the cat"])
    >>> layer.get_vocabulary()
    ['', '[UNK]', 'cat', 'a', 'the', 'dog']
    >>> layer(["The cat sat"])
    Tensor([[4, 2, 1, 0]], shape=(1, 4), int64, cpu:0)
    """

    standardize: str | Callable[..., Any] | None
    split: str | Callable[..., Any] | None
    ngrams: tuple[int, ...] | None
    output_mode: str
    output_sequence_length: int | None
    encoding: str

    @arguments
    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: Annotated[Any, _one_of("no standard", *STANDARDS)] = STANDARDS[0],
        split: Annotated[Any, _one_of("no way to split", *SPLITS)] = SPLITS[0],
        ngrams: Annotated[Any, _widths] | None = None,
        output_mode: Annotated[str, modes(*MODES, "tf_idf")] = "int",
        output_sequence_length: Count | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: Dense = False,
        ragged: Dense = False,
        encoding: str = "utf-8",
        **options: Unpack[LayerOptions],
    ) -> None:
        self.built = True
        if output_sequence_length is not None and self.output_mode != "int":
            raise ArgumentError(
                f"rows have no length of their own where output_mode is {output_mode!r}",
                op=self._label,
                argument="output_sequence_length",
            )
        self.lookup = StringLookup(
            max_tokens,
            mask_token="",
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            output_mode=self.output_mode,
            pad_to_max_tokens=pad_to_max_tokens,
            encoding=encoding,
            name=f"{self.name}_lookup",
        )

    # The vocabulary -------------------------------------------------------------------------------

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """The tokens by their indices, as those of StringLookup."""
        return self.lookup.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """The number of indices, those of special tokens included."""
        return self.lookup.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Take a list of tokens, or the path of a file, as StringLookup does."""
        self.lookup.set_vocabulary(vocabulary, idf_weights)

    def batches(self, data: Any) -> Any:
        if isinstance(data, list | tuple) or hasattr(data, "shape"):
            return [self.as_keys(data, str)]
        return (self.as_keys(batch, str) for batch in data)

    def begin(self) -> None:
        self.lookup.begin()

    def learn(self, batch: Any) -> None:
        self.lookup.learn(list(self.tokens(batch)))

    def finish(self) -> None:
        self.lookup.finish()

    # Looking up -----------------------------------------------------------------------------------

    def tokens(self, texts: np.ndarray[Any, Any]) -> Iterator[list[str]]:
        """The tokens of each text."""
        if callable(self.standardize):
            texts = np.asarray(self.standardize(texts.astype(str)))
        if self.split is None:
            rows: Any = texts.tolist() if texts.ndim > 1 else [[text] for text in texts.tolist()]
        else:
            if texts.ndim > 2 or texts.shape[1:] not in ((), (1,)):
                expected = "shape (batch,) or (batch, 1)"
                raise self._misfit("texts cannot be split", f"shape {texts.shape}", expected)
            rows = texts.ravel().tolist()
        if callable(self.split):
            return (self._joined(list(map(str, row))) for row in self.split(np.array(rows)))
        return (self._joined(self._split(row)) for row in rows)

    def _split(self, text: Any) -> list[str]:
        if self.split is None:
            return [self._standard(token) for token in text]
        text = self._standard(text)
        return _WORD.findall(text) if self.split == "whitespace" else list(text)

    def _standard(self, text: str) -> str:
        if isinstance(self.standardize, str):
            if self.standardize != "strip_punctuation":
                text = text.translate(_LOWER)
            if self.standardize != "lower":
                text = text.translate(_BARE)
        return text

    def _joined(self, tokens: list[str]) -> list[str]:
        if self.ngrams is None:
            return tokens
        return [
            " ".join(tokens[i : i + width])
            for width in self.ngrams
            for i in range(len(tokens) - width + 1)
        ]

    def call(self, inputs: Any) -> Any:
        rows = list(self.tokens(np.atleast_1d(inputs)))
        length = self.output_sequence_length
        if length is None:
            length = max(map(len, rows), default=0)
        tokens = np.full((len(rows), length), "", dtype=object)
        for place, row in zip(tokens, rows, strict=True):
            place[: len(row)] = row[:length]
        indices = self.lookup.indices(tokens)
        found = as_tensor(indices) if self.output_mode == "int" else self.lookup.encoded(indices)
        return found if inputs.ndim else found[0]

    def get_config(self) -> dict[str, Any]:
        learned = self.lookup.get_config()
        return super().get_config() | {key: learned[key] for key in ("vocabulary", "idf_weights")}
