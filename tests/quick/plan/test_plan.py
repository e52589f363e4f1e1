"""Plans: readable programs over private buffers, which never leak."""

import ast
import gc
import inspect
import linecache
import random
import threading
import traceback
import tracemalloc

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.devices import current_device
from eagerflow.errors import EagerflowError, IndexRangeError, ShapeError
from eagerflow.fusion.groups import fuse
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import Replay
from tests.capture.placement.several_devices import random_program
from tests.internals import array_in, array_of

X = ef.tensor([1.0, 2.0, 3.0])


def step_of(size=64, width=32):
    """A training step with momentum, and what it trains."""
    rng = np.random.default_rng(0)
    ws = [
        ef.Variable(rng.normal(size=s).astype("float32") * 0.3, name=f"w{i}")
        for i, s in enumerate([(width, size), (size, size), (size, 3)])
    ]
    ms = [
        ef.Variable(np.zeros(w.shape, "float32"), name=f"m{i}", trainable=False)
        for i, w in enumerate(ws)
    ]

    def step(x, labels):
        with ef.GradientTape() as tape:
            h = x
            for w in ws[:-1]:
                h = ef.tanh(h @ w)
            loss = ef.mean(ef.sparse_softmax_cross_entropy(h @ ws[-1], labels))
        for w, m, g in zip(ws, ms, tape.gradient(loss, ws), strict=True):
            m.assign(0.9 * m + g)
            w.assign_sub(0.1 * m)
        return loss

    x = ef.tensor(rng.normal(size=(16, width)).astype("float32"))
    labels = ef.tensor(rng.integers(0, 3, 16))
    return step, ws, ms, (x, labels)


# Reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_the_source_is_python_with_the_users_lines(numerics):
    step, *_, args = step_of()
    graph = ef.function(step, numerics=numerics).graph(*args)
    plan = graph.plan(numerics=numerics)
    text = plan.source()
    module = ast.parse(text)
    assert [f.name for f in module.body] == ["replay"]
    lines, first = inspect.getsourcelines(step)
    marks = {f"test_plan.py:{first + i}" for i in range(len(lines))}
    assert sum(any(m in row for m in marks) for row in text.splitlines()) >= 4
    assert str(plan).startswith("<Plan of step: ")
    assert plan.buffer_bytes > 0
    assert bool(plan.kernels) == (numerics == "fast")


def test_names_that_python_would_not_take():
    def f(x):
        return {"class": x * 2, "1st": x + 1, "a b": x - 1, "import": ef.sin(x), "replay": x / 2}

    names = ["class", "def", "buffers", "max", "x y", "été", "int", "range", "_"]
    for name in names:
        v = ef.Variable(2.0, name=name)
        graph = ef.capture.trace(
            lambda x, v=v: f(x * v), ef.TensorSpec((3,), "float32", name=f"{name} in")
        )
        ast.parse(graph.plan(numerics="exact").source())
        for numerics in ("fast", "exact"):
            found = Replay(graph, numerics).run([X])
            assert found[0].tolist() == [4.0, 8.0, 12.0]


def test_tracebacks_show_the_program_and_the_users_line():
    def look(x, i):
        y = ef.sin(x)
        return ef.take(y, i)

    step = ef.function(look, numerics="exact")
    step(X, ef.tensor([0]))
    with pytest.raises(IndexRangeError) as caught:
        step(X, ef.tensor([5]))
    text = "".join(traceback.format_exception(caught.value))
    assert "take = _take(" in text  # the plan's own line
    line = inspect.getsourcelines(look)[1] + 2
    assert f"test_plan.py:{line} in look" in str(caught.value)
    assert "index 5 is out of range" in str(caught.value)


def test_sources_go_with_their_plans():
    before = len(linecache.cache)
    for i in range(20):
        ef.function(lambda x, i=i: x * 2 + i)(X)
    gc.collect()
    assert len(linecache.cache) < before + 10


