"""Data frames, tables and series of pandas, polars and Arrow as tensors, and in ``fit``."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


@pytest.fixture
def polars():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("polars")


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow")


COLUMNS = {
    "floats": {"a": [1.5, 2.5], "b": [3.0, 4.0]},
    "integers": {"a": [1, 2], "b": [3, 4]},
    "bools": {"a": [True, False], "b": [False, True]},
    "integers and floats": {"a": [1, 2], "b": [0.5, 4.0]},
}

NULLABLE = {"f": "Float64", "i": "Int64", "b": "boolean"}
ARROWS = {"f": "double", "i": "int64", "b": "bool"}


def check(found, expected):
    assert type(found) is ef.Tensor
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    np.testing.assert_array_equal(found.numpy(), expected)


def check_ways(obj, expected):
    """Each door takes the same values with the dtype that NumPy's array of them has."""
    for make in (
        ef.tensor,
        ef.asarray,
        lambda x: ef.Variable(x).value,
        lambda x: ef.reshape(x, -1),
    ):
        check(ef.reshape(make(obj), expected.shape), expected)
    check(ef.tensor(obj, "float32"), expected.astype("float32"))
    check(ef.function(lambda x: ef.concat([x, x]))(ef.asarray(obj)), np.concatenate([expected] * 2))


@pytest.mark.parametrize("name", COLUMNS)
def test_frames_of_pandas(name, pandas):
    frame = pandas.DataFrame(COLUMNS[name])
    expected = np.stack([np.array(c) for c in COLUMNS[name].values()], axis=1)
    check_ways(frame, expected)
    for suffix, names in (("", NULLABLE), ("[pyarrow]", ARROWS)):
        if suffix:
            pytest.importorskip("pyarrow")
        converted = frame.astype({key: names[frame[key].dtype.kind] + suffix for key in frame})
        check_ways(converted, expected)
        check_ways(converted["b"], np.array(COLUMNS[name]["b"]))
    for key in frame:
        check_ways(frame[key], np.array(COLUMNS[name][key]))


@pytest.mark.parametrize("name", COLUMNS)
def test_frames_of_polars_and_tables_of_arrow(name, polars, arrow):
    expected = np.stack([np.array(c) for c in COLUMNS[name].values()], axis=1)
    check_ways(polars.DataFrame(COLUMNS[name]), expected)
    check_ways(arrow.table(COLUMNS[name]), expected)
    column = np.array(COLUMNS[name]["b"])
    check_ways(polars.Series("b", COLUMNS[name]["b"]), column)
    check_ways(arrow.array(COLUMNS[name]["b"]), column)


def test_small_dtypes_stay(pandas):
    frame = pandas.DataFrame({"a": np.int8([1, 2]), "b": np.float32([3, 4])})
    check(ef.asarray(frame), np.float32([[1, 3], [2, 4]]))
    check(ef.asarray(frame[["a"]]), np.int8([[1], [2]]))
    check(ef.asarray(frame.astype("float16")), np.float16([[1, 3], [2, 4]]))


def test_objects_with_arrays_keep_their_dtype():
    class Holder:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.0, 2.0], dtype)

    check(ef.asarray(Holder()), np.array([1.0, 2.0]))
    assert ef.asarray(range(3)).dtype == ef.int64


def test_nan_is_a_value(pandas, polars):
    for frame in (pandas.DataFrame({"a": [1.0, np.nan]}), polars.DataFrame({"a": [1.0, np.nan]})):
        np.testing.assert_array_equal(ef.asarray(frame).numpy(), [[1.0], [np.nan]])


def refused(obj, *words):
    """Each door raises an error with these words, and none makes numbers of what is not there."""
    for make in (ef.tensor, ef.asarray, lambda x: ef.tensor(x, "float32"), ef.Variable, ef.sum):
        with pytest.raises(DTypeError) as caught:
            make(obj)
        for word in words:
            assert word in str(caught.value)


def test_missing_values_are_named(pandas, polars, arrow):
    for dtype in ("Int64", "Float64", "boolean", "int64[pyarrow]", "double[pyarrow]"):
        column = pandas.array([1, None], dtype=dtype)
        frame = pandas.DataFrame({"whole": [1, 2], "gap": column})
        refused(frame, "missing", f"'gap': {dtype}, 1 of 2", "fillna")
        refused(frame["gap"], "missing", f"'gap': {dtype}, 1 of 2", "fillna")
        with pytest.raises(DTypeError) as caught:
            ef.asarray(frame)
        assert "whole" not in str(caught.value)
    for values in ([1, None], [1.0, None], [True, None]):
        frame = polars.DataFrame({"whole": [1, 2], "gap": values})
        refused(frame, "missing", "'gap': ", ", 1 of 2", "fill_null")
        refused(frame["gap"], "missing", "'gap': ", "fill_null")
        refused(arrow.table({"gap": values}), "missing", "'gap': ", "fill_null")
        refused(arrow.array(values), "missing", "1 of 2")
    assert ef.asarray(frame["whole"]).tolist() == [1, 2]


