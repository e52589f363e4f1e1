"""NumPy's own keywords, on tensors and through NumPy's functions: taken, or refused by name."""

import collections

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError, KeywordError, ShapeError

A = np.array([[3.0, 1.0, -2.0], [2.0, 4.0, 0.5]], np.float32)
S = np.array([[2.0, 9.0], [0.5, 3.0]], np.float32)  # whose triangles differ
M = A > 0.7

TAKEN = {
    "var ddof and axis": lambda np, x: np.var(x, 0, ddof=1),
    "var correction": lambda np, x: np.var(x, axis=1, correction=1, keepdims=True),
    "sum by position": lambda np, x: np.sum(x, 1, np.float64),
    "sum dtype": lambda np, x: np.sum(x, dtype=np.float64),
    "sum out None": lambda np, x: np.sum(x, 0, None, None, True),
    "min where": lambda np, x: np.min(x, where=M, initial=100.0),
    "max keepdims by position": lambda np, x: np.max(x, 1, None, True),
    "any where": lambda np, x: np.any(x > 0, where=~M, axis=0),
    "mean dtype": lambda np, x: np.mean(x, dtype=np.float64),
    "tile": lambda np, x: np.tile(x, reps=(2, 1)),
    "sort kind": lambda np, x: np.sort(x, kind="stable"),
    "sort by position": lambda np, x: np.sort(x, 0, "mergesort"),
    "argsort": lambda np, x: np.argsort(x, 0, kind="stable"),
    "eigh": lambda np, x: np.linalg.eigh(S if x is A else ef.tensor(S))[0],
    "eigh upper": lambda np, x: np.linalg.eigh(S if x is A else ef.tensor(S), UPLO="U")[0],
    "eigvalsh": lambda np, x: np.linalg.eigvalsh(S if x is A else ef.tensor(S)),
    "eigvalsh upper": lambda np, x: np.linalg.eigvalsh(S if x is A else ef.tensor(S), "U"),
    "svd values": lambda np, x: np.linalg.svd(x, compute_uv=False),
    "pinv": lambda np, x: np.linalg.pinv(x, rcond=1e-6),
    "reshape": lambda np, x: np.reshape(x, (3, 2), order="C"),
    "zeros_like": lambda np, x: np.zeros_like(x, order="K", subok=True),
    "full_like": lambda np, x: np.full_like(x, 2, dtype=np.int32),
    "pad edge": lambda np, x: np.pad(x, ((0, 1), (1, 0)), "edge"),
    "einsum": lambda np, x: np.einsum("ij->j", x, optimize=True),
    "take": lambda np, x: np.take(x, [1, 0], 1, mode="raise"),
    "cumsum": lambda np, x: np.cumsum(x, axis=0, out=None),
    "round": lambda np, x: np.round(x / 3, decimals=1),
    "concatenate": lambda np, x: np.concatenate([x, x], 1, casting="same_kind"),
    "add": lambda np, x: np.add(x, 1, where=True, casting="same_kind", order="K"),
    "broadcast_to": lambda np, x: np.broadcast_to(x, (2, 2, 3), subok=True),
    "x.std": lambda np, x: x.std(ddof=1),
    "x.reshape": lambda np, x: x.reshape((3, 2), order="C"),
    "x.flatten": lambda np, x: x.flatten("C"),
    "x.ravel": lambda np, x: x.ravel(order="K"),
    "x.copy": lambda np, x: x.copy(order="C"),
    "x.astype": lambda np, x: x.astype("int32", casting="unsafe", copy=False),
    "x.round": lambda np, x: x.round(1, out=None),
    "x.cumsum": lambda np, x: x.cumsum(axis=1, out=None),
    "x.trace": lambda np, x: x.trace(out=None),
    "x.take": lambda np, x: x.take([0], axis=0, mode="raise"),
    "x.sum": lambda np, x: x.sum(axis=0, out=None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_keywords_that_mean_something_here(name):
    found, expected = TAKEN[name](np, ef.tensor(A)), TAKEN[name](np, A)
    assert isinstance(found, ef.Tensor)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="names since NumPy 2.1")
def test_clip_with_the_names_of_the_standard():
    assert np.clip(ef.tensor(A), min=0).tolist() == np.clip(A, 0, None).tolist()


def test_clip_with_numpys_names_as_a_method():
    x = ef.tensor(A)
    assert x.clip(a_min=0, a_max=2).tolist() == x.clip(0, 2).tolist()
    assert x.sort(kind="stable").tolist() == np.sort(A).tolist()


REFUSED = {
    "out": lambda x: np.sum(x, out=np.zeros(())),
    "where of a ufunc": (lambda x: np.exp(x, where=M), "where"),
    "where of max": (lambda x: np.max(x, where=M), "where"),
    "casting": lambda x: np.concatenate([x, x], casting="safe"),
    "hermitian": lambda x: np.linalg.svd(x, hermitian=True),
    "UPLO": lambda x: np.linalg.eigh(x[:, :2], UPLO="X"),
    "method order": (lambda x: x.flatten("F"), "order"),
    "method out": (lambda x: x.cumsum(out=x), "out"),
    "method where": (lambda x: x.sum(where=M), "where"),
    "method initial": (lambda x: x.max(initial=3.0), "initial"),
    "method dtype": (lambda x: x.mean(dtype="float64"), "dtype"),
    "method casting": (lambda x: x.astype("int32", casting="safe"), "casting"),
    "dim": lambda x: x.sum(dim=1),
    "keepdim": lambda x: ef.mean(x, axis=0, keepdim=True),
    "unheard_of": lambda x: ef.sum(x, unheard_of=1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_keywords_are_refused_by_name(name):
    call, word = REFUSED[name] if isinstance(REFUSED[name], tuple) else (REFUSED[name], name)
    for _ in range(2):
        with pytest.raises(KeywordError) as caught:
            call(ef.tensor(A))
        assert isinstance(caught.value, ArgumentError) and isinstance(caught.value, TypeError)
        assert caught.value.argument == word and caught.value.op
        assert caught.value.hint or caught.value.expected


def test_arguments_that_are_missing_too_many_or_given_twice():
    for call in (
        lambda: ef.one_hot(ef.tensor([1])),
        lambda: ef.sum(ef.tensor(A), 0, True, None, 5),
        lambda: ef.clip(ef.tensor(A), 0, 1, min=0),
    ):
        with pytest.raises(KeywordError, match=r"missing|at most|twice"):
            call()


def test_eigh_of_numpy_differentiates_through_its_own_triangle():
    for triangle, (row, column) in (("L", (0, 1)), ("U", (1, 0))):
        found = ef.grad(lambda s, t=triangle: np.linalg.eigvalsh(s, t)[0])(ef.tensor(S)).numpy()
        assert found[row, column] == 0 != found[column, row]
    vectors = np.linalg.eigh(ef.tensor(S))[1]
    whole = np.tril(S) + np.tril(S, -1).T
    values = np.diag(np.linalg.eigvalsh(whole))
    np.testing.assert_allclose(vectors.numpy() @ values @ vectors.numpy().T, whole, rtol=1e-5)


def test_in_captured_code():
    both = lambda x: (np.sum(x, 1, np.float64), np.std(x, ddof=1), np.clip(x, None, a_max=1))
    f = ef.function(both)
    for _ in range(2):
        total, spread, low = f(ef.tensor(A))
        assert total.dtype == "float64"
        np.testing.assert_allclose(total.numpy(), A.sum(1), rtol=1e-6)
        np.testing.assert_allclose(float(spread), A.std(ddof=1), rtol=1e-5)
        assert low.tolist() == A.clip(None, 1).tolist()
    assert len(f.graphs) == 1


# Tensors as attributes ---------------------------------------------------------------------------


def test_full_repeats_a_tensor_and_lets_gradients_pass():
    x = ef.tensor([1.0, 2.0])
    assert ef.full((2, 2), x).tolist() == [[1.0, 2.0]] * 2
    assert ef.full(3, ef.Variable(2.0), dtype="float64").tolist() == [2.0] * 3
    assert ef.full((2,), np.arange(2)).tolist() == [0, 1]
    assert ef.grad(lambda v: (ef.full((3, 2), v) * 2.0).sum())(x).tolist() == [6.0, 6.0]
    assert ef.function(lambda n: ef.full((2,), n))(2.5).tolist() == [2.5, 2.5]
    with pytest.raises(ShapeError, match="broadcast"):
        ef.full((3,), x)


def test_pad_takes_a_tensor_as_its_constant():
    x, c = ef.tensor([1.0, 2.0]), ef.tensor(7.0)
    assert ef.pad(x, 1, constant_values=c).tolist() == [7.0, 1.0, 2.0, 7.0]
    assert ef.grad(lambda c: ef.pad(x, (2, 1), constant_values=c).sum())(c).tolist() == 3.0
    assert ef.vmap(lambda x: ef.pad(x, 1, constant_values=c))(x[:, None]).shape == (2, 3)
    for wrong in (x, ef.tensor(1j)):
        with pytest.raises(DTypeError, match="one value of the tensor's dtype"):
            ef.pad(x, 1, constant_values=wrong)


def test_shapes_and_axes_are_tuples_of_any_class():
    """As of ``torch.Size``, and named ones."""

    class Size(tuple):
        pass

    Pair = collections.namedtuple("Pair", "a b")
    for wrap in (lambda f: f, ef.function):
        assert wrap(lambda: ef.zeros(Size((2, 3))))().shape == (2, 3)
        assert wrap(lambda: ef.random.normal(Size((2, 3))))().shape == (2, 3)
        assert wrap(lambda: ef.ones((2, 3)).reshape(Size((3, 2))))().shape == (3, 2)
        assert wrap(lambda: ef.permute_dims(ef.ones((2, 3)), Pair(1, 0)))().shape == (3, 2)
        assert wrap(lambda: ef.sum(ef.ones((2, 3)), axis=Pair(0, 1)))().shape == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ef.leaky_relu(x, x),
        lambda x: ef.std(x, correction=x),
        lambda x: ef.eye(x),
        lambda x: ef.sum(x, axis=x),
        lambda x: ef.tile(x, x),
        lambda x: ef.zeros(x),
    ],
)
def test_other_attributes_are_python_values_and_the_error_says_so(call):
    with pytest.raises(DTypeError, match="a Tensor cannot be an attribute") as caught:
        call(ef.tensor([1.0, 2.0]))
    assert "numbers" in caught.value.expected and "x.item()" in caught.value.hint
