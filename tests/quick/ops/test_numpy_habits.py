"""What people who know NumPy type without thinking: it works as they expect, or says why not."""

import math
import operator
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import eagerflow as ef
from eagerflow.errors import DTypeError, EagerflowError, ShapeError
from tests.internals import array_of

A = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)
V = np.array([1.0, 2.0, 4.0], np.float32)


def same(found, expected):
    """A tensor of the values that NumPy gives; dtypes are checked elsewhere."""
    assert isinstance(found, ef.Tensor)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]
INTEGER_OPERATORS = [
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize(
    "other", [2, 2.5, np.float32(2.5), V, np.abs(A), [1.0, 2.0, 3.0]], ids=repr
)
def test_operators_mix_with_everything(op, other):
    x = np.abs(A)
    expected = np.asarray(other) if isinstance(other, list) else other
    same(op(ef.tensor(x), other), op(x, expected))
    same(op(other, ef.tensor(x)), op(expected, x))
    same(op(ef.tensor(x), ef.asarray(other)), op(x, expected))


@pytest.mark.parametrize("op", INTEGER_OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("other", [2, np.array([1, 2, 3])], ids=repr)
def test_integer_operators(op, other):
    x = np.array([[1, 5, 9], [2, 0, 7]])
    same(op(ef.tensor(x), other), op(x, other))
    same(op(other, ef.tensor(x)), op(other, x))


def test_matmul_with_arrays_on_either_side():
    t = ef.tensor(A)
    same(t @ A.T, A @ A.T)
    same(A.T @ t, A.T @ A)
    same(t @ V, A @ V)
    same(V @ t.T, V @ A.T)


def test_unary_operators_and_builtins():
    t = ef.tensor(A)
    same(-t, -A)
    same(+t, A)
    same(abs(t), np.abs(A))
    same(~ef.tensor([True, False]), [False, True])
    assert float(sum(ef.tensor(V))) == 7.0
    assert float(max(ef.tensor(V))) == 4.0
    assert math.sqrt(ef.tensor(4.0)) == 2.0
    assert [1, 2, 3][ef.tensor(1)] == 2
    assert list(range(ef.tensor(3))) == [0, 1, 2]
    assert np.arange(5)[ef.tensor([1, 2])].tolist() == [1, 2]


def test_augmented_assignment_makes_a_new_tensor():
    x = y = ef.tensor(V)
    y += 1
    y *= 2
    same(y, (V + 1) * 2)
    same(x, V)


INDICES = [
    0,
    -1,
    (0, 1),
    slice(None, None, -2),
    (..., None, slice(None, None, -2)),
    None,
    ...,
    (),
    (slice(None), [0, 2]),
    [1, 0],
    (slice(None), -1),
    np.array([True, False]),
    A > 2,
    [[0], [1]],
    (np.array([0, 1]), np.array([2, 0])),
    (slice(0, 0), ...),
    (..., 0),
    (None, ..., None),
    (0, slice(None), None),
    np.int64(1),
    (np.array([1, 0]), slice(1, None)),
    slice(-5, 7),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indexing(index):
    same(ef.tensor(A)[index], A[index])


def test_indexing_with_tensors():
    t = ef.tensor(A)
    same(t[t > 2], A[A > 2])
    same(t[ef.tensor(1)], A[1])
    same(t[:, ef.tensor([2, 0])], A[:, [2, 0]])
    same(t[ef.tensor(0) : ef.tensor(1)], A[0:1])


REDUCTIONS = ["sum", "prod", "mean", "max", "min", "any", "all", "std", "var", "argmax", "argmin"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_take_axis_and_keepdims(name):
    x = A > 0 if name in ("any", "all") else A
    ours, numpys = getattr(ef, name), getattr(np, name)
    for _ in range(2):  # the first call learns, the second takes the short way
        same(ours(ef.tensor(x)), numpys(x))
        same(ours(ef.tensor(x), axis=-1, keepdims=True), numpys(x, axis=-1, keepdims=True))
        same(ours(ef.tensor(x), axis=0), numpys(x, axis=0))
        same(getattr(ef.tensor(x), name)(axis=1), numpys(x, axis=1))
        if not name.startswith("arg"):
            same(ours(ef.tensor(x), axis=(0, 1)), numpys(x, axis=(0, 1)))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("word", ["out", "where", "initial", "foo"])
def test_unknown_keywords_are_refused_at_each_call(name, word):
    x = ef.tensor(A > 0 if name in ("any", "all") else A)
    for _ in range(3):
        getattr(ef, name)(x)
        with pytest.raises(TypeError, match=word):
            getattr(ef, name)(x, **{word: np.zeros(())})


# NumPy's own functions, called with tensors -------------------------------------------------

NUMPY_CALLS = {
    "sin": lambda np, x: np.sin(x),
    "exp": lambda np, x: np.exp(x),
    "add": lambda np, x: np.add(x, 1),
    "add from the right": lambda np, x: np.add(1, x),
    "isfinite": lambda np, x: np.isfinite(x),
    "sum": lambda np, x: np.sum(x),
    "sum over an axis": lambda np, x: np.sum(x, axis=0),
    "mean": lambda np, x: np.mean(x),
    "max": lambda np, x: np.max(x, axis=1),
    "argmax": lambda np, x: np.argmax(x),
    "stack": lambda np, x: np.stack([x, x]),
    "concat": lambda np, x: np.concat([x, x]),
    "matmul": lambda np, x: np.matmul(x, x.T),
    "where": lambda np, x: np.where(x > 2, x, 0),
    "clip": lambda np, x: np.clip(x, 0, 4),
    "reshape": lambda np, x: np.reshape(x, (3, 2)),
    "zeros_like": lambda np, x: np.zeros_like(x),
    "maximum": lambda np, x: np.maximum(x, 0),
    "expand_dims": lambda np, x: np.expand_dims(x, axis=0),
}


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_numpy_functions_that_have_a_counterpart(name):
    call = NUMPY_CALLS[name]
    same(call(np, ef.tensor(A)), call(np, A))


REFUSED = {
    "add.at": lambda x: np.add.at(np.zeros((2, 3)), 0, x),
    "put": lambda x: np.put(x, 0, 1.0),
    "packbits": lambda x: np.packbits(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numpy_functions_without_counterpart_give_a_hint(name):
    with pytest.raises(DTypeError, match="does not take tensors") as caught:
        REFUSED[name](ef.tensor(A))
    assert name.split()[0] in str(caught.value)
    assert "np.asarray(x)" in caught.value.hint


def test_more_numpy_functions_are_right_or_explain():
    same(np.concatenate([ef.tensor(A), A], axis=1), np.concatenate([A, A], axis=1))
    same(np.arctan2(ef.tensor(A), V), np.arctan2(A, V))
    same(np.left_shift(ef.tensor([1, 2]), 3), [8, 16])
    assert (np.shape(ef.tensor(A)), np.ndim(ef.tensor(A)), np.size(ef.tensor(A))) == ((2, 3), 2, 6)
    for call in (
        lambda np, x: np.linalg.norm(x),
        lambda np, x: np.linalg.inv(x[:, :2]),
        lambda np, x: np.dot(x, x.T),
        lambda np, x: np.cumsum(x),
        lambda np, x: np.median(x),
        lambda np, x: np.vstack([x, x]),
        lambda np, x: np.round(x),
        lambda np, x: np.sort(x),
        lambda np, x: np.einsum("ij->j", x),
    ):
        try:
            found = call(np, ef.tensor(A))
        except EagerflowError as error:
            assert error.hint
        else:
            same(found, call(np, A))


def test_assertions_of_numpy_take_tensors():
    np.testing.assert_allclose(ef.tensor(A), A)
    np.testing.assert_array_equal(ef.tensor(A), ef.tensor(A))
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(ef.tensor(A), ef.tensor(A) + 1)


# Warnings and error states -------------------------------------------------------------------


def hostile():
    """Ops on values at which NumPy warns: overflow, division by zero, invalid, underflow."""
    x = ef.tensor([0.0, 1.0, -1.0, 1e38, -1e38, 1e-40, ef.nan, ef.inf, -ef.inf])
    i = ef.tensor([0, 1, -1, 2**62, -(2**63)])
    yield from (x / 0, x * x, ef.log(x), ef.sqrt(x), ef.exp(x * 100), x - x, x % 0.0, 1 / x, x**x)
    yield from (i // 1, i * i, i + i, abs(i), x.astype("int8"), x.astype("float16"), x == x, x > 0)
    yield from (x.sum(), x.max(), ef.mean(x), ef.std(x), ef.mean(x[:0]), x.sum() * 1e38, x // 0.0)
    yield from (ef.prod(x), ef.acosh(x), ef.atanh(x))
    yield from (
        ef.softmax(x),
        ef.logsumexp(x),
        ef.sigmoid(x),
        ef.tanh(x),
        ef.matmul(x, x),
        x[x > 0],
    )
    yield from (
        ef.tensor([1e300]).astype("float32"),
        ef.tensor([1e300, 2.0]),
        -ef.tensor([2**63 - 1]),
    )
    yield from (ef.var(x[:1], correction=1), x.reshape((3, 3)) @ x.reshape((3, 3)))


def gradients():
    for f in (ef.log, ef.sqrt, ef.exp, lambda x: 1 / x, lambda x: x**x, lambda x: x / 0, ef.acosh):
        yield ef.grad(lambda x, f=f: f(x).sum())(ef.tensor([0.0, -1.0, 1e38, ef.nan]))


@pytest.mark.parametrize("filters", ["error", "always"])
def test_no_warning_and_no_floating_point_error_leaks(filters):
    with warnings.catch_warnings(record=filters == "always") as caught:
        warnings.simplefilter(filters)
        for _ in range(2):
            results = [*hostile(), *gradients()]
        with ef.GradientTape() as tape:
            tape.watch(x := ef.tensor([0.0, -1.0]))
            results += [*hostile(), ef.log(x)]
        repr(results)
    assert not caught


def test_users_error_state_is_left_alone():
    before = np.geterr()
    with np.errstate(all="raise"):
        state = np.geterr()
        for _ in range(2):
            assert len([*hostile(), *gradients()]) > 40
        assert np.geterr() == state
        with pytest.raises(FloatingPointError):
            np.float32(1) / np.float32(0)
        with pytest.raises(EagerflowError):
            ef.zeros((2,)) + ef.zeros((3,))
        assert np.geterr() == state
    assert np.geterr() == before


# Memory ----------------------------------------------------------------------------------------


def test_asarray_shows_the_memory_and_does_not_let_it_be_changed():
    t = ef.tensor(A)
    views = [np.asarray(t), t.numpy()]
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # before, DLPack could not say "read-only"
        views.append(np.from_dlpack(t))
    for view in views:
        assert np.shares_memory(view, array_of(t))
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 9
    own = np.array(t)
    own[:] = 0
    same(t, A)
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    with pytest.raises(DTypeError, match="needs a copy"):
        np.asarray(t, dtype=np.float64, copy=False)


def test_later_changes_of_the_array_do_not_reach_the_tensor():
    x = A.copy()
    t, u = ef.tensor(x), ef.Variable(x)
    rows = ef.tensor([x[0], x[1]])
    x[:] = 0
    same(t, A)
    same(u.value, A)
    same(rows, A)


def test_later_changes_of_the_array_do_not_reach_a_tape():
    x, w = A.copy(), ef.Variable(np.ones_like(A))
    with ef.GradientTape() as tape:
        y = w * x
        x[:] = 0
        z = y.sum() + (x * w).sum()
    x[:] = 7
    same(tape.gradient(z, w), A)


def test_results_do_not_share_memory_with_arrays_of_the_user():
    x = A.copy()
    t = ef.add(x, 0)
    real = ef.real(x)
    row = ef.tensor(x)[0]
    views = [ef.reshape(x, (3, 2)), ef.permute_dims(x, (1, 0)), ef.broadcast_to(x, (2, 2, 3))]
    x[:] = 0
    same(t, A)
    same(real, A)
    same(row, A[0])
    same(views[0], A.reshape(3, 2))
    same(views[1], A.T)
    same(views[2], np.broadcast_to(A, (2, 2, 3)))


# Broadcasting ------------------------------------------------------------------------------------


@given(nps.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=3, min_side=0))
def test_shapes_broadcast_as_in_numpy(shapes):
    x, y, z = (np.arange(math.prod(s), dtype=np.float64).reshape(s) for s in shapes.input_shapes)
    same(ef.tensor(x) + y * ef.tensor(z), x + y * z)
    assert (ef.tensor(x) - y + z).shape == shapes.result_shape


@given(nps.array_shapes(min_dims=0, max_side=3), nps.array_shapes(min_dims=0, max_side=3))
def test_shapes_that_do_not_broadcast_are_refused(a, b):
    x, y = ef.zeros(a), ef.zeros(b)
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ShapeError, match=r"add: .*do not broadcast") as caught:
            x + y
        assert f"x1 {x.dtype}{a}" in caught.value.received
    else:
        assert (x + y).shape == expected


@given(nps.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3), st.data())
def test_gradients_have_the_shape_of_their_source(shapes, data):
    a, b = shapes.input_shapes
    x, y = ef.ones(a), ef.ones(b)
    gx, gy = ef.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(x, y)
    assert (gx.shape, gy.shape) == (a, b)
    assert float(gx.sum()) == float(gy.sum()) == math.prod(shapes.result_shape)


# What libraries such as SciPy do with results ----------------------------------------------------


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
def test_conversion_to_arrays(name):
    x = ef.tensor([1.0, 2.0])
    found = getattr(np, name)(x)
    assert type(found) is np.ndarray and found.flags.writeable
    found[...] = 0.0
    assert x.tolist() == [1.0, 2.0]
    first, second = getattr(np, name)(ef.Variable(x), [3])
    np.testing.assert_array_equal(first, getattr(np, name)(x.numpy()))
    assert second.dtype == np.int64
    # where something follows the values, they stay tensors
    assert ef.grad(lambda x: getattr(np, name)(x * x).sum())(x).tolist() == [2.0, 4.0]
    assert isinstance(ef.function(getattr(np, name))(x), ef.Tensor)
    assert isinstance(ef.vmap(getattr(np, name))(x), ef.Tensor)


def test_updates_of_arrays_with_tensors():
    total = np.zeros(2)
    for _ in range(3):
        total += ef.tensor([1.0, 2.0])
    total *= ef.Variable([2.0, 0.5], dtype="float64")
    assert total.tolist() == [6.0, 3.0]
    counts = np.zeros(2, int)
    with pytest.raises(TypeError, match="same_kind"):
        counts += ef.ones(2)

    def lost(x):
        kept = np.zeros(2)
        kept += x
        return (x + kept).sum()

    for transform in (ef.grad, ef.function):
        with pytest.raises(TypeError, match="tensors do not change"):
            transform(lost)(ef.ones(2))
