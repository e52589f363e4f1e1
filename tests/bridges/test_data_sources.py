"""Data of PyTorch, grain and Hugging Face, as they are, in ``fit`` and in loaders."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError

X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = X[:, :1] * 2


def used(data):
    """What training, evaluation and prediction give."""
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(data, epochs=2, validation_data=data, verbose=0).history
    return history, model.evaluate(data, verbose=0), model.predict(data).tolist()


@pytest.fixture(scope="module")
def expected():
    return used(ef.nn.Loader((X, Y), 4))


# PyTorch ------------------------------------------------------------------------------------------


@pytest.fixture
def data():
    return pytest.importorskip("torch.utils.data")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def map_style(data, make):
    class Examples(data.Dataset):
        shape = "a dataset may have any attributes"

        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return make(i)

    return Examples()


def iterable(data, make):
    class Examples(data.IterableDataset):
        def __iter__(self):
            return map(make, range(len(X)))

    return Examples()


EXAMPLES = {
    "tensors": lambda torch: lambda i: (torch.from_numpy(X[i]), torch.from_numpy(Y[i])),
    "arrays": lambda torch: lambda i: (X[i], Y[i]),
    "lists": lambda torch: lambda i: [torch.from_numpy(X[i]), Y[i]],
    "numbers": lambda torch: lambda i: (torch.from_numpy(X[i]), float(Y[i, 0])),
}


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("style", [map_style, iterable])
def test_datasets_of_torch(kind, style, data, torch, expected):
    dataset = style(data, EXAMPLES[kind](torch))
    assert used(data.DataLoader(dataset, 4)) == expected
    assert used(ef.nn.Loader(dataset, 4)) == expected
    assert used(ef.nn.Loader(data.DataLoader(dataset, 4))) == expected
    assert used(ef.nn.Loader(dataset, 4, workers=2)) == expected


def test_other_data_of_torch(data, torch, expected):
    tensors = data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    parts = data.ConcatDataset([data.Subset(tensors, range(8)), data.Subset(tensors, range(8, 20))])
    for dataset in (tensors, parts):
        assert used(ef.nn.Loader(dataset, 4)) == used(data.DataLoader(dataset, 4)) == expected
    chosen = data.DataLoader(tensors, batch_sampler=[range(i, i + 4) for i in range(0, 20, 4)])
    assert used(chosen) == expected
    assert used(data.DataLoader(tensors, 4, num_workers=2)) == expected
    with pytest.raises(ArgumentError, match=r"ef\.nn\.Loader\(x, batch_size=32\)"):
        used(tensors)


def test_dicts_of_torch(data, torch, expected):
    dataset = map_style(data, lambda i: {"x": torch.from_numpy(X[i]), "y": torch.from_numpy(Y[i])})
    batch = next(iter(ef.nn.Loader(dataset, 4)))
    np.testing.assert_array_equal(batch["x"], X[:4])
    assert used(ef.nn.Loader(dataset, 4, map=lambda e: (e["x"], e["y"]))) == expected
    batches = data.DataLoader(dataset, 4)
    assert used(ef.nn.Loader(batches).map(lambda b: (b["x"], b["y"]))) == expected
    named = map_style(data, lambda i: (X[i], {"first": int(i), "name": "u"}))
    _, labels = next(iter(ef.nn.Loader(named, 2)))
    assert labels["first"].tolist() == [0, 1] and list(labels["name"]) == ["u", "u"]


def test_dtypes_of_torch(data, torch):
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int32):
        dataset = map_style(data, lambda i, dtype=dtype: torch.from_numpy(X[i]).to(dtype))
        expected = torch.from_numpy(X[:4]).to(dtype).to(torch.float64)
        for loader in (ef.nn.Loader(dataset, 4), ef.nn.Loader(data.DataLoader(dataset, 4))):
            batch = next(iter(loader))
            assert str(dtype) == f"torch.{batch.dtype.name}"
            np.testing.assert_array_equal(batch.astype("float64"), expected)
    gradients = map_style(data, lambda i: torch.from_numpy(X[i]).requires_grad_())
    for loader in (ef.nn.Loader(gradients, 4), ef.nn.Loader(data.DataLoader(gradients, 4))):
        with pytest.raises(DTypeError, match=r"try: x\.detach\(\)"):
            next(iter(loader))


def test_lengths_of_torch(data, torch):
    whole = ef.nn.Loader(data.DataLoader(map_style(data, lambda i: X[i]), 6))
    assert len(whole) == len(list(whole)) == 4
    endless = ef.nn.Loader(data.DataLoader(iterable(data, lambda i: X[i]), 6))
    with pytest.raises(TypeError, match="length"):
        len(endless)
    assert len(list(endless)) == 4


# grain and Hugging Face ---------------------------------------------------------------------------


def test_datasets_of_grain(expected):
    grain = pytest.importorskip("grain")
    pairs = [(X[i], Y[i]) for i in range(20)]
    examples = grain.MapDataset.source(pairs)
    sampler = grain.samplers.IndexSampler(20, num_epochs=1, shuffle=False, seed=0)
    batches = grain.DataLoader(
        data_source=pairs, sampler=sampler, operations=[grain.transforms.Batch(4)]
    )
    for data in (
        examples.batch(4),
        examples.to_iter_dataset().batch(4),
        batches,
        ef.nn.Loader(examples, 4),
        ef.nn.Loader(examples.to_iter_dataset(), 4),
        ef.nn.Loader(batches, None),
    ):
        assert used(data) == expected
    columns = grain.MapDataset.source([{"x": X[i], "y": Y[i]} for i in range(20)])
    assert used(columns.batch(4).map(lambda batch: (batch["x"], batch["y"]))) == expected
    assert used(ef.nn.Loader(columns, 4, map=lambda e: (e["x"], e["y"]))) == expected


def check_tables(table, expected):
    """A table whose items are dicts of Python's numbers or of arrays, as Hugging Face's."""

    def pair(example):
        return np.float32(example["x"]), np.float32(example["y"])

    assert used(ef.nn.Loader(table, 4, map=pair)) == expected
    shuffled = [y for _, y in ef.nn.Loader(table, 4, map=pair, shuffle=20)]
    assert sorted(np.concatenate(shuffled).ravel()) == sorted(Y.ravel())

    def joined(examples):
        return tuple(np.float32([e[name] for e in examples]) for name in ("x", "y"))

    assert used(ef.nn.Loader(table, 4, collate_fn=joined)) == expected


class Table:
    """Columns by name, rows by number, and a shape, as a Dataset of Hugging Face's has."""

    shape = (20, 2)
    columns = {"x": X, "y": Y}

    def __len__(self):
        return 20

    def __getitem__(self, key):
        assert isinstance(key, int), "the table is not read as a whole"
        return {name: column[key].tolist() for name, column in self.columns.items()}


