"""Variables and random generators that branches and loops read and assign."""

import gc
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import cond, fori_loop, scan, switch, while_loop
from eagerflow.errors import CaptureError, EagerflowError, ShapeError
from tests.capture.control.tools import captured, check_close, check_same, graph_of, t


def three_ways(f, variables, *args):
    """Results, and values of Variables afterwards: eagerly, taped, as a graph, and replayed."""
    before = [v.numpy() for v in variables]
    replayed = ef.function(f, numerics="exact")
    found = []
    for run in (f, taped(f), lambda *args: captured(f, *args), replayed):
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        found.append((run(*args), [v.value for v in variables]))
    check_same(found[1], found[0])
    check_same(found[2], found[0])
    check_same(found[3], found[0])
    return found[0]


def taped(f):
    def run(*args):
        with ef.GradientTape():
            return f(*args)

    return run


def test_read_and_assigned_in_a_scan():
    w, total = ef.Variable(t(2.0), name="w"), ef.Variable(t(0.0), name="total", trainable=False)

    def step(c, x):
        total.assign_add(c)
        return c * w + x, total.value

    def f(xs):
        return scan(step, xs[0], xs), total * 10.0

    ((c, ys), after), values = three_ways(f, [w, total], t([1.0, 2.0, 3.0]))
    assert (float(c), ys.tolist()) == (19.0, [1.0, 4.0, 12.0])
    assert [float(v) for v in values] == [2.0, 12.0]
    assert float(after) == 120.0


def test_assigned_variables_are_state_of_the_node():
    v = ef.Variable(t(1.0), name="v")
    graph = graph_of(lambda x: fori_loop(0, 3, lambda i, s: v.assign(v * s) * 1.0 + s, x), t(2.0))
    (cell,) = graph.cells
    assert cell.variable is v
    (node,) = [n for n in graph.nodes if n.op.name == "scan"]
    assert cell.assigned in node.outputs
    assert node.attributes["carries"] == 3  # the counter, the state and the Variable


@pytest.mark.parametrize("flag", [True, False])
def test_assigned_in_one_branch(flag):
    v = ef.Variable(t([1.0, 2.0]))

    def f(x):
        y = cond(x.sum() > 0, lambda: v.assign(v * x).value + 1.0, lambda: v * 3.0)
        return y, v.value

    (y, after), values = three_ways(f, [v], t([5.0, 1.0]) if flag else t([-5.0, 1.0]))
    assert y.tolist() == ([6.0, 3.0] if flag else [3.0, 6.0])
    assert values[0].tolist() == after.tolist() == ([5.0, 2.0] if flag else [1.0, 2.0])


def test_branches_that_only_assign():
    v = ef.Variable(ef.tensor(0))
    branches = [lambda k=k: (v.assign_add(k), None)[1] for k in (1, 10, 100)]

    def f(i):
        return switch(i, branches)

    for index, after in ((0, 1), (1, 10), (2, 100)):
        v.assign(0)
        _, values = three_ways(f, [v], ef.tensor(index))
        assert int(values[0]) == after


def test_while_loop_that_ends_by_a_variable():
    n = ef.Variable(ef.tensor(0), name="n")

    def f(x):
        return while_loop(lambda s: n < 4, lambda s: (n.assign_add(1), s * 2.0)[1], x)

    y, values = three_ways(f, [n], t(1.0))
    assert (float(y), int(values[0])) == (16.0, 4)


def test_assignments_in_the_condition_take_effect():
    asked = ef.Variable(ef.tensor(0), name="asked")

    def f(x):
        return while_loop(lambda s: (asked.assign_add(1), s < 20.0)[1], lambda s: s * 2.0, x)

    y, values = three_ways(f, [asked], t(1.0))
    assert (float(y), int(values[0])) == (32.0, 6)


def test_random_numbers_in_bodies():
    generator = ef.random.Generator(5)

    def f(x):
        step = lambda c, _: (c + generator.normal((2,), dtype="float64"), generator.uniform(()))
        y, draws = scan(step, x, length=4)
        draw = lambda: generator.normal((2,), dtype="float64")
        return cond(y.sum() > 100.0, lambda: y, draw), y, draws

    (_, y, draws), values = three_ways(f, [generator.state], t([0.0, 0.0]))
    assert len(set(draws.tolist())) == 4
    assert values[0].tolist()[2] == 9
    expected = ef.random.Generator(5)
    total = t([0.0, 0.0])
    for i in range(4):
        total = total + expected.normal((2,), dtype="float64")
        assert float(draws[i]) == float(expected.uniform(()))
    check_same(y, total)


def test_state_made_in_a_body():
    """Variables made once and reused by later runs count as outside state; all others raise."""
    layers = {}

    def step(c, x):
        if "w" not in layers:
            layers["w"] = ef.Variable(t(3.0), name="w")
        return c * layers["w"] + x, None

    xs = t([1.0, 2.0])
    with ef.GradientTape() as tape:
        y = scan(step, t(1.0), xs)[0]
    assert float(y) == 14.0
    assert float(tape.gradient(y, layers["w"])) == 7.0

    def anew(x):
        return scan(lambda c, _: (c, ef.random.Generator(3).uniform(())), x, length=3)[1]

    assert len(set(anew(t(0.0)).tolist())) == 1
    with pytest.raises(CaptureError, match="persistent state at every") as info:
        captured(anew, t(0.0))
    assert "random_state" in str(info.value)
    assert __file__ in info.value.at


