"""Long scans that a tape records: the results of steps one by one, nothing stale, same errors."""

import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.capture import fori_loop, scan
from eagerflow.capture.control import bodies
from eagerflow.capture.control import scans as scans_module
from eagerflow.codegen import kernel
from eagerflow.graph.walk import is_closed
from eagerflow.plan import compiled_scans
from eagerflow.runtime import threads
from tests.capture.control.tools import check_close, check_same, grads, graph_of, leaves, loop_scan
from tests.internals import scan_plans

STEPS = 40

BODIES = {
    "rnn": lambda w, u: lambda h, x: (ef.tanh(x @ w + h @ u), h),
    "gates": lambda w, u: (
        lambda h, x: (
            ef.sigmoid(x @ w) * h + ef.tanh(h @ u) * (1 - ef.sigmoid(h)),
            ef.sum(h * h, axis=-1),
        )
    ),
    "softmax": lambda w, u: lambda h, x: (ef.softmax(h @ u + x @ w), ef.log(ef.softmax(h))),
    "sorted": lambda w, u: lambda h, x: (ef.tanh(ef.sort(h) + x @ w) * 0.5, ef.max(h @ u, axis=0)),
    "layers": lambda w, u: (
        lambda h, x: (
            ef.layer_norm(h + x @ w, ef.ones(u.shape[0]), ef.zeros(u.shape[0])) * 0.3,
            ef.where(h > 0, h, 0.1 * h),
        )
    ),
}


def operands(batch, width, units, steps=STEPS, dtype="float64", seed=0):
    """A first carry, rows, and two weights."""
    rng = np.random.default_rng(seed)
    shapes = (batch, units), (steps, batch, width), (width, units), (units, units)
    return [ef.tensor(rng.standard_normal(s) * 0.5, dtype) for s in shapes]


def taped(f, *args):
    """What a function gives, and the gradients of its sum."""
    with ef.GradientTape() as tape:
        tape.watch(list(args))
        found = f(*args)
        total = _total(found)
    return found, tape.gradient(total, list(args), unconnected="zero")


def _total(nest):
    return sum((y * y).sum() for y in _tensors(nest))


def _tensors(nest):
    return [nest] if isinstance(nest, ef.Tensor) else [t for part in nest for t in _tensors(part)]


def plans():
    """The plans that are kept now."""
    return list(scan_plans().items.values())


@pytest.fixture(autouse=True)
def fresh_plans():
    scan_plans().items.clear()
    bodies.forget()
    yield
    scan_plans().items.clear()
    bodies.forget()


# The same as steps one by one ---------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(BODIES)),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 60),
    st.booleans(),
)
def test_results_and_gradients_are_those_of_a_loop(name, batch, width, units, steps, reverse):
    args = operands(batch, width, units, steps)
    make = BODIES[name]
    found = taped(lambda h, xs, w, u: scan(make(w, u), h, xs, reverse=reverse), *args)
    wanted = taped(lambda h, xs, w, u: loop_scan(make(w, u), h, xs, reverse), *args)
    check_close(found, wanted, rtol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BODIES)
