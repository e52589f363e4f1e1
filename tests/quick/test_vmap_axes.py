"""The axes of vmap: nests of them, arguments by keyword, and results that all examples share."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ShapeError

RNG = np.random.default_rng(5)
SIZE = 4


def draw(*shape):
    return ef.tensor(RNG.standard_normal(shape).astype("float32"))


NEST = {"w": draw(3, 2), "parts": [draw(2, SIZE), (draw(SIZE, 3),)]}
AXES = {"w": None, "parts": [1, 0]}
X = draw(3, SIZE)


def layer(p, x, scale):
    y = (x + p["parts"][1][0]) @ p["w"] + p["parts"][0] * scale
    return {"y": y, "w": p["w"]}, y.sum()


def example(i, scale):
    own = {"w": NEST["w"], "parts": [NEST["parts"][0][:, i], (NEST["parts"][1][0][i],)]}
    return layer(own, X[:, i], scale)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_nests_of_axes(by_name, captured):
    scales = draw(SIZE)
    axes, named = ((AXES, 1), {"scale": scales}) if by_name else ((AXES, 1, 0), {})
    f = ef.vmap(layer, in_axes=axes, out_axes=({"y": 1, "w": None}, 0))
    f = ef.function(f) if captured else f
    found, sums = f(NEST, X, *([] if by_name else [scales]), **named)
    rows = [example(i, scales[i]) for i in range(SIZE)]
    expected = np.stack([one["y"].numpy() for one, _ in rows], axis=1)
    np.testing.assert_allclose(found["y"].numpy(), expected, 1e-5, 1e-6)
    np.testing.assert_array_equal(found["w"].numpy(), NEST["w"].numpy())
    np.testing.assert_allclose(sums.numpy(), [float(s) for _, s in rows], 1e-5, 1e-6)


def test_gradients_of_shared_and_own_values():
    one = lambda w, x: (w["a"] * x) ** 2 * w["b"]
    loss = lambda p: ef.vmap(one, in_axes=({"a": None, "b": 0}, 0))(p, X.T).sum()
    p = {"a": draw(3), "b": draw(SIZE, 3)}
    found = ef.grad(loss)(p)
    a, b, x = p["a"].numpy(), p["b"].numpy(), X.numpy().T
    np.testing.assert_allclose(found["a"].numpy(), (2 * a * x**2 * b).sum(axis=0), 1e-5, 1e-6)
    np.testing.assert_allclose(found["b"].numpy(), (a * x) ** 2, 1e-5)


WRONG = {
    "other keys": (lambda: ef.vmap(lambda p: p["a"], in_axes=({"b": 0},))({"a": X}), "in_axes"),
    "too long": (lambda: ef.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(X), "out_axes"),
    "a leaf": (lambda: ef.vmap(lambda x: x, in_axes=([0, 0],))(X), "in_axes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_axes_of_another_structure(name):
    call, argument = WRONG[name]
    with pytest.raises(ShapeError, match=f"vmap: {argument}: the axes have another structure"):
        call()


def test_results_that_differ_need_an_axis():
    with pytest.raises(ShapeError, match="out_axes: a result differs between the examples"):
        ef.vmap(lambda x: x * 2.0, out_axes=None)(X)
    assert ef.vmap(lambda x: 2.0, out_axes=None)(X) == 2.0
    assert ef.vmap(lambda x: 2.0)(X).shape == (3,)


def test_sizes_of_named_arguments_are_compared():
    with pytest.raises(ShapeError, match="different numbers of examples"):
        ef.vmap(lambda x, y: x, in_axes=1)(X, y=X)
