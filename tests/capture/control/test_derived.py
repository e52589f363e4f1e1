"""Gradients through branches and loops: against differences, unrolled loops, and each other."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture import cond, fori_loop, scan, switch, while_loop
from eagerflow.capture import map as ef_map
from eagerflow.capture.control import derived
from eagerflow.errors import GradientError
from eagerflow.testing import check_gradients
from tests.capture.control.tools import (
    captured,
    check_close,
    check_same,
    grads,
    graph_of,
    loop_scan,
    t,
)


def step(c, x):
    return ef.tanh(c * 1.3 + x), c * x + ef.sin(c)


def cell(w):
    """A step of a recurrent network with weights from outside."""
    return lambda h, x: (ef.tanh(h @ w + x), h.sum() * x)


def while_of(x, k, most=6):
    return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, ef.sin(s[1] * k) + k), (0, x), most)[
        1
    ]


PROGRAMS = {
    "scan": (
        lambda c, xs: scan(step, c, xs),
        (t([0.3, -0.2]), t([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.7]])),
    ),
    "reverse": (lambda c, xs: scan(step, c, xs, reverse=True), (t(0.3), t([0.5, -0.2, 1.1]))),
    "captured": (
        lambda h, xs, w: scan(cell(w), h, xs),
        (t([0.1, 0.2]), t([[0.5, 1.0], [-0.3, 0.2]]), t([[0.3, -0.4], [0.2, 0.6]])),
    ),
    "fori": (
        lambda x, k: fori_loop(0, 4, lambda i, s: ef.sin(s * k) + i, x),
        (t([0.5, 0.1]), t(1.2)),
    ),
    "while": (while_of, (t([0.4, 0.8]), t(0.9))),
    "while stopped": (lambda x, k: while_of(x, k, 2), (t([0.4, 0.8]), t(0.9))),
    "while never": (
        lambda x: while_loop(lambda s: s.sum() > 100.0, ef.sin, x, maximum_iterations=5),
        (t([0.4]),),
    ),
    "cond true": (
        lambda x, y: cond(x.sum() > 0, lambda: (x * y, y), lambda: (x + y, ef.exp(x))),
        (t([0.3, 0.4]), t([0.5, -1.0])),
    ),
    "cond false": (
        lambda x, y: cond(x.sum() < 0, lambda: (x * y, y), lambda: (x + y, ef.exp(x))),
        (t([0.3, 0.4]), t([0.5, -1.0])),
    ),
    "switch": (
        lambda x: switch(1, [lambda: x, lambda: x * ef.sin(x), lambda: x * 0.0]),
        (t([0.3, 0.8]),),
    ),
    "map": (
        lambda xs, k: ef_map(lambda x: ef.sin(x * k), xs),
        (t([[0.1, 0.3], [0.5, 0.7]]), t(1.5)),
    ),
    "nested": (
        lambda c, xs: scan(
            lambda c, x: (
                cond(x > 0, lambda: while_of(c, x), lambda: fori_loop(0, 2, lambda i, s: s * x, c)),
                c,
            ),
            c,
            xs,
        ),
        (t(0.4), t([0.6, -0.8, 0.3])),
    ),
    "nothing moves": (lambda x: scan(lambda n, _: (n + 1, x * 2.0), 0, length=3)[1], (t([0.5]),)),
    "no steps": (lambda c, xs: scan(step, c, xs), (t(0.3), t(np.zeros(0)))),
    "complex": (
        lambda c, xs: scan(lambda c, x: (c * x + ef.exp(c * 0.1), c * c), c, xs),
        (t(0.3 + 0.2j, "complex128"), t([0.5 - 0.1j, 0.2 + 0.6j], "complex128")),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_first_and_second_order_against_differences(name):
    f, args = PROGRAMS[name]
    check_gradients(f, tuple(x.numpy() for x in args), order=2, mode="both")


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_gradients_have_the_same_bits(name):
    f, args = PROGRAMS[name]
    if name == "complex":
        whole = f
        f = lambda *args: [abs(y) for y in tree.flatten(whole(*args))[0]]
    wanted = grads(f, *args)
    check_same(captured(lambda *args: grads(f, *args), *args), wanted)
    check_same(ef.function(lambda *args: grads(f, *args), numerics="exact")(*args), wanted)
    check_close(ef.function(lambda *args: grads(f, *args))(*args), wanted)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "complex"])
def test_forward_mode_agrees_with_reverse(name):
    f, args = PROGRAMS[name]
    rng = np.random.default_rng(0)
    tangents = tuple(ef.tensor(rng.normal(size=x.shape).astype(x.dtype)) for x in args)
    y, moved = ef.jvp(f, args, tangents)
    y, pull = ef.vjp(f, *args)
    weights = tree.map_leaves(lambda y: ef.tensor(rng.normal(size=y.shape)), y)
    pulled = pull(weights)
    along = sum(float((a * b).sum()) for a, b in zip(pulled, tangents, strict=True))
    pushed = sum(
        float((a * b).sum())
        for a, b in zip(tree.flatten(moved)[0], tree.flatten(weights)[0], strict=True)
    )
    np.testing.assert_allclose(along, pushed, rtol=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_against_the_unrolled_loop(reverse):
    h, xs, w = PROGRAMS["captured"][1]
    unrolled = lambda h, xs, w: loop_scan(cell(w), h, xs, reverse)
    scanned = lambda h, xs, w: scan(cell(w), h, xs, reverse=reverse)
    check_close(grads(scanned, h, xs, w), grads(unrolled, h, xs, w))
    second = [grads(lambda *args, f=f: grads(f, *args), h, xs, w) for f in (scanned, unrolled)]
    check_close(*second)
    third = [
        ef.grad(ef.grad(ef.grad(lambda c, f=f: f(c, xs[:, 0], t(0.5)).sum())))(t(0.3))
        for f in (
            lambda c, xs, k: scan(lambda c, x: (ef.sin(c * k) + x, c * c), c, xs)[1],
            lambda c, xs, k: loop_scan(lambda c, x: (ef.sin(c * k) + x, c * c), c, xs)[1],
        )
    ]
    check_close(*third)


def test_while_against_the_unrolled_loop():
    def unrolled(x, k):
        for _ in range(3):
            x = ef.sin(x * k) + k
        return x

    args = t([0.4, 0.8]), t(0.9)
    check_close(grads(while_of, *args), grads(unrolled, *args))
    check_close(
        ef.hessian(lambda x: while_of(x, args[1]).sum())(args[0]),
        ef.hessian(lambda x: unrolled(x, args[1]).sum())(args[0]),
    )
    check_close(ef.jacobian(while_of)(*args), ef.jacobian(unrolled)(*args))
    check_close(ef.jacobian(while_of, mode="forward")(*args), ef.jacobian(unrolled)(*args))


def test_forward_mode_needs_no_bound():
    f = lambda x: while_loop(lambda s: s < 20.0, lambda s: s * s + 1.0, x)
    x = t(1.5)
    unrolled = lambda x: ((x * x + 1.0) ** 2 + 1.0) ** 2 + 1.0
    check_close(ef.jvp(f, (x,), (t(1.0),)), ef.jvp(unrolled, (x,), (t(1.0),)))


def test_without_a_bound_there_is_no_gradient():
    with pytest.raises(GradientError, match=r"maximum_iterations=n") as info:
        ef.grad(lambda x: while_loop(lambda s: s < 9.0, lambda s: s * 2, x))(t(1.0))
    assert "while_loop: maximum_iterations" in str(info.value)
    with pytest.raises(GradientError, match="Python integers"):
        n = ef.tensor(3)
        captured(
            lambda n, x: ef.grad(lambda x: fori_loop(0, n, lambda i, s: s * 2, x))(x), n, t(1.0)
        )
    # It is not needed where the result does not depend on a watched value.
    with ef.GradientTape() as tape:
        x = t(3.0)
        tape.watch(x)
        n = while_loop(lambda n: n < 10, lambda n: n * 2, ef.tensor(1))
        y = x * n
    assert float(tape.gradient(y, x)) == 16.0


def test_a_branch_not_taken_gives_no_nan():
    f = lambda x: cond(x > 0, lambda x: ef.sqrt(x), lambda x: x * 3.0, x)
    assert float(ef.grad(f)(t(-1.0))) == 3.0
    assert float(ef.grad(f)(t(0.0))) == 3.0


def test_iterations_after_the_end_do_no_harm():
    """The body would make NaN and its gradient infinity if it ran once more."""
    f = lambda x: while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, ef.sqrt(s[1] - 1.0)), (0, x), maximum_iterations=9
    )[1]
    x = t(2.0)
    assert float(f(x)) == 0.0
    y, g = ef.value_and_grad(lambda x: while_of(x, t(0.5), 50))(x)
    check_close((y, g), ef.value_and_grad(lambda x: while_of(x, t(0.5), 3))(x))
    # Where the values are known, a bound that is much too large costs nothing.
    check_close(ef.grad(lambda x: while_of(x, t(0.5), 10**15))(x), g)
    assert np.isinf(float(ef.grad(f)(x)))


def test_results_that_do_not_depend_on_a_source():
    x = t(2.0)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = scan(lambda c, _: ((c[0] * x, c[1] + 1.0), None), (x, t(0.0)), length=3)[0]
    assert tape.gradient(b, x, unconnected="zero").tolist() == 0.0
    assert float(tape.gradient(a, x)) == 4 * 8.0
    with pytest.raises(GradientError, match="does not depend"):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = cond(True, lambda x: ef.stop_gradient(x), lambda x: t(1.0), x)
        tape.gradient(y, x)


def test_float32_and_integers_side_by_side():
    x = ef.tensor([1.0, 2.0])
    f = lambda x: scan(lambda c, i: ((c[0] * x + i, c[1] + i), c[1]), (x, 0), ef.arange(3))
    with ef.GradientTape() as tape:
        tape.watch(x)
        (y, n), _ = f(x)
    g = tape.gradient(y, x)
    assert (g.dtype, int(n)) == (ef.float32, 3)
    unrolled = lambda x: (((x * x + 0) * x + 1) * x + 2).sum()
    check_close(g, ef.grad(unrolled)(x), 1e-6)


# How it is done -----------------------------------------------------------------------------------


def test_the_way_back_is_one_scan_that_keeps_little():
    w = t([[0.3, -0.4], [0.2, 0.6]])
    h, xs = PROGRAMS["captured"][1][:2]
    graph = graph_of(lambda h, xs, w: grads(lambda h, w: scan(cell(w), h, xs), h, w), h, xs, w)
    scans = [n for n in graph.nodes if n.op.name == "scan"]
    assert [n.attributes["reverse"] for n in scans] == [False, True]
    forward, backward = (n.attributes["body"] for n in scans)
    # tanh needs its result, and the product h: two of the step's six values.
    assert [v.name for v in forward.outputs[2:]] == ["tanh", "init"]
    assert "tanh" not in {n.op.name for n in backward.nodes}
    for node in scans:
        for value in node.attributes["body"].inputs:
            assert value.node is None


def test_gradients_of_a_body_are_made_once_for_all_calls(monkeypatch):
    made = []
    original = derived.cut  # which cuts the two halves of a gradient
    monkeypatch.setattr(derived, "cut", lambda *a: made.append(a) or original(*a))

    def once(k):
        return ef.grad(lambda x: scan(lambda c, _: (ef.sin(c * k) * 1.25, None), x, length=3)[0])(
            t(k)
        )

    values = [float(once(t(k))) for k in (0.5, 0.6, 0.7)]
    assert len(made) == 1
    assert len(set(values)) == 3


def test_gradients_by_constants_are_not_computed():
    data = t(np.ones((3, 50)))
    graph = graph_of(
        lambda x: grads(
            lambda x: scan(lambda c, row: (c * (row * data[0]).sum(), None), x, data)[0], x
        ),
        t(2.0),
    )
    back = [n for n in graph.nodes if n.op.name == "scan"][-1]
    assert [tuple(v.shape) for v in back.outputs] == [()]


def test_loops_with_constant_state_compile():
    def f(x):
        y = ef.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x), 5)[1]
        y = ef.fori_loop(0, 3, lambda k, y: y + x * 0, y)
        return ef.scan(lambda c, e: (c, None), y, length=3)[0]

    x = ef.tensor([1.0, 2.0])
    gradient = lambda x: ef.grad(lambda x: ef.sum(f(x)))(x)
    assert ef.function(gradient)(x).tolist() == gradient(x).tolist()
    assert ef.function(f)(x).tolist() == f(x).tolist()
    still = lambda x: ef.scan(lambda c, e: (c, None), x * 2.0, length=3)[0]
    assert ef.function(still, numerics="exact")(x).tolist() == [2.0, 4.0]
