"""vmap of branches and loops computes what a loop over the examples does."""

import itertools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture import cond, fori_loop, scan, switch, while_loop
from eagerflow.capture import map as ef_map
from eagerflow.errors import CaptureError
from tests.capture.control.tools import captured, check_close, check_same, graph_of, t

A = t([[0.5, -1.0], [1.5, 0.3], [-0.7, 2.0]])
B = t([[1.0, 0.2], [0.4, -0.6], [0.1, 0.9]])

PROGRAMS = {
    "cond": lambda x, y: cond(x[0] > 0, lambda: (x * y, y), lambda: (y + 1.0, ef.sin(x))),
    "cond shared": lambda x, y: cond(True, lambda: (x * 2.0, y), lambda: (y, x)),
    "switch": lambda x, y: switch(
        (x[0] * 2).astype("int32"), [lambda: x, lambda: y, lambda: x * y, lambda: t([0.0, 1.0])]
    ),
    "scan": lambda x, y: scan(lambda c, r: (ef.sin(c * y[0]) + r, (c, y)), x[0], x),
    "scan reverse": lambda x, y: scan(lambda c, r: (c * r + y, c[0]), y, x, reverse=True),
    "scan that grows": lambda x, y: scan(
        lambda c, _: ((c[1], c[2], c[0] + x), c[0]), (t([0.0, 0.0]),) * 3, length=5
    ),
    "while shared": lambda x, y: while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * y), (0, x), 5
    ),
    "while each": lambda x, y: while_loop(
        lambda s: s[0].sum() < 20.0, lambda s: (s[0] * 1.5 + y * y + 1.0, s[1] + 1), (x, 0), 30
    ),
    "while captured": lambda x, y: while_loop(
        lambda s: s * y[0] < 3.0, lambda s: s + 1.0, t(0.0), 50
    ),
    "fori": lambda x, y: fori_loop(0, 3, lambda i, s: s * y + i, x),
    "map": lambda x, y: ef_map(lambda r: r * y, x),
    "nested": lambda x, y: scan(
        lambda c, r: (
            cond(
                r > 0,
                lambda: while_loop(lambda v: v < 2.0, lambda v: v + y[1] ** 2 + 1, c, 9),
                lambda: c,
            ),
            c,
        ),
        y[0],
        x,
    ),
}


