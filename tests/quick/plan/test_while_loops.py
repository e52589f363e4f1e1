"""while_loop in machine code: how often it runs, what it carries, how it ends."""

import gc
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.plan.loops import NativeLoop
from eagerflow.plan.while_loops import WhileLoop
from eagerflow.runtime import threads
from tests.interrupts import Interrupted, handling

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")

W = np.random.default_rng(7).standard_normal((6, 6)).astype("float32") * 0.3


def loops_there():
    gc.collect()
    return sum(type(o) is WhileLoop for o in gc.get_objects())


# The next number, and two other values.
BODIES = {
    "counted": lambda n, h, c: (n + 1, ef.tanh(h @ W + c), c * 0.5 + h),
    "that change places": lambda n, h, c: (n + 1, c, ef.sin(h @ W)),
    "one value twice": lambda n, h, c: (n + 1, *[ef.tanh(h @ W)] * 2),
    "that stay": lambda n, h, c: (n + 1, ef.cos(h) + c, c),
    "weights that change": lambda n, h, c: (n + 1, ef.tanh(h @ (W * ef.mean(c))), c + h),
}


def run(body, n, h, c, last, most=None):
    step = lambda state: BODIES[body](*state)
    return ef.while_loop(lambda state: state[0] < last, step, (n, h, c), most)


def check(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from(sorted(BODIES)),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 40)),
    st.integers(0, 99),
)
@settings(max_examples=40)
def test_any_number_of_iterations(body, last, most, seed):
    rng = np.random.default_rng(seed)
    h, c = (ef.tensor(rng.standard_normal((3, 6)).astype("float32")) for _ in range(2))
    captured = ef.function(lambda n, h, c, last: run(body, n, h, c, last, most))
    for _ in range(2):
        found = captured(ef.tensor(0), h, c, ef.tensor(last))
        check(found, run(body, ef.tensor(0), h, c, ef.tensor(last), most))


@pytest.mark.parametrize("body", BODIES)
def test_they_are_loops(body):
    before = loops_there()
    captured = ef.function(lambda n, h, c: run(body, n, h, c, 5))
    captured(ef.tensor(0), ef.ones((3, 6)), ef.ones((3, 6)))
    assert loops_there() == before + 1


@pytest.mark.parametrize("count", [15, 16, 17, 31, 32, 33, 47, 48, 49, 111, 113])
@pytest.mark.parametrize("most", [None, 16, 17, 32, 48, 100])
def test_where_one_call_ends(count, most):
    larger = lambda s: (s[0] + 1, s[1] * 1.125)
    f = lambda n, x, last: ef.while_loop(lambda s: s[0] < last, larger, (n, x), most)
    captured = ef.function(f)
    n, x = captured(ef.tensor(0), ef.ones((3,)), ef.tensor(count))
    ran = count if most is None else min(count, most)
    assert n.item() == ran
    np.testing.assert_allclose(x.numpy(), np.full(3, 1.125**ran), rtol=1e-4)


def test_a_bool_of_the_state_ends_it():
    @ef.function
    def halved(x, go):
        return ef.while_loop(lambda s: s[1], lambda s: (s[0] / 2, ef.max(s[0]) > 4), (x, go))

    for go, wanted in ((True, [2.0, 1.0]), (False, [64.0, 32.0])):
        x, still = halved(ef.tensor([64.0, 32.0]), ef.tensor(go))
        assert x.numpy().tolist() == wanted and not still.item()


def test_step_by_step_in_python(monkeypatch):
    """Where machine code takes no arrays like these."""
    calls = []
    monkeypatch.setattr(NativeLoop, "new_jobs", lambda *given: calls.append(1))
    h, c = ef.ones((3, 6)), ef.zeros((3, 6))
    for last in (0, 1, 16, 21):
        captured = ef.function(lambda n, h, c, last=last: run("counted", n, h, c, last))
        found = captured(ef.tensor(0), h, c)
        check(found, run("counted", ef.tensor(0), h, c, last))
    assert calls


def test_products_with_a_vector():
    """Powers of a matrix on a vector, as a user writes them."""
    a = np.random.default_rng(5).random((40, 40)).astype("float32")

    @ef.function
    def largest(a, x):
        def turned(state):
            n, x, _ = state
            y = a @ x
            return n + 1, y / ef.sqrt(y @ y), x @ y

        return ef.while_loop(lambda s: s[0] < 60, turned, (ef.tensor(0), x, ef.tensor(0.0)))[2]

    before = loops_there()
    found = largest(ef.tensor(a + a.T), ef.ones(40))
    np.testing.assert_allclose(found.numpy(), np.linalg.eigvalsh(a + a.T)[-1], rtol=1e-5)
    assert loops_there() == before + 1


def test_loops_inside_of_loops():
    def f(x):
        def outer(state):
            n, x = state
            x = ef.fori_loop(0, 20, lambda i, y: ef.sin(y) + i * 0.01, x)
            return n + 1, ef.tanh(x @ W)

        return ef.while_loop(lambda s: s[0] < 7, outer, (ef.tensor(0), x))[1]

    x = ef.tensor(np.random.default_rng(1).standard_normal((3, 6)).astype("float32"))
    np.testing.assert_allclose(ef.function(f)(x).numpy(), f(x).numpy(), atol=1e-5)


def test_large_states_are_shared_by_threads():
    rng = np.random.default_rng(3)
    w = (rng.standard_normal((256, 256)) / 16).astype("float32")
    x = ef.tensor(rng.standard_normal((512, 256)).astype("float32"))

    def f(x):
        goes_on = lambda s: (s[0] < 9) & (ef.max(s[1]) < 1e3)
        step = lambda s: (s[0] + 1, ef.tanh(s[1] @ w))
        return ef.while_loop(goes_on, step, (ef.tensor(0), x))[1]

    found = []
    try:
        for count in (1, 2):
            threads.set_thread_count(count)
            found.append(ef.function(f)(x).numpy())
    finally:
        threads.set_thread_count(None)
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], f(x).numpy(), atol=2e-5)


def test_an_endless_loop_can_be_interrupted():
    """And what it had taken is whole afterwards."""
    halved = lambda x, least: ef.while_loop(lambda s: ef.max(s) > least, lambda s: s * 0.5, x)
    captured = ef.function(halved)

    def stop(number, frame):
        raise Interrupted

    with handling(stop), pytest.raises(Interrupted):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        captured(ef.ones((10,)), ef.tensor(-1.0))
    assert captured(ef.ones((10,)), ef.tensor(0.3)).numpy().tolist() == [0.25] * 10