def test_gradients_by_variables_in_bodies():
    w = ef.Variable(t([[0.5, -0.2], [0.1, 0.3]]), name="w")
    b = ef.Variable(t([0.1, 0.2]), name="b")
    xs = t([[1.0, 2.0], [0.5, -0.5]])

    def loss(looped):
        h = t([0.0, 0.0])
        if looped:
            return scan(lambda h, x: (ef.tanh(h @ w + x * b), h), h, xs)[0].sum()
        for i in range(2):
            h = ef.tanh(h @ w + xs[i] * b)
        return h.sum()

    def gradients(looped):
        with ef.GradientTape() as tape:
            y = loss(looped)
        assert set(tape.watched_variables()) == {w, b}
        return tape.gradient(y, [w, b])

    check_close(gradients(True), gradients(False))
    check_same(captured(lambda: gradients(True)), gradients(True))


def test_training_within_a_loop():
    w = ef.Variable(t(5.0), name="w")

    def train(x):
        def step(i, last):
            with ef.GradientTape() as tape:
                loss = (w - x) ** 2
            w.assign_sub(tape.gradient(loss, w) * 0.1)
            return loss

        return fori_loop(0, 20, step, t(0.0))

    y, values = three_ways(train, [w], t(1.0))
    assert abs(float(values[0]) - 1.0) < 0.06
    assert 0 < float(y) < 0.01


# Nothing half done --------------------------------------------------------------------------------


@pytest.mark.parametrize("watched", [False, True])
def test_a_loop_that_fails_leaves_variables_as_they_were(watched):
    v = ef.Variable(t(1.0))

    def step(c, x):
        v.assign_add(1.0)
        return c, ef.linalg.inv(x)

    singular = t([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    with pytest.raises(EagerflowError):
        (taped(scan) if watched else scan)(step, t([0.0]), singular)
    assert float(v) == 1.0

    calls = []

    def changes(s):
        calls.append(0)
        v.assign_add(1.0)
        return s if len(calls) < 3 else ef.stack([s, s])

    if not watched:
        with pytest.raises(ShapeError, match="its shape is not that at the start"):
            while_loop(lambda s: True, changes, t(0.0))
        assert (len(calls), float(v)) == (3, 1.0)


def test_failed_inner_loop_restores_its_variables():
    v, u = ef.Variable(t(1.0)), ef.Variable(t(1.0))

    def inner(i, s):
        v.assign_add(1.0)
        return 1 / 0 if i == 2 else s

    def outer(i, s):
        u.assign_add(1.0)
        try:
            fori_loop(0, 5, inner, s)
        except ZeroDivisionError:
            assert float(v) == 1.0
        return s

    fori_loop(0, 3, outer, t(0.0))
    assert (float(u), float(v)) == (4.0, 1.0)


def test_assignments_of_wrong_values_are_refused_in_bodies():
    v = ef.Variable(t([1.0, 2.0]))
    with pytest.raises(ShapeError, match="another shape"), ef.GradientTape():
        fori_loop(0, 2, lambda i, s: (v.assign(s), s)[1], t(0.0))
    assert v.numpy().tolist() == [1.0, 2.0]


def test_variables_that_differ_between_examples_are_refused():
    v = ef.Variable(t(0.0))
    with pytest.raises(CaptureError, match="differs between examples"):
        ef.vmap(lambda x: scan(lambda c, _: (v.assign_add(x), None), x, length=2)[0])(t([1.0, 2.0]))
    assert float(v) == 0.0


# Nothing kept -------------------------------------------------------------------------------------


def test_bodies_keep_nothing_that_was_captured():
    def made():
        big, v = t(np.ones(1000)), ef.Variable(t(np.ones(10)))
        held = weakref.ref(big), weakref.ref(v)
        f = lambda x: scan(lambda c, _: (c * big[0] * v[0], None), x, length=2)[0]
        (node,) = [n for n in graph_of(f, t(1.0)).nodes if n.op.name == "scan"]
        return held, node.attributes["body"]

    held, body = made()
    gc.collect()
    assert [r() for r in held] == [None, None]
    assert len(body.inputs) == 3


def test_many_calls_under_a_tape_keep_nothing():
    x = t([0.5, 0.1])
    f = ef.grad(lambda x, k: scan(lambda c, _: (ef.sin(c * k), None), x, length=3)[0].sum())
    for k in range(3):
        f(x, t(0.1 * k))
    gc.collect()
    before = sum(type(o) is ef.Tensor for o in gc.get_objects())
    for k in range(30):
        f(x, t(0.1 * k))
    gc.collect()
    assert sum(type(o) is ef.Tensor for o in gc.get_objects()) <= before + 3


def test_values_of_a_body_do_not_leave_it():
    kept = []

    def step(c, x):
        kept.append(c * 2.0)
        return c + x, None

    xs = t([1.0, 2.0])
    scan(step, t(0.0), xs)
    assert [float(k) for k in kept] == [0.0, 2.0]
    with pytest.raises(CaptureError, match="is kept outside of it") as info:
        captured(lambda xs: scan(step, xs[0], xs)[0], xs)
    assert __file__ in str(info.value)
