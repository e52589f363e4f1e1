"""Scans as loops in machine code: carried values, reads and writes, forward and backward."""

import gc
import re
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.errors import ShapeError
from eagerflow.plan.loops import Loop, NativeLoop
from eagerflow.plan.segments import NativePart, SlicedPart
from eagerflow.runtime import threads
from tests.internals import parts_of, plans_of
from tests.interrupts import Interrupted, at_every_bytecode

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


def sums_of_all_kinds(carry, x):
    """Along rows and columns, and of each row after a product."""
    h, c = carry
    h = ef.softmax(h @ W + x, axis=-1)
    return (h, c * 0.5 + ef.sum(h, axis=0)), ef.sum(c)


def products_with_a_vector(carry, x):
    h, c = carry
    along = h @ ef.mean(c, axis=0)
    return (ef.tanh(h + x + along[:, None]), c * 0.5 + ef.tanh(along @ h)), along


STEPS = (
    *(plain, rows_of_all_kinds, carries_that_change_places, carries_that_stay, one_value_twice),
    *(weights_that_change, sums_of_all_kinds, products_with_a_vector),
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
@settings(max_examples=15)
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


# As steps of segments ----------------------------------------------------------------------------


def recurrent(x, w, v):
    """Regions and products around two loops."""
    rows = ef.tanh(x * 2.0)
    h = ef.scan(lambda h, row: (ef.tanh(h @ w + row), None), ef.zeros(x.shape[1:]), rows)[0]
    h = ef.fori_loop(0, 12, lambda i, h: h / ef.sqrt(ef.sum(h * h) + i) + 0.1, h)
    return ef.exp(h) @ v, h


def recurrent_gradients(x, w, v):
    with ef.GradientTape() as tape:
        tape.watch([x, w, v])
        y, h = recurrent(x, w, v)
        loss = ef.sum(y * y) + ef.sum(h)
    return loss, *tape.gradient(loss, [x, w, v])


def operands(steps=20, rows=4, width=16, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (steps, rows, width), (width, width), (width, 5)
    return [ef.tensor((rng.standard_normal(s) / 4).astype("float32")) for s in shapes]


def bits(found):
    return [y.numpy().tobytes() for y in found]


@pytest.mark.parametrize("f", [recurrent, recurrent_gradients])
def test_all_that_stands_around_loops_is_one_call(f):
    step, given_ = ef.function(f), operands()
    for one, other in zip(step(*given_), f(*given_), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-4)
    plan = plan_of(step)
    called = [line for line in plan.source().splitlines() if re.search(r"\b_\w+\(", line)]
    kernels = [line for line in called if not re.search(r"_(rows|permute_dims|reshape)\(", line)]
    assert len(kernels) == 1 and "_segment(" in kernels[0], kernels
    assert [type(part) for part in parts_of(step)] == [NativePart]
    lines = plan.source().splitlines()
    (loop, *_) = (line for line in lines if line.strip().startswith("loop = "))
    assert "*matmul" in loop and "test_loops.py" in loop


def plan_of(step):
    """The plan that a captured function runs."""
    (plan,) = plans_of(step)
    return plan


@pytest.mark.parametrize("f", [recurrent, recurrent_gradients])
@pytest.mark.parametrize("size", [(20, 4, 16), (6, 64, 256)])
def test_bits_do_not_depend_on_threads(f, size):
    given_, found = operands(*size), []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            step = ef.function(f)
            found += [bits(step(*given_)) for _ in range(2)]
    finally:
        threads.set_thread_count(None)
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("size", [(1, 2, 3), (20, 4, 16)])
def test_exact_plans_equal_eager_code_bitwise(size):
    given_ = operands(*size)
    for f in (recurrent, recurrent_gradients):
        assert bits(ef.function(f, numerics="exact")(*given_)) == bits(f(*given_))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 17])
