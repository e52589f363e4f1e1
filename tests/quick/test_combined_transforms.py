"""Transformations in each other: equal to the plain function, eager and captured."""

import itertools
import signal
import time
from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError, ShapeError
from tests.interrupts import handling

V = ef.Variable(1.5, name="inside")


@ef.custom_gradient
def by_result(x):
    y = ef.exp(x)
    return y, lambda g: g * y


@ef.custom_gradient
def by_intermediate(x):
    inner = ef.sin(x)
    return inner * inner, lambda g: g * 2.0 * inner * ef.cos(x)


@ef.custom_gradient
def of_two(x, y):
    product = x * y
    return (ef.exp(product), product), lambda g: (
        (g[0] * ef.exp(product) + g[1]) * y,
        (g[0] * ef.exp(product) + g[1]) * x,
    )


# name: (function of a vector, the same without what is tested)
FUNCTIONS = {
    "result": (by_result, ef.exp),
    "intermediate": (by_intermediate, lambda x: ef.sin(x) ** 2),
    "several": (lambda x: sum(of_two(x, ef.cos(x))),
                lambda x: ef.exp(x * ef.cos(x)) + x * ef.cos(x)),
    "checkpoint": (ef.checkpoint(lambda x: ef.sin(x * V) * V), lambda x: ef.sin(x * V) * V),
    "nested checkpoint": (ef.checkpoint(lambda x: ef.checkpoint(lambda z: ef.sin(z * V))(x) * x),
                          lambda x: ef.sin(x * V) * x),
    "checkpoint of a rule": (ef.checkpoint(by_result), ef.exp),
    "cond": (lambda x: ef.cond(x.sum() > 0.0, by_result, lambda z: z, x),
             lambda x: ef.cond(x.sum() > 0.0, ef.exp, lambda z: z, x)),
    "scan": (lambda x: ef.scan(lambda c, r: (by_result(c * 0.3), by_intermediate(r)), x, x)[1] + x,
             lambda x: ef.scan(lambda c, r: (ef.exp(c * 0.3), ef.sin(r) ** 2), x, x)[1] + x),
    "while": (
        lambda x: ef.while_loop(
            lambda s: s[1] < 2,
            lambda s: (by_result(s[0] * 0.2), s[1] + 1),
            (x, 0),
            maximum_iterations=3,
        )[0],
        lambda x: ef.exp(ef.exp(x * 0.2) * 0.2),
    ),
    "vmap": (ef.vmap(by_result), ef.exp),
    "vmap of vmap": (lambda x: ef.vmap(ef.vmap(by_intermediate))(x.reshape(1, -1)).reshape(-1),
                     lambda x: ef.sin(x) ** 2),
}  # fmt: skip
TRANSFORMS = {
    "grad": lambda f: ef.grad(lambda x: (f(x) ** 2).sum()),
    "vjp": lambda f: lambda x: ef.vjp(f, x)[1](ef.ones(2))[0],
    "jvp": lambda f: lambda x: ef.jvp(f, (x,), (ef.ones(2),))[1],
    "jacobian": lambda f: lambda x: ef.jacobian(f)(x).sum(axis=0),
    "forward jacobian": lambda f: lambda x: ef.jacobian(f, mode="forward")(x).sum(axis=0),
    "vmap": lambda f: lambda x: ef.vmap(f)(ef.stack([x, x])).sum(0),
    "function": ef.function,
    "checkpoint": ef.checkpoint,
}
PAIRS = list(itertools.product(TRANSFORMS, repeat=2))


def applied(names, f):
    for name in names:
        f = TRANSFORMS[name](f)
    return f


def differing(name, pairs, captured):
    """The pairs of transforms for which a function is not what its plain form is."""
    x = ef.tensor([0.4, 0.7])
    own, plain = FUNCTIONS[name]
    wrong = []
    for pair in pairs:
        got = applied(pair, own)
        got = ef.function(got) if captured else got
        found, wanted = got(x), applied(pair, plain)(x)
        if not np.allclose(found.numpy(), wanted.numpy(), rtol=2e-4, atol=1e-4):
            wrong.append((pair, found, wanted))
    return wrong


