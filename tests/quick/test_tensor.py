"""Tensors: what they are made from, what they tell, and that nothing changes them."""

import copy
import math
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import eagerflow as ef
from eagerflow.dtypes import FLOAT8, STANDARD
from eagerflow.errors import ArgumentError, DTypeError, EagerflowError, ShapeError
from tests.internals import array_of

T = ef.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
S = ef.tensor(2.5)
ALL = sorted(STANDARD | FLOAT8, key=str)


# Making --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        (1.5, "float32", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        (1j, "complex64", ()),
        ([1, 2], "int64", (2,)),
        ([1, 2.0], "float32", (2,)),
        ([True, False], "bool", (2,)),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([[1], [2]], "int64", (2, 1)),
        ((1.0, (2)), "float32", (2,)),
        (range(3), "int64", (3,)),
        (np.float64(1), "float64", ()),
        (np.arange(3, dtype=np.int8), "int8", (3,)),
        (np.ones(2, np.float16), "float16", (2,)),
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16", (2,)),
        (np.ones(2, ">f4"), "float32", (2,)),
        (2**40, "int64", ()),
        (T, "float32", (2, 3)),
        ([T, T], "float32", (2, 2, 3)),
        ([S, S], "float32", (2,)),
        ([S, 1], "float32", (2,)),
    ],
    ids=repr,
)
def test_tensors_from_supported_values(values, dtype, shape):
    for make in (ef.tensor, ef.asarray):
        t = make(values)
        assert (t.dtype.name, t.shape, t.ndim, t.size) == (
            dtype,
            shape,
            len(shape),
            math.prod(shape),
        )
        assert t.nbytes == t.size * t.dtype.itemsize
        assert str(t.device) == "cpu:0"
        assert array_of(t).dtype.isnative


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_each_dtype_by_name_and_object(dtype):
    for wanted in (dtype, dtype.name):
        t = ef.tensor([1, 0, 1], dtype=wanted)
        assert t.dtype == dtype
        assert t.tolist() == [1, 0, 1]
    assert ef.tensor(T, dtype=dtype).dtype == dtype
    assert ef.asarray(np.ones(2), dtype=dtype).dtype == dtype


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([[1.0, 2.0], [3.0]], ShapeError, "ragged"),
        ([1.0, [2.0]], ShapeError, "ragged"),
        ("abc", DTypeError, "a str is not a tensor"),
        (b"abc", DTypeError, "a bytes is not a tensor"),
        (["a"], DTypeError, "a list of texts is not a tensor"),
        (None, DTypeError, "None is not a tensor"),
        ([None], DTypeError, "a list is not a tensor"),
        ({}, DTypeError, "a dict is not a tensor"),
        ({1, 2}, DTypeError, "a set is not a tensor"),
        pytest.param(object(), DTypeError, "an object is not a tensor", id="object"),
        (len, DTypeError, "is not a tensor"),
        (np.array(["a"]), DTypeError, "an array of dtype <U1"),
        (np.array([1, None]), DTypeError, "an array of dtype object"),
        (np.array(["2020"], "M8[Y]"), DTypeError, "an array of dtype datetime64"),
        (np.longdouble(1), DTypeError, "an array of dtype"),
        (2**64, DTypeError, "is not a tensor|does not fit"),
        ([2**70], DTypeError, "is not a tensor|does not fit"),
    ],
    ids=repr,
)
def test_tensors_from_unsupported_values_are_refused(values, error, words):
    for make in (ef.tensor, ef.asarray):
        with pytest.raises(error, match=words) as caught:
            make(values)
        assert caught.value.expected


@pytest.mark.parametrize(
    ("values", "dtype", "words"),
    [
        ([1, 300], "int8", "does not fit into int8"),
        (-1, "uint8", "does not fit into uint8"),
        (1j, "float32", "imaginary"),
        ([1.0], "words", "is not a dtype"),
        ([1.0], object, "is not a dtype"),
    ],
)
def test_dtypes_that_do_not_fit(values, dtype, words):
    with pytest.raises(DTypeError, match=words):
        ef.tensor(values, dtype=dtype)


def test_tensor_copies_and_asarray_shares():
    x = np.arange(4.0)
    shared, own = ef.asarray(x), ef.tensor(x)
    x[0] = 9
    assert (float(shared[0]), float(own[0])) == (9.0, 0.0)
    assert array_of(ef.asarray(x, copy=False)) is x
    forced = ef.asarray(x, copy=True)
    x[0] = 1
    assert float(forced[0]) == 9.0
    for values, options in (
        ([1.0], {}),
        (x, {"dtype": "float32"}),
        (T, {"dtype": "float64"}),
    ):
        with pytest.raises(ArgumentError, match="copy=False"):
            ef.asarray(values, copy=False, **options)


