"""Derivatives and their products in one kernel: the bits of the ops, and the right numbers."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow import pulls
from eagerflow.codegen import generated

FUNCTIONS = {
    # name: (of tensors, of NumPy arrays, which of two arguments it takes)
    "sqrt": (ef.sqrt, np.sqrt, 1),
    "rsqrt": (ef.rsqrt, lambda x: 1 / np.sqrt(x), 1),
    "log": (ef.log, np.log, 1),
    "log1p": (ef.log1p, np.log1p, 1),
    "exp2": (ef.exp2, np.exp2, 1),
    "tanh": (ef.tanh, np.tanh, 1),
    "reciprocal": (ef.reciprocal, lambda x: 1 / x, 1),
    "atan": (ef.atan, np.arctan, 1),
    "cube": (lambda x: x**3, lambda x: x**3, 1),
    "over number": (lambda x: x / 3.0, lambda x: x / 3.0, 1),
    "number over": (lambda x: 3.0 / x, lambda x: 3.0 / x, 1),
    "divide": (ef.divide, np.divide, 2),
    "power": (ef.power, np.power, 2),
    "hypot": (ef.hypot, np.hypot, 2),
    "atan2": (ef.atan2, np.arctan2, 2),
    "squared difference": (
        lambda x, y: ef.ops.nn.differences.squared_difference(x, y),
        lambda x, y: (x - y) ** 2,
        2,
    ),
}
ef.ops.load("nn.differences")
SHAPES = [(), (1,), (4, 4), (3, 0), (7, 5), (40, 50), (3, 700)]


def gradients(f, values, g=None, dtype="float64"):
    """The value of a function and its gradients, all as arrays."""
    xs = [ef.tensor(v, dtype) for v in values]
    with ef.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    return y.numpy(), [x.numpy() for x in tape.gradient(y, xs, g)]


def differences(f, values, step=1e-6):
    """Gradients of the sum of an element-wise function, by central differences in float64."""
    found = []
    for i, own in enumerate(values):
        moved = [[v + (j == i) * s for j, v in enumerate(values)] for s in (step, -step)]
        slope = (f(*moved[0]) - f(*moved[1])) / (2 * step)
        extra = tuple(range(slope.ndim - own.ndim))
        slope = slope.sum(axis=extra)
        ones = tuple(j for j, n in enumerate(own.shape) if n == 1 and slope.shape[j] != 1)
        found.append(slope.sum(axis=ones, keepdims=True))
    return found


def drawn(shape, seed):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def without_kernels(f, *args, **named):
    """What the ops give one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulls.Pull, "of", lambda self, g, entry: None)
        return f(*args, **named)


def check(name, values):
    f, wanted, _ = FUNCTIONS[name]
    _, found = gradients(f, values)
    _, plain = without_kernels(gradients, f, values)
    for own, right, same in zip(found, differences(wanted, values), plain, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-7, atol=1e-8)
        assert own.tobytes() == same.tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 99))
def test_gradients_equal_the_ops_bitwise(name, shape, seed):
    check(name, [drawn(shape, seed + i) for i in range(FUNCTIONS[name][2])])


@pytest.mark.parametrize("name", [n for n, (_, _, count) in FUNCTIONS.items() if count == 2])
@pytest.mark.parametrize("shapes", [((4, 1), (3,)), ((), (5,)), ((60, 50), (50,)), ((2, 0), (1,))])
def test_operands_that_broadcast(name, shapes):
    check(name, [drawn(shape, i) for i, shape in enumerate(shapes)])
    check(name, [drawn(shape, i) for i, shape in enumerate(shapes[::-1])])


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2, ::-1], lambda a: a[:, :1]])
@pytest.mark.parametrize("size", [6, 80])
def test_views(view, size):
    for name, (_, _, count) in FUNCTIONS.items():
        check(name, [view(drawn((size, size), i)) for i in range(count)])


