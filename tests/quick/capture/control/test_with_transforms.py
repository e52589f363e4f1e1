"""Control flow next to the rest: checkpoints, custom gradients, devices, NaN watches, threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import cond, fori_loop, scan, while_loop
from eagerflow.errors import DTypeError, EagerflowError
from tests.capture.control.tools import captured, check_close, check_same, grads, graph_of, t

XS = t([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.7]])
H = t([0.3, -0.2])


def step(w):
    return lambda h, x: (ef.tanh(h * w + x), h.sum() * x)


@pytest.mark.parametrize("inside", [True, False])
def test_checkpoints(inside):
    def f(h, w):
        body = ef.checkpoint(step(w)) if inside else step(w)
        whole = lambda h: scan(body, h, XS)
        return (whole if inside else ef.checkpoint(whole))(h)

    wanted = grads(lambda h, w: scan(step(w), h, XS), H, t(1.5))
    check_close(grads(f, H, t(1.5)), wanted)
    check_close(captured(lambda h, w: grads(f, h, w), H, t(1.5)), wanted)


def test_custom_gradients():
    @ef.custom_gradient
    def doubled(x):
        return x * 2.0, lambda g: g * 10.0

    f = lambda x: fori_loop(0, 3, lambda i, s: doubled(s), x)
    assert float(f(t(1.0))) == 8.0
    assert float(ef.grad(f)(t(1.0))) == 1000.0
    assert float(ef.vmap(ef.grad(f))(t([1.0, 2.0]))[1]) == 1000.0


def test_a_tape_in_a_body_in_a_tape():
    def outer(x):
        def body(c, r):
            with ef.GradientTape() as tape:
                tape.watch(c)
                y = ef.sin(c) * r
            return c + tape.gradient(y, c), y

        return scan(body, x, XS[:, 0])[0]

    def unrolled(x):
        for i in range(3):
            x = x + ef.cos(x) * XS[i, 0]
        return x

    check_close(ef.grad(outer)(t(0.3)), ef.grad(unrolled)(t(0.3)))
    check_close(ef.grad(ef.grad(outer))(t(0.3)), ef.grad(ef.grad(unrolled))(t(0.3)))


def test_persistent_tapes_give_gradients_again():
    x = t(0.5)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, ys = scan(step(x), H, XS)
    first = tape.gradient(y, x)
    check_same(tape.gradient(y, x), first)
    total = tape.gradient([y, ys], x)
    assert float(total) != float(first)
    assert tape.jacobian(y, x).shape == (2,)


def test_debug_nans_finds_the_line_in_the_body():
    def body(i, s):
        return ef.log(s - 1.0)

    line = body.__code__.co_firstlineno + 1
    with pytest.raises(EagerflowError, match=f"{__file__}:{line}"), ef.debug_nans():
        fori_loop(0, 3, body, t(2.0))


def test_numbers_of_captured_functions():
    calls = []

    @ef.function
    def f(x, rate, n):
        calls.append(0)
        return scan(lambda c, r: (c * rate + r, c * n), x, XS)

    for rate, n in ((0.5, 2), (0.25, 3)):
        check_close(f(H, rate, n), scan(lambda c, r, rate=rate, n=n: (c * rate + r, c * n), H, XS))
    assert len(calls) == 1
    looped = ef.function(lambda x, rate: while_loop(lambda s: s < 9.0, lambda s: s + rate, x))
    assert [float(looped(t(0.0), rate)) for rate in (4.0, 5.0)] == [12.0, 10.0]
    signed = ef.function(lambda flag, x: cond(flag > 2, lambda: x, lambda: -x))
    assert float(signed(3, t(1.0))) == 1.0


def test_functions_within_bodies_and_bodies_within_functions():
    inner = ef.function(lambda c, x: ef.tanh(c + x))
    f = lambda h: scan(lambda c, x: (inner(c, x), c), h, XS)
    wanted = scan(lambda c, x: (ef.tanh(c + x), c), H, XS)
    check_close(f(H), wanted)
    check_close(ef.function(f)(H), wanted)
    check_close(grads(ef.function(f), H), grads(f, H))


def test_devices():
    ef.set_logical_devices("cpu", 2)

    def f(x):
        with ef.device("cpu:1"):
            return fori_loop(0, 2, lambda i, s: s + ef.ones((2,), "float64"), x)

    moved = ef.to_device(H, "cpu:1")
    assert str(f(moved).device) == "cpu:1"
    with ef.GradientTape() as tape:
        tape.watch(moved)
        y = f(moved) * moved
    assert str(y.device) == "cpu:1"
    assert str(tape.gradient(y, moved).device) == "cpu:1"


def test_states_on_another_device_than_the_values():
    ef.set_logical_devices("cpu", 2)
    generator = ef.random.Generator(0)  # its state is on cpu:0
    x = ef.to_device(H, "cpu:1")
    f = lambda x: scan(lambda c, _: (c * 2.0, generator.uniform(())), x, length=2)
    assert str(f(x)[0].device) == "cpu:1"
    with ef.GradientTape() as tape:
        tape.watch(x)
        y, _ = f(x)
    assert tape.gradient(y, x).tolist() == [4.0, 4.0]


def test_many_threads():
    def work(k):
        with ef.GradientTape() as tape:
            x = t(float(k))
            tape.watch(x)
            y = scan(lambda c, r: (ef.sin(c) + r, None), x, XS[:, 0])[0]
        return float(tape.gradient(y, x)), float(while_loop(lambda s: s < 50.0, lambda s: s + x, x))

    wanted = [work(k) for k in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 9))) == wanted


def test_variables_as_arguments():
    v = ef.Variable(t([1.0, 2.0]))
    f = lambda: scan(lambda c, x: (c + x, v), v, v)[1]
    check_same(f(), ef.stack([v, v]))
    with ef.GradientTape() as tape:
        y = fori_loop(0, 2, lambda i, s: s * v, v)
    check_close(tape.gradient(y, v), v.value * v.value * 3.0)


def test_numpy_arrays_as_arguments():
    y = scan(lambda c, x: (c + x, x), np.zeros(2), np.ones((3, 2)))[0]
    assert y.tolist() == [3.0, 3.0]
    assert float(cond(np.bool_(True), lambda a: a, lambda a: -a, np.float64(2.0))) == 2.0


def test_graphs_print_check_and_copy():
    graph = graph_of(lambda h: scan(step(t(2.0)), h, XS), H)
    assert "scan_body" in graph.text()
    graph.check()
    with pytest.raises(DTypeError, match="cannot be an attribute"):
        graph.nodes[0].op.call(H, XS, body=object(), carries=1, sequences=1)
