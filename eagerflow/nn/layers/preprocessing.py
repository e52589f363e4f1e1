"""Numbers as categories: CategoryEncoding, Discretization, and common parts of text layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, Unpack

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Count, Float, choice, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.ops.attributes import DTypeLike
from eagerflow.tensor import Operators, Tensor

__all__ = ["CategoryEncoding", "Discretization"]

MODES = ("int", "one_hot", "multi_hot", "count")


def modes(*known: str) -> Any:
    """The check of an ``output_mode``."""
    check = choice("not an output mode", *known)
    older = {"binary": "multi_hot", "tf-idf": "tf_idf"}
    return lambda value: check(older.get(value, value) if isinstance(value, str) else value)


def _dense(value: Any) -> bool:
    require(not value, value, "not there", expected="False: there are no sparse tensors")
    return False


Dense = Annotated[bool, _dense]
"""The argument ``sparse``, which only False is taken for."""


def encode(
    indices: Tensor, mode: str, depth: int, dtype: DTypeLike, weights: Tensor | None = None
) -> Tensor:
    """Indices of categories in a form: as they are, or as rows of ``depth`` numbers.

    ``one_hot`` is a row for each index; ``multi_hot`` and ``count`` join those of an example, its
    second axis. Indices out of range leave no trace.
    """
    if mode == "int":
        return indices.astype(dtype)
    if mode == "one_hot" and indices.ndim > 1 and indices.shape[-1] == 1:
        indices = ops.squeeze(indices, -1)
    if mode != "one_hot" and not indices.ndim:
        indices = ops.reshape(indices, (1,))
    rows = ops.equal(indices[..., None], ops.arange(depth, dtype=indices.dtype)).astype(dtype)
    if mode == "one_hot":
        return rows
    axis = min(indices.ndim - 1, 1)
    if mode == "multi_hot":
        return ops.max(rows, axis)
    return ops.sum(rows if weights is None else rows * weights[..., None], axis)


class Adapted(Layer):
    """Base of layers that learn from data, before a model is trained, in ``adapt``.

    A subclass defines learning from batches in ``begin``, ``learn`` and ``finish``.
    """

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learn from an array, or from an iterable of batches, limited to ``steps``."""
        self.begin()
        for number, batch in enumerate(self.batches(data)):
            if steps is not None and number >= steps:
                break
            self.learn(batch)
        self.finish()

    def batches(self, data: Any) -> Iterable[Any]:
        """The batches of the data of ``adapt``."""
        iterable = isinstance(data, Iterable) and not isinstance(data, Operators)
        return data if iterable and not hasattr(data, "shape") else [data]

    def begin(self) -> None:
        """Reset the learned state."""

    def learn(self, batch: Any) -> None:
        """Learn from one batch."""

    def finish(self) -> None:
        """Convert the learned state to the layer's parameters."""


class HostLayer(Layer):
    """Base of layers over words, which are NumPy arrays: there are no string tensors."""

    encoding = "utf-8"

    @property
    def key_type(self) -> type:
        """The type of keys: ``str`` or ``int``."""
        return str

    def _as_input(self, inputs: Any) -> Any:
        if isinstance(inputs, Operators):
            try:
                inputs = inputs.numpy()
            except raised_here(CaptureError) as error:
                raise CaptureError(
                    "words are looked up on the host, so the layer cannot be part of a graph",
                    op=self._label,
                    argument="inputs",
                    hint="apply it to the data before: ef.nn.Loader(data).map(layer)",
                ) from error
        return self.as_keys(inputs, self.key_type)

    def as_keys(self, inputs: Any, kind: type) -> Any:
        """An array of strings, or of integers; DTypeError for other dtypes."""
        array = np.asarray(inputs)
        if kind is int:
            if array.dtype.kind in "iub":
                return array.astype(np.int64)
        elif array.dtype.kind == "U":
            return array
        elif array.dtype.kind in "SO" and all(isinstance(x, str | bytes) for x in array.flat):
            words = [x.decode(self.encoding) if isinstance(x, bytes) else x for x in array.flat]
            return np.array(words, dtype=object).reshape(array.shape)
        raise DTypeError(
            f"these are no {'integers' if kind is int else 'strings'}",
            op=self._label,
            argument="inputs",
            received=short_repr(inputs),
        )