@pytest.mark.parametrize("name", FUNCTIONS)
def test_some_pairs_of_transforms_are_those_of_the_plain_function(name):
    assert not differing(name, PAIRS[list(FUNCTIONS).index(name) :: 16], captured=False)


@pytest.mark.soak
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("captured", [False, True])
def test_pairs_of_transforms_are_those_of_the_plain_function(name, captured):
    assert not differing(name, PAIRS, captured)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians_are_those_of_the_plain_function(name):
    x = ef.tensor([0.4, 0.7])
    own, plain = (ef.hessian(lambda x, f=f: (f(x) ** 2).sum()) for f in FUNCTIONS[name])
    wanted = plain(x).numpy()
    np.testing.assert_allclose(own(x).numpy(), wanted, rtol=2e-4, atol=1e-4)
    np.testing.assert_allclose(ef.function(own)(x).numpy(), wanted, rtol=2e-4, atol=1e-4)


def test_one_persistent_tape_gives_second_derivatives_of_a_rule():
    x = ef.tensor(0.5)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        first = tape.gradient(by_result(x) ** 2, x)
    assert float(tape.gradient(first, x)) == pytest.approx(4 * np.exp(1.0), rel=1e-5)


def test_unbatched_argument_of_custom_rule_sums_gradients():
    @ef.custom_gradient
    def product(a, b):
        return a * b, lambda g: (g * b, g * a)

    b = ef.tensor([1.0, 2.0])
    found = ef.grad(lambda a: ef.vmap(product, in_axes=(None, 0))(a, b).sum())(3.0)
    assert found.shape == () and float(found) == 3.0


def test_arguments_by_name_are_static_and_no_tensors():
    @ef.custom_gradient
    def scaled(x, *, by):
        return x * by, lambda g: g * by

    assert float(ef.grad(lambda x: scaled(x, by=3.0))(1.0)) == 3.0
    with pytest.raises(GradientError, match="given by name"):
        scaled(ef.tensor(1.0), by=ef.tensor(2.0))


@ef.custom_gradient
def of_nests(scales, pair):
    y = {"first": scales["a"] * pair[0], "others": [scales["b"] + pair[1]]}

    def backward(g):
        first, (other,) = g["first"], g["others"]
        return {"b": other, "a": first * pair[0]}, (first * scales["a"], other)

    return y, backward


def by_nests(f):
    def called(x):
        y = f({"a": x, "b": ef.sin(x)}, (ef.cos(x), x))
        return y["first"] * y["others"][0]

    return called


@pytest.mark.parametrize("captured", [False, True])
def test_nests_of_arguments_have_gradients(captured):
    x = ef.tensor([0.4, 0.7])
    own = by_nests(of_nests)
    plain = by_nests(lambda d, p: {"first": d["a"] * p[0], "others": [d["b"] + p[1]]})
    for name, transform in TRANSFORMS.items():
        f = transform(transform(own))
        found = ef.function(f)(x) if captured else f(x)
        wanted = transform(transform(plain))(x).numpy()
        np.testing.assert_allclose(found.numpy(), wanted, 2e-4, 1e-4, err_msg=name)


def test_gradients_of_other_nests_are_refused():
    def scaled(weights, *, by=1.0):
        return weights["w"] * 2.0, lambda g: ({"v": g},)

    call = ef.custom_gradient(scaled)
    with pytest.raises(GradientError, match="a different structure"):
        ef.grad(lambda x: call({"w": x}))(1.0)
    with pytest.raises(GradientError, match="given by name"):
        call({"w": 1.0}, by=[ef.tensor(1.0)])


