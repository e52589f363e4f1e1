"""Compositions of shape, joining and creation ops, and what their users rely on."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, IndexRangeError, OutOfMemoryError, ShapeError
from eagerflow.op import ops
from eagerflow.spec import TensorSpec
from eagerflow.testing import check_gradients

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("f", "g"), [
    (lambda x: ef.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    (lambda x: ef.moveaxis(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
    (lambda x: ef.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
    (ef.matrix_transpose, lambda x: np.swapaxes(x, -1, -2)),
    (lambda x: x.T, lambda x: x.T),
    (lambda x: x.mT, lambda x: np.swapaxes(x, -1, -2)),
    (lambda x: x.transpose(), lambda x: x.T),
    (lambda x: x.transpose(1, 0, 2), lambda x: x.transpose(1, 0, 2)),
    (lambda x: x.transpose((2, 0, 1)), lambda x: x.transpose((2, 0, 1))),
    (lambda x: x.flatten(), lambda x: x.ravel()),
    (lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1)),
    (lambda x: x.expand_dims(1), lambda x: x[:, None]),
    (lambda x: x.tile((2, 1)), lambda x: np.tile(x, (2, 1))),
    (lambda x: x.repeat(2, 1), lambda x: np.repeat(x, 2, 1)),
    (lambda x: x.take([1, 0], 1), lambda x: x.take([1, 0], 1)),
    (lambda x: ef.diagonal(x), lambda x: np.diagonal(x, 0, -2, -1)),
    (lambda x: ef.diagonal(x, 1, 0, 2), lambda x: np.diagonal(x, 1, 0, 2)),
    (lambda x: ef.diagonal(x, -5), lambda x: np.diagonal(x, -5, -2, -1)),
    (lambda x: ef.diag(x[0, 0], 2), lambda x: np.diag(x[0, 0], 2)),
    (lambda x: ef.diag(x[0, 0], -1), lambda x: np.diag(x[0, 0], -1)),
    (lambda x: ef.diag(x[0], 1), lambda x: np.diag(x[0], 1)),
    (lambda x: ef.diag(x[0, 0, :0], 2), lambda x: np.diag(x[0, 0, :0], 2)),
    (lambda x: ef.meshgrid(x[0, 0], x[0, 1, :2])[0],
     lambda x: np.meshgrid(x[0, 0], x[0, 1, :2])[0]),
    (lambda x: ef.meshgrid(x[0, 0], x[0, 1, :2], indexing="ij")[1],
     lambda x: np.meshgrid(x[0, 0], x[0, 1, :2], indexing="ij")[1]),
    (lambda x: ef.broadcast_arrays(x[:, :1], x[0])[0],
     lambda x: np.broadcast_arrays(x[:, :1], x[0])[0]),
    (lambda x: ef.gather_nd(x, [[0, 1], [1, -1]]), lambda x: x[[0, 1], [1, -1]]),
    (lambda x: ef.gather_nd(x, [[0, 1, 3]]), lambda x: x[[0], [1], [3]]),
    (lambda x: ef.embedding_lookup(x, [[1, 1, 0]]), lambda x: x[[[1, 1, 0]]]),
])  # fmt: skip
def test_compositions(f, g):
    expected = g(X)
    assert np.array_equal(f(ef.tensor(X)).numpy(), expected)
    assert np.array_equal(f(ef.Variable(X)).numpy(), expected)
    batch = np.stack([X, X * 2])
    assert np.array_equal(ef.vmap(f)(ef.tensor(batch)).numpy(), np.stack([g(X), g(X * 2)]))
    check_gradients(f, (X,))


def test_lists_of_mixed_dtypes_are_promoted():
    joined = ef.concat([np.ones(2, "int8"), ef.ones(1), [True]])
    assert joined.dtype == ef.float32
    assert joined.shape == (4,)
    assert ef.tensor([ef.tensor(1), ef.tensor(2.5)]).dtype == ef.float32


def test_parts_without_a_gradient_count_as_zeros():
    x = ef.arange(6.0)
    with ef.GradientTape() as tape:
        tape.watch(x)
        first, _, last = ef.split(x, 3)
        y = (first * 2.0 + last * 3.0).sum()
    assert tape.gradient(y, x).tolist() == [2.0, 2.0, 0.0, 0.0, 3.0, 3.0]


def test_symbolic_sizes():
    n = ef.Dim("n")
    x, y = TensorSpec((n, 2), "float32"), TensorSpec((3, 2), "float32")
    assert ops["concat"].infer(x, y, x, axis=0).shape == (2 * n + 3, 2)
    assert ops["pad"].infer(x, pad_width=((1, 2), (0, 0))).shape == (n + 3, 2)
    assert ops["tile"].infer(x, repetitions=(2, 1)).shape == (2 * n, 2)
    assert ops["repeat"].infer(x, repeats=3, axis=0).shape == (3 * n, 2)
    assert ops["stack"].infer(x, x, axis=-1).shape == (n, 2, 2)
    assert [s.shape for s in ops["split"].infer(x, indices_or_sections=2, axis=1)] == [(n, 1)] * 2
    assert ops["arange"].infer(0, n, 1).shape == (n,)
    assert ops["take"].infer(x, TensorSpec((n,), "int64"), axis=1).shape == (n, n)
    with pytest.raises(CaptureError):
        ops["unstack"].infer(x, axis=0)
    with pytest.raises(CaptureError):
        ops["squeeze"].infer(x, axis=None)


def test_ranges():
    for args in ((5,), (2, 9, 3), (9, 2, -3), (0, 1, 0.1), (1, 0), (0.5,), (-3,)):
        actual, expected = ef.arange(*args), np.arange(*args)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)
    assert ef.arange(3).dtype == ef.int64
    assert ef.arange(3.0).dtype == ef.float32
    assert ef.arange(ef.tensor(3), dtype="float64").tolist() == [0.0, 1.0, 2.0]
    assert ef.arange(start=1, stop=3).tolist() == [1, 2]
    assert ef.arange(np.int64(2)).dtype == ef.int64
    line = ef.linspace(0, 1, 11, dtype="float64").numpy()
    np.testing.assert_allclose(line, np.linspace(0, 1, 11), rtol=1e-15, atol=1e-16)
    assert ef.linspace(0, 1, 3, endpoint=False).tolist() == [0.0, *np.float32([1 / 3, 2 / 3])]
    assert ef.linspace(0, 1j, 3).tolist() == [0, 0.5j, 1j]


@pytest.mark.parametrize(("call", "error"), [
    (lambda: ef.arange(10**18), OutOfMemoryError),
    (lambda: ef.arange(10**30), ShapeError),
    (lambda: ef.arange(0, 1, 1e-300), ShapeError),
    (lambda: ef.linspace(0, 1, 10**17), OutOfMemoryError),
    (lambda: ef.zeros((2**31, 2**31)), ShapeError),
    (lambda: ef.tile(ef.ones(3), 2**58), OutOfMemoryError),
    (lambda: ef.tile(ef.ones(3), 2**63), ShapeError),
    (lambda: ef.repeat(ef.ones(3), 2**58), OutOfMemoryError),
    (lambda: ef.repeat(ef.ones(3), 2**64), ShapeError),
    (lambda: ef.pad(ef.ones(3), 2**58), OutOfMemoryError),
    (lambda: ef.pad(ef.ones(3), -(2**70)), ShapeError),
    (lambda: ef.one_hot([0], 2**60), (OutOfMemoryError, ShapeError)),
    (lambda: ef.segment_sum(ef.ones(1), [0], 2**60), (OutOfMemoryError, ShapeError)),
    (lambda: ef.scatter([[0]], ef.ones(1), (2**60,)), (OutOfMemoryError, ShapeError)),
    (lambda: ef.roll(ef.ones(3), 2**70).tolist(), None),
    (lambda: ef.tril(ef.ones((2, 2)), 2**70).tolist(), None),
    (lambda: ef.diag(ef.ones(2), 2**62), ShapeError),
    (lambda: ef.reshape(ef.ones(4), (2**70,)), ShapeError),
    (lambda: ef.take(ef.ones(3), 2**62), IndexRangeError),
    (lambda: ef.take(ef.ones(3), 2**64), DTypeError),
    (lambda: ef.one_hot(np.array([2**64 - 1], "u8"), 3), IndexRangeError),
    (lambda: ef.take(ef.ones(3), np.array([2**64 - 1], "u8")), IndexRangeError),
    (lambda: ef.gather(ef.ones(3), np.array([2**64 - 1], "u8")), IndexRangeError),
    (lambda: ef.segment_sum(ef.ones(1), np.array([2**64 - 1], "u8"), 3), IndexRangeError),
])  # fmt: skip
def test_absurd_sizes(call, error):
    if error is None:
        call()
    else:
        with pytest.raises(error):
            call()


def test_transposes_of_other_ranks():
    assert ef.zeros(3).T.shape == (3,)
    assert ef.zeros(()).T.shape == ()
    assert ef.zeros((1, 2, 3, 4, 5, 6)).T.shape == (6, 5, 4, 3, 2, 1)
    with pytest.raises(ShapeError, match="a matrix has two axes"):
        _ = ef.zeros(3).mT


def test_from_dlpack():
    array = np.arange(3.0)
    assert np.shares_memory(ef.from_dlpack(array).numpy(), array)
    assert not np.shares_memory(ef.from_dlpack(array, copy=True).numpy(), array)
    with pytest.raises(DTypeError, match="offers no __dlpack__"):
        ef.from_dlpack([1, 2])
