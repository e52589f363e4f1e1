"""Sizes that vary between calls become free by themselves; every result is that of eager code."""

import dataclasses
import functools
import math
import random

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import varying
from eagerflow.errors import EagerflowError
from eagerflow.plan.replay import CALLS_BEFORE_PLAN
from tests.internals import entries_of

pytestmark = pytest.mark.filterwarnings("ignore:.* was traced for")

W = ef.tensor(np.linspace(-1, 1, 12).reshape(4, 3).astype("float32"))
FACTOR = 1.0
TABLE = {5: 2.0, 8: 3.0}
STEPS = ef.Variable(np.zeros(3, "float32"))


@dataclasses.dataclass
class Batch:
    """A nest of the user's."""

    x: object
    y: object


@functools.lru_cache
def factor(n):
    return 1.0 / (n + 1)


def by_table(x, y):
    return x * TABLE.get(x.shape[0], 1.0)


def by_text(x, y):
    return x * len(f"{x.shape[0]}")


def by_type(x, y):
    n = x.shape[0]
    return x * 2.0 if isinstance(n, int) else x * 3.0


def by_shape(x, y):
    return x * 2.0 if x.shape == (8, 4) else x * 3.0


def by_rest(x, y):
    return x.sum() if x.shape[0] % 2 else x.mean()


def by_caught_error(x, y):
    try:
        n = int(x.shape[0])
    except Exception:
        n = 1000
    return x * n


def by_remembered_size(x, y):
    sizes = set()
    sizes.add(x.shape[0])
    return x * (2.0 if 5 in sizes else 1.0)


def with_gradient(x, y):
    x = ef.tensor(x) if isinstance(x, np.ndarray) else x
    with ef.GradientTape() as tape:
        tape.watch(x)
        loss = ((x @ W) ** 2).mean() + (y * x[:, 0]).sum() / x.shape[0]
    return tape.gradient(loss, x)


def with_state(x, y):
    STEPS.assign_add(x.sum(axis=0)[:3] / x.shape[0])
    return STEPS.value * 1.0


def with_scan(x, y):
    return ef.scan(lambda c, row: (c + row, c * 2.0), ef.zeros(4), x)


def with_loop(x, y):
    return ef.fori_loop(0, 3, lambda i, v: v + y.sum() / x.shape[0], x)


def with_branch(x, y):
    return ef.cond(x.sum() > 0, lambda: x * x.shape[0], lambda: x - x.shape[0])


def with_nest(batch):
    return batch.x * batch.y[:, None], batch.x.shape[1]