def test_sizes_have_plans_of_their_own():
    graph = ef.capture.trace(lambda x: ef.tanh(x) * 2, ef.TensorSpec(("n",), "float32"))
    assert "replay" in graph.plan(sizes={"n": 3}).source()
    assert graph.plan(sizes={"n": 3}) is graph.plan(sizes={"n": 3})
    assert graph.plan(sizes={"n": 3}) is not graph.plan(sizes={"n": 4})
    with pytest.raises(ShapeError, match="the sizes of n are not given"):
        graph.plan()


# Results are not shared ---------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_results_of_earlier_runs_stay(numerics):
    f = lambda x: (ef.tanh(x) * 2, ef.reshape(x * 3, (-1,)), ef.sum(x), (x + 1).T, ef.sin(x)[1:])
    step = ef.function(f, numerics=numerics)
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(20):
        x = ef.tensor(rng.normal(size=(40, 50)).astype("float32"))
        found = step(x)
        kept.append((found, [y.numpy().copy() for y in found], x, x.numpy().copy()))
    for found, copies, x, before in kept:
        assert x.numpy().tobytes() == before.tobytes()
        for y, copy in zip(found, copies, strict=True):
            assert y.numpy().tobytes() == copy.tobytes()


class Holder:
    """A holder of a Variable's value, in each of the possible ways, which notices any change."""

    WAYS = ("tensor", "array", "view", "dlpack", "memory", "tape", "slice", "result", "nothing")

    def __init__(self, variable, way, step):
        self.value = variable.numpy().copy()
        self.held = None
        if way == "tensor":
            self.held = variable.value
        elif way == "array":
            self.held = variable.numpy()
        elif way == "view":
            self.held = variable.numpy()[::2].T
            self.value = self.value[::2].T
        elif way == "dlpack":
            self.held = np.from_dlpack(variable.value)
        elif way == "memory":
            self.held = memoryview(variable.numpy())
        elif way == "tape":
            self.tape = ef.GradientTape(persistent=True)
            with self.tape:
                self.tape.watch(variable)
                self.y = ef.sum(variable * variable * 0.5)
            self.variable = variable
        elif way == "slice":
            self.held = variable[:1]
            self.value = self.value[:1]
        elif way == "result":
            self.held = ef.function(lambda: ef.reshape(variable.value, variable.shape))()

    def check(self, way):
        if way == "tape":
            found = self.tape.gradient(self.y, self.variable).numpy()
            assert found.tobytes() == self.value.tobytes(), "a tape sees another value"
        elif way != "nothing":
            found = np.asarray(self.held)
            assert found.tobytes() == self.value.tobytes(), f"{way} sees another value"


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("seed", range(6))
def test_inplace_updates_are_invisible_to_holders(numerics, seed):
    step, ws, ms, args = step_of()
    plain, vs, ns, _ = step_of()
    fast = ef.function(step, numerics=numerics)
    pick = random.Random(seed)
    holders = []
    for _ in range(25):
        for variable in (*ws, *ms):
            if pick.random() < 0.15:
                way = pick.choice(Holder.WAYS)
                holders.append((way, Holder(variable, way, step)))
        if pick.random() < 0.3:
            del holders[: len(holders) // 2]
        fast(*args)
        plain(*args)
        for way, holder in holders:
            holder.check(way)
        if pick.random() < 0.1:
            ws[0].assign(ws[0] * 0.5)
            vs[0].assign(vs[0] * 0.5)
    for a, b in zip((*ws, *ms), (*vs, *ns), strict=True):
        if numerics == "exact":
            assert a.numpy().tobytes() == b.numpy().tobytes()
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not kernel.has_segments(), reason="that takes machine code")
def test_unshared_variables_are_updated_in_place():
    step, ws, ms, args = step_of(size=256, width=128)
    fast = ef.function(step)
    fast(*args)
    addresses = [array_in(w).ctypes.data for w in (*ws, *ms)]
    for _ in range(3):
        fast(*args)
    again = [array_in(w).ctypes.data for w in (*ws, *ms)]
    assert sum(a == b for a, b in zip(addresses, again, strict=True)) >= 4


