"""The data of ``fit`` as batches: arrays are split, iterables are used as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Nest, is_count, require
from eagerflow.nn.examples import is_array, known_length
from eagerflow.nn.nests import only_numbers
from eagerflow.ops import random
from eagerflow.tensor import Operators
from eagerflow.unsupported import remedy

__all__ = [
    "Batches",
    "Source",
    "as_batch",
    "class_weights",
    "is_stream",
    "make_source",
    "split_validation",
    "validation_source",
]

BATCH_SIZE = 32  # the default
_NUMBERS = "biufcV"  # kinds of NumPy's dtypes; V is bfloat16 and similar ones

Batch = tuple[Nest, Nest, Nest]
"""Inputs, targets (or None) and weights of the examples (or None)."""


class Source:
    """A source of batches: a subclass defines one pass over the data in ``once``.

    ``steps`` is the number of batches of a pass, ``size`` that of examples; None if unknown.
    ``workers`` threads or processes prepare batches ahead.
    """

    workers = 0
    steps: int | None = None
    size: int | None = None
    op = "fit"
    _rest: Iterator[Batch] | None = None  # the pass in which the last epoch of steps ended

    def once(self, shuffle: bool = False) -> Iterator[Batch]:
        """The batches of one pass, from the first one on."""
        raise ArgumentError("the class does not define once", op=type(self).__name__)

    def epoch(self, shuffle: bool = False, steps: int | None = None) -> Iterator[Batch]:
        """The batches of one epoch: a whole pass, or a number of ``steps``.

        An epoch of steps continues where the last one ended, and begins a new pass at the end of
        one. Raises ShapeError without a further pass, as for an iterator.
        """
        return self.once(shuffle) if steps is None else self._some(shuffle, steps)

    def restart(self) -> None:
        """Begin a new pass in the next epoch: the position of the data has changed."""
        self._rest = None

    def _some(self, shuffle: bool, steps: int) -> Iterator[Batch]:
        for done in range(steps):
            batch = None if self._rest is None else next(self._rest, None)
            if batch is None:
                self._rest = self.once(shuffle)
                try:
                    batch = next(self._rest)
                except raised_here(ShapeError, StopIteration) as error:
                    self._rest = None
                    if not done and isinstance(error, ShapeError):
                        raise
                    raise ShapeError(
                        f"the data ended after {done} of {steps} steps",
                        op=self.op,
                        argument="x",
                        hint="an iterator ends once and for all; a list, a DataLoader or an "
                        "ef.nn.Loader starts again",
                    ) from None
            yield batch


class Batches(Source):
    """Arrays with examples along their first axes, cut into batches.

    ``batch_size`` defaults to 32. Without shuffling, a batch is a view; with it, its rows are
    gathered once, and nothing else is copied.
    """

    def __init__(self, x: Nest, y: Nest, weight: Nest, batch_size: int | None, op: str) -> None:
        batch_size = BATCH_SIZE if batch_size is None else batch_size
        expected = "an integer of at least 1"
        require(is_count(batch_size), batch_size, "not a batch size", op, "batch_size", expected)
        self.batch_size = batch_size
        self.op = op
        self.nests = tuple(None if nest is None else _arrays(nest) for nest in (x, y, weight))
        named = [
            (name, leaf)
            for name, nest in zip(("x", "y", "sample_weight"), self.nests, strict=True)
            if nest is not None
            for leaf in tree.flatten(nest)[0]
        ]
        for name, leaf in named:
            if not leaf.ndim or len(leaf) != len(named[0][1]):
                raise ShapeError(
                    "the arrays hold different numbers of examples",
                    op=op,
                    argument=name,
                    received=", ".join(f"{n} {summary(a)}" for n, a in named),
                    expected="first axes of the same length",
                )
            if leaf.dtype.kind not in _NUMBERS:
                raise DTypeError(
                    "the array holds no numbers",
                    op=op,
                    argument=name,
                    received=f"NumPy's dtype {leaf.dtype}",
                    expected="numbers or bools",
                    hint=remedy(leaf, leaf.dtype),
                )
        self.size = len(named[0][1])
        if not self.size:
            raise ShapeError(
                "there are no examples",
                op=op,
                argument="x",
                received=summary(named[0][1]),
                expected="at least one",
            )
        self.steps = -(-self.size // batch_size)

    def once(self, shuffle: bool = False) -> Iterator[Batch]:
        order = random.permutation(self.size).numpy() if shuffle else None
        for start in range(0, self.size or 0, self.batch_size):
            stop = start + self.batch_size
            chosen = slice(start, stop) if order is None else order[start:stop]
            x, y, weight = (_rows(nest, chosen) for nest in self.nests)
            yield x, y, weight


def _rows(nest: Nest, chosen: Any, made: Any = as_tensor) -> Any:
    if nest is None:
        return None
    if type(nest) is np.ndarray:
        return made(nest[chosen])
    return tree.map_leaves(lambda array: made(array[chosen]), nest)


class Stream(Source):
    """Any iterable of ``x``, ``(x, y)`` or ``(x, y, sample_weight)``; one pass is one epoch."""

    def __init__(self, batches: Iterable[Any], op: str) -> None:
        self.batches = batches
        self.op = op
        self.steps = known_length(batches)

    def once(self, shuffle: bool = False) -> Iterator[Batch]:
        empty = True
        for batch in self.batches:
            empty = False
            yield as_batch(batch, self.op)
        if empty:
            raise ShapeError(
                "the iterable gave no batch",
                op=self.op,
                argument="x",
                hint="an iterator ends after one epoch; a list or a DataLoader starts again",
            )


class Weighted(Source):
    """The batches of another source, with class weights applied."""

    def __init__(self, source: Source, class_weight: dict[int, float], op: str) -> None:
        self.source, self.class_weight, self.op = source, class_weight, op
        self.steps, self.size, self.workers = source.steps, source.size, source.workers

    def once(self, shuffle: bool = False) -> Iterator[Batch]:
        for x, y, weight in self.source.once(shuffle):
            yield x, y, as_tensor(class_weights(y, self.class_weight, weight, self.op))


def as_batch(batch: Any, op: str) -> Batch:
    """``x``, ``(x, y)`` or ``(x, y, sample_weight)`` as three nests of tensors, or None."""
    items = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(items) <= 3:
        raise ShapeError(
            f"a batch has {len(items)} parts",
            op=op,
            argument="x",
            expected="x, (x, y) or (x, y, sample_weight)",
        )
    x, y, weight = (
        None if nest is None else tree.map_leaves(as_tensor, nest)
        for nest in (*items, None, None)[:3]
    )
    return x, y, weight


def _arrays(nest: Nest) -> Any:
    return _array(nest) if only_numbers(nest) else tree.map_leaves(_array, nest)


def _array(leaf: Any) -> Any:
    """A NumPy array, shared if possible; examples are gathered on the host."""
    if isinstance(leaf, np.ndarray):
        return leaf
    return (leaf if isinstance(leaf, Operators) else as_tensor(leaf)).numpy()


def is_stream(x: Nest) -> bool:
    """Whether ``x`` yields batches: an iterable that is neither an array nor a nest of arrays.

    A list of tuples is one of batches, any other list is a nest or an array of numbers.
    """
    if isinstance(x, list):
        return bool(x) and all(isinstance(item, tuple) for item in x)
    if isinstance(x, Source):
        return True
    return isinstance(x, Iterable) and not is_array(x) and not isinstance(x, tuple | dict)


def make_source(
    x: Nest, y: Nest, weight: Nest, batch_size: int | None, op: str, class_weight: Any = None
) -> Source:
    """Batches from arrays, or from an iterable of batches.

    ``class_weight`` maps classes to weights, by which those of the examples are multiplied.
    """
    if x is None:
        raise ArgumentError(
            "there are no inputs",
            op=op,
            argument="x",
            expected="arrays, or an iterable of batches",
        )
    if class_weight is not None:
        return Weighted(make_source(x, y, weight, batch_size, op), class_weight, op)
    if is_stream(x):
        if y is not None or weight is not None:
            raise ArgumentError(
                "an iterable gives the targets and the weights itself",
                op=op,
                argument="y" if y is not None else "sample_weight",
                expected="batches (x, y) or (x, y, sample_weight)",
            )
        return x if isinstance(x, Source) else Stream(x, op)
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not _is_data(x):
        raise ArgumentError(
            "whether an object that is indexed holds examples or batches is ambiguous",
            op=op,
            argument="x",
            received=type(x).__name__,
            expected="arrays, or an iterable of batches",
            hint="ef.nn.Loader(x, batch_size=32) or PyTorch's DataLoader for examples, "
            "ef.nn.Loader(x, batch_size=None) for batches",
        )
    return Batches(x, y, weight, batch_size, op)


def _is_data(x: Nest) -> bool:
    return isinstance(x, list | tuple | dict) or is_array(x)


def validation_source(data: Any, batch_size: int | None) -> Source:
    """The argument ``validation_data`` of ``fit``: ``(x, y)``, ``(x, y, weight)``, an iterable."""
    if not isinstance(data, tuple) and (not isinstance(data, list) or is_stream(data)):
        data = data, None
    elif not 2 <= len(data) <= 3:
        raise ArgumentError(
            f"{len(data)} parts",
            op="fit",
            argument="validation_data",
            expected="(x, y) or (x, y, sample_weight)",
        )
    x, y, weight = (*data, None)[:3]
    return make_source(x, y, weight, batch_size, "fit (validation)")


def split_validation(x: Nest, y: Nest, weight: Nest, part: float) -> tuple[Any, Any]:
    """The first examples for training, and the last ``part`` of them for validation."""
    expected = "a number from 0 to below 1"
    require(0 <= part < 1, part, "not a part", "fit", "validation_split", expected)
    if is_stream(x):
        raise ArgumentError(
            "only arrays can be split",
            op="fit",
            argument="validation_split",
            hint="validation_data",
        )
    whole = Batches(x, y, weight, 1, "fit")
    assert whole.size is not None
    cut = int(whole.size * (1 - part))
    if cut in (0, whole.size):
        raise ShapeError(
            f"{part} of {whole.size} examples leaves one side empty",
            op="fit",
            argument="validation_split",
        )
    halves = [
        tuple(_rows(nest, side, lambda part: part) for nest in whole.nests)
        for side in (slice(None, cut), slice(cut, None))
    ]
    return halves[0], halves[1]


def class_weights(y: Nest, class_weight: dict[int, float], sample_weight: Nest, op: str) -> Any:
    """The weight of each example, times that of its class (1 by default)."""
    if y is None or isinstance(y, dict):
        raise ArgumentError(
            "class_weight needs one array of class targets",
            op=op,
            argument="class_weight",
            received=type(y).__name__,
            hint="sample_weight",
        )
    labels = _array(y)
    if labels.ndim > 1 and labels.shape[-1] > 1:
        labels = labels.argmax(axis=-1)
    labels = labels.reshape(len(labels), -1)[:, 0].astype(np.int64)
    if not isinstance(class_weight, dict) or not all(is_count(key, 0) for key in class_weight):
        raise ArgumentError(
            f"{class_weight!r} does not map classes to weights",
            op=op,
            argument="class_weight",
            expected="a dict such as {0: 1.0, 1: 5.0}",
        )
    table = np.ones(max([*class_weight, int(labels.max(initial=0))], default=0) + 1, np.float32)
    for key, value in class_weight.items():
        table[key] = value
    return table[labels] if sample_weight is None else table[labels] * np.asarray(sample_weight)