def test_lists_that_hold_themselves():
    knot = [1.0]
    knot += [knot, knot]
    tied = [T]
    tied.append(tied)
    for values in (knot, [knot, T], tied):
        with pytest.raises(ShapeError, match=r"nested too deeply"):
            ef.tensor(values)


def test_tensor_is_not_called_by_its_class():
    with pytest.raises(DTypeError) as caught:
        ef.Tensor([1.0])
    assert "ef.tensor" in caught.value.hint


# Nothing changes them --------------------------------------------------------------------------


def test_no_way_to_change_a_tensor():
    t = ef.tensor([1.0, 2.0])
    with pytest.raises(DTypeError, match="cannot be changed in place") as caught:
        t[0] = 5
    assert "x.at[index].set(value)" in caught.value.hint
    with pytest.raises(DTypeError, match="cannot be changed in place"):
        del t[0]
    for name in ("shape", "dtype", "device", "T", "foo"):
        with pytest.raises(AttributeError):
            setattr(t, name, 1)
    assert t.at[0].set(5).tolist() == [5.0, 2.0]
    assert t.tolist() == [1.0, 2.0]


# Leaving ---------------------------------------------------------------------------------------


def test_python_numbers():
    assert (float(S), int(S), bool(S), complex(S), S.item()) == (2.5, 2, True, 2.5 + 0j, 2.5)
    assert float(ef.tensor([[3]])) == 3.0
    assert not ef.tensor(0.0)
    assert ef.tensor([1])
    assert isinstance(ef.tensor(3).item(), int)
    assert isinstance(ef.tensor(True).item(), bool)
    assert math.isclose(float(ef.tensor(0.1, "bfloat16")), 0.1, rel_tol=1e-2)
    assert range(5)[ef.tensor(2)] == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: float(T), ShapeError, r"float\(\) needs a tensor of one element"),
        (lambda: int(T), ShapeError, r"int\(\) needs a tensor of one element"),
        (lambda: complex(T), ShapeError, r"complex\(\) needs"),
        (lambda: T.item(), ShapeError, r"item\(\) needs"),
        (lambda: bool(T), ShapeError, "truth of a tensor with more than one element"),
        (lambda: bool(T[:0]), ShapeError, "truth"),
        (lambda: bool(T == T), ShapeError, "truth"),
        (lambda: float(T[:0]), ShapeError, "one element"),
        (lambda: range(S), DTypeError, "only an integer tensor"),
        (lambda: [1, 2][ef.tensor([0])], DTypeError, "only an integer tensor"),
        (lambda: [1, 2][ef.tensor(True)], DTypeError, "only an integer tensor"),
        (lambda: len(S), ShapeError, "has no length"),
        (lambda: list(S), ShapeError, "cannot be iterated"),
        (lambda: f"{T:.2f}", ShapeError, "is for one element"),
    ],
)
def test_unsupported_conversions_of_tensors_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_complex_to_float_is_an_error():
    with pytest.raises(TypeError):
        float(ef.tensor(1j))


def test_formats():
    assert f"{S:.2f}" == f"{ef.tensor([2.5]):.2f}" == "2.50"
    assert f"{ef.tensor(3):>4d}|" == "   3|"
    assert f"{T[0]}" == str(T[0]) == "Tensor([1., 2., 3.], float32, cpu:0)"
    assert "%.1f" % S == "2.5"  # noqa: UP031
    assert "{:e}".format(S) == "2.500000e+00"  # noqa: UP032
    with pytest.raises(ValueError):
        f"{S:nonsense}"


def test_iteration_and_membership():
    assert [row.tolist() for row in T] == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    a, b = T
    assert b.tolist() == [4.0, 5.0, 6.0]
    assert (a.shape, len(T), len(list(T[:, :0]))) == ((3,), 2, 2)
    assert 5.0 in T
    assert 5 in T
    assert 7 not in T
    assert None not in T
    assert "a" not in T
    assert [x.item() for x in reversed(T[0])] == [3.0, 2.0, 1.0]
    assert next(iter(T)).tolist() == [1.0, 2.0, 3.0]
    assert list(T[:0]) == []


def test_comparison_with_non_numbers():
    assert (T == None) is False  # noqa: E711
    assert (T != None) is True  # noqa: E711
    assert (T == "a") is False
    assert (T != b"a") is True
    assert (T == T).tolist() == [[True] * 3] * 2
    for other in ("a", None, object()):
        with pytest.raises(DTypeError):
            assert other > T


def test_tensors_are_keys_by_identity():
    u = ef.tensor([1.0])
    assert hash(T) == hash(T)
    assert {T: "t", u: "u"}[u] == "u"
    assert len({T, T, u}) == 2


