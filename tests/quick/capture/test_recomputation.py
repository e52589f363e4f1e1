"""A checkpoint's gradient is that of its first run, whatever has changed since."""

import collections
import gc
import random
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.recorder import Recorder, below

WEIGHTS = [np.float32([0.5, -1.0]), np.float32([2.0, 0.3]), np.float32([-0.7, 1.5])]
START = np.float32([0.4, 0.9])


def plain(f, policy=None):
    """Without a checkpoint."""
    return f


def in_a_loop(wrap, as_weight):
    """Layers of a loop, which all lambdas read as the loop has left it."""
    weights, x = [as_weight(w) for w in WEIGHTS], ef.tensor(START)
    with ef.GradientTape() as tape:
        tape.watch([x, *weights])
        y = x
        for w in weights:
            y = wrap(lambda u: ef.tanh(u * w) + u)(y)  # noqa: B023
        total = (y * y).sum()
    return [g.numpy() for g in tape.gradient(total, [x, *weights])]


def with_layers(wrap, as_weight):
    layers = [ef.nn.Dense(2, "tanh", kernel_initializer="ones") for _ in WEIGHTS]
    x = as_weight(START[None])
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = x
        for layer in layers:
            y = wrap(lambda u: layer(u) * 0.5)(y)  # noqa: B023
        total = (y * y).sum()
    weights = [w for layer in layers for w in layer.trainable_weights]
    return [g.numpy() for g in tape.gradient(total, [x, *weights])]


def with_state_of_python(wrap, as_weight):
    array, w, x = np.array(WEIGHTS[1]), as_weight(WEIGHTS[0]), ef.tensor(START)
    state, cache = {"count": 0, "scale": 2.0}, []

    def f(u):
        state["count"] += 1
        if not cache:
            cache.append(ef.exp(ef.tensor(array)))
        return ef.sin(u * w) * array * state["scale"] * state["count"] + cache[0]

    with ef.GradientTape() as tape:
        tape.watch([x, w])
        y = wrap(f)(x).sum()
    array[:], state["scale"], w = 100.0, 7.0, as_weight(WEIGHTS[2])
    return [g.numpy() for g in tape.gradient(y, [x])]


def with_assignments(wrap, as_weight):
    v, x = ef.Variable(WEIGHTS[0]), ef.tensor(START)

    def f(u):
        y = u * v
        v.assign(u * 2)
        y = y * v
        v.assign_add(y)
        return y * v

    with ef.GradientTape() as tape:
        tape.watch(x)
        y = wrap(f)(x).sum()
    v.assign(WEIGHTS[2])
    return [g.numpy() for g in tape.gradient(y, [x, v])]


PROGRAMS = [in_a_loop, with_layers, with_state_of_python, with_assignments]