def test_assigning_arguments_constants_and_other_variables():
    a, b = ef.Variable([1.0, 2.0, 3.0], name="a"), ef.Variable([4.0, 5.0, 6.0], name="b")
    shift = ef.tensor([0.5, 0.5, 0.5])

    @ef.function
    def swap(x):
        kept = a.value
        a.assign(b)
        b.assign(kept)
        return kept

    @ef.function
    def take(x):
        a.assign(x)
        b.assign(shift)
        return a.value

    kept = swap(X)
    assert (a.tolist(), b.tolist(), kept.tolist()) == ([4, 5, 6], [1, 2, 3], [1, 2, 3])
    array = np.ones(3, "float32")
    take(array)
    array[:] = 9.0
    a.assign_add(1.0)
    assert (a.tolist(), b.tolist()) == ([2, 2, 2], [0.5, 0.5, 0.5])
    add = ef.function(lambda: (a.assign(a + b), b.assign(a * 2.0), None)[2])
    for _ in range(2):
        add()
    assert b.tolist() == [15.0] * 3
    assert a.tolist() == [7.5] * 3
    assert shift.tolist() == [0.5] * 3


# Errors leave Variables as they were --------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("where", ["before", "between", "after", "in a branch", "in a loop"])
def test_errors_in_the_middle(numerics, where):
    w = ef.Variable(np.ones((50, 60)), dtype="float32", name="w")
    m = ef.Variable(np.zeros((50, 60)), dtype="float32", name="m")
    count = ef.Variable(0, name="count")
    table = ef.tensor(np.arange(10.0), dtype="float32")

    def f(x, i):
        y = table[i] if where == "before" else ef.zeros((1,))
        m.assign(m * 0.9 + x)
        count.assign_add(1)
        if where == "between":
            y = ef.take(table, i)
        w.assign(w - m * 0.1)
        if where == "after":
            y = ef.take(table, i) + ef.sum(w)
        if where == "in a branch":
            y = ef.cond(ef.sum(x) > -9.0, lambda: ef.take(table, i), lambda: table[:1])
        if where == "in a loop":
            y = ef.fori_loop(0, 3, lambda k, c: c + ef.take(table, i), y)
        return y

    step = ef.function(f, numerics=numerics)
    x = ef.ones((50, 60))
    step(x, ef.tensor([3]))
    for _ in range(3):
        before = [v.numpy().copy() for v in (w, m, count)]
        with pytest.raises(IndexRangeError, match=r"test_plan\.py"):
            step(x, ef.tensor([10]))
        for v, value in zip((w, m, count), before, strict=True):
            assert v.numpy().tobytes() == value.tobytes()
        step(x, ef.tensor([4]))
    assert int(count) == 4


def test_an_error_gives_variables_back_to_other_threads():
    w = ef.Variable(np.ones(1000), dtype="float32")

    @ef.function
    def step(i):
        y = ef.take(w.value, i)
        w.assign(w * 2.0)
        return y

    step(ef.tensor([0]))
    for _ in range(10):
        with pytest.raises(IndexRangeError):
            step(ef.tensor([1000]))
    done = []
    reader = threading.Thread(target=lambda: done.append(float(w.numpy()[0])), daemon=True)
    reader.start()
    reader.join(10)
    assert done == [2.0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("exact", [False, True])
def test_published_values_are_reported_once_computed(exact):
    """Once, in the order of the program, with the very array that the run gives at its end."""
    before_the_end = 0
    for seed in range(25):
        graph, inputs, _ = random_program(seed, ["cpu:0"])
        order = (lambda g: g.nodes) if exact else fuse
        outputs = list(dict.fromkeys(v for v in graph.all_outputs() if v.node is not None))
        plan = Plan(graph, order, current_device(), exact, outputs)
        arrays = [array_of(x) for x in inputs] + [array_of(c.variable.value) for c in graph.cells]
        expected = Plan(graph, order, current_device(), exact).run(arrays)
        for _ in range(2):  # in memory that was used before
            told = []
            note = lambda i, array, told=told: told.append((i, array, array.copy()))
            found = plan.run([note, *arrays])
            assert sorted(i for i, *_ in told) == list(range(len(outputs)))
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a, b)
            places = {v: k for k, v in enumerate(graph.all_outputs())}
            for i, array, then in told:
                np.testing.assert_array_equal(array, then)
                np.testing.assert_array_equal(then, found[places[outputs[i]]])
        tells = ["publish(" in line for line in plan.source().splitlines() if "#" in line]
        before_the_end += not all(tells[tells.index(True) :])
    assert before_the_end > 5


