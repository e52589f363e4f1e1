"""Loader: batches of data of any kind, prefetched, with a resumable position."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.dtypes import FLOAT8, bfloat16
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.nn.arguments import is_count, require
from eagerflow.nn.batches import Batch, Source, as_batch
from eagerflow.nn.examples import (
    Examples,
    Function,
    Job,
    Making,
    as_array,
    examples_of,
    gives_batches,
    shuffled,
    stack,
)
from eagerflow.nn.workers import Ahead
from eagerflow.ops import random
from eagerflow.tensor import Operators

__all__ = ["Loader"]

SMALL = FLOAT8 | {bfloat16}  # whose kind is that of records


@dataclass
class _Place:
    """How far the batches of an epoch have been given."""

    epoch: int = 0
    position: int = 0


class Loader(Source):
    """Batches of data: an iterable whose passes are epochs, for loops or for ``fit``.

    ``data`` is an array or a nest (tuple, dict) of arrays with the examples along their first axes;
    or a list or another indexable object of examples, such as PyTorch's Datasets; or an iterable of
    examples. Batches are nests of tensors; values without a tensor dtype, such as strings, stay
    NumPy arrays. With ``batch_size=None``, and for PyTorch's DataLoaders, items are passed through.

    ``shuffle`` draws a new order for each epoch; for an iterable it is the number of examples to
    draw from. ``map`` is a function of an example, of arrays; the parts of a tuple are its
    arguments. If it has an argument ``rng``, it is given a ``numpy.random.Generator`` that depends
    on the seed, the epoch and the example alone. ``drop_last`` omits a last, smaller batch.
    ``collate_fn`` makes a batch, a nest of arrays, of a list of examples, such as ragged ones; by
    default they are stacked. ``seed`` is an integer; by default it is drawn from the global
    generator.

    ``workers`` is a number of threads, or ``"processes:4"``, for functions that hold Python's lock;
    with either, up to ``prefetch`` batches are prepared ahead. The order of the batches does not
    depend on them. If processes are not forked, data and functions have to be picklable. Raises
    ArgumentError for other values, ShapeError for examples that cannot be batched.

    >>> loader = ef.nn.Loader((np.arange(5), np.ones((5, 2))), batch_size=2, map=lambda x, y: -x)
    >>> list(loader)
    [Tensor([ 0, -1], int64, cpu:0), Tensor([-2, -3], int64, cpu:0), Tensor([-4], int64, cpu:0)]
    >>> next(iter(loader.batch(3).map(lambda x: x * 10)))
    Tensor([  0, -10, -20], int64, cpu:0)
    """

    def __init__(
        self,
        data: Any,
        batch_size: int | None = 32,
        shuffle: bool | int = False,
        map: Callable[..., Any] | None = None,
        prefetch: int = 2,
        workers: int | str = 0,
        drop_last: bool = False,
        seed: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self._examples: Examples = examples_of(data)
        self.batch_size = None if gives_batches(data) else _size_of_batches(batch_size)
        self._of_examples = () if map is None else (Function(map),)
        self._of_batches: tuple[Function, ...] = ()
        self._collate = stack if collate_fn is None else collate_fn
        if not callable(self._collate) or (collate_fn is not None and self.batch_size is None):
            raise ArgumentError(
                "there are no lists of examples to make batches of"
                if callable(self._collate)
                else f"{short_repr(collate_fn)} cannot be called",
                op="Loader",
                argument="collate_fn",
                expected="a function of a list of examples, and a batch_size",
            )
        self.drop_last = bool(drop_last)
        self._seed = _seed(random.integers(0, 2**62) if seed is None else seed)
        self._order(shuffle)
        self._workers(workers, prefetch)
        self._begin(_Place())

    def _order(self, shuffle: bool | int) -> None:
        counted = isinstance(shuffle, bool | np.bool_) or is_count(shuffle, 0)
        if not counted or (shuffle is True and self._examples.at is None):
            raise ArgumentError(
                f"{shuffle!r} does not say how to shuffle",
                op="Loader",
                argument="shuffle",
                expected="True or False; for an iterable the number of examples to draw from",
                hint="shuffle=1000",
            )
        self.shuffled = int(shuffle)

    def _workers(self, workers: int | str, prefetch: int) -> None:
        processes = re.fullmatch(r"processes:(\d+)", workers) if isinstance(workers, str) else None
        number = int(processes[1]) if processes else workers
        expected = "a number of threads, or 'processes:4'"
        known = is_count(number, 1 if processes else 0)
        require(known, workers, "not a number of workers", "Loader", "workers", expected)
        require(is_count(prefetch, 0), prefetch, "not a count", "Loader", "prefetch", "an integer")
        self.workers, self.processes, self.ahead = int(number), bool(processes), int(prefetch)

    def _begin(self, place: _Place) -> None:
        self._next = self._now = place
        self._rest = None

    # Chains -------------------------------------------------------------------------------------

    def _like(self) -> Loader:
        """Another loader of the same data, at its first epoch."""
        made = copy(self)
        made._begin(_Place())
        return made

    def map(self, function: Callable[..., Any]) -> Loader:
        """A loader that applies ``function`` to this one's batches, or to its examples if
        ``batch_size`` is None.

        >>> loader = ef.nn.Loader([1, 2, 3], None).map(lambda x: x + 1).batch(3)
        >>> list(loader.map(np.sum))
        [Tensor(9, int64, cpu:0)]
        """
        made = self._like()
        if self.batch_size is None:
            made._of_examples = (*self._of_examples, Function(function))
        else:
            made._of_batches = (*self._of_batches, Function(function))
        return made

    def batch(self, batch_size: int | None, drop_last: bool = False) -> Loader:
        """A loader of the same examples in batches of this size.

        >>> [len(x) for x in ef.nn.Loader(np.arange(5)).batch(2, drop_last=True)]
        [2, 2]
        """
        if self._of_batches:
            raise ArgumentError(
                "batches to which a function was applied cannot be recreated",
                op="Loader.batch",
                hint="loader.batch(n).map(f)",
            )
        made = self._like()
        made.batch_size, made.drop_last = _size_of_batches(batch_size), bool(drop_last)
        return made

    def shuffle(self, window: bool | int = True, seed: int | None = None) -> Loader:
        """A loader of the same examples in another order in each epoch.

        >>> sorted(int(x) for x in ef.nn.Loader(np.arange(3), None).shuffle(seed=0))
        [0, 1, 2]
        """
        made = self._like()
        made._order(window)
        made._seed = self._seed if seed is None else _seed(seed)
        return made

    def prefetch(self, ahead: int, workers: int | str = 1) -> Loader:
        """A loader that prepares up to ``ahead`` batches with these workers.

        >>> [len(x) for x in ef.nn.Loader(np.arange(5), 3).prefetch(2)]
        [3, 2]
        """
        made = self._like()
        made._workers(workers, ahead)
        return made

    # Batches ------------------------------------------------------------------------------------

    @property
    def size(self) -> int | None:  # type: ignore[override]
        """The number of examples; None if unknown."""
        return self._examples.size

    @property
    def steps(self) -> int | None:  # type: ignore[override]
        """The number of batches of an epoch; None if unknown."""
        if self.size is None or self.batch_size is None:
            return self.size
        return self.size // self.batch_size if self.drop_last else -(-self.size // self.batch_size)

    def __len__(self) -> int:
        if self.steps is None:
            raise TypeError("the number of batches of an iterable without a length is not known")
        return self.steps

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch: the rest of one after ``set_state``, otherwise all.

        An epoch that was left early restarts. If nothing is left, the next epoch follows.
        """
        place = self._now = self._next
        self._next = _Place(place.epoch)
        begun = place.position
        yield from self._left_of(place)
        if begun and place.position == begun:  # an iterable's length is only known at its end
            place.epoch, place.position = place.epoch + 1, 0
            if self._now is place:
                self._next = _Place(place.epoch)
            yield from self._left_of(place)
        place.epoch, place.position = place.epoch + 1, 0
        if self._now is place:
            self._next = place

    def _left_of(self, place: _Place) -> Iterator[Any]:
        """The batches of an epoch after a position, which is advanced."""
        jobs = itertools.islice(self._jobs(place.epoch), place.position, None)
        work = Making(
            self._examples,
            self._of_examples,
            self._of_batches,
            None if self.batch_size is None else self._collate,
            self._seed,
        )
        results: Any = (work(x) for x in jobs)
        if self.workers:
            results = Ahead(jobs, work, self.workers, self.processes, self.ahead)
        with closing(results) if self.workers else nullcontext():
            for made in results:
                place.position += 1
                yield tree.map_leaves(_tensor, made)

    def _jobs(self, epoch: int) -> Iterator[Job]:
        length = self.batch_size or 1
        if self._examples.at is None:
            yield from self._jobs_of_items(epoch, length)
            return
        order = None
        if self.shuffled:
            order = random.Generator(epoch << 64 | self._seed).permutation(self.size).numpy()
        for number in range(len(self)):
            span = slice(number * length, (number + 1) * length)
            yield Job(epoch, number, span.start, span if order is None else order[span], None)

    def _jobs_of_items(self, epoch: int, length: int) -> Iterator[Job]:
        assert self._examples.items is not None  # its truth may be a question of its length
        items = iter(self._examples.items)
        if self.shuffled:
            items = shuffled(items, self.shuffled, np.random.default_rng((self._seed, epoch)))
        for number in itertools.count():
            taken = list(itertools.islice(items, length))
            if not taken or (self.drop_last and len(taken) < length):
                return
            yield Job(epoch, number, number * length, None, taken)

    def once(self, shuffle: bool = False) -> Iterator[Batch]:
        """The batches of an epoch, as ``fit`` takes them."""
        return (as_batch(batch, "Loader") for batch in self)

    # State --------------------------------------------------------------------------------------

    def state(self) -> dict[str, int]:
        """The loader's position: ``set_state`` with it continues with the following batches.

        Prefetched batches that were not consumed do not count. After the last one of an epoch it is
        the beginning of the next. An iterable is iterated again up to its position, without the
        functions.

        >>> loader = ef.nn.Loader(np.arange(6), 2, shuffle=True, seed=0)
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> state = loader.state()
        >>> state
        {'epoch': 0, 'position': 1, 'seed': 0}
        >>> rest = list(batches)
        >>> loader.set_state(state)
        >>> [bool((a == b).all()) for a, b in zip(loader, rest, strict=True)]
        [True, True]
        """
        epoch, position = self._place(self._now.epoch, self._now.position)
        return {"epoch": epoch, "position": position, "seed": self._seed}

    def _place(self, epoch: int, position: int) -> tuple[int, int]:
        """A position, where the end of an epoch is the beginning of the next."""
        return (epoch + 1, 0) if position and position == self.steps else (epoch, position)

    def set_state(self, state: Mapping[str, int]) -> None:
        """Resume from a result of ``state``, in the next loop; ArgumentError for other values."""
        numbers = [state.get(key) for key in ("epoch", "position", "seed")]
        if not all(is_count(number, 0) for number in numbers):
            raise ArgumentError(
                f"{dict(state)!r} is no state",
                op="Loader",
                argument="state",
                expected="a result of loader.state()",
            )
        epoch, position, seed = map(int, numbers)  # type: ignore[arg-type]
        if self.steps is not None and position > self.steps:
            raise ArgumentError(
                f"{position} batches of an epoch were given, and this loader has {self.steps}",
                op="Loader",
                argument="state",
                hint="the same data and batch_size",
            )
        self._seed = seed
        self._begin(_Place(*self._place(epoch, position)))

    def __repr__(self) -> str:
        known = "" if self.size is None else f"{self.size} examples, "
        return f"<Loader: {known}batch_size={self.batch_size}>"


def _size_of_batches(value: Any) -> int | None:
    expected = "an integer of at least 1, or None for items as they are"
    known = value is None or is_count(value)
    require(known, value, "not a batch size", "Loader", "batch_size", expected)
    return None if value is None else int(value)


def _seed(value: Any) -> int:
    known = is_count(value, 0) and int(value) < 2**64
    require(known, value, "not a seed", "Loader", "seed", "an integer from 0 to below 2**64")
    return int(value)


def _tensor(leaf: Any) -> Any:
    """A tensor, unless the array holds strings or other objects."""
    if isinstance(leaf, Operators) or getattr(leaf, "dtype", None) is None:
        return as_tensor(leaf) if isinstance(leaf, int | float) else leaf
    dtype = as_array(leaf).dtype
    return leaf if dtype.kind in "OSUVMm" and dtype not in SMALL else as_tensor(leaf)