def test_copies_are_the_same_object():
    assert copy.copy(T) is T
    assert copy.deepcopy(T) is T
    assert copy.deepcopy({"a": [T]})["a"][0] is T


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_pickle(dtype, shape):
    t = ef.ones(shape, dtype=dtype)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(t, protocol))
        assert (again.dtype, again.shape, again.device) == (t.dtype, t.shape, t.device)
        assert again.tolist() == t.tolist()


def test_pickle_of_a_view_holds_only_its_elements():
    t = ef.zeros((1000, 1000))
    assert len(pickle.dumps(t[0, :2])) < 1000


def test_operands_that_are_none():
    for call in (lambda: T + None, lambda: None + T, lambda: ef.add(None, 1), lambda: ef.sin(None)):
        with pytest.raises(DTypeError, match="None is not a tensor"):
            call()


# DLPack and the Array API ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", sorted(STANDARD - {np.dtype(ml_dtypes.bfloat16)}, key=str), ids=str
)
def test_dlpack_with_numpy(dtype):
    t = ef.tensor([[1, 0], [1, 1]], dtype=dtype)
    for x in (t, t.T, t[:, 0], t[:0], t[0, 0]):
        view = np.from_dlpack(x)
        assert view.dtype == dtype
        np.testing.assert_array_equal(view, x.numpy())
        assert not view.flags.writeable
        again = ef.asarray(view)
        assert again.tolist() == x.tolist()
    # Before version 1, which NumPy has since 2.1, DLPack cannot say "read-only": copies are made.
    shared = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    assert np.shares_memory(np.from_dlpack(t), array_of(t)) == shared
    assert t.__dlpack_device__() == (1, 0)
    copied = np.from_dlpack(t, copy=True) if shared else np.array(np.from_dlpack(t))
    copied[...] = 0
    assert t.tolist() == [[1, 0], [1, 1]]


def test_dlpack_gives_out_no_strides_that_go_backward():
    """PyTorch ends the process where it gets such ones."""
    x = ef.flip(ef.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert min(x.numpy().strides) < 0
    given = np.from_dlpack(x)
    assert min(given.strides) > 0
    np.testing.assert_array_equal(given, [[4, 3], [2, 1]])


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    t = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.from_dlpack(t).tolist() == t.tolist()
    assert torch.as_tensor(np.asarray(t).copy()).tolist() == t.tolist()
    theirs = torch.arange(6).reshape(2, 3)
    assert ef.asarray(theirs).tolist() == ef.tensor(theirs.T).T.tolist() == theirs.tolist()
    own = ef.tensor(theirs)
    theirs[:] = 0
    assert own.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (t + torch.ones(2)).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    with pytest.raises(DTypeError, match="requires grad"):
        ef.tensor(torch.ones(2, requires_grad=True))


def test_dlpack_with_jax():
    jnp = pytest.importorskip("jax.numpy")
    assert ef.tensor(jnp.arange(3)).tolist() == [0, 1, 2]
    assert ef.tensor(jnp.ones(2, jnp.bfloat16)).dtype == ef.bfloat16
    assert jnp.from_dlpack(ef.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_array_namespace():
    assert T.__array_namespace__() is ef
    assert T.__array_namespace__(api_version="2024.12") is ef
    with pytest.raises(EagerflowError, match="is not known"):
        T.__array_namespace__(api_version="2050.12")
    xp = T.__array_namespace__()
    x = xp.asarray([1.0, 2.0], dtype=xp.float64)
    assert x.dtype == xp.float64
    assert float(xp.sum(xp.multiply(x, x))) == 5.0
    assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (math.pi, math.e, math.inf, None)


# Values are what NumPy says -------------------------------------------------------------------


floats = st.floats(-100, 100, width=32)


@given(nps.arrays(np.float32, nps.array_shapes(min_dims=0, max_dims=3), elements=floats))
def test_round_trip_through_numpy(x):
    t = ef.tensor(x)
    np.testing.assert_array_equal(t.numpy(), x)
    assert t.tolist() == x.tolist()
    assert t.shape == x.shape
    again = ef.tensor(t.tolist()) if x.ndim and x.size else t
    np.testing.assert_array_equal(again.numpy(), x)


def test_reading_from_many_threads():
    results = []

    def read():
        results.append([(float(T.sum()), repr(T), T.tolist()) for _ in range(50)])

    threads = [threading.Thread(target=read) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len({str(row) for result in results for row in result}) == 1


@pytest.mark.parametrize("make", [ef.tensor, ef.Variable])
def test_zero_dimensional_tensors_are_not_iterable(make):
    """Other libraries ask so whether it is a number: ``np.iterable``, SciPy's root finders."""
    number = make(2.0)
    for ask in (iter, len, list):
        with pytest.raises(TypeError, match="without axes"):
            ask(number)
    assert not np.iterable(number) and np.iterable(make([2.0]))
    assert 2.0 in number and 3.0 not in number