def test_second_derivatives_and_tangents(name):
    h, xs, w, u = operands(2, 3, 4, 24)
    make = BODIES[name]

    def loss(run):
        return lambda u: _total(run(make(w, u), h, xs)) + (u * u * u).sum()

    twice = [ef.grad(lambda u, f=f: _total(ef.grad(f)(u)))(u) for f in map(loss, (scan, loop_scan))]
    check_close(*twice, rtol=1e-7)
    pushed = [ef.jvp(ef.grad(f), (u,), (u * 0.1,)) for f in map(loss, (scan, loop_scan))]
    check_close(*pushed, rtol=1e-7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_ways_to_run_give_the_same_bits(name, dtype):
    """Eager, captured, saved and loaded, and partitioned, with a tape inside."""
    make = BODIES[name]

    def f(h, xs, w, u):
        return taped(lambda h, xs, w, u: scan(make(w, u), h, xs), h, xs, w, u)

    report = ef.capture.verify(f, operands(3, 5, 8, dtype=dtype))
    assert not report.differences, str(report)
    assert plans()


@pytest.mark.parametrize("name", BODIES)
def test_a_tape_around_a_captured_function_gives_the_same_bits(name):
    make, args = BODIES[name], operands(3, 5, 8, dtype="float32")
    f = lambda h, xs, w, u: scan(make(w, u), h, xs)
    check_same(taped(ef.function(f, numerics="exact"), *args), taped(f, *args))


def test_the_same_bits_with_any_number_of_threads(monkeypatch):
    make, args = BODIES["rnn"], operands(32, 64, 64, 20, "float32")
    f = lambda h, xs, w, u: scan(make(w, u), h, xs)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        scan_plans().items.clear()
        found.append(taped(f, *args))
    check_same(*found)


def test_nested_scans_and_several_tapes():
    h, xs, w, u = operands(2, 3, 3, 12)

    def outer(run):
        def step(c, x):
            inner = lambda s, row: (ef.tanh(s @ u + row @ w), s)
            return run(inner, c, ef.stack([x] * 6))[0] * 0.9, c

        return lambda h, xs: run(step, h, xs)

    found, wanted = (taped(outer(run), h, xs) for run in (scan, loop_scan))
    check_close(found, wanted, rtol=1e-9)


def test_variables_and_random_numbers():
    def run(watch):
        generator = ef.random.Generator(7)
        count, mean = ef.Variable(0), ef.Variable(ef.zeros((3,)))

        def step(h, x):
            count.assign_add(1)
            mean.assign(mean * 0.9 + x * 0.1)
            return ef.tanh(h + x + generator.uniform((3,))), h * mean

        xs = ef.tensor(np.arange(3.0 * STEPS).reshape(STEPS, 3), "float32")
        with ef.GradientTape() as tape:
            if watch:
                tape.watch(xs)
            last, rows = scan(step, ef.zeros((3,)), xs)
        return last, rows, count.value, mean.value, generator.uniform((3,))

    watched = run(True)
    assert int(watched[2]) == STEPS
    with_steps = [x.numpy() for x in run(False)]
    for a, b in zip(leaves(watched), with_steps, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_without_a_tape_the_body_is_called_for_each_row():
    calls = []
    args = operands(2, 3, 4)
    scan(lambda h, x: (calls.append(float(h[0, 0])) or ef.tanh(h + x @ args[2]), h), *args[:2])
    assert len(calls) == STEPS
    assert not plans()


def test_fori_loop():
    def gradient(run):
        f = lambda x: run(0, 50, lambda i, s: ef.sin(s * 1.1) + s / (i + 2), x)
        return grads(f, ef.tensor([0.1, 0.2], "float64"))

    check_close(gradient(fori_loop), gradient(_python_loop), rtol=1e-9)


def _python_loop(lo, hi, body, state):
    for i in range(lo, hi):
        state = body(ef.tensor(i), state)
    return state


# Choice and cache ---------------------------------------------------------------------------------


def test_short_ones_go_step_by_step():
    h, xs, w, u = operands(2, 3, 4, 6)
    f = lambda h, xs: scan(BODIES["rnn"](w, u), h, xs)
    check_same(taped(f, h, xs)[0], f(h, xs))
    assert not plans()


def test_plans_are_found_again():
    h, xs, w, u = operands(2, 3, 4)
    f = lambda h, xs, w, u: scan(BODIES["rnn"](w, u), h, xs)
    first = taped(f, h, xs, w, u)
    known = plans()
    assert known
    check_same(taped(f, h, xs, w, u), first)
    assert plans() == known
    taped(f, h, xs[: STEPS - 1], w, u)
    assert len(plans()) == 2 * len(known)


def test_there_is_a_bound(monkeypatch):
    monkeypatch.setattr(scan_plans(), "bound", 4)
    for steps in range(30, 40):
        h, xs, w, u = operands(1, 2, 3, steps)
        taped(lambda h, xs: scan(BODIES["rnn"](w, u), h, xs), h, xs)  # noqa: B023
    assert len(plans()) <= 4


def test_without_machine_code_the_bits_are_those_of_steps(monkeypatch):
    monkeypatch.setattr(compiled_scans, "has_segments", lambda: False)
    h, xs, w, u = operands(3, 5, 8, dtype="float32")
    f = lambda h, xs: scan(BODIES["gates"](w, u), h, xs)
    check_same(taped(f, h, xs)[0], f(h, xs))
    assert plans()


@pytest.mark.skipif(not kernel.has_segments(), reason="needs machine code")
def test_all_steps_are_one_call():
    h, xs, w, u = operands(3, 5, 8, dtype="float32")
    taped(lambda h, xs, w, u: scan(BODIES["rnn"](w, u), h, xs), h, xs, w, u)
    forward, back = plans()
    for plan in (forward, back):
        assert "_segment((" in plan.source() and "for i in" not in plan.source()


def test_bodies_in_several_places_go_step_by_step():
    ef.set_logical_devices("cpu", 2)
    h, xs, w, u = operands(2, 3, 4)

    def step(h, x):
        with ef.device("cpu:0"):
            return ef.tanh(x @ w + h @ u) + ef.ones((4,), "float64"), h

    f = lambda h, xs: scan(step, h, xs)
    check_same(taped(f, h, xs)[0], f(h, xs))
    moved = ef.to_device(h, "cpu:1")
    with ef.GradientTape() as tape:
        tape.watch(moved)
        last = scan(lambda h, _: (ef.sin(h) * 1.5, None), moved, length=50)[0]
    assert str(last.device) == str(tape.gradient(last, moved).device) == "cpu:1"


def test_many_threads():
    h, xs, w, u = operands(4, 5, 6)
    f = lambda h, xs: scan(BODIES["gates"](w, u), h, xs)
    wanted = leaves(taped(f, h, xs)[0])

    def work(_):
        return leaves(taped(f, h, xs)[0])

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(40)):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_exact_passes_leave_them_alone_and_fast_ones_open_them():
    def f(h, xs):
        with ef.GradientTape() as tape:
            tape.watch(h)
            y = scan(lambda c, x: (ef.sin(c) * x, ef.exp(c)), h, xs)[0]
        return tape.gradient(y, h)

    graph = graph_of(f, *operands(1, 3, 3, 20)[:1], ef.ones((20, 1, 3), "float64"))
    before = [n for n in graph.nodes if n.op.name == "scan"]
    exact = [n for n in graph.optimized("exact").nodes if n.op.name == "scan"]
    assert [len(n.outputs) for n in exact] == [len(n.outputs) for n in before]
    assert all(map(is_closed, exact))
    fast = [n for n in graph.optimized().nodes if n.op.name == "scan"]
    assert not any(map(is_closed, fast))
    assert sum(len(n.outputs) for n in fast) < sum(len(n.outputs) for n in before)


# Nothing stale ------------------------------------------------------------------------------------

RATE = 0.5


class Settings:
    rate = 0.5


def _changes():
    """By kind of change: a body's maker, and what changes what it reads."""
    settings_, box, table = Settings(), [0.5], {"rate": 0.5}
    variable, module = ef.Variable(0.5), types.ModuleType("rates")
    module.rate = 0.5
    array = np.array([0.5], np.float32)
    inner = lambda c: c * 0.5
    other = lambda c: c * 0.25
    holder = {"f": inner}

    def with_code(c, x):
        return ef.tanh(c) * 0.5 + x, c

    def with_other_code(c, x):
        return ef.tanh(c) * 0.25 + x, c

    def change_global():
        global RATE
        RATE = 0.25

    def change_code():
        with_code.__code__ = with_other_code.__code__

    def default(c, x, rate=0.5):
        return ef.tanh(c) * rate + x, c

    def times(rate):
        return lambda c, x: (ef.tanh(c) * rate() + x, c)

    return {
        "a global": (times(lambda: RATE), change_global),
        "an attribute": (times(lambda: settings_.rate), lambda: setattr(settings_, "rate", 0.25)),
        "an item of a list": (times(lambda: box[0]), lambda: box.__setitem__(0, 0.25)),
        "an item of a dict": (times(lambda: table["rate"]), lambda: table.update(rate=0.25)),
        "a module": (times(lambda: module.rate), lambda: setattr(module, "rate", 0.25)),
        "a Variable": (times(lambda: variable), lambda: variable.assign(0.25)),
        "an array": (times(lambda: array[0]), lambda: array.__setitem__(0, 0.25)),
        "an array as a whole": (times(lambda: array), lambda: array.__setitem__(0, 0.25)),
        "a function in a dict": (
            lambda c, x: (ef.tanh(holder["f"](c)) + x, c),
            lambda: holder.update(f=other),
        ),
        "the code": (with_code, change_code),
        "a default": (default, lambda: setattr(default, "__defaults__", (0.25,))),
        "the sign of zero": (
            lambda c, x: (ef.tanh(c) * (box[0] * 0.0), c),
            lambda: box.__setitem__(0, -0.5),
        ),
        "the type of a number": (times(lambda: box[0]), lambda: box.__setitem__(0, 2)),
    }


@pytest.mark.parametrize("kind", list(_changes()))
def test_changes_are_seen(kind):
    body, change = _changes()[kind]
    h = ef.tensor([0.1, -0.2])
    xs = ef.ones((STEPS, 2))
    f = lambda h, xs: scan(body, h, xs)
    before = taped(f, h, xs)
    check_same(taped(f, h, xs), before)
    change()
    try:
        after = taped(f, h, xs)
        wanted = taped(lambda h, xs: loop_scan(body, h, xs), h, xs)
    finally:
        globals()["RATE"] = 0.5
    pairs = zip(leaves(before), leaves(after), strict=True)
    assert any(a.tobytes() != b.tobytes() for a, b in pairs)
    check_close(after, wanted, rtol=1e-5)
    for a, b in zip(leaves(after[0]), leaves(wanted[0]), strict=True):
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def test_a_change_that_goes_unseen_is_found(monkeypatch):
    """With bodies that count as the same whatever their numbers are, the check fails."""
    monkeypatch.setattr(bodies, "same_inputs", lambda given, known, own: True)
    with pytest.raises(AssertionError):
        test_changes_are_seen("an item of a list")


def test_tensors_from_outside_are_read_in_each_call():
    h, xs, w, u = operands(2, 3, 4)
    for factor in (1.0, 2.0, -1.0):
        w2, u2 = w * factor, u / 2
        found = taped(lambda h, xs: scan(BODIES["rnn"](w2, u2), h, xs), h, xs)  # noqa: B023
        wanted = taped(lambda h, xs: loop_scan(BODIES["rnn"](w2, u2), h, xs), h, xs)  # noqa: B023
        check_close(found, wanted, rtol=1e-9)
    # One tensor in the place of two, and the other way round.
    h2, xs2, a, b = operands(2, 4, 4)
    for first, second in ((a, b), (a, a), (b, a)):
        f = lambda h, xs, first=first, second=second: scan(BODIES["rnn"](first, second), h, xs)
        g = lambda h, xs, first=first, second=second: loop_scan(BODIES["rnn"](first, second), h, xs)
        check_close(taped(f, h2, xs2), taped(g, h2, xs2), rtol=1e-9)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [5, 200])
