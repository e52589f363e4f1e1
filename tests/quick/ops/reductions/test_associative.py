"""Associative scans against loops: all lengths, nests, gradients, batches, graphs, mistakes."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, ShapeError

RNG = np.random.default_rng(0)


def affine(a, b):
    """x -> b(a(x)) of pairs (factor, shift)."""
    return {"m": a["m"] * b["m"], "c": a["c"] * b["m"] + b["c"]}


def recurrence(m, c):
    """y[t] = m[t] y[t - 1] + c[t]."""
    y, found = 0.0, []
    for k, s in zip(m, c, strict=True):
        y = k * y + s
        found.append(y)
    return np.array(found)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 13])
def test_recurrences_of_all_lengths(size):
    m, c = RNG.normal(size=(2, size, 3))
    found = ef.associative_scan(affine, {"m": ef.tensor(m), "c": ef.tensor(c)})
    np.testing.assert_allclose(found["c"], recurrence(m, c), rtol=1e-10)
    back = ef.associative_scan(affine, {"m": m.T, "c": c.T}, reverse=True, axis=-1)
    np.testing.assert_allclose(back["c"].numpy().T[::-1], recurrence(m[::-1], c[::-1]), rtol=1e-10)


def test_matrices_do_not_commute():
    x = RNG.normal(size=(6, 2, 2))
    found = ef.associative_scan(ef.matmul, x)
    total = np.eye(2)
    for matrix, y in zip(x, found.numpy(), strict=True):
        total = total @ matrix
        np.testing.assert_allclose(y, total, rtol=1e-10)


def test_gradients_batches_and_graphs():
    x = ef.tensor(RNG.normal(size=(5, 2)))
    scan = lambda x: ef.associative_scan(ef.multiply, x)
    ef.testing.check_gradients(lambda x: ef.sum(scan(x) ** 2), (x,))
    rows = ef.tensor(RNG.normal(size=(3, 5, 2)))
    np.testing.assert_allclose(ef.vmap(scan)(rows), np.cumprod(rows.numpy(), 1), rtol=1e-10)
    np.testing.assert_allclose(ef.function(scan)(x), np.cumprod(x.numpy(), 0), rtol=1e-6)


def test_few_calls():
    calls = []

    def add(a, b):
        calls.append(a.shape)
        return a + b

    ef.associative_scan(add, ef.ones(1024))
    assert len(calls) < 2 * 10


def test_mistakes():
    with pytest.raises(ShapeError, match="sizes along the axis differ"):
        ef.associative_scan(affine, {"m": ef.ones(2), "c": ef.ones(3)})
    with pytest.raises(ShapeError, match="another nest or other shapes"):
        ef.associative_scan(lambda a, b: ef.sum(a + b), ef.ones(4))
    with pytest.raises(ShapeError, match="axis 1 does not exist"):
        ef.associative_scan(ef.add, ef.ones(4), axis=1)
    with pytest.raises(CaptureError, match="not known"):
        spec = ef.TensorSpec((None,), "float32", name="x")
        ef.capture.trace(lambda x: ef.associative_scan(ef.add, x), spec)
    assert ef.associative_scan(ef.add, ef.ones(0)).shape == (0,)