def test_few_iterations_between_other_steps(count):
    def f(x):
        y = ef.fori_loop(0, count, lambda i, y: ef.tanh(y) * 1.5 + i, ef.exp(x) - 1.0)
        return ef.sin(y) * 2.0

    x = ef.tensor(np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4))
    np.testing.assert_allclose(ef.function(f)(x).numpy(), f(x).numpy(), rtol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan_rows_and_carry_are_used_in_the_segment(length):
    def f(x, h):
        last, rows = ef.scan(lambda h, row: (h * 0.5 + row, ef.exp(h)), h + 1.0, x * 2.0)
        back, _ = ef.scan(lambda h, row: (h - row, None), last, rows, reverse=True)
        return back + 1.0, ef.sum(rows, axis=0)

    rng = np.random.default_rng(length)
    x, h = (ef.tensor(rng.standard_normal(s).astype("float32")) for s in ((length, 7), (7,)))
    for one, other in zip(ef.function(f)(x, h), f(x, h), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_loops_inside_of_loops():
    def f(x, w, h):
        def outer(h, row):
            h = ef.fori_loop(0, 9, lambda i, h: ef.tanh(h @ w + row), ef.sin(h))
            return h * 2.0, ef.scan(lambda c, a: (c + a, c), ef.zeros(()), h[0])[1]

        return ef.scan(outer, h, x)

    x, w, _ = operands(5, 3, 8)
    h = ef.ones((3, 8))
    found, wanted = ef.function(f)(x, w, h), f(x, w, h)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(20, 4, 16), (4, 64, 256)])
def test_threads_that_run_one_loop_at_once(size):
    given_, step, errors = operands(*size), ef.function(recurrent_gradients), []
    wanted = bits(step(*given_))

    def work():
        try:
            for _ in range(10):
                assert bits(step(*given_)) == wanted
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=work) for _ in range(3)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not errors


# What comes between ------------------------------------------------------------------------------


def test_an_error_of_a_step_names_the_line_of_the_loop(monkeypatch):
    def fail(self, inputs, outputs):
        raise ValueError("planted")

    monkeypatch.setattr(NativeLoop, "new_jobs", lambda *given_: None)
    monkeypatch.setattr(Loop, "call", fail)
    with pytest.raises(ShapeError, match="planted") as caught:
        ef.function(recurrent)(*operands())
    assert caught.value.op == "scan" and "test_loops.py" in caught.value.at


def test_an_exception_at_any_bytecode_leaves_loops_whole():
    given_, step = operands(), ef.function(recurrent)
    wanted = bits(step(*given_))

    def check():
        assert bits(step(*given_)) == wanted

    assert at_every_bytecode(lambda: step(*given_), check, step=3) > 50


def test_long_loops_are_done_in_slices():
    step = ef.function(
        lambda n, x: ef.fori_loop(0, 50_001, lambda i, s: (s[0] + i, s[1] + 1.0), (n, x))
    )
    for _ in range(2):
        n, x = step(ef.tensor(0), ef.zeros((3,)))
        assert n.item() == 50_000 * 50_001 // 2 and x.numpy().tolist() == [50_001.0] * 3
    assert SlicedPart in map(type, parts_of(step))


def for_loop(x, w):
    return ef.fori_loop(0, 5_000, lambda i, h: ef.tanh(h @ w) + x, x)


def scan(x, w):
    return ef.scan(lambda h, _: (ef.tanh(h @ w) + x, None), x, None, length=20)[0]


def while_loop(x, w):
    def body(state):
        i, h = state
        return i + 1, ef.tanh(h @ w) + x

    return ef.while_loop(lambda state: state[0] < 200, body, (ef.tensor(0), x))[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [16, 200])  # of one thread, and of several
@pytest.mark.parametrize("f", [for_loop, scan, while_loop])
def test_weights_are_packed_anew_in_every_call(f, size):
    x, _, _ = operands(1, 16, size)
    w = ef.Variable(ef.eye(size) * 0.5)
    step = ef.function(lambda x: f(x, w))
    for factor in (0.5, 0.25, -0.5):
        w.assign(ef.eye(size) * factor)
        np.testing.assert_allclose(step(x[0]), f(x[0], w), rtol=1e-5, atol=1e-6)


def test_a_long_loop_can_be_interrupted():
    """And what it had taken is whole afterwards."""
    step = ef.function(lambda x: ef.fori_loop(0, 10**10, lambda i, s: s * 0.5 + 1.0, x * 2.0))

    def stop(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupted):
                step(ef.ones((10,)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