@pytest.mark.parametrize("as_weight", [ef.tensor, ef.Variable])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_first_run(program, as_weight):
    for found, wanted in zip(
        program(ef.checkpoint, as_weight), program(plain, as_weight), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_captured_loops():
    def step(x, wrap):
        y = x
        for w in WEIGHTS:
            y = wrap(lambda u: ef.tanh(u * w) + u)(y)  # noqa: B023
        return (y * y).sum()

    for make in (lambda f: f, ef.function):
        found = make(ef.grad(lambda x: step(x, ef.checkpoint)))(ef.tensor(START))
        wanted = make(ef.grad(lambda x: step(x, plain)))(ef.tensor(START))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


@ef.custom_gradient
def exponential(u):
    e = ef.exp(u)
    return e, lambda g: g * e


SECOND = {
    "one function": lambda u: exponential(ef.sin(u)) * u,
    "within vmap": lambda u: ef.vmap(exponential)(ef.sin(u) * ef.ones(2)).sum() * u,
    "within a gradient": lambda u: ef.grad(lambda w: exponential(ef.sin(w)))(u) * u,
    "without computation": lambda u: exponential(u) + ef.stop_gradient(u) * u,
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_pass_through_values_that_rules_use(name):
    def by_one_tape(f):
        x = ef.tensor(0.7)
        with ef.GradientTape(persistent=True) as tape:
            tape.watch(x)
            slope = tape.gradient(f(x), x)
        return float(tape.gradient(slope, x))

    f = SECOND[name]
    for derive in (by_one_tape, lambda f: float(ef.grad(ef.grad(f))(0.7))):
        assert derive(ef.checkpoint(f)) == pytest.approx(derive(f), rel=1e-6)


def test_intermediate_values_are_not_kept():
    alive = []

    def f(u):
        for _ in range(5):
            u = ef.sin(u) * 1.5
            alive.append(weakref.ref(u))
        return u.sum()

    x = ef.tensor(START)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = ef.checkpoint(f)(x)
    gc.collect()
    assert [r() is not None for r in alive] == [False] * 5
    assert float(tape.gradient(y, x)[0]) == pytest.approx(float(ef.grad(f)(x)[0]))


class Counting(Recorder):
    """Counts the calls of each op."""

    def __init__(self):
        self.counts = collections.Counter()

    def call(self, op, args, attributes):
        self.counts[op.name] += 1
        return below(self.outer, op, args, attributes)


@pytest.mark.parametrize("times", range(4))
def test_a_checkpoint_within_another_one_is_one_in_the_repetition(times):
    """Each of them adds a run of the ops within, whose values are not kept until then."""

    def block(u):
        v = ef.sin(u) * 2
        return ef.sin(v) + u * v

    def f(u, wrap=ef.checkpoint):
        wrapped = block
        for _ in range(times):
            wrapped = wrap(lambda u, inner=wrapped: inner(u) * u)
        y = wrapped(u)
        return (wrapped(y) * y * u).sum()

    x = ef.tensor(START)
    with Counting() as counting:
        found = ef.grad(f)(x)
    assert counting.counts["sin"] == 4 * (1 + times)
    np.testing.assert_allclose(found.numpy(), ef.grad(f)(x, plain).numpy(), rtol=1e-5)
    second = ef.grad(lambda u: (ef.grad(f)(u) ** 2).sum())(x)
    wanted = ef.grad(lambda u: (ef.grad(f)(u, plain) ** 2).sum())(x)
    np.testing.assert_allclose(second.numpy(), wanted.numpy(), rtol=1e-4)


# Random programs ---------------------------------------------------------------------------------


def random_program(seed, wrap):
    """Values and gradients of a program in which functions read what changes later."""
    draw = random.Random(seed)
    variables = [ef.Variable(w) for w in WEIGHTS[:2]]
    pool = [ef.tensor(w) for w in WEIGHTS]
    array = np.array(START)

    def step(depth):
        for _ in range(draw.randint(1, 3)):
            a, b, n = draw.choice(pool + variables), draw.choice(pool), draw.choice([2, 0.5])
            kinds = [
                lambda u: u * a + n,  # noqa: B023
                lambda u: ef.sin(u) * array,
                lambda u: exponential(-u * u) * a,  # noqa: B023
                lambda u: ef.fori_loop(0, 2, lambda i, s: [ef.tanh(s[0] * a)], [u])[0],  # noqa: B023
                lambda u: ef.cond(u.sum() > 0, lambda: u * a, lambda: u - a),  # noqa: B023
                lambda u: ef.vmap(lambda row: row * row)(u) + a,  # noqa: B023
                lambda u: ef.grad(lambda w: (w * a * w).sum())(u),  # noqa: B023
            ]
            f = draw.choice(kinds)
            f = wrap(f, policy=draw.choice([None, "contractions"]))
            if draw.random() < 0.3:
                f = wrap(lambda u, f=f: ef.sin(f(u)) * f(u * a))  # noqa: B023
            pool.append(ef.tanh(f(b)))
            if draw.random() < 0.3:
                v = draw.choice(variables)
                v.assign(v * 0.5 + b * 0.1)
            if draw.random() < 0.3:
                array[:] = array[::-1] * 0.9
            if depth and draw.random() < 0.5:
                with ef.GradientTape(persistent=draw.random() < 0.5) as tape:
                    sources = pool[-2:]
                    tape.watch(sources)
                    step(depth - 1)
                    target = (pool[-1] * pool[-1]).sum()
                pool.extend(map(ef.tanh, tape.gradient(target, sources, unconnected="zero")))
            del pool[:-4]

    with ef.GradientTape() as tape:
        step(2)
        total = sum((x * x).sum() for x in pool)
    return [x.numpy() for x in (total, *tape.gradient(total, variables, unconnected="zero"))]


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part):
    for seed in range(part * 25, (part + 1) * 25):
        found, wanted = random_program(seed, ef.checkpoint), random_program(seed, plain)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6, err_msg=str(seed))
