"""Values as bins without a vocabulary: Hashing, HashedCrossing."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated, Any, Unpack

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.nn.arguments import Count, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.fingerprints import farm, joined, sip
from eagerflow.nn.layer import LayerOptions
from eagerflow.nn.layers.preprocessing import MODES, Dense, HostLayer, encode, modes
from eagerflow.tensor import Tensor

__all__ = ["HashedCrossing", "Hashing"]

CROSSING = 0xDECAFCAFFE  # combined with the first fingerprint


def as_salt(value: Any) -> tuple[int, int]:
    """Two integers from an integer or a pair; ArgumentError for other values."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    ok = len(pair) == 2 and all(isinstance(word, int | np.integer) for word in pair)
    require(ok, value, "not a salt", expected="an integer, or two")
    return int(pair[0]), int(pair[1])


Salt = Annotated[Any, as_salt]


def buckets(words: list[bytes], count: int, salt: tuple[int, int] | None) -> list[int]:
    """A number from 0 to below ``count`` for each word; with a salt, an unpredictable one."""
    fingerprint: Callable[[bytes], int] = farm if salt is None else partial(sip, key=salt)
    found = lru_cache(None)(lambda word: fingerprint(word) % count)
    return [found(word) for word in words]


def as_words(array: np.ndarray[Any, Any]) -> list[bytes]:
    """The bytes of each element: of a string in UTF-8, of a number in decimal digits."""
    return [str(x).encode() for x in array.ravel().tolist()]


class _Mixed(HostLayer):
    """Base of layers over strings or integers."""

    def as_keys(self, inputs: Any, kind: type) -> Any:
        array = np.asarray(inputs)
        if array.dtype.kind in "iubf":
            return array.astype(np.int64)
        return super().as_keys(array, kind)


class Hashing(_Mixed):
    """Strings or integers as one of ``num_bins`` bins, by a hash of them.

    Bin 0 is reserved for ``mask_value``. The hash is FarmHash's; with a ``salt``, an integer or
    two, it is SipHash. ``output_mode`` is ``"int"``, or a mode of CategoryEncoding. Inputs are
    arrays on the host, of any shape; numbers are truncated. Raises DTypeError for other inputs,
    CaptureError within a graph.

    >>> ef.nn.Hashing(3)([["A"], ["B"], ["C"]]).reshape(-1)
    Tensor([1, 0, 1], int64, cpu:0)
    """

    num_bins: int
    mask_value: Any
    salt: tuple[int, int] | None
    output_mode: str

    @arguments
    def __init__(
        self,
        num_bins: Count,
        mask_value: int | str | None = None,
        salt: Salt | None = None,
        output_mode: Annotated[str, modes(*MODES)] = "int",
        sparse: Dense = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.built = True
        if options.get("dtype") is None:
            self.bins_dtype: Any = "int64" if output_mode == "int" else self.compute_dtype
        else:
            self.bins_dtype = self.dtype

    def call(self, inputs: Any) -> Tensor:
        masked = self.mask_value is not None and self.num_bins > 1
        found = buckets(as_words(inputs), self.num_bins - masked, self.salt)
        indices = np.array(found, np.int64).reshape(inputs.shape)
        if masked:
            indices = np.where(inputs == self.mask_value, 0, indices + 1)
        return encode(as_tensor(indices), self.output_mode, self.num_bins, self.bins_dtype)


class HashedCrossing(_Mixed):
    """Combinations of two or more categories as one of ``num_bins`` bins, by hashing.

    Inputs are a list of arrays of strings or integers on the host, of shape (), (batch,) or
    (batch, 1). ``output_mode`` is ``"int"`` or ``"one_hot"``. Raises ShapeError for other shapes.

    >>> layer = ef.nn.HashedCrossing(5)
    >>> layer((["A", "B", "A", "B", "A"], [101, 101, 101, 102, 102]))
    Tensor([1, 4, 1, 1, 3], int64, cpu:0)
    """

    num_bins: int
    output_mode: str

    @arguments
    def __init__(
        self,
        num_bins: Count,
        output_mode: Annotated[str, modes("int", "one_hot")] = "int",
        sparse: Dense = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.built = True

    def _as_input(self, inputs: Any) -> Any:
        if not isinstance(inputs, list | tuple) or len(inputs) < 2:
            raise self._misfit("it crosses several inputs", repr(type(inputs)), "two or more")
        arrays = [super(HashedCrossing, self)._as_input(x) for x in inputs]
        shapes = [array.shape for array in arrays]
        if len(set(shapes)) > 1 or len(shapes[0]) > 2 or shapes[0][1:] not in ((), (1,)):
            expected = "one shape: (), (batch,) or (batch, 1)"
            raise self._misfit("the inputs do not fit", str(shapes), expected)
        return arrays

    def call(self, inputs: Any) -> Tensor:
        prints = [
            [farm(x.encode()) if isinstance(x, str) else x % 2**64 for x in array.ravel().tolist()]
            for array in inputs
        ]
        found = []
        for row in zip(*prints, strict=True):
            crossed = CROSSING
            for fingerprint in row:
                crossed = joined(crossed, fingerprint)
            found.append(crossed % self.num_bins)
        indices = as_tensor(np.array(found, np.int64).reshape(inputs[0].shape))
        dtype = "int64" if self.output_mode == "int" else self.compute_dtype
        return encode(indices, self.output_mode, self.num_bins, dtype)
