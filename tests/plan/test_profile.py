"""Profiles of plans: every step is there with its numbers, and nothing changes by looking."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel


def product_graph():
    spec = ef.TensorSpec((64, 64), "float32")
    return ef.capture.trace(lambda x: ef.sum(ef.tanh(x @ x), axis=0), spec)


def test_steps_have_their_numbers():
    plan = product_graph().plan()
    found = plan.profile([np.ones((64, 64), "float32")], rounds=3)
    product = next(step for step in found.steps if step.name == "matmul")
    assert (product.calls, product.flops) == (1, 2 * 64**3)
    assert product.result == "float32(64, 64)"
    assert product.bytes == 2 * 64 * 64 * 4  # what is read twice counts once
    assert product.place.startswith("test_profile.py:")
    assert all(step.seconds > 0 for step in found.steps)
    times = [s.seconds for s in found.steps]
    assert times == sorted(times, reverse=True)
    assert found.step_seconds == pytest.approx(sum(s.seconds for s in found.steps))
    assert found.seconds > 0
    assert "GFLOP/s" in str(found)
    assert "matmul" in repr(found)


def test_a_step_inside_of_a_loop_counts_its_calls():
    def f(x):
        return ef.fori_loop(0, 5, lambda i, y: ef.sort(y) * 0.5, x)

    plan = ef.capture.trace(f, ef.TensorSpec((9,), "float32")).plan()
    found = plan.profile([np.arange(9, dtype="float32")], rounds=1)
    assert next(step for step in found.steps if step.name == "sort").calls == 5


def test_variables_and_arguments_stay():
    weights = ef.Variable(np.ones((200, 200), "float32"))
    optimizer = ef.nn.optimizers.Adam(learning_rate=0.1)

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.mean((x @ weights) ** 2)
        optimizer.apply(tape.gradient(loss, [weights]), [weights])
        return loss

    x = ef.ones((16, 200))
    before = weights.numpy()
    found = step.profile(x, rounds=2)
    np.testing.assert_array_equal(weights.numpy(), before)
    assert int(optimizer.iterations.numpy()) == 0
    in_place = any(s.name == "updates of Variables" for s in found.steps)
    assert in_place == kernel.has_segments()
    step(x)
    assert (weights.numpy() != before).all()


def test_no_rounds_are_refused():
    with pytest.raises(ef.errors.ArgumentError, match="0 rounds measure nothing"):
        product_graph().plan().profile([np.ones((64, 64), "float32")], rounds=0)


def test_long_tables_say_what_they_leave_out():
    def f(x):
        for _ in range(40):
            x = ef.sort(x)
        return x

    plan = ef.capture.trace(f, ef.TensorSpec((50,), "float32")).plan(numerics="exact")
    text = str(plan.profile([np.ones(50, "float32")], rounds=1))
    assert "and 10 more: " in text
    assert len(text.splitlines()) == 33
