"""Data of any kind as examples, and examples as batches; also the work of data workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.columns import has_columns
from eagerflow.convert import as_tensor, is_foreign_array
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Nest
from eagerflow.tensor import Operators
from eagerflow.unsupported import remedy

__all__ = [
    "Examples",
    "Function",
    "Job",
    "Making",
    "as_array",
    "examples_of",
    "gives_batches",
    "is_array",
    "known_length",
    "shuffled",
    "stack",
]


class Examples(NamedTuple):
    """Data and the access to it: ``at(places)`` returns rows, ``items`` is iterated once.

    One of the two is None. ``rows`` means that ``at`` returns a nest of arrays with the examples
    along their first axes, and not a list of examples.
    """

    at: Callable[[Any], Any] | None
    items: Iterable[Any] | None
    size: int | None
    rows: bool = False


def examples_of(data: Any) -> Examples:
    """Examples of arrays, of a sequence or of an iterable.

    A tuple or a dict is a nest of arrays with the examples along their first axes, as a single
    array is; a list, or another indexable object, has one example at each index.
    """
    if isinstance(data, tuple | dict) or is_array(data):
        return _rows(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Examples(_Places(data), None, len(data))
    if isinstance(data, Iterable):
        return Examples(None, data, known_length(data))
    raise ArgumentError(
        f"{short_repr(data)} holds no examples",
        op="Loader",
        argument="data",
        expected="arrays, a sequence or an iterable of examples",
        hint="data(): pass the generator, not the function" if callable(data) else None,
    )


def is_array(data: Any) -> bool:
    """Whether data are an array of any library; Hugging Face's Datasets have a shape alone."""
    with_facts = hasattr(data, "shape") and hasattr(data, "dtype")
    return with_facts or hasattr(data, "__array__") or hasattr(data, "__dlpack__")


def known_length(data: Any) -> int | None:
    """The number of items; None if unknown, as of a DataLoader of an IterableDataset."""
    try:
        return len(data) if isinstance(data, Sized) else None
    except raised_here(TypeError, NotImplementedError):
        return None


def gives_batches(data: Any) -> bool:
    """Whether data are batches already, as those of PyTorch's DataLoader."""
    return hasattr(data, "dataset") and hasattr(data, "batch_size")


def _rows(data: Nest) -> Examples:
    arrays = tree.map_leaves(as_array, data)
    leaves = tree.flatten(arrays)[0]
    if not leaves or any(not a.ndim or len(a) != len(leaves[0]) for a in leaves):
        raise ShapeError(
            "the arrays hold different numbers of examples",
            op="Loader",
            argument="data",
            received=", ".join(summary(a) for a in leaves) or "no array",
            expected="first axes of the same length",
            hint=next(filter(None, [remedy(a, a.dtype) for a in leaves]), None)
            or ("a list of examples, not a tuple" if isinstance(data, tuple) else None),
        )
    return Examples(_Rows(arrays), None, len(leaves[0]), rows=True)


def as_array(x: Any) -> np.ndarray[Any, Any]:
    """The array of anything, in its dtype: that of its tensor, or what NumPy makes of texts."""
    if isinstance(x, np.ndarray):
        return x
    if has_columns(type(x)):
        array = np.asarray(x)
        texts = array.ndim < 2 and array.dtype.kind not in "biufc"
        return array if texts else as_tensor(x).numpy()
    return as_tensor(x).numpy() if is_foreign_array(type(x)) else np.asarray(x)


class _Rows:
    """Rows of the arrays of a nest; slices are shared, other indices gathered."""

    def __init__(self, arrays: Nest) -> None:
        self.arrays = arrays

    def __call__(self, places: Any) -> Any:
        return tree.map_leaves(lambda array: array[places], self.arrays)


class _Places:
    """Examples of a sequence."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __call__(self, places: Any) -> list[Any]:
        if isinstance(places, slice):
            places = range(*places.indices(len(self.data)))
        return [self.data[int(place)] for place in places]


# Batches ------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A batch to be made: its number in the epoch, its first example, and its indices."""

    epoch: int
    number: int
    first: int
    places: Any  # a slice, or indices into the data
    items: list[Any] | None  # examples of an iterable


