"""Scans as loops in machine code: what is carried, what is read and written, both ways."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.plan.loops import Loop, NativeLoop

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")

WIDTH = 6
W = np.random.default_rng(7).standard_normal((WIDTH, WIDTH)).astype("float32") * 0.5


def plain(carry, x):
    h, c = carry
    return (ef.tanh(h @ W + x), c * 0.5 + h), None


def rows_of_all_kinds(carry, x):
    """Rows that are carries before and after, views, and copies of others."""
    h, c = carry
    u = h @ W
    left, right = ef.split(u, 2, axis=-1)
    n = ef.tanh(ef.concat([right, left], axis=-1) + x)
    return (n, c + n), (h, n, left, c, n * 2.0, x)


def carries_that_change_places(carry, x):
    h, c = carry
    return (c, ef.tanh(h @ W + x)), h


def carries_that_stay(carry, x):
    h, c = carry
    return (ef.tanh(h @ W + c + x), c), c * 2.0


def one_value_twice(carry, x):
    h, _ = carry
    n = ef.tanh(h @ W + x)
    return (n, n), (n, n)


def weights_that_change(carry, x):
    """What is multiplied is made anew in each iteration."""
    h, c = carry
    return (ef.tanh(h @ (W * ef.mean(c)) + x), c + h), None


STEPS = (
    *(plain, rows_of_all_kinds, carries_that_change_places, carries_that_stay, one_value_twice),
    weights_that_change,
)


def loops_there():
    gc.collect()
    return sum(type(o) is Loop for o in gc.get_objects())


def leaves(found):
    (h, c), rows = found
    return [h, c, *(() if rows is None else rows if isinstance(rows, tuple) else (rows,))]


def run(step, x, carry, reverse):
    return leaves(ef.scan(step, carry, x, reverse=reverse))


def gradients(step, x, carry, reverse):
    with ef.GradientTape() as tape:
        for value in (x, *carry):
            tape.watch(value)
        loss = sum(ef.sum(ef.sin(y)) for y in run(step, x, carry, reverse))
    return tape.gradient(loss, [x, *carry])


@given(st.sampled_from(STEPS), st.integers(1, 12), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_scans_and_their_gradients(step, length, reverse, seed):
    rng = np.random.default_rng(seed)
    x = ef.tensor(rng.standard_normal((length, 3, WIDTH)).astype("float32"))
    carry = tuple(ef.tensor(rng.standard_normal((3, WIDTH)).astype("float32")) for _ in range(2))
    for f in (run, gradients):
        captured = ef.function(lambda x, h, c, f=f: f(step, x, (h, c), reverse))
        for _ in range(2):
            found = captured(x, *carry)
            for one, other in zip(found, f(step, x, carry, reverse), strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("step", STEPS)
def test_they_are_loops(step):
    x, carry = ef.ones((9, 3, WIDTH)), (ef.ones((3, WIDTH)), ef.ones((3, WIDTH)))
    before = loops_there()
    captured = ef.function(lambda x, h, c: run(step, x, (h, c), False))
    captured(x, *carry)
    assert loops_there() == before + 1


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("reverse", [False, True])
def test_step_by_step_in_python(monkeypatch, step, reverse):
    """Where machine code takes no arrays like these."""
    calls = []
    monkeypatch.setattr(NativeLoop, "new_jobs", lambda *given: calls.append(1))
    rng = np.random.default_rng(1)
    x = ef.tensor(rng.standard_normal((8, 3, WIDTH)).astype("float32"))
    carry = tuple(ef.tensor(rng.standard_normal((3, WIDTH)).astype("float32")) for _ in range(2))
    found = ef.function(lambda x, h, c: run(step, x, (h, c), reverse))(x, *carry)
    assert calls
    for one, other in zip(found, run(step, x, carry, reverse), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-5, atol=2e-5)


def test_sequences_of_other_layouts():
    x = np.random.default_rng(2).standard_normal((3, 7, WIDTH)).astype("float32")
    carry = (ef.zeros((3, WIDTH)), ef.zeros((3, WIDTH)))
    captured = ef.function(lambda x, h, c: run(plain, x, (h, c), False))
    for rows in (
        x.transpose(1, 0, 2),
        np.ascontiguousarray(x.transpose(1, 0, 2)),
        x[:, ::-1].transpose(1, 0, 2),
    ):
        given_ = ef.asarray(rows)
        for one, other in zip(
            captured(given_, *carry), run(plain, given_, carry, False), strict=True
        ):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-5, atol=2e-5)


def test_a_matrix_for_each_iteration():
    rng = np.random.default_rng(4)
    x = ef.tensor(rng.standard_normal((9, WIDTH, WIDTH)).astype("float32") * 0.4)
    start = ef.tensor(rng.standard_normal((3, WIDTH)).astype("float32"))

    def f(x, h):
        return ef.scan(lambda h, w: (ef.tanh(h @ w), h), h, x)

    captured = ef.function(f)
    for _ in range(3):
        for one, other in zip(captured(x, start), f(x, start), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-5, atol=2e-5)


def test_large_states_are_shared_by_threads():
    rng = np.random.default_rng(3)
    w = (rng.standard_normal((256, 256)) / 16).astype("float32")
    x = ef.tensor(rng.standard_normal((12, 64, 256)).astype("float32"))
    start = ef.zeros((64, 256))

    def f(x, h):
        return ef.scan(lambda h, row: (ef.tanh(h @ w + row), None), h, x)[0]

    captured = ef.function(f)
    for _ in range(3):
        np.testing.assert_allclose(captured(x, start).numpy(), f(x, start).numpy(), atol=2e-5)


def test_steps_that_have_no_machine_code_stay_in_python():
    def f(x, h):
        return ef.scan(lambda h, row: (ef.sort(h) + row, None), h, x)[0]

    before = loops_there()
    x, h = ef.ones((4, 5)), ef.tensor([3.0, 1.0, 2.0, 5.0, 4.0])
    np.testing.assert_allclose(ef.function(f)(x, h).numpy(), f(x, h).numpy())
    assert loops_there() == before