@pytest.mark.parametrize("size", [5, 3000])
def test_the_same_operand_twice(size):
    x = drawn(size, 0)
    for f, right in (
        (lambda x: x / x, np.zeros(size)),
        (lambda x: x * x, 2 * x),
        (lambda x: x**2 / x, np.ones(size)),
        (lambda x: ef.hypot(x, x), np.full(size, np.sqrt(2))),
    ):
        np.testing.assert_allclose(gradients(f, [x])[1][0], right, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("size", [5, 3000])
def test_dtypes(dtype, size):
    x = drawn(size, 1)
    _, (found,) = gradients(lambda x: ef.log(x) / x, [x], dtype=dtype)
    assert str(found.dtype) == dtype
    rtol = {"bfloat16": 0.05, "float16": 0.01}.get(dtype, 1e-5)
    np.testing.assert_allclose(found.astype(complex), (1 - np.log(x)) / x**2, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("size", [4, 4000])
def test_zero_wins_over_infinite_derivatives(size):
    x = np.tile([0.0, 4.0], size // 2)
    masked = lambda x: ef.where(x > 0, ef.sqrt(x), 0.0)
    assert gradients(masked, [x])[1][0].tolist() == [0.0, 0.25] * (size // 2)


@pytest.mark.parametrize("size", [4, 4000])
def test_infinity_and_nan_come_through(size):
    x = np.resize([0.0, np.nan, np.inf, 1.0], size)
    found = gradients(ef.sqrt, [x])[1][0]
    np.testing.assert_array_equal(found, np.resize([np.inf, np.nan, 0.0, 0.5], size))


@pytest.mark.parametrize("size", [4, 3000])
def test_second_derivatives(size):
    x = drawn(size, 2)
    y = ef.tensor(x)
    with ef.GradientTape() as outer:
        outer.watch(y)
        with ef.GradientTape() as inner:
            inner.watch(y)
            z = ef.log(y) / 2.0 + ef.sqrt(y)
        first = inner.gradient(z, y)
    second = outer.gradient(first, y).numpy()
    np.testing.assert_allclose(second, -0.5 / x**2 - 0.25 * x**-1.5, rtol=1e-6)


def test_gradients_stay_when_memory_is_used_again():
    """Buffers come from a pool: values in use and their views keep theirs."""
    x = drawn((64, 2048), 3).astype(np.float32)
    first = gradients(lambda x: 1 / x, [x], dtype="float32")[1][0]
    view, before = first[3, ::2], first.copy()
    kept = view.copy()
    del first
    others = [gradients(lambda x, s=s: s / x, [x], dtype="float32")[1][0] for s in (2.0, 3.0)]
    np.testing.assert_array_equal(view, kept)
    np.testing.assert_allclose(others[1], 3 * before, rtol=1e-5)


def test_threads_get_their_own_results():
    def work(seed):
        x = drawn((50, 60), seed)
        return all(
            np.allclose(gradients(lambda x: ef.sqrt(x) / x, [x])[1][0], -0.5 * x**-1.5)
            for _ in range(20)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_numbers_that_change_do_not_fill_the_memory():
    x = drawn(4, 5)
    for i in range(3 * pulls.MAX_KERNELS):
        exponent = 3.0 + i / 64
        found = gradients(lambda x, e=exponent: x**e, [x])[1][0]
        np.testing.assert_allclose(found, exponent * x ** (exponent - 1), rtol=1e-12)
    rules = ef.power.op.rules[pulls.PLAIN]
    assert all(
        len(rule._kernels) <= pulls.MAX_KERNELS for what, rule, _ in rules if what is pulls.KERNEL
    )


def test_errors_leave_the_tape_as_it_was():
    x = ef.tensor([1.0, 2.0])
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ef.log(x)
    with pytest.raises(ef.errors.ShapeError):
        tape.gradient(y, x, ef.tensor([1.0, 2.0, 3.0]))
    assert tape.gradient(y, x).tolist() == [1.0, 0.5]


@pytest.fixture
def planted(monkeypatch):
    """A function that puts another one in the place of all kernels of an op."""

    def plant(op, instead):
        own = pulls.kernel_for
        monkeypatch.setattr(
            pulls,
            "kernel_for",
            lambda *given: (k := own(*given)) and k._replace(few=instead, many=instead),
        )
        monkeypatch.setattr(op, "rules", [None] * 4)

    return plant


def test_a_kernel_that_fails_leaves_the_ops(planted):
    def refuse(*given):
        raise RuntimeError("planted")

    planted(ef.tanh.op, refuse)
    check("tanh", [drawn((4, 4), 6)])
    assert any(what is pulls.KERNEL for what, _, _ in ef.tanh.op.rules[pulls.PLAIN])


@pytest.mark.parametrize("size", [4, 3000])
def test_a_planted_bug_is_found(planted, size):
    planted(ef.tanh.op, lambda g, *arrays: g * 0.5)
    with pytest.raises(AssertionError):
        check("tanh", [drawn(size, 0)])


def test_rules_that_are_one_op_have_no_kernel():
    """A kernel of a single step would only cost the way to it."""
    x = drawn((4, 4), 8)
    gradients(ef.sinh, [x])
    assert all(rule is not None for rule in pulls.rules_of(ef.sinh.op, pulls.PLAIN))
    whole = pulls.rules_of(ef.sigmoid.op, pulls.PLAIN)
    assert [what for what, _, _ in whole] == [pulls.WHOLE]
    assert pulls.rules_of(ef.matmul.op, pulls.PLAIN) is False


@pytest.mark.skipif(not generated.enabled(), reason="there is no compiler")
def test_earlier_calls_do_not_change_bits():
    x = drawn(5000, 9).astype(np.float32)
    first = gradients(ef.tanh, [x], dtype="float32")[1][0]
    gradients(ef.tanh, [x[:7]], dtype="float32")
    assert gradients(ef.tanh, [x], dtype="float32")[1][0].tobytes() == first.tobytes()


BOUNDS = [None, 1.5, 1, np.float32(2.5), ef.tensor(0.5), ef.tensor([3.5])]


@pytest.mark.parametrize("bounds", [*itertools.permutations(BOUNDS, 2)], ids=str)
def test_kernels_are_for_arguments_in_their_places(bounds):
    """What was learned for one limit is not for the other one."""
    x = ef.tensor(np.linspace(0, 4, 9), "float32")

    def slopes(low, high):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = ef.clip(x, low, high)
        return tape.gradient(y, x).numpy()

    def wanted(low, high):
        values = x.numpy()
        below = True if high is None else values <= np.asarray(high)
        return np.float32((values >= (-1 if low is None else np.asarray(low))) & below)

    for pair in (bounds, bounds[::-1], bounds):
        assert np.array_equal(slopes(*pair), wanted(*pair)), pair


LAYOUTS = {
    "rows": lambda a: a,
    "columns": lambda a: np.asfortranarray(a),
    "turned": lambda a: np.ascontiguousarray(a.transpose(1, 2, 0)).transpose(2, 0, 1),
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
}


@pytest.mark.parametrize("shape", [(3, 4, 2), (5, 1, 7), (6, 30, 11)])
@pytest.mark.parametrize("above", ["rows", "mean along 1", "mean along 2", "turned", "sum"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_lie_in_memory_as_those_of_ops(layout, above, shape):
    """Sums round by the order in memory of what they add up: exact functions have their bits."""
    rng = np.random.default_rng(0)
    x = ef.asarray(LAYOUTS[layout](rng.normal(size=shape).astype("f4")))
    weights = ef.asarray(rng.normal(size=shape).astype("f4"))
    below = {
        "rows": lambda y: ef.sum(y * weights),
        "mean along 1": lambda y: ef.sum(ef.mean(y, axis=1) * weights[:, 0]),
        "mean along 2": lambda y: ef.sum(ef.mean(y, axis=2) * weights[..., 0]),
        "turned": lambda y: ef.sum(y.mT * ef.asarray(weights.numpy().swapaxes(1, 2).copy())),
        "sum": ef.sum,
    }[above]
    for name in ("relu6", "tanh", "mish", "softsign", "hard_sigmoid", "silu", "selu", "logaddexp"):
        op = getattr(ef, name)

        def sums(x, op=op, pair=name == "logaddexp"):
            with ef.GradientTape() as tape:
                tape.watch(x)
                loss = below(op(x, weights) if pair else op(x))
            g = tape.gradient(loss, x)
            return [ef.sum(g, axis=axis) for axis in (0, 1, 2, (0, 1), (0, 1, 2))]

        for found, wanted in zip(ef.function(sums, numerics="exact")(x), sums(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy(), err_msg=name)