def test_columns_without_numbers_are_named(pandas, polars):
    columns = {"n": [1, 2], "text": ["u", "v"]}
    refused(pandas.DataFrame(columns), "hold no numbers", "'text': str")
    refused(polars.DataFrame(columns), "hold no numbers", "'text': String")
    refused(pandas.Series(["u", "v"], name="text"), "'text': str")
    dates = pandas.to_datetime(["2020-01-01", "2020-01-02"])
    refused(pandas.DataFrame({"n": [1, 2], "day": dates}), "'day': datetime64")
    refused(pandas.DataFrame({"kind": pandas.Categorical(["u", "v"])}), "'kind': category")
    mixed = pandas.DataFrame({"n": [1, 2], "is": [True, False]})
    refused(mixed, "bools and of numbers", "'n': int64", "'is': bool", "astype")
    many = pandas.DataFrame({f"c{i}": ["u"] for i in range(20)})
    refused(many, "'c5': str; and 14 more")
    refused(polars.DataFrame(columns).lazy(), "LazyFrame")


def test_memory_is_shared_or_copied(pandas):
    values = np.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame(values, columns=["a", "b"], copy=False)
    assert np.shares_memory(ef.asarray(frame).numpy(), values)
    copied = ef.tensor(frame)
    values[0, 0] = 9.0
    assert copied[0, 0] == 0.0 and ef.asarray(frame)[0, 0] == 9.0


def test_gradients_and_captured_functions(pandas):
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})

    def loss(w):
        return ef.sum(ef.matmul(ef.asarray(frame), w) ** 2)

    w = ef.tensor([1.0, 1.0], "float64")
    expected = 2 * frame.to_numpy().T @ (frame.to_numpy() @ [1.0, 1.0])
    assert ef.grad(loss)(w).tolist() == expected.tolist()
    with pytest.raises(ef.errors.CaptureError, match=r"ef\.tensor"):
        ef.function(loss)(w)  # a frame may change without notice
    captured = ef.function(lambda x, w: ef.sum(ef.matmul(x, w) ** 2))
    assert ef.grad(captured, argnums=1)(ef.asarray(frame), w).tolist() == expected.tolist()
    with pytest.raises(ef.errors.CaptureError, match=r"ef\.tensor"):
        ef.function(lambda x: ef.sum(ef.asarray(x)))(frame)


def trained(*data, **options):
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    return model.fit(*data, verbose=0, **options).history, model


def test_training(pandas, polars):
    x = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=list("abc"))
    y = x["a"] * 2
    expected, model = trained(x.to_numpy(), y.to_numpy(), validation_split=0.2)
    for inputs, targets in ((x, y), (polars.from_pandas(x), polars.from_pandas(y))):
        assert trained(inputs, targets, validation_split=0.2)[0] == expected
        np.testing.assert_array_equal(model.predict(inputs), model.predict(x.to_numpy()))
        assert model.evaluate(inputs, targets, verbose=0) == model.evaluate(
            x.to_numpy(), y.to_numpy(), verbose=0
        )
        norm = ef.nn.Normalization()
        norm.adapt(inputs)
        np.testing.assert_allclose(norm(inputs), (x - x.mean()) / x.std(ddof=0), rtol=1e-4)
        batches = trained(ef.nn.Loader((inputs, targets), 5))[0]
        assert batches == trained(ef.nn.Loader((x.to_numpy(), y.to_numpy()), 5))[0]
    with pytest.raises(DTypeError, match="'t': str"):
        trained(x.assign(t="u"), y)


def test_loaders(pandas):
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})
    names = pandas.Series(["u", "v", "w"])
    nullable = frame.astype({"a": "Float64", "b": "Int64"})
    x, t = next(iter(ef.nn.Loader((nullable, names), 2)))
    check(x, np.array([[1.0, 4.0], [2.0, 5.0]]))
    assert list(t) == ["u", "v"]
    columns = next(iter(ef.nn.Loader(dict(frame), 2)))
    check(columns["b"], np.array([4, 5]))
    with pytest.raises(DTypeError, match="'t': str"):
        ef.nn.Loader(frame.assign(t=names), 2)
