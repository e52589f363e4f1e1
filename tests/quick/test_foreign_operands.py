"""Operands of foreign classes: those that come first by NumPy's rules compute by themselves."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError

X = ef.tensor([1.0, 2.0, 3.0])


class Labelled(np.lib.mixins.NDArrayOperatorsMixin):
    """Values with labels, like a DataArray: it works on NumPy's functions and keeps its labels."""

    __array_priority__ = 50

    def __init__(self, data, label):
        self.data, self.label = data, label

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.data, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [x.data if isinstance(x, Labelled) else x for x in inputs]
        return Labelled(ufunc(*plain, **kwargs), self.label)

    def __array_function__(self, func, types, args, kwargs):
        plain = [x.data if isinstance(x, Labelled) else x for x in args[0]]
        return Labelled(func(plain), self.label)


class Apart:
    """A class that asks NumPy's arrays to leave it alone."""

    __array_ufunc__ = None

    def __rsub__(self, other):
        return "apart", other


class Array:
    """A mere array with a priority, as PyTorch's and CuPy's have: it is taken as a tensor."""

    __array_priority__ = 1000

    def __init__(self, values):
        self.values = np.asarray(values)

    def __dlpack__(self, **options):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __rmul__(self, other):
        raise AssertionError("not asked")


class Vague:
    """Something like an array without a priority among operands."""

    def __array__(self, dtype=None, copy=None):
        return np.asarray([1.0, 2.0, 3.0], dtype)

    def __rmul__(self, other):
        raise AssertionError("not asked")


LABELLED = Labelled(np.array([4.0, 5.0, 6.0], np.float32), "m")


@pytest.mark.parametrize("x", [X, ef.Variable(X)], ids=["tensor", "variable"])
def test_labels_are_kept_from_either_side(x):
    for found, expected in (
        (x + LABELLED, [5, 7, 9]),
        (LABELLED + x, [5, 7, 9]),
        (x * LABELLED, [4, 10, 18]),
        (x @ LABELLED, 32.0),
        (np.multiply(x, LABELLED), [4, 10, 18]),
        (x == LABELLED, [False] * 3),
        (np.add(LABELLED, x), [5, 7, 9]),
        (x < LABELLED, [True] * 3),
        (np.stack([x, LABELLED]), [[1, 2, 3], [4, 5, 6]]),
    ):
        assert isinstance(found, Labelled) and found.label == "m"
        assert isinstance(found.data, ef.Tensor)
        assert found.data.tolist() == expected


def test_gradients_pass_through_foreign_classes():
    assert ef.grad(lambda x: (x * LABELLED).data.sum())(X).tolist() == [4.0, 5.0, 6.0]
    product = ef.function(lambda x: (x * Labelled(x + 1.0, "m")).data)
    assert product(X).tolist() == product(X).tolist() == [2.0, 6.0, 12.0]


def test_functions_of_ours_take_the_values():
    assert ef.multiply(X, LABELLED).tolist() == [4.0, 10.0, 18.0]


def test_a_class_that_is_left_alone():
    assert (X - Apart()) == ("apart", X)
    with pytest.raises(TypeError, match="unsupported operand"):
        X / Apart()
    with pytest.raises(DTypeError):
        ef.divide(X, Apart())


@pytest.mark.parametrize("other", [Array(np.float32([1, 2, 3])), Vague()], ids=["array", "vague"])
def test_mere_arrays_are_taken_as_tensors(other):
    assert (X * other).tolist() == [1.0, 4.0, 9.0]


def test_masked_arrays_keep_their_masks():
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    found = X * masked
    assert isinstance(found, np.ma.MaskedArray)
    assert found.mask.tolist() == [False, True, False]


def test_data_arrays_of_xarray():
    xarray = pytest.importorskip("xarray")
    labelled = xarray.DataArray(np.float32([4, 5, 6]), dims="m", coords={"m": list("abc")})
    for found in (X * labelled, labelled * X):
        assert isinstance(found, xarray.DataArray)
        assert found.dims == ("m",) and found.coords["m"].values.tolist() == list("abc")
        np.testing.assert_array_equal(np.asarray(found.data), [4, 10, 18])


def test_series_and_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([4.0, 5.0, 6.0], index=list("abc"))
    for found in (X * series, series * X):
        assert isinstance(found, pandas.Series)
        assert found.to_dict() == {"a": 4.0, "b": 10.0, "c": 18.0}
    frame = pandas.DataFrame({"u": [1.0], "v": [2.0], "w": [3.0]})
    assert isinstance(X + frame, pandas.DataFrame)
