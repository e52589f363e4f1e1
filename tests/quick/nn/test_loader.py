"""Loaders: what an epoch has, in which order, and where a state goes on."""

from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import eagerflow as ef


class Numbers:
    """An iterable without a length."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


DATA = {"array": np.arange, "list": lambda n: list(range(n)), "iterable": Numbers}


def endless(loader):
    """The batches of one epoch after the other, as lists."""
    while True:
        for batch in loader:
            yield np.atleast_1d(batch.numpy()).tolist()


@given(
    st.sampled_from([*DATA]),
    st.integers(1, 7),
    st.sampled_from([None, 1, 2, 3, 4]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 8),
)
@settings(max_examples=20)
def test_epochs_and_states(kind, size, length, drop_last, shuffled, count):
    window = 3 if kind == "iterable" else True
    options = {"drop_last": drop_last, "shuffle": shuffled and window}
    make = lambda seed: ef.nn.Loader(DATA[kind](size), length, seed=seed, **options)
    starts = range(0, size, length or 1)
    epoch = [[*range(i, min(i + (length or 1), size))] for i in starts]
    if drop_last and len(epoch[-1]) < (length or 1):
        epoch.pop()
    assume(epoch)
    loader, steps = make(5), len(epoch)
    assert loader.steps == (None if kind == "iterable" else steps)
    batches = endless(loader)
    found = [next(batches) for _ in range(count)]
    state = loader.state()
    if kind != "iterable":
        assert state == {"epoch": count // steps, "position": count % steps, "seed": 5}
    rest = [*islice(batches, 2 * steps)]
    if shuffled:
        whole = (found + rest)[:steps]
        assert [len(x) for x in whole] == [len(x) for x in epoch]
        seen = [*chain(*whole)]
        assert len({*seen}) == len(seen) and {*seen} <= {*range(size)}
    else:
        assert found + rest == (epoch * 20)[: count + 2 * steps]
    other = make(6)
    other.set_state(state)
    assert [*islice(endless(other), 2 * steps)] == rest


@pytest.mark.parametrize(("data", "window"), [(np.arange(20), True), (Numbers(20), 10)])
def test_shuffled_epochs_differ_by_number_and_seed(data, window):
    def orders(seed):
        loader = ef.nn.Loader(data, 20, shuffle=window, seed=seed)
        return [*map(tuple, islice(endless(loader), 2))]

    assert orders(1) == orders(1)
    assert len({*orders(1), *orders(2), tuple(range(20))}) == 5


def test_functions_of_examples_and_of_batches():
    examples = ef.nn.Loader(np.arange(5), None, map=lambda x: x + 1)
    loader = examples.map(lambda x: x * 10).batch(2).map(np.flip).map(lambda x: x + 1)
    assert [x.tolist() for x in loader] == [[21, 11], [41, 31], [51]]


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ragged_examples_are_collated_in_order(workers, prefetch):
    def padded(examples):
        return np.stack([np.pad(x, (0, 4 - len(x)), constant_values=-1) for x in examples])

    rows = [np.arange(n) for n in (1, 3, 2, 4, 0)]
    loader = ef.nn.Loader(rows, 2, collate_fn=padded, workers=workers, prefetch=prefetch)
    assert (loader.workers, loader.ahead) == (workers, prefetch)
    found = [x.tolist() for x in loader]
    assert found == [padded(rows[i : i + 2]).tolist() for i in (0, 2, 4)]
    with pytest.raises(ef.errors.ArgumentError, match="no lists of examples"):
        ef.nn.Loader(rows, None, collate_fn=padded)