def test_tables_of_dicts(expected):
    check_tables(Table(), expected)
    batch = next(iter(ef.nn.Loader(Table(), 4)))
    assert [column.shape for column in batch["x"]] == [(4,)] * 3  # lists are nests
    with pytest.raises(ArgumentError, match=r"ef\.nn\.Loader"):
        used(Table())


def test_datasets_of_hugging_face(expected, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()})
    check_tables(table, expected)
    check_tables(table.to_iterable_dataset(), expected)
    for kind in ("numpy", "torch", "jax"):
        pytest.importorskip(kind)
        batch = next(iter(ef.nn.Loader(table.with_format(kind), 4)))
        np.testing.assert_allclose(batch["x"], X[:4], rtol=1e-6)
        pairs = ef.nn.Loader(table.with_format(kind), 4, map=lambda e: (e["x"], e["y"]))
        np.testing.assert_allclose(used(pairs)[2], expected[2], rtol=1e-5)
    columns = table.with_format("numpy")[:]
    assert used(ef.nn.Loader((columns["x"], columns["y"]), 4)) == expected
    texts = datasets.Dataset.from_dict({"t": ["u", "v"], "y": [0, 1]})
    batch = next(iter(ef.nn.Loader(texts, 2)))
    assert list(batch["t"]) == ["u", "v"] and batch["y"].tolist() == [0, 1]