def looped(f, args, axes):
    rows = [
        f(*(x if axis is None else x[i] for x, axis in zip(args, axes, strict=True)))
        for i in range(3)
    ]
    return tree.map_leaves(lambda *parts: ef.stack(list(parts)), *rows)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_vmap(name, axes):
    f = PROGRAMS[name]
    args = [x if axis == 0 else x[0] for x, axis in zip((A, B), axes, strict=True)]
    mapped = ef.vmap(f, in_axes=axes)
    check_close(mapped(*args), looped(f, args, axes))
    check_same(captured(mapped, *args), mapped(*args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_vmap_in_vmap(name):
    f = PROGRAMS[name]
    inner = ef.vmap(f, in_axes=(None, 0))
    crossed = ef.vmap(inner, in_axes=(0, None))(A, B)
    wanted = [looped(f, (A[i], B), (None, 0)) for i in range(3)]
    check_close(crossed, tree.map_leaves(lambda *rows: ef.stack(list(rows)), *wanted))


@pytest.mark.parametrize("name", PROGRAMS)
def test_vmap_of_gradients_and_gradients_of_vmap(name):
    f = PROGRAMS[name]

    def total(x, y):
        parts = tree.flatten(f(x, y))[0]
        return sum((p.sum() for p in parts if ef.dtypes.is_inexact(p.dtype)), start=(x * y).sum())

    grad = ef.grad(total, argnums=(0, 1))
    one_by_one = [grad(a, b) for a, b in zip(A, B, strict=True)]
    wanted = tree.map_leaves(lambda *rows: ef.stack(list(rows)), *one_by_one)
    check_close(ef.vmap(grad)(A, B), wanted, 1e-10)
    check_close(ef.grad(lambda a, b: ef.vmap(total)(a, b).sum(), (0, 1))(A, B), wanted, 1e-10)
    # Forward over a batch, and a batch of forwards.
    tangents = ef.ones_like(A), ef.ones_like(B)
    each = ef.vmap(lambda x, y: ef.jvp(total, (x, y), (ef.ones_like(x), ef.ones_like(y)))[1])(A, B)
    check_close(ef.jvp(ef.vmap(total), (A, B), tangents)[1], each, 1e-10)
    by_hand = [float(g[0].sum() + g[1].sum()) for g in one_by_one]
    np.testing.assert_allclose(each.numpy(), by_hand, rtol=1e-9)


def test_a_shared_predicate_stays_a_branch():
    flag = ef.tensor(True)
    f = lambda flag, a: ef.vmap(lambda x: cond(flag, lambda: x * 2, lambda: x))(a)
    graph = graph_of(f, flag, A)
    assert [n.op.name for n in graph.nodes] == ["cond"]
    graph = graph_of(lambda a: ef.vmap(lambda x: cond(x[0] > 0, lambda: x * 2, lambda: x))(a), A)
    assert "where" in [n.op.name for n in graph.nodes]
    assert "cond" not in [n.op.name for n in graph.nodes]


def test_only_values_depending_on_examples_are_batched():
    f = lambda x: scan(lambda c, _: ((c[0] + 1, c[1] + x), c[0]), (0, x), length=4)
    graph = graph_of(lambda a: ef.vmap(f)(a), A)
    (node,) = [n for n in graph.nodes if n.op.name == "scan"]
    assert [v.shape for v in node.outputs] == [(), (3, 2), (4,)]


@pytest.mark.parametrize("loop", ["scan", "fori", "while", "cond"])
def test_random_numbers_of_each_example(loop):
    generator = ef.random.Generator(1)

    def f(x):
        draw = lambda: generator.uniform((), dtype="float64")
        if loop == "scan":
            return x + scan(lambda c, _: (c, draw()), 0.0, length=3)[1].sum()
        if loop == "fori":
            return fori_loop(0, 3, lambda i, s: s + draw(), x)
        if loop == "while":
            return while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + draw()), (0, x))[1]
        return cond(True, lambda: x + draw(), draw)

    xs = t([0.0, 0.0, 0.0])
    values = ef.vmap(f)(xs).tolist()
    assert len(set(values)) == 3
    assert generator.state.numpy()[2] == (1 if loop == "cond" else 3)
    # The same numbers as without a loop.
    generator.seed(1)
    draws = generator.state.numpy()[2] * 0 + (1 if loop == "cond" else 3)
    plain = ef.vmap(
        lambda x: sum((generator.uniform((), dtype="float64") for _ in range(int(draws))), start=x)
    )
    np.testing.assert_allclose(values, plain(xs).numpy(), rtol=1e-12)
    generator.seed(1)
    assert captured(ef.vmap(f), xs).tolist() == values
    assert generator.state.numpy()[2] == (1 if loop == "cond" else 3)


def test_errors_inside_vmap_are_those_of_the_example():
    with pytest.raises(CaptureError, match="its structure is not"):
        ef.vmap(lambda x: scan(lambda c, _: ((c, c), None), x, length=2))(A)


def test_symbolic_number_of_examples():
    f = ef.vmap(lambda x: while_loop(lambda s: s.sum() < 9.0, lambda s: s + 1.0, x, 20))
    graph = ef.capture.trace(f, ef.TensorSpec(("n", 2), "float64"))
    assert [str(v.shape) for v in graph.outputs] == ["(n, 2)"]


def test_examples_do_not_touch_each_other():
    """Every order of examples gives the same rows."""
    f = ef.vmap(PROGRAMS["while each"])
    rows = f(A, B)
    for order in itertools.permutations(range(3)):
        index = ef.tensor(list(order))
        permuted = f(ef.take(A, index, axis=0), ef.take(B, index, axis=0))
        check_same(
            permuted, tree.map_leaves(lambda y, index=index: ef.take(y, index, axis=0), rows)
        )
