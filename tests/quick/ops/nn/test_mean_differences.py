"""Means of differences and their gradients beside formulas of float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.ops.nn.mean_differences import (
    mean_absolute_difference,
    mean_huber_difference,
    mean_squared_difference,
)
from eagerflow.runtime import threads

DELTA = 0.7
OPS = {
    "squared": (mean_squared_difference, {}, lambda d: d * d, lambda d: 2 * d),
    "absolute": (mean_absolute_difference, {}, np.abs, np.sign),
    "huber": (mean_huber_difference, {"delta": DELTA},
              lambda d: np.where(np.abs(d) < DELTA, d * d / 2, DELTA * (np.abs(d) - DELTA / 2)),
              lambda d: np.clip(d, -DELTA, DELTA)),
}  # fmt: skip
SHAPES = [(3, 4), (5,), (1, 1), (128, 1), (0, 3), (50, 60), (7, 3, 100), (400, 401)]


def values_and_gradients(name, a, b, axis, c):
    f, more, _, _ = OPS[name]
    x, y = ef.tensor(a), ef.tensor(b)
    with ef.GradientTape() as tape:
        tape.watch([x, y])
        z = f(x, y, axis=axis, **more)
    return z.numpy(), *(g.numpy() for g in tape.gradient(z, [x, y], ef.tensor(c)))


def given_arrays(shape, axis, seed, dtype):
    rng = np.random.default_rng(seed)
    rest = tuple(np.delete(shape, axis))
    return [rng.standard_normal(s).astype(dtype) for s in (shape, shape, rest)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPS)
@given(st.sampled_from(SHAPES), st.data(), st.sampled_from(["float32", "float64"]), st.booleans())
def test_values_and_gradients(name, shape, data, dtype, turned):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1).filter(lambda i: shape[i]))
    a, b, c = given_arrays(shape, axis, data.draw(st.integers(0, 99)), dtype)
    if turned:
        a = np.asfortranarray(a)
    _, _, value, slope = OPS[name]
    z, of_x, of_y = values_and_gradients(name, a, b, axis, c)
    d = a.astype(np.float64) - b
    np.testing.assert_allclose(z, value(d).mean(axis), rtol=1e-5, atol=1e-6)
    expected = slope(d) * np.expand_dims(c, axis) / shape[axis]
    np.testing.assert_allclose(of_x, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_y, -expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPS)
def test_bits_do_not_depend_on_the_number_of_threads(name):
    a, b, c = given_arrays((700, 900), -1, 3, "float32")
    whole = values_and_gradients(name, a, b, -1, c)
    try:
        threads.set_thread_count(1)
        alone = values_and_gradients(name, a, b, -1, c)
    finally:
        threads.set_thread_count(None)
    for one, other in zip(whole, alone, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("shape", [(5, 7), (128, 1), (300, 500)])
def test_exact_replay_equals_eager_bitwise(name, shape):
    f, more, _, _ = OPS[name]
    a, b, _ = given_arrays(shape, -1, 4, "float32")

    def step(x, y):
        with ef.GradientTape() as tape:
            tape.watch(x)
            z = f(x, y, **more).mean()
        return z, tape.gradient(z, x)

    given = ef.tensor(a), ef.tensor(b)
    replayed = ef.function(step, numerics="exact")(*given)
    for one, other in zip(step(*given), replayed, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("name", OPS)
def test_the_mean_of_nothing_is_nan(name):
    f, more, _, _ = OPS[name]
    nothing = ef.zeros((2, 0))
    assert np.isnan(f(nothing, nothing, **more).numpy()).all()
    assert f(nothing, nothing, axis=0, **more).shape == (0,)


def test_a_loss_of_two_numbers_is_their_own():
    assert float(ef.nn.losses.mean_squared_error(1.0, 4.0)) == 9.0
