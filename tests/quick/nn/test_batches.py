"""What fit may be given: every form makes the same batches; epochs of steps; class weights."""

import collections

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ShapeError
from eagerflow.nn.batches import make_source, split_validation

X = np.arange(14, dtype="float32").reshape(7, 2)
Y = np.arange(7)
W = np.linspace(0, 1, 7, dtype="float32")
Pair = collections.namedtuple("Pair", "x y")


def rows(source, **options):
    """The examples of an epoch, one row for each."""
    found = []
    for x, y, weight in source.epoch(**options):
        columns = [ef.tree.flatten(part)[0] for part in (x, y, weight) if part is not None]
        found += zip(*[leaf.tolist() for column in columns for leaf in column], strict=True)
    return found


def batches(n=3, *arrays):
    """Tuples of batches."""
    return [tuple(a[i : i + n] for a in arrays or (X, Y)) for i in range(0, 7, n)]


class Indexed:
    """What PyTorch calls a map-style dataset."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return X[i], Y[i]


class Again:
    """An iterable of batches that begins again, without a length."""

    def __iter__(self):
        return iter(batches())


FORMS = {
    "arrays": lambda: (X, Y),
    "tensors": lambda: (ef.tensor(X), ef.tensor(Y)),
    "lists": lambda: (X.tolist(), Y.tolist()),
    "list of batches": lambda: (batches(), None),
    "generator": lambda: (iter(batches()), None),
    "iterable": lambda: (Again(), None),
    "named tuples": lambda: ((Pair(*b) for b in batches()), None),
    "lists as batches": lambda: ((list(b) for b in batches()), None),
    "loader": lambda: (ef.nn.Loader((X, Y), 3), None),
    "loader of a dataset": lambda: (ef.nn.Loader(Indexed(), 3), None),
    "source": lambda: (make_source(X, Y, None, 3, "fit"), None),
}


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.75, 0.99])
@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_last_examples_are_for_validation(count, part):
    x, y, weight = [X[:count], (X[:count], Y[:count])], Y[:count], W[:count]
    cut = int(count * (1 - part))
    if cut in (0, count):
        with pytest.raises(ShapeError, match="leaves one side empty"):
            split_validation(x, y, weight, part)
        return
    halves = split_validation(x, y, weight, part)
    for found, side in zip(halves, (slice(cut), slice(cut, count)), strict=True):
        wanted = [X[side], (X[side], Y[side])], Y[side], W[side]
        assert ef.tree.flatten(found)[1] == ef.tree.flatten(wanted)[1]
        for a, b in zip(ef.tree.flatten(found)[0], ef.tree.flatten(wanted)[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_batches(form):
    source = make_source(*FORMS[form](), None, 3, "fit")
    found = list(source.epoch())
    assert [len(y) for _, y, _ in found] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([np.asarray(x) for x, _, _ in found]), X)
    np.testing.assert_array_equal(np.concatenate([np.asarray(y) for _, y, _ in found]), Y)
    assert all(isinstance(leaf, ef.Tensor) for x, y, _ in found for leaf in (x, y))
    assert all(weight is None for _, _, weight in found)


@pytest.mark.parametrize("x", [{"a": X, "b": {"c": Y}}, [X, Y], (X, Y), Pair(X, Y)])
def test_nests_keep_their_form(x):
    source = make_source(x, {"y": Y}, [W], 3, "fit")
    for part, y, weight in source.epoch():
        assert type(part) is type(x) and list(y) == ["y"] and len(weight) == 1
    assert len(rows(source)) == 7


def test_weights_come_along():
    right = list(zip(X.tolist(), Y.tolist(), W.tolist(), strict=True))
    for given in ((X, Y, W), (iter(batches(3, X, Y, W)), None, None)):
        assert rows(make_source(*given, 3, "fit")) == right


# Epochs of steps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["arrays", "list of batches", "iterable", "loader"])
def test_epochs_of_steps_go_on_and_begin_again(form):
    source = make_source(*FORMS[form](), None, 3, "fit")
    found = [[int(y[0]) for _, y, _ in source.epoch(steps=2)] for _ in range(4)]
    assert found == [[0, 3], [6, 0], [3, 6], [0, 3]]
    assert [int(y[0]) for _, y, _ in source.epoch()] == [0, 3, 6]


def test_endless_iterators():
    def endless():
        while True:
            yield from batches()

    source = make_source(endless(), None, None, 3, "fit")
    assert [len(rows(source, steps=4)) for _ in range(3)] == [10, 10, 8]


def test_shuffled_epochs_of_steps_see_every_example():
    source = make_source(X, Y, None, 3, "fit")
    seen = [y for _ in range(3) for _, y in rows(source, shuffle=True, steps=1)]
    assert sorted(seen) == list(range(7))


def test_iterator_that_ends_early_raises():
    source = make_source(iter(batches()), None, None, 3, "fit")
    assert len(list(source.epoch(steps=2))) == 2
    with pytest.raises(ef.errors.ShapeError, match="ended after 1 of 2 steps"):
        list(source.epoch(steps=2))
    with pytest.raises(ef.errors.ShapeError, match="no batch"):
        list(source.epoch(steps=2))


# Class weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["arrays", "list of batches", "loader"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_class_weights(form, one_hot):
    y = np.eye(7, dtype="float32")[Y] if one_hot else Y
    data = {"arrays": (X, y), "list of batches": (batches(3, X, y), None)}
    data["loader"] = ef.nn.Loader((X, y), 3), None
    source = make_source(*data[form], None, 3, "fit", class_weight={1: 0.5, 4: 2})
    weights = np.concatenate([np.asarray(w) for _, _, w in source.epoch()])
    assert weights.tolist() == [1, 0.5, 1, 1, 2, 1, 1]
    assert len(list(source.epoch(steps=5))) == 5


def test_class_weights_multiply_those_of_examples():
    source = make_source(X, Y, W, 3, "fit", class_weight={6: 3})
    assert rows(source)[-1][2] == 3.0


@pytest.mark.parametrize(("make", "words"), [
    (lambda: make_source(X, Y[:3], None, 3, "fit"), r"y int64\(3,\)"),
    (lambda: make_source(X, None, W[:3], 3, "fit"), "sample_weight"),
    (lambda: make_source({"a": X, "b": Y[:2]}, None, None, 3, "fit"), "different numbers"),
    (lambda: make_source(X[:0], None, None, 3, "fit"), "no examples"),
    (lambda: make_source(np.float32(3), None, None, 3, "fit"), "different numbers"),
    (lambda: make_source(X, Y, None, 0, "fit"), "batch_size"),
    (lambda: make_source(iter([]), Y, None, 3, "fit"), "gives the targets"),
    (lambda: make_source(ef.nn.Loader(X), Y, None, 3, "fit"), "gives the targets"),
    (lambda: make_source(Indexed(), None, None, 3, "fit"), "ef.nn.Loader"),
    (lambda: list(make_source([(X, Y, W, W)], None, None, 3, "fit").epoch()), "4 parts"),
    (lambda: list(make_source(iter([]), None, None, 3, "fit").epoch()), "no batch"),
    (lambda: list(make_source(X, None, None, 3, "fit", class_weight={0: 1}).epoch()),
     "one array of class targets"),
    (lambda: list(make_source(X, Y, None, 3, "fit", class_weight=[1, 2]).epoch()), "map classes"),
])  # fmt: skip
def test_mistakes(make, words):
    with pytest.raises((ef.errors.ArgumentError, ef.errors.ShapeError), match=words):
        make()


def test_loaders_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    peer = torch.utils.data.DataLoader(data, batch_size=3)
    right = [(x, int(y)) for x, y in zip(X.tolist(), Y, strict=True)]
    assert rows(make_source(peer, None, None, 32, "fit")) == right
    for loader in (ef.nn.Loader(peer), ef.nn.Loader(peer, workers=1), ef.nn.Loader(data, 3)):
        assert rows(loader) == right and loader.steps == 3