def test_too_much_memory_is_a_typed_error_and_changes_nothing():
    w = ef.Variable(1.0)
    n = ef.TensorSpec(("n",), "float32")

    @ef.function(input_signature=[n])
    def f(x):
        w.assign(w + 1.0)
        return ef.exp(x[:, None] + x) * w

    f(ef.ones((4,)))
    with pytest.raises(EagerflowError):
        f(ef.broadcast_to(ef.tensor(0.0), (2_000_000,)))
    assert float(w) == 2.0
    f(ef.ones((4,)))
    assert float(w) == 3.0


# Memory ------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_replays_do_not_grow(numerics):
    step, *_, args = step_of()
    run = ef.function(step, numerics=numerics)
    for _ in range(20):
        run(*args)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(50):
            run(*args)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            run(*args)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 20_000, f"{after - before} bytes in 1,000 replays"


def test_recorded_replays_do_not_grow():
    w = ef.Variable(np.ones((32, 32)), dtype="float32")
    f = ef.function(lambda x: ef.sum(ef.tanh(x @ w)))
    x = ef.ones((8, 32))

    def many(n):
        for _ in range(n):
            with ef.GradientTape() as tape:
                loss = f(x)
            tape.gradient(loss, w)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        many(100)
        before = many(50)
        after = many(500)
    finally:
        tracemalloc.stop()
    assert after - before < 20_000, f"{after - before} bytes in 500 recorded calls"


def test_functions_are_freed_with_their_graphs():
    def made():
        w = ef.Variable(np.ones(10))
        f = ef.function(lambda x: x * w)
        f(ef.ones((10,)))
        g = f.graph(ef.ones((10,)))
        g.gradient("output", "x")(ef.ones((10,)))
        with ef.GradientTape() as tape:
            y = f(ef.ones((10,)))
        tape.gradient(y, w)

    def count():
        gc.collect()
        kinds = (ef.capture.Function, ef.capture.Plan, ef.Variable)
        return sum(isinstance(o, kinds) for o in gc.get_objects())

    made()
    before = count()
    for _ in range(5):
        made()
    assert count() <= before  # what earlier tests left may go meanwhile


def test_buffers_are_given_back():
    spec = ef.TensorSpec((300, 300), "float32")
    graph = ef.capture.trace(lambda x: ef.sum(ef.sin(x) @ ef.cos(x).T), spec)
    plan = graph.plan(numerics="exact")
    x = np.ones((300, 300), "float32")
    first = plan.run([x])
    assert plan.buffer_bytes >= x.nbytes
    plan.release()
    assert float(plan.run([x])[0]) == float(first[0])


@pytest.mark.parametrize("size", [2, 5, 39, 100])
def test_dot_products_are_arrays_for_subsequent_kernels(size):
    rng = np.random.default_rng(0)
    x, y = (rng.random(size, "float32") for _ in range(2))
    a = rng.random((64, 64), "float32")

    def f(x, y, a):
        norm = ef.sqrt((x @ x) * (y @ y))
        return ef.tanh(a @ a) * (x @ y) / norm, ef.sum(a @ a) * ef.vecdot(x, y)

    step = ef.function(f)
    for _ in range(2):
        for found, wanted in zip(step(x, y, a), f(*map(ef.tensor, (x, y, a))), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_plans_for_large_arrays_are_made_without_their_memory(axes):
    spec = ef.TensorSpec((2, 60_000_000), "float32", name="x")

    def f(x):
        y = ef.permute_dims(x, axes)
        return ef.softmax(y, axis=0).sum(axis=1), (y * 2).mean(axis=0), ef.cumulative_sum(y, axis=0)

    assert ef.capture.trace(f, spec).plan().kernels