def test_errors_in_a_step_name_the_line(steps):
    table = ef.ones((5,))

    def body(i, s):
        return ef.take(table, i * (200 // steps), axis=0) + s

    with pytest.raises(ef.errors.IndexRangeError) as info, ef.GradientTape() as tape:
        x = ef.tensor(0.0)
        tape.watch(x)
        fori_loop(0, steps, body, x)
    line = body.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}" in str(info.value.at)


def test_a_debugger_of_nans_sees_the_result():
    x = ef.tensor([-1.0, 1.0])
    with pytest.raises(ef.errors.EagerflowError), ef.debug_nans(), ef.GradientTape() as tape:
        tape.watch(x)
        scan(lambda c, _: (ef.log(c), c), x, length=STEPS)


def test_scan_runs_the_kernel_of_the_op(monkeypatch):
    """A kernel that is wrong is found by the comparison with a loop."""
    h, xs, w, u = operands(2, 3, 4)
    original = compiled_scans.results
    monkeypatch.setattr(
        scans_module.compiled_scans,
        "results",
        lambda *args: tuple(y * 1.01 for y in original(*args)),
    )
    with pytest.raises(AssertionError):
        check_close(
            taped(lambda h, xs: scan(BODIES["rnn"](w, u), h, xs), h, xs),
            taped(lambda h, xs: loop_scan(BODIES["rnn"](w, u), h, xs), h, xs),
            rtol=1e-6,
        )