class CategoryEncoding(Layer):
    """Integers from 0 to below ``num_tokens`` as rows of that many numbers.

    ``output_mode`` is ``"one_hot"`` (a row for each integer, with a 1 at its index),
    ``"multi_hot"`` (a row for each example) or ``"count"`` (the number of occurrences, or the sum
    of ``count_weights``). Inputs have shape (batch, ...), outputs (..., num_tokens). Integers out
    of range leave no trace. Raises ArgumentError for other modes.

    >>> ef.nn.CategoryEncoding(3, "count")([[0, 0], [1, 2]])
    Tensor([[2., 0., 0.],
            [0., 1., 1.]], shape=(2, 3), float32, cpu:0)
    """

    num_tokens: int
    output_mode: str

    @arguments
    def __init__(
        self,
        num_tokens: Count,
        output_mode: Annotated[str, modes("one_hot", "multi_hot", "count")] = "multi_hot",
        sparse: Dense = False,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def call(self, inputs: Tensor, count_weights: Tensor | None = None) -> Tensor:
        if count_weights is not None and self.output_mode != "count":
            raise ArgumentError(
                f"weights have no meaning where output_mode is {self.output_mode!r}",
                op=self._label,
                argument="count_weights",
                hint="output_mode='count'",
            )
        dtype = self.compute_dtype
        weights = None if count_weights is None else as_tensor(count_weights).astype(dtype)
        return encode(inputs, self.output_mode, self.num_tokens, dtype, weights)


class Discretization(Adapted):
    """Numbers as the number of the bin that they fall into, or as its row.

    ``bin_boundaries`` are sorted numbers: a bin includes its left one and not its right one, and
    the first and the last are unbounded. With ``num_bins`` instead, ``adapt`` uses quantiles of
    data, accurate to a fraction of ``epsilon``. ``output_mode`` is ``"int"`` or a mode of
    CategoryEncoding. Raises ArgumentError unless exactly one of both is given.

    >>> ef.nn.Discretization([0.0, 1.0])([[-1.5, 0.0, 1.0]])
    Tensor([[0, 1, 2]], shape=(1, 3), int32, cpu:0)
    >>> layer = ef.nn.Discretization(num_bins=2, epsilon=0.1)
    >>> layer.adapt(np.arange(10.0))
    >>> layer.bin_boundaries
    [4.0]
    """

    bin_boundaries: list[float] | None
    num_bins: int | None
    epsilon: float
    output_mode: str

    @arguments
    def __init__(
        self,
        bin_boundaries: Sequence[float] | None = None,
        num_bins: Count | None = None,
        epsilon: Float = 0.01,
        output_mode: Annotated[str, modes(*MODES)] = "int",
        sparse: Dense = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        if (bin_boundaries is None) == (num_bins is None):
            raise ArgumentError(
                "one of bin_boundaries and num_bins defines the bins",
                op=self._label,
                argument="bin_boundaries",
            )
        if bin_boundaries is not None:
            self.bin_boundaries = [float(x) for x in bin_boundaries]
            known = self.bin_boundaries == sorted(self.bin_boundaries)
            require(known, bin_boundaries, "not sorted", self._label, "bin_boundaries")
        self.begin()

    def _as_input(self, inputs: Any) -> Any:
        return as_tensor(inputs)  # not in bfloat16, which is coarser than many bins

    def begin(self) -> None:
        self._summary = np.zeros((2, 0), np.float32)

    def learn(self, batch: Any) -> None:
        if self.num_bins is None:
            raise ArgumentError(
                "the bins are given already", op=self._label, hint="Discretization(num_bins=n)"
            )
        values = np.sort(np.asarray(batch, np.float32), axis=None)
        step = max(values.size * self.epsilon, 1)
        kept = values[int(step - 1) :: int(step)]
        both = np.concatenate([[kept, np.full_like(kept, step)], self._summary], axis=1)
        self._summary = _compressed(both[:, np.argsort(both[0])], self.epsilon)

    def finish(self) -> None:
        if self.num_bins is not None:
            self.bin_boundaries = _compressed(self._summary, 1 / self.num_bins)[0, :-1].tolist()

    def call(self, inputs: Tensor) -> Tensor:
        if self.bin_boundaries is None:
            raise ArgumentError(
                "the bins are not known yet", op=self._label, hint="layer.adapt(data)"
            )
        edges = as_tensor(self.bin_boundaries, "float32")
        bins = ops.searchsorted(edges, inputs.astype("float32"), side="right")
        dtype = "int32" if self.output_mode == "int" else self.compute_dtype
        return encode(bins, self.output_mode, len(self.bin_boundaries) + 1, dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"bin_boundaries": self.bin_boundaries}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        learned = config.get("num_bins") is not None
        layer = super().from_config(dict(config) | {"bin_boundaries": None} if learned else config)
        if learned:
            layer.bin_boundaries = config.get("bin_boundaries")
        return layer


def _compressed(summary: np.ndarray[Any, Any], part: float) -> np.ndarray[Any, Any]:
    """Values and their weights, interpolated to a number of values with equal weights."""
    if summary.shape[1] * part < 1:
        return summary
    places = part + np.arange(0.0, 1.0, part)
    weights = summary[1].cumsum()
    shares = weights / weights[-1]
    values = np.interp(places, shares, summary[0])
    sums = np.interp(places, shares, weights)
    return np.stack([values, np.diff(sums, prepend=0)]).astype(np.float32)


def rows_of(data: Any) -> Iterator[Any]:
    """The rows of a batch of words: of an array, or of a list of lists."""
    return iter(data if data.ndim > 1 else [data]) if hasattr(data, "ndim") else iter(data)
