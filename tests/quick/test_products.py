"""Products that are trusted until a NaN comes out: the gradients are those of careful ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow import products
from eagerflow.backends.base import LARGE
from eagerflow.backends.numpy import quietly
from eagerflow.dtypes import bfloat16

STEPS = {
    "sqrt": ef.sqrt,
    "over": lambda x: 1.0 / x,
    "mask": lambda x: ef.where(x > 0.0, x, 0.0),
    "tanh": ef.tanh,
    "square": lambda x: x * x,
    "clip": lambda x: ef.clip(x, 0.0, 2.0),
    "log": lambda x: ef.where(x > 0.0, ef.log(x), -1.0),
    "sum": lambda x: x + x.sum(),
    "softmax": ef.softmax,
    "turn": lambda x: x[::-1],
    "half": lambda x: x.astype("float16").astype("float32"),
    "own": ef.custom_gradient(lambda x: (x * 2.0, lambda g: g * 2.0)),
    "many": lambda x: ef.broadcast_to(x, (300, *x.shape)).mean(axis=0),
}
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, np.nan, 1e30]


def gradient(steps, values):
    x, w = ef.tensor(values, "float32"), ef.tensor(np.ones(len(values)), "float32")
    with ef.GradientTape() as tape:
        tape.watch([x, w])
        y = x * w
        for step in steps:
            y = STEPS[step](y)
        z = ef.sqrt(y * y).sum()
    return np.array([g.numpy() for g in tape.gradient(z, [x, w])])


def carefully(f, *args):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "MAX_TRUSTED_ELEMENTS", 0)
        return f(*args)


def check(steps, values, entries=products.MAX_TRUSTED_ENTRIES):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "MAX_TRUSTED_ENTRIES", entries)
        found = gradient(steps, values)
    np.testing.assert_array_equal(found, carefully(gradient, steps, values))


@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=7),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=5),
    st.integers(1, 9),
)
def test_gradients_are_those_of_careful_products(steps, values, entries):
    check(steps, values, entries)


def test_a_planted_trust_without_a_look_is_found(monkeypatch):
    monkeypatch.setattr(products, "has_nan", lambda array: False)
    with pytest.raises(AssertionError):
        check(["mask", "sqrt", "mask"], [0.0, 1.0])


def test_infinities_of_both_signs_are_seen_in_sums():
    has_nan = lambda array: quietly(products.has_nan, array)
    assert has_nan(np.array([np.inf, -np.inf] * 1000, np.float32))
    for dtype in ("float32", "float16", "complex64", bfloat16):
        assert has_nan(np.array([1.0, np.nan], dtype))
        assert not has_nan(np.array([np.inf, 1.0], dtype)) or dtype == "complex64"
    assert not has_nan(np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_trust_ends_where_dtypes_or_sizes_change(dtype):
    def gradient():
        x = ef.tensor([0.0, 4.0])
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = ef.sqrt(ef.sqrt(x.astype(dtype)).astype("float32"))
            y = ef.where(ef.broadcast_to(x, (1000, 2)) > 0.0, y, 0.0)[:1].sum()
        return tape.gradient(y, x).tolist()

    found = gradient()
    assert found == carefully(gradient)
    assert found[0] == 0.0 and found[1] > 0.0


def test_the_users_own_gradient_is_called_once():
    called = []

    @ef.custom_gradient
    def doubled(x):
        def backward(g):
            called.append(1)
            return g * 2.0

        return x * 2.0, backward

    x = ef.tensor([0.0, 4.0])
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = ef.where(x > 0.0, ef.sqrt(doubled(ef.sqrt(doubled(x)))), 0.0).sum()
    found = tape.gradient(y, x).tolist()
    assert found[0] == 0.0 and found[1] > 0 and called == [1, 1]


def test_unconnected_sources_are_reported_after_a_backward_pass():
    x, other = ef.tensor([0.0, 4.0]), ef.tensor([1.0, 2.0])
    with ef.GradientTape(persistent=True) as tape:
        tape.watch([x, other])
        y = ef.where(x > 0.0, ef.sqrt(x), 0.0) + ef.sign(other).astype("int32").astype("float32")
    found = tape.gradient(y, [x, other], unconnected="none")
    assert found[0].tolist() == [0.0, 0.25] and found[1] is None
    told = []
    for way in (lambda f: f(), carefully):
        with pytest.raises(ef.errors.GradientError) as error:
            way(lambda: tape.gradient(y, [x, other]))
        told.append(str(error.value))
    assert told[0] == told[1]


def test_a_persistent_tape_gives_the_same_twice():
    x = ef.tensor([0.0, 4.0])
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ef.where(x > 0.0, ef.sqrt(x), 0.0)
    assert [tape.gradient(y, x).tolist() for _ in range(2)] == [[0.0, 0.25]] * 2


def test_errors_in_rules_come_out_of_both_ways(monkeypatch):
    def refuse(*given, **named):
        raise ValueError("planted")

    x = ef.tensor([0.0, 4.0])
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ef.sqrt(ef.softmax(x))
    with monkeypatch.context() as patch:
        patch.setattr(ef.softmax.op, "vjp", (refuse,))
        with pytest.raises(ValueError, match="planted"):
            tape.gradient(y, x)
    assert np.isfinite(tape.gradient(y, x).numpy()).all()


LARGE_SHAPE = (LARGE // 64 + 1, 64)


def large(seed):
    return np.random.default_rng(seed).standard_normal(LARGE_SHAPE, np.float32)


def weighted_sum(x, w):
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = (x * w).sum()
    return tape.gradient(y, x)


def test_one_times_a_large_array_is_that_array():
    w = ef.tensor(large(1))
    assert np.array_equal(weighted_sum(ef.tensor(large(0)), w).numpy(), w.numpy())


def test_a_gradient_is_no_tensor_that_another_tape_watches():
    x, w = ef.tensor(large(0)), ef.tensor(large(1))
    g = weighted_sum(x, w)
    with ef.GradientTape() as tape:
        tape.watch(w)
        y = (g * 2.0).sum()
    assert tape.gradient(y, w, unconnected="none") is None


def test_a_gradient_shares_no_memory_with_a_users_array():
    values = large(1)
    g = weighted_sum(ef.tensor(large(0)), ef.asarray(values, copy=False))
    before = g.numpy().copy()
    values += 1
    assert np.array_equal(g.numpy(), before)