def test_a_gradient_of_another_shape_is_refused():
    @ef.custom_gradient
    def wide(x):
        return x * ef.ones(3), lambda g: g

    with pytest.raises(ShapeError, match="a different shape"):
        ef.grad(lambda x: wide(x).sum())(1.0)


@pytest.mark.parametrize("policy", [None, "contractions"])
@pytest.mark.parametrize("captured", [False, True])
def test_checkpoint_has_gradients_of_variables_read_inside(policy, captured):
    dense = ef.nn.Dense(2)
    dense(ef.ones((3, 2)))
    v = ef.Variable([1.0, 2.0])

    def gradients(x, wrap):
        with ef.GradientTape() as tape:
            loss = wrap(lambda x: dense(x * v) * v)(x).sum() + 0.5 * (v**2).sum()
        return tape.gradient(loss, [v, *dense.trainable_variables])

    run = ef.function(gradients, static="wrap") if captured else gradients
    x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = run(x, lambda f: ef.checkpoint(f, policy=policy))
    for a, b in zip(found, gradients(x, lambda f: f), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("captured", [False, True])
def test_a_checkpoint_keeps_contractions_beside_recurrences(kind, captured):
    """A tape records another op in place of a recurrence, with more results."""
    layer, dense = getattr(ef.nn, kind)(3, return_sequences=True), ef.nn.Dense(2)
    x = ef.tensor(np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32"))
    f = lambda x: dense(layer(x) @ ef.ones((3, 3)))
    f(x)

    def gradients(x, wrap):
        with ef.GradientTape() as tape:
            loss = (wrap(f)(x) ** 2).sum()
        return tape.gradient(loss, [*layer.trainable_weights, *dense.trainable_weights])

    run = ef.function(gradients, static="wrap") if captured else gradients
    found = run(x, lambda f: ef.checkpoint(f, policy="contractions"))
    for a, b in zip(found, gradients(x, lambda f: f), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_checkpoint_returns_arguments_integers_and_objects():
    w = ef.tensor([1.0, 3.0])
    with ef.GradientTape() as tape:
        tape.watch(w)
        same, at, text = ef.checkpoint(lambda w: (w, ef.argmax(w), "text"))(w)
        loss = (same * same).sum()
    assert (int(at), text) == (1, "text")
    assert tape.gradient(loss, w).tolist() == [2.0, 6.0]


@pytest.mark.parametrize("ways", [*itertools.product(["assign", "assign_add"], repeat=2)])
def test_a_checkpoint_knows_values_between_assignments(ways):
    def step(wrap):
        v = ef.Variable(2.0)

        def f(x):
            y = x * v
            for way in ways:
                getattr(v, way)(5.0)
                y = y * v + x * v * v
            return y

        x = ef.tensor(3.0)
        with ef.GradientTape() as tape:
            tape.watch(x)
            loss = wrap(f)(x)
        return [float(g) for g in tape.gradient(loss, [x, v])], float(v.value)

    assert step(ef.checkpoint) == step(lambda f: f)


# vmap of branches and loops ----------------------------------------------------------------------


TABLE = ef.tensor([1.0, 2.0, 3.0])
LOOP = lambda z: ef.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, z)
BATCHES = {
    "a loop that would not end": (lambda p, x: ef.cond(p, LOOP, lambda z: z, x),
                                  (np.array([True, False]), np.array([1.0, -1.0], "f4"))),
    "an index that is refused": (
        lambda i: ef.cond(i < 3, lambda i: ef.take(TABLE, i), lambda i: ef.tensor(-1.0), i),
        (np.array([0, 2, 7, 100]),),
    ),
    "no example takes it": (
        lambda i: ef.cond(i < 3, lambda i: ef.take(TABLE, i), lambda i: ef.tensor(-1.0), i),
        (np.array([9, 100]),),
    ),
    "rows that have ended": (
        lambda i, n: ef.while_loop(
            lambda s: s[0] < n,
            lambda s: (s[0] + 1, s[1] + ef.take(TABLE, s[0])),
            (i, ef.tensor(0.0)),
        )[1],
        (np.array([0, 1, 2]), np.array([3, 2, 3])),
    ),
    "a switch": (
        lambda i: ef.switch(
            i, [lambda i: ef.take(TABLE, i), lambda i: ef.take(TABLE, i - 1), lambda i: TABLE[2]], i
        ),
        (np.array([0, 1, 50]),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_vmap_matches_each_example(name):
    f, args = BATCHES[name]
    args = [ef.tensor(a) for a in args]
    wanted = [float(f(*[a[i] for a in args])) for i in range(len(args[0]))]
    assert ef.vmap(f)(*args).tolist() == wanted
    assert ef.function(ef.vmap(f))(*args).tolist() == wanted


MAKES_NAN = {
    "a logarithm": (lambda x: ef.cond(x > 0.0, ef.log, lambda z: z, x), [1.0, -1.0, 0.0]),
    "a branch not taken": (lambda x: ef.cond(x > 0.0, ef.log, lambda z: z, x), [-1.0, -2.0]),
    "a row by its norm": (lambda x: ef.cond((x > 0.0).any(), lambda z: z / z.sum(), lambda z: z, x),
                          [[1.0, 2.0], [0.0, 0.0]]),
    "a switch": (
        lambda x: ef.switch(ef.astype(x, "int32"), [ef.sqrt, lambda z: 1.0 / z, ef.log], x),
        [0.5, 1.0, 5.0],
    ),
    "nested": (
        lambda x: ef.cond(
            x > 0.0, lambda z: ef.cond(z > 2.0, lambda q: ef.log(q - 2.0), ef.sqrt, z), ef.exp, x
        ),
        [1.0, 3.0, -1.0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKES_NAN)
def test_branches_not_taken_make_no_nan(name):
    f, values = MAKES_NAN[name]
    x = ef.tensor(values)
    wanted = np.stack([f(row).numpy() for row in x])
    plain, both = ef.vmap(f), ef.vmap(ef.vmap(f))
    captured = ef.function(plain)
    captured(x)  # its graph is made without a check for NaN
    with ef.debug_nans():
        for found in (plain(x), captured(x), both(ef.stack([x, x]))[1]):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
        gradient = ef.grad(lambda x: plain(x).sum())
        for found in (gradient(x), ef.function(gradient)(x)):
            assert np.isfinite(found.numpy()).all()


@pytest.mark.parametrize("name", ["cholesky", "inv", "slogdet"])
def test_branches_not_taken_refuse_no_matrix(name):
    take = getattr(ef.linalg, name)
    if name == "slogdet":
        take = lambda a: ef.linalg.slogdet(a)[1] * a
    f = lambda a: ef.cond(a.sum() > 0.0, take, lambda a: a, a)
    x = ef.stack([ef.eye(2) * 2.0, ef.zeros((2, 2))])
    wanted = np.stack([f(row).numpy() for row in x])
    np.testing.assert_allclose(ef.vmap(f)(x).numpy(), wanted, rtol=1e-6)
    assert np.isfinite(ef.grad(lambda x: ef.vmap(f)(x).sum())(x).numpy()).all()


# Signals ------------------------------------------------------------------------------------------


def _taped_loop():
    with ef.GradientTape() as tape:
        a, _ = ef.while_loop(
            lambda s: s[1] < 3, lambda s: (s[0] * V, s[1] + 1), (1.0, 0), maximum_iterations=5
        )
    return float(tape.gradient(a, V))


def _eager():
    y = ef.ones(500) + 1.0
    return float((ef.concat([y, y])[3:9].reshape(2, 3) * 2.0).sum())


_captured = ef.function(lambda x: (x * x + V).sum())
WORK = {
    "taped loop": _taped_loop,
    "eager": _eager,
    "captured": lambda: float(_captured(ef.ones(2000))),
    "checkpoint": lambda: float(ef.grad(ef.checkpoint(lambda x: ef.sin(x) * V))(0.5)),
}


def test_signal_handler_error_propagates_from_tracing():
    def handler(signum, frame):
        raise TimeoutError("late")

    def body(i, x):
        signal.raise_signal(signal.SIGALRM)
        return x * V

    def looped(x):
        return ef.fori_loop(0, 3, body, x)

    with handling(handler):
        for call in (looped, ef.function(looped), ef.vmap(ef.checkpoint(looped))):
            with pytest.raises(TimeoutError, match="late"):
                call(ef.ones(3))


@pytest.mark.parametrize("kind", [TypeError, ValueError])
def test_signal_handler_error_is_not_taken_for_argument_error(kind):
    class Strange:
        """An array whose protocols are interrupted."""

        shape = ()

        def __dlpack__(self, **options):
            signal.raise_signal(signal.SIGALRM)

        def __dlpack_device__(self):
            return 1, 0

    class Branch:
        @property
        def __signature__(self):
            signal.raise_signal(signal.SIGALRM)

        def __call__(self, x):
            return x

    def handler(signum, frame):
        raise kind("late")

    with handling(handler):
        with pytest.raises(kind, match=r"^late$"):
            ef.asarray(Strange())
        with pytest.raises(kind, match=r"^late$"):
            ef.cond(True, Branch(), Branch(), ef.ones(()))


@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
def test_a_handler_raises_its_own_error(name):
    def handler(signum, frame):
        raise TimeoutError("late")

    work, kinds = WORK[name], set()
    work()
    for i in range(40):
        try:
            with handling(handler):
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00003 * i)
                end = time.perf_counter() + 0.2
                while time.perf_counter() < end:
                    work()
        except Exception as error:
            kinds.add(type(error))
    assert kinds == {TimeoutError}


@pytest.mark.soak
@pytest.mark.parametrize("name", WORK)
def test_signal_handler_assignments_stay_out_of_traces(name):
    count, calls, over = ef.Variable(0, trainable=False), [], []

    def handler(signum, frame):
        count.assign_add(1)
        calls.append(1)
        signal.setitimer(signal.ITIMER_REAL, 0.0 if over else 0.0007)

    work = WORK[name]
    wanted = work()
    with handling(handler):
        signal.setitimer(signal.ITIMER_REAL, 0.0007)
        try:
            assert all(work() == wanted for _ in range(60))
        finally:
            over.append(1)  # a handler that runs now does not set the timer again
    assert int(count.value) == len(calls)


class Doubled:
    def __call__(self, x):
        return ef.tanh(x) * 2.0

    method = __call__


CALLABLES = {
    "layer": ef.nn.Activation(lambda x: ef.tanh(x) * 2.0),
    "partial": partial(lambda a, x: ef.tanh(x) * a, 2.0),
    "object": Doubled(),
    "method": Doubled().method,
    "captured": ef.function(Doubled()),
}
KEEPING = {  # what gives the very values of its function
    "checkpoint": ef.checkpoint,
    "function": ef.function,
    "vmap": ef.vmap,
    "cond": lambda f: lambda x: ef.cond(ef.tensor(True), f, f, x),
    "jvp": lambda f: lambda x: ef.jvp(f, (x,), (x,))[0],
    "custom_gradient": lambda f: ef.custom_gradient(lambda x: (f(x), lambda g: g)),
}


@pytest.mark.parametrize("kind", CALLABLES)
@pytest.mark.parametrize("transform", KEEPING)
def test_any_callable_is_transformed(kind, transform):
    f, x = KEEPING[transform](CALLABLES[kind]), ef.tensor([[0.5, -1.0]])
    wanted = np.tanh(x.numpy()) * 2
    with ef.GradientTape() as tape:
        tape.watch(x)
        found = f(x)
    assert tape.gradient(found, x) is not None
    for result in (f(x), found, ef.function(lambda x: f(x))(x)):
        np.testing.assert_allclose(result.numpy(), wanted, 1e-5)