class Function:
    """A function of examples or batches, which is passed ``rng`` if it has such a parameter."""

    def __init__(self, call: Callable[..., Any]) -> None:
        if not callable(call):
            raise ArgumentError(
                f"{short_repr(call)} cannot be called",
                op="Loader",
                argument="map",
                expected="a function of an example",
            )
        self.call = call
        try:
            self.takes_rng = "rng" in inspect.signature(call).parameters
        except raised_here(TypeError, ValueError):  # some C functions have no signature
            self.takes_rng = False

    def __call__(self, nest: Nest, *key: int) -> Any:
        parts = nest if type(nest) is tuple else (nest,)
        if self.takes_rng:
            return self.call(*parts, rng=np.random.default_rng(key))
        return self.call(*parts)


@dataclass(frozen=True)
class Making:
    """How a job becomes a batch of NumPy arrays: the work of a worker."""

    examples: Examples
    of_examples: tuple[Function, ...]
    of_batches: tuple[Function, ...]
    join: Callable[[list[Any]], Any] | None
    """Makes a batch of a list of examples; None for examples as they are."""
    seed: int

    def __call__(self, job: Job) -> Any:
        try:
            return tree.map_leaves(_plain, self._made(job))
        except raised_here(StopIteration) as error:
            # which would end the loop that takes the batch
            raise RuntimeError("StopIteration in the middle of the data") from error

    def _made(self, job: Job) -> Any:
        whole = self.examples.rows and self.join is stack and not self.of_examples
        if whole and self.examples.at is not None:
            batch = self.examples.at(job.places)
        else:
            examples = [self._mapped(x, job, i) for i, x in enumerate(self._taken(job))]
            batch = examples[0] if self.join is None else self.join(examples)
        for function in self.of_batches:
            batch = function(batch, self.seed, job.epoch, job.number, 1)
        return batch

    def _taken(self, job: Job) -> Sequence[Any]:
        if self.examples.at is None:
            return job.items or []
        found = self.examples.at(job.places)
        return _split(found) if self.examples.rows else found

    def _mapped(self, example: Any, job: Job, i: int) -> Any:
        for function in self.of_examples:
            example = function(example, self.seed, job.epoch, job.first + i, 0)
        return example


def _split(rows: Nest) -> list[Any]:
    leaves, structure = tree.flatten(rows)
    return [tree.unflatten(structure, row) for row in zip(*leaves, strict=True)]


def stack(examples: Sequence[Any]) -> Any:
    """A nest of arrays from nests of the same structure."""
    leaves, structure = tree.flatten(examples[0])
    try:
        rows = [leaves, *(tree.flatten_up_to(structure, x) for x in examples[1:])]
    except raised_here(ValueError, TypeError) as error:
        raise ShapeError(f"the examples are not alike: {error}", op="Loader") from None
    names = tree.paths(structure)
    return tree.unflatten(
        structure, [_column(c, n) for c, n in zip(zip(*rows, strict=True), names, strict=True)]
    )


def _column(values: Sequence[Any], name: str) -> Any:
    if all(type(value) is float for value in values):
        return np.array(values, np.float32)  # as in tensors of Python's numbers
    arrays = [as_array(value) for value in values]
    shapes = dict.fromkeys(a.shape for a in arrays)
    if len(shapes) > 1:
        raise ShapeError(
            "the examples of a batch have different shapes",
            op="Loader",
            argument=name or None,
            received=", ".join(map(str, list(shapes)[:4])),
            hint="map=f cuts or pads an example; collate_fn=f makes a batch of a list of examples",
        )
    return np.stack(arrays)


def _plain(leaf: Any) -> Any:
    """An array that can be sent between processes; other objects unchanged."""
    return np.asarray(leaf) if isinstance(leaf, Operators) else leaf


def shuffled(items: Iterable[Any], window: int, rng: np.random.Generator) -> Iterator[Any]:
    """Items in another order: each is drawn from the next ``window`` of those that are left."""
    held: list[Any] = []
    for item in items:
        if len(held) < window:
            held.append(item)
            continue
        i = int(rng.integers(window))
        held[i], chosen = item, held[i]
        yield chosen
    for i in rng.permutation(len(held)):
        yield held[i]
