"""Branches and loops as Python's own."""

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.capture
from tests.standalone.programs import Program, assert_close, traced

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def same(f, *args, words=()):
    """The program of a function, which gives what eager does, and has these words."""
    program = Program(traced(f, *args))
    wanted, found = f(*map(ef.tensor, args)), program(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = found if isinstance(found, tuple) else (found,)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b.numpy(), 8)
    for word in words:
        assert word in program.text
    return program


def chosen(x, n):
    return ef.cond(n > 2, lambda: x + n, lambda: x * 2)


@pytest.mark.parametrize("n", [1.0, 3.0])
def test_cond_is_if(n):
    same(chosen, X, np.float32(n), words=["    if ", "    else:"])


@pytest.mark.parametrize("n", [-1, 0, 1, 2, 9])
def test_switch_is_a_row_of_ifs(n):
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: x]
    same(lambda x, n: ef.switch(n, branches, x), X, np.int64(n), words=["elif branch == 1:"])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_fori_loop_is_for(n):
    def f(x, n):
        return ef.fori_loop(0, n, lambda i, a: a * 0.5 + i, x)

    program = same(f, X, np.int64(n), words=["for i in np.arange(n):"])
    assert "while" not in program.text


def test_the_count_of_a_loop_can_be_a_result():
    def f(x, n):
        return ef.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + 1), (0, x))

    for n in (-3, 0, 4):
        same(f, X, np.int64(n))


def test_while_loop_is_while():
    def f(x):
        return ef.while_loop(lambda s: s.sum() < 100, lambda s: s * 2 + 1, x)

    same(f, X, words=["while "])


def test_a_loop_with_a_longer_condition_and_a_limit():
    def more(s):
        total = ef.tanh(s).sum()
        return ef.logical_and(total * total < 400, total > -7)

    def f(x):
        return ef.while_loop(more, lambda s: s + 1, x, maximum_iterations=7)

    same(f, X, words=["for _ in range(7):", "break"])


def test_states_change_at_once():
    def f(x, y):
        return ef.fori_loop(0, 3, lambda i, s: (s[1], s[0] + s[1]), (x, y))

    same(f, X, X + 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_for(reverse):
    def f(x):
        return ef.scan(lambda c, row: (c + row, c * row), x[0], x, reverse=reverse)

    same(f, X, words=["for row in x"])


def test_scan_over_nothing_several_and_no_steps():
    same(lambda x: ef.scan(lambda c, _: (c * 2, c), x, None, length=3), X)
    same(lambda x: ef.scan(lambda c, r: (c, r[0] * r[1]), x[0], (x, x + 1)), X)
    same(lambda x: ef.scan(lambda c, r: (c, r * 2), x[0], x[:0]) if len(x) else x, X)


def test_loops_within_loops():
    def f(x, n):
        def outer(i, a):
            return ef.fori_loop(0, i, lambda j, b: ef.cond(j > 1, lambda: b + j, lambda: b * 2), a)

        return ef.fori_loop(0, n, outer, x)

    same(f, X, np.int64(4))


def test_gradients_of_loops():
    def f(x):
        def loss(x):
            return ef.scan(lambda c, row: (ef.tanh(c * row), c.sum()), x[0], x)[1].sum()

        return ef.grad(loss)(x)

    same(f, X)


def test_free_sizes_are_read_from_shapes():
    def f(x, y):
        flat = x.reshape((x.shape[0] * x.shape[1],))
        return flat[:, None] * ef.ones((x.shape[0] * x.shape[1], y.shape[0])), ef.zeros(y.shape)

    specs = [ef.TensorSpec(("rows", "columns"), "float32"), ef.TensorSpec((None,), "float32")]
    program = Program(ef.capture.trace(f, *specs))
    for x, y in ((X, X[0]), (X[:1], X[:, 0])):
        for a, b in zip(program(x, y), f(ef.tensor(x), ef.tensor(y)), strict=True):
            assert_close(a, b.numpy(), 1)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_names_assigned_in_a_branch_are_local_to_it(n):
    big = ef.tensor(np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(4, 3))

    def branch(a):
        return ((a + big) * (a - big) * (a * big) + (big - a) * (a + big)) * ((big + a) * (a - big))

    def f(x, n):
        y = ef.cond(n > 0, branch, lambda a: a, x)
        z = ef.cond(n > 1, lambda a: a, branch, y)
        return ef.fori_loop(0, n, lambda i, a: branch(a), z)

    same(f, X, np.int64(n))


def test_large_constants_are_stored_separately():
    def f(x):
        with ef.capture.scope("layer"):
            y = x * w
            y = ef.tanh(y + ef.asarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)))
        with ef.capture.scope("other"):
            z = y * ef.asarray(np.linspace(2, 3, 12, dtype=np.float32).reshape(4, 3))
            z = ef.tanh(z) * x + v
        return z

    w, v = ef.Variable(X[0], name="layer/w"), ef.Variable(X[1], name="other/v")
    program = same(f, X)
    assert len([key for key in program.weights if key.startswith("constant")]) == 2


def test_constants_of_bodies_are_stored_once():
    image = np.random.default_rng(0).standard_normal((1, 5, 5, 2)).astype(np.float32)

    def f(x):
        a = ef.resize(x, (13, 13))
        return a, ef.resize(x * 2, (13, 13)), ef.resize(x, (17, 11))

    program = same(f, image)
    arrays = [x.tobytes() for x in program.weights.values()]
    assert len(arrays) == len(set(arrays)) > 4