PROGRAMS = [
    by_table, by_text, by_type, by_shape, by_rest, by_caught_error, by_remembered_size,
    with_gradient, with_state, with_scan, with_loop, with_branch,
    lambda x, y: x * factor(x.shape[0]),
    lambda x, y: x.sum(axis=0) / x.shape[0],
    lambda x, y: x * math.sqrt(x.shape[0]),
    lambda x, y: x * x.shape[0] ** 0.5 + 1 / x.shape[0],
    lambda x, y: x * float(x.shape[0]),
    lambda x, y: x * len(x),
    lambda x, y: x * (x.shape[0] > 4) + (3 <= x.shape[0] < 9),
    lambda x, y: x[: max(x.shape[0] - 4, 2)],
    lambda x, y: x[: min(x.shape[0], 5)],
    lambda x, y: x[: x.shape[0] // 2],
    lambda x, y: (x[:5], x[:-1], x[1:], x[-3:], x[::2], x[: 10**9], x[x.shape[0] - 2 :]),
    lambda x, y: x[1:] - x[:-1],
    lambda x, y: x[2:] * y[:-2, None],
    lambda x, y: x[::-1].cumsum(axis=0),
    lambda x, y: x.reshape(-1),
    lambda x, y: x.reshape(x.shape[0] * 2, 2),
    lambda x, y: ef.concat([x, x[:2], ef.zeros((x.shape[0], 4))], axis=0),
    lambda x, y: ef.stack([x, x * 2.0], axis=1),
    lambda x, y: ef.pad(x, ((1, 2), (0, 0))),
    lambda x, y: ef.pad(x, ((0, 0), (1, 1)), mode="reflect"),
    lambda x, y: ef.pad(x, ((1, 1), (0, 0)), mode="edge"),
    lambda x, y: ef.split(x, 2, axis=1),
    lambda x, y: ef.split(x, [1, 3], axis=0),
    lambda x, y: x + y[:, None] * ef.arange(4),
    lambda x, y: ef.arange(x.shape[0]) * y,
    lambda x, y: x @ W + ef.eye(x.shape[0])[:, :3] if x.shape[0] > 3 else x @ W,
    lambda x, y: x @ x.mT,
    lambda x, y: ef.softmax(x @ x.mT / x.shape[0], axis=-1) @ x,
    lambda x, y: ef.sort(x, axis=0),
    lambda x, y: ef.argmax(x, axis=0),
    lambda x, y: ef.take(x, ef.argsort(y), axis=0),
    lambda x, y: ef.where(y[:, None] > 0, x, 0.0),
    lambda x, y: ef.var(x, axis=0),
    lambda x, y: [row * 2.0 for row in x[:2]],
    lambda x, y: sum(x[i] for i in range(x.shape[0])) if x.shape[0] else x,
    lambda x, y: x * np.sqrt(x.shape[0]),
    lambda x, y: x * np.arange(x.shape[0], dtype="float32")[:, None],
    lambda x, y: x * x.size,
    lambda x, y: (x, x.shape[0], x.shape),
    lambda x, y: x * (x.shape[0] == y.shape[0]),
    lambda x, y: x if x.shape[0] in (3, 8) else -x,
    lambda x, y: x * hash(x.shape[0]),
    lambda x, y: x * [1.0, 2.0, 3.0][x.shape[0] % 3],
    lambda x, y: x * divmod(x.shape[0], 3)[1],
    lambda x, y: x * round(x.shape[0] / 2),
    lambda x, y: x * abs(x.shape[0] - 5),
    lambda x, y: x * bool(x.shape[0] - 5),
    lambda x, y: ef.broadcast_to(y[:, None], (x.shape[0], 2)),
    lambda x, y: ef.vmap(lambda r: r * r.sum())(x),
    lambda x, y: ef.one_hot(ef.arange(x.shape[0]), x.shape[0]),
    lambda x, y: ef.tile(y, 2),
    lambda x, y: ef.repeat(y, 2),
    lambda x, y: x.T.reshape(4, x.shape[0]),
    lambda x, y: ef.triu(x @ x.mT),
    lambda x, y: ef.einsum("ij,i->j", x, y),
    lambda x, y: ef.linalg.norm(x, axis=0),
]  # fmt: skip


def result(f, *args):
    """The leaves of a result as arrays, or the kind of the error."""
    try:
        return [np.asarray(x) for x in ef.tree.flatten(f(*args))[0]]
    except (EagerflowError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        return type(error).__name__


def agree(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, 1e-5, 1e-5, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def arguments(n, kind, rng):
    x = rng.normal(size=(n, 4)).astype("float32")
    y = rng.normal(size=n).astype("float32")
    return (x, y) if kind == "arrays" else (ef.tensor(x), ef.tensor(y))


def check(f, seed, kind="tensors", numerics="fast"):
    captured, rng = ef.function(f, numerics=numerics), np.random.default_rng(seed)
    sizes = random.Random(seed)
    for _ in range(30):
        args = arguments(sizes.choice([0, 1, 2, 3, 4, 5, 8, 8, 13, 16]), kind, rng)
        STEPS.assign(np.zeros(3, "float32"))
        wanted = result(f, *map(ef.tensor, args))
        STEPS.assign(np.zeros(3, "float32"))
        assert agree(result(captured, *args), wanted), (args[0].shape, wanted)
    return captured


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_results_are_those_of_eager_code(number):
    check(PROGRAMS[number], number)
    check(PROGRAMS[number], number + 1000, "arrays")


FREE = [
    with_gradient,
    with_state,
    with_scan,
    with_loop,
    with_branch,
    *PROGRAMS[13:14],
    *PROGRAMS[15:16],
]


@pytest.mark.parametrize("f", FREE)
def test_one_graph_serves_all_sizes_but_0_and_1(f):
    captured = check(f, 7)
    assert len(captured.graphs) <= 4  # of the first size, of all sizes, of 0 and of 1
    assert "sizes that vary are free" in captured.explain()


@pytest.mark.parametrize("f", [f for f in PROGRAMS if f not in (PROGRAMS[12],)])
def test_exact_results_are_those_of_eager_code_bit_for_bit(f):
    captured, rng = ef.function(f, numerics="exact"), np.random.default_rng(3)
    for n in (5, 8, 13, 8, 13, 16, 16, 5):
        args = arguments(n, "tensors", rng)
        STEPS.assign(np.zeros(3, "float32"))
        wanted = result(f, *args)
        STEPS.assign(np.zeros(3, "float32"))
        for one, other in zip(result(captured, *args), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_size_has_the_same_bits_whether_it_came_first_or_later(number):
    """As a training that is resumed at another batch needs."""
    f, args = PROGRAMS[number], arguments(8, "tensors", np.random.default_rng(0))
    first, later = ef.function(f), ef.function(f)
    result(later, *arguments(13, "tensors", np.random.default_rng(1)))
    STEPS.assign(np.zeros(3, "float32"))
    wanted = result(first, *args)
    STEPS.assign(np.zeros(3, "float32"))
    assert str(result(later, *args)) == str(wanted)
    for one, other in zip(result(later, *args), wanted, strict=True):
        np.testing.assert_array_equal(one, other) if f is not with_state else None


def test_a_dataclass_of_batches():
    rng = np.random.default_rng(0)
    captured = ef.function(with_nest)
    for n in (4, 7, 9, 9, 12):
        batch = Batch(*arguments(n, "tensors", rng))
        found, wanted = captured(batch), with_nest(batch)
        np.testing.assert_allclose(found[0], wanted[0], 1e-6)
        assert found[1] == wanted[1] == 4
    assert len(captured.graphs) == 2


def test_sizes_that_were_equal_and_then_differ():
    captured = ef.function(lambda x, y: (x.sum() + x.shape[0], y.sum() * y.shape[0]))
    for n, m in ((3, 3), (5, 5), (6, 6), (4, 7), (8, 2), (9, 9)):
        found = captured(ef.ones(n), ef.ones(m))
        assert [float(x) for x in found] == [2 * n, m * m]
    assert len(captured.graphs) == 3


def test_arguments_with_the_same_label_have_sizes_of_their_own():
    captured = ef.function(lambda a, a_0: (a[0] * 2.0, a_0.sum()))
    for n, m in ((3, 5), (4, 9), (4, 9), (6, 7), (8, 8), (20, 5), (5, 20)):
        for _ in range(CALLS_BEFORE_PLAN + 2):
            double, total = captured([ef.ones(n)], ef.ones(m))
            assert double.tolist() == [2.0] * n and float(total) == m
    shapes = [value.shape for value in captured.graphs[-1].inputs]
    assert len(set(shapes)) == 2


def test_free_sizes_of_a_signature_whose_labels_are_equal():
    free = ef.TensorSpec((None,), "float32")
    captured = ef.function(lambda a, a_0: a[0].sum() + a_0.sum(), input_signature=[[free], free])
    for n, m in ((3, 5), (4, 4), (7, 2)):
        assert float(captured([ef.ones(n)], ef.ones(m))) == n + m


def test_gradients_through_calls_of_many_sizes():
    f = lambda x: (ef.tanh(x) ** 2).sum() / x.shape[0]
    captured = ef.function(f)
    for n in (3, 5, 8, 8, 6, 5):
        x = ef.tensor(np.linspace(-1, 1, n).astype("float32"))
        with ef.GradientTape(persistent=True) as tape:
            tape.watch(x)
            found, wanted = captured(x), f(x)
        np.testing.assert_allclose(tape.gradient(found, x), tape.gradient(wanted, x), 1e-5)


def test_graph_is_that_of_its_arguments_alone():
    captured = ef.function(lambda x: x * 2.0)
    for n in (3, 4, 5):
        captured(ef.ones(n))
    assert captured.graph(ef.ones(5)).inputs[0].shape == (5,)


def test_results_and_values_that_are_held_stay_as_they_are():
    w = ef.Variable(np.zeros((300, 200), "float32"))

    def step(x):
        w.assign_add(ef.ones((300, 200)) * x.mean())
        return w.value, x * 2.0

    captured, held = ef.function(step), []
    total = 0.0
    for n in [4, 5, 6, 7, 6, 5, 4] * 8:
        value, double = captured(ef.full((n,), float(n)))
        total += n
        held.append((value, double, w.numpy(), total, n))
    for value, double, read, expected, n in held:
        assert float(value[0, 0]) == float(read[-1, -1]) == expected
        assert double.tolist() == [2.0 * n] * n


def test_a_changed_global_is_seen_by_all_sizes():
    global FACTOR
    FACTOR = 2.0
    captured = ef.function(lambda x: x * FACTOR)
    for n in (3, 4, 5, 6):
        assert float(captured(ef.ones(n))[0]) == FACTOR
    FACTOR = 3.0
    for n in (3, 4, 5, 6):
        assert float(captured(ef.ones(n))[0]) == FACTOR


def test_many_calls_of_a_size_get_a_plan():
    captured = ef.function(lambda x: ef.tanh(x).sum())
    for n in (3, 4, 5):
        captured(ef.ones(n))
    (replay,) = [entry.replay for entry in entries_of(captured) if entry.sizes is not None]
    assert len(replay.plans.items) == 1
    for _ in range(CALLS_BEFORE_PLAN):
        captured(ef.ones(5))
    assert len(replay.plans.items) == 2


def test_sizes_in_turn_beyond_the_bound_of_plans():
    captured = ef.function(lambda x: ef.tanh(x).sum() / x.shape[0], max_graphs=3)
    for _ in range(6 * CALLS_BEFORE_PLAN):
        for n in (3, 4, 5, 6, 7, 8):
            assert abs(float(captured(ef.ones(n))) - math.tanh(1.0)) < 1e-6
    assert len(captured.graphs) == 2


def test_a_signature_traces_each_side_of_a_comparison():
    calls = []

    @ef.function(input_signature=[ef.TensorSpec((None,), "float32")])
    def f(x):
        calls.append(1)
        return x.sum() if x.shape[0] > 3 else x.sum() * -1.0

    for n in (2, 5, 3, 9, 1, 4):
        assert float(f(ef.ones(n))) == (n if n > 3 else -n)
    assert len(calls) == 2


def test_sizes_leave_a_call_as_numbers():
    captured = ef.function(lambda x: (x.sum(), x.shape[0] * 2, x.shape))
    for n in (3, 4, 5):
        found = captured(ef.ones(n))
        assert found[1:] == (2 * n, (n,)) and type(found[1]) is int


def test_reasons_and_one_warning_where_sizes_cannot_be_free():
    captured = ef.function(lambda x: [x * i for i in range(x.shape[0])])
    with pytest.warns(UserWarning, match="a trace with free sizes failed: the size of") as caught:
        for n in range(2, 12):
            captured(ef.ones(n))
    assert len(caught) == 1 and "test_varying_sizes.py:" in str(caught[0].message)


def test_values_put_into_numpy_arrays_are_named():
    def f(x):
        out = np.zeros(3, "float32")
        out[0] = x[0]
        return x + out

    with pytest.raises(ef.errors.CaptureError, match=r"x\.at\[i\]\.set"):
        ef.function(f)(ef.ones(3))


def test_len_of_a_free_size_says_what_to_write():
    f = ef.function(lambda x: x / len(x), input_signature=[ef.TensorSpec((None,), "float32")])
    with pytest.raises(ef.errors.CaptureError, match=r"x\.shape\[0\] in place of len"):
        f(ef.ones(3))


def test_prints_of_many_sizes_show_their_values(capsys):
    def f(x):
        ef.print("{} of {:.1f}", x.shape[0], x.sum())
        return x * 2.0

    captured = ef.function(f)
    for n in (3, 4, 5, 6):
        captured(ef.ones(n))
    assert capsys.readouterr().out.split("\n")[:-1] == [f"{n} of {n}.0" for n in (3, 4, 5, 6)]
    assert len(captured.graphs) == 2


# What is known of the shapes of calls -------------------------------------------------------------


def test_a_question_about_a_size_has_a_graph_for_each_answer():
    traces = []

    @ef.function
    def f(x):
        traces.append(x.shape)
        return x * 2.0 if x.shape[0] > 4 else x * 3.0

    for n in (2, 3, 5, 6, 3, 7, 2, 9, 4):
        np.testing.assert_array_equal(
            f(np.ones(n, "f4")).numpy(), np.full(n, 2.0 if n > 4 else 3.0)
        )
    assert len(traces) == 3  # the first call, and both answers


def test_patterns_that_cannot_be_traced_are_given_up():
    known = varying.Varying(ef.tree.flatten([0])[1], 2)
    assert known.pattern(((2,),), ["x"]) is None
    for n in range(3, 3 + varying.MAX_FAILURES):
        pattern = known.pattern(((n,),), ["x"])
        assert pattern == (("x_dim0",),)
        known.refuse(pattern)
    assert known.pattern(((99,),), ["x"]) is None


def test_the_first_and_the_latest_shapes_are_kept():
    known = varying.Varying(ef.tree.flatten([0])[1], 100)
    shapes = [((n,),) for n in range(2, 30)]
    for one in shapes:
        known.pattern(one, ["x"])
        known.pattern(one, ["x"])
    assert known.shapes == [shapes[0], *shapes[1 - varying.MAX_SHAPES :]]
