"""Functions: methods, arguments, numbers, signatures, threads, and what people read of them."""

import copy
import functools
import gc
import pickle
import threading
import weakref
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, ShapeError
from eagerflow.plan.replay import CALLS_BEFORE_PLAN

X = ef.tensor([1.0, 2.0, 3.0])


# Methods -----------------------------------------------------------------------------------------


class Model:
    def __init__(self, rate):
        self.rate = rate
        self.w = ef.Variable(rate, name="w")
        self.total = ef.Variable(0.0, name="total", trainable=False)

    @ef.function
    def call(self, x, scale=1.0):
        return x * self.w * scale + self.rate

    @ef.function(numerics="exact", static=("times",))
    def step(self, x, times):
        for _ in range(times):
            self.total.assign_add(ef.sum(x) * self.rate)
        return self.total.value


def test_two_instances_have_graphs_of_their_own():
    one, two = Model(2.0), Model(3.0)
    assert one.call(X).tolist() == [4.0, 6.0, 8.0]
    assert two.call(X).tolist() == [6.0, 9.0, 12.0]
    assert one.call is one.call
    assert one.call is not two.call
    assert (len(one.call.graphs), len(two.call.graphs)) == (1, 1)
    assert Model.call is not one.call
    assert float(one.step(X, times=2)) == 24.0
    assert float(one.step(X, 2)) == 48.0
    assert float(two.total) == 0.0


def test_instances_are_freed():
    own = Model(2.0)
    own.call(X)
    own.step(X, 2)
    gone = weakref.ref(own), weakref.ref(own.w)
    del own
    gc.collect()
    assert [r() for r in gone] == [None, None]


def test_subclasses_and_class_level_calls():
    class Twice(Model):
        @ef.function
        def call(self, x, scale=1.0):
            return super().call(x, scale) * 2

    own = Twice(2.0)
    assert own.call(X).tolist() == [8.0, 12.0, 16.0]
    assert Model.call(own, X).tolist() == [4.0, 6.0, 8.0]


def test_instances_that_cannot_be_hashed():
    class Odd(Model):
        __hash__ = None

    own = Odd(2.0)
    assert own.call(X).tolist() == own.call(X).tolist() == [4.0, 6.0, 8.0]


def test_a_property_and_a_call_operator():
    class Unit:
        def __init__(self):
            self.w = ef.Variable(2.0)

        @property
        def double(self):
            return self.w * 2

        def __call__(self, x):
            return x * self.double

    unit = Unit()
    step = ef.function(unit)
    assert step(X).tolist() == unit(X).tolist()
    unit.w.assign(5.0)
    assert step(X).tolist() == unit(X).tolist()


def test_functions_call_functions():
    inner = ef.function(lambda x: {"y": ef.sin(x), "n": 2}, numerics="exact")
    outer = ef.function(lambda x: inner(x)["y"] * inner(x)["n"], numerics="exact")
    assert outer(X).tolist() == (ef.sin(X) * 2).tolist()
    assert len(inner.graphs) == 0  # its ops are the outer graph's
    (graph,) = outer.graphs
    assert [node.op.name for node in graph.nodes][:1] == ["sin"]


def test_models_are_copied_and_pickled_with_captured_steps():
    own = Model(2.0)
    own.call(X)
    other = copy.deepcopy(own)
    other.w.assign(10.0)
    assert other.call(X).tolist() == [12.0, 22.0, 32.0]
    assert own.call(X).tolist() == [4.0, 6.0, 8.0]
    third = pickle.loads(pickle.dumps(own))
    third.w.assign(1.0)
    assert third.call(X).tolist() == [3.0, 4.0, 5.0]
    assert own.call(X).tolist() == [4.0, 6.0, 8.0]


# Arguments ---------------------------------------------------------------------------------------


def test_keywords_and_positions_share_a_graph():
    step = ef.function(lambda x, y, *, z=X: x * y + z)
    results = [step(X, 2.0), step(X, y=2.0), step(x=X, y=2.0), step(X, 2.0, z=X), step(X, 3.0)]
    assert all(r.tolist() == [3.0, 6.0, 9.0] for r in results[:4])
    assert len(step.graphs) == 1


def test_defaults_that_are_numbers_are_known_while_tracing():
    step = ef.function(lambda x, axis=-1, *, scale=2.0: ef.sum(x, axis=axis) * scale)
    assert step(X).item() == 12.0
    assert step(X, scale=3.0).item() == 18.0
    assert step(X, scale=4.0).item() == 24.0
    assert len(step.graphs) == 2  # a number that is passed is an input
    shaped = ef.function(lambda x, shape=(3, 1): ef.reshape(x, shape) + len(str(shape[0])))
    assert shaped(X).shape == (3, 1)
    mean = functools.partial(ef.mean, axis=0)
    assert ef.function(mean)(X).item() == 2.0


def test_defaults_that_change_are_noticed():
    def repeated(x, count=2):
        for _ in range(count):
            x = x * 2
        return x

    step = ef.function(repeated)
    assert step(X).tolist() == [4.0, 8.0, 12.0]
    repeated.__defaults__ = (3,)
    assert step(X).tolist() == [8.0, 16.0, 24.0]


def test_star_arguments():
    step = ef.function(lambda *xs, **more: sum(xs, more["z"]) + more.get("w", 0.0))
    assert step(X, X, z=X).tolist() == [3.0, 6.0, 9.0]
    assert step(X, z=X, w=X).tolist() == [3.0, 6.0, 9.0]
    assert step(X, z=X, w=1.0).tolist() == [3.0, 5.0, 7.0]


def test_nests_of_arguments_and_results():
    Pair = namedtuple("Pair", "left right")

    @ef.function
    def f(batch, pair):
        x, (y, z) = batch["x"], batch["rest"]
        return {"pair": Pair(x + y, [z, pair.left]), "text": "kept", "none": None, "n": 3}

    batch = {"x": X, "rest": (X * 2, [X * 3][0])}
    found, wanted = f(batch, Pair(X, 1)), f.python(batch, Pair(X, 1))
    assert type(found["pair"]).__name__ == "Pair"
    assert found["pair"].left.tolist() == wanted["pair"].left.tolist()
    assert (found["text"], found["none"], found["n"]) == ("kept", None, 3)
    names = "batch_x batch_rest_0 batch_rest_1 pair_left pair_right"
    assert f.graphs[0].inputs.names == tuple(names.split())


def test_arrays_and_scalars_of_numpy():
    step = ef.function(lambda x, y: x * y)
    array = np.array([1.0, 2.0], "float32")
    assert step(array, np.float32(3.0)).tolist() == [3.0, 6.0]
    array[0] = 5.0
    assert step(array, np.float32(3.0)).tolist() == [15.0, 6.0]
    assert len(step.graphs) == 1


def test_an_array_that_is_returned_is_not_the_callers():
    step = ef.function(lambda x: (x, x[::2], ef.reshape(x, (2, 1))))
    array = np.array([1.0, 2.0], "float32")
    found = step(array)
    array[:] = 9.0
    assert [y.numpy().ravel().tolist() for y in found] == [[1.0, 2.0], [1.0], [1.0, 2.0]]


def test_the_same_tensor_twice():
    step = ef.function(lambda x, y: x * 2 + y)
    assert step(X, X).tolist() == [3.0, 6.0, 9.0]
    assert step(X, X + 1).tolist() == [4.0, 7.0, 10.0]


def test_empty_results_and_results_that_are_arguments():
    assert ef.function(lambda x: None)(X) is None
    assert ef.function(lambda x: ())(X) == ()
    assert ef.function(lambda x: {"y": x})(X)["y"].tolist() == X.tolist()
    assert ef.function(lambda: ef.ones((2,)) * 3)().tolist() == [3.0, 3.0]


# Numbers -----------------------------------------------------------------------------------------


def test_other_numbers_need_no_new_trace():
    step = ef.function(lambda x, n: x * n)
    assert [step(X, n).tolist()[0] for n in (1.0, 2.5, -3.0)] == [1.0, 2.5, -3.0]
    assert len(step.graphs) == 1
    step(X, 2)
    assert len(step.graphs) == 2
    assert len(ef.function(lambda x, n: x * n, static="n").graphs) == 0


FORMULAS = {
    "sum": lambda x, n: x + n,
    "difference": lambda x, n: n - x,
    "quotient": lambda x, n: x / n,
    "over": lambda x, n: n / (x + 1),
    "floor": lambda x, n: x // n,
    "rest": lambda x, n: x % n,
    "power": lambda x, n: x**2 + n**2,
    "less": lambda x, n: x < n,
    "op": lambda x, n: ef.add(x, n),
    "where": lambda x, n: ef.where(x > 1, x, n),
    "maximum": lambda x, n: ef.maximum(x, n),
    "clip": lambda x, n: ef.clip(x, 0, n),
    "negated": lambda x, n: x * -n + abs(n),
    "of numbers": lambda x, n: x * ((n + 1) * 3 // 2 - n % 2),
    "compared": lambda x, n: ef.where(n > 2, x, x * 2),
    "at": lambda x, n: x.at[0].set(n),
    "alone": lambda x, n: (x, ef.exp(n * 1.0), n + 1),
}
DTYPES = ["int8", "int32", "uint8", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_numbers_are_as_weak_as_in_eager(formula):
    f = FORMULAS[formula]
    for dtype in DTYPES:
        x = ef.tensor([1, 2, 3], dtype=dtype)
        for n in (3, 2.5, 1):
            step = ef.function(f, numerics="exact")
            try:
                wanted = f(x, n)
            except DTypeError as error:
                if "out of bounds" not in str(error):  # which a replay does not look at
                    with pytest.raises(DTypeError):
                        step(x, n)
                continue
            found = step(x, n)
            for a, b in zip(_listed(found), _listed(wanted), strict=True):
                if isinstance(b, ef.Tensor):
                    assert (a.dtype, a.shape) == (b.dtype, b.shape), (dtype, n)
                    assert a.numpy().tobytes() == b.numpy().tobytes(), (dtype, n, a, b)
                else:
                    assert float(a) == b, (dtype, n)


def _listed(result):
    return result if isinstance(result, tuple) else (result,)


def test_complex_and_large_numbers():
    step = ef.function(lambda x, n: x * n, numerics="exact")
    x = ef.tensor([1 + 1j], dtype="complex64")
    assert step(x, 2j).tolist() == (x * 2j).tolist()
    big = ef.tensor([1], dtype="int64")
    assert step(big, 2**62).tolist() == [2**62]
    assert step(ef.tensor([1.0], dtype="float64"), 0.1).tolist() == [0.1]
    assert np.isnan(step(X, float("nan")).numpy()).all()
    assert step(X, float("inf")).tolist() == [float("inf")] * 3


# Signatures --------------------------------------------------------------------------------------


def test_one_graph_for_all_sizes():
    @ef.function(input_signature=[ef.TensorSpec((None, 3), "float32")])
    def f(x):
        return ef.concat([x, x * 2]), x.reshape((-1,)), ef.sum(x, axis=0), x[::2], x[1:]

    for n in (1, 2, 5, 8):
        x = ef.tensor(np.arange(3.0 * n).reshape(n, 3), dtype="float32")
        for a, b in zip(f(x), f.python(x), strict=True):
            assert (a.shape, a.tolist()) == (b.shape, b.tolist())
    assert len(f.graphs) == 1


def test_names_that_are_equal_are_one_size():
    spec = ef.TensorSpec(("batch", "time"), "float32")

    @ef.function(input_signature=[spec, spec, ef.TensorSpec((4,), "float32")], numerics="exact")
    def f(x, y, w):
        both = ef.stack([x, y], axis=-1)
        flat = both.reshape((x.shape[0] * x.shape[1], 2))
        return flat @ w[:2].reshape((2, 1)), ef.concat([x, y], axis=1), ef.mean(x - y)

    for shape in ((2, 3), (1, 1), (5, 2)):
        x, y = ef.ones(shape), ef.ones(shape) * 2
        w = ef.tensor([1.0, 2.0, 3.0, 4.0])
        for a, b in zip(f(x, y, w), f.python(x, y, w), strict=True):
            assert (a.shape, a.numpy().tobytes()) == (b.shape, b.numpy().tobytes())
    assert len(f.graphs) == 1
    with pytest.raises(ShapeError, match="where batch=2"):
        f(ef.ones((2, 3)), ef.ones((3, 3)), w)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2, 3])
def test_convolutions_of_any_size(padding, strides):
    w = ef.tensor(np.random.default_rng(0).normal(size=(3, 3, 2, 4)).astype("float32"))

    @ef.function(input_signature=[ef.TensorSpec((None, "h", "w", 2), "float32")], numerics="exact")
    def f(x):
        y = ef.conv(x, w, strides=strides, padding=padding)
        return y, ef.max_pool(ef.relu(y), 2), ef.mean(y, axis=(1, 2))

    for size in ((1, 12, 9), (2, 17, 16)):
        x = ef.tensor(np.random.default_rng(1).normal(size=(*size, 2)).astype("float32"))
        for a, b in zip(f(x), f.python(x), strict=True):
            assert (a.shape, a.numpy().tobytes()) == (b.shape, b.numpy().tobytes())
    assert len(f.graphs) == 1


def test_a_signature_with_gradients_and_variables():
    w = ef.Variable(np.ones((3, 2)), dtype="float32", name="w")

    @ef.function(
        input_signature=[
            ef.TensorSpec(("batch", 3), "float32"),
            ef.TensorSpec(("batch",), "int64", name="labels"),
        ]
    )
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.sparse_softmax_cross_entropy(x @ w, y))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    assert step.graph(X[None], ef.tensor([0])).inputs.names == ("x", "labels")
    for n in (2, 5):
        x = ef.tensor(np.random.default_rng(n).normal(size=(n, 3)).astype("float32"))
        y = ef.tensor(np.arange(n) % 2)
        before = w.numpy()
        found = float(step(x, y)), w.numpy()
        w.assign(before)
        np.testing.assert_allclose(found[0], float(step.python(x, y)), rtol=1e-6)
        np.testing.assert_allclose(found[1], w.numpy(), rtol=1e-5)
    assert len(step.graphs) == 1


def test_a_signature_of_a_nest():
    spec = ef.TensorSpec((None,), "float32")
    signature = [{"x": spec, "y": [ef.TensorSpec((), "float32")]}]
    step = ef.function(lambda batch: batch["x"] + batch["y"][0], input_signature=signature)
    assert step({"x": X, "y": [ef.tensor(1.0)]}).tolist() == [2.0, 3.0, 4.0]
    assert step({"x": np.ones(2, "float32"), "y": [2.0]}).tolist() == [3.0, 3.0]


# Threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_eight_threads(numerics):
    w = ef.Variable(2.0)
    step = ef.function(lambda x: ef.sum(ef.tanh(x * w) + x @ ef.ones((50, 50))), numerics=numerics)
    xs = [ef.ones((40 + i % 3, 50)) * (i / 8) for i in range(8)]
    for _ in range(CALLS_BEFORE_PLAN):  # of three sizes: all have plans then
        wanted = [float(step(x)) for x in xs]
    start = threading.Barrier(8)

    def many(i):
        start.wait()
        return {float(step(xs[i])) for _ in range(60)}

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(many, range(8))) == [{v} for v in wanted]


def test_the_first_call_in_eight_threads():
    start = threading.Barrier(8)
    made = []

    def f(x):
        made.append(1)
        return x * 2

    step = ef.function(lambda x: f(x))

    def once(_):
        start.wait()
        return step(X).tolist()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(once, range(8))) == [[2.0, 4.0, 6.0]] * 8
    assert len(step.graphs) == 1


def test_updates_in_threads_are_whole():
    """Each value of the Variable that a thread sees is one that a step has made."""
    w = ef.Variable(np.zeros(1000), dtype="float32")
    step = ef.function(lambda: (w.assign(w + 1.0), None)[1])
    stop, torn = threading.Event(), []

    def watch():
        while not stop.is_set():
            values = w.numpy()
            if values.min() != values.max():
                torn.append(values)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(300):
            step()
    finally:
        stop.set()
        watcher.join()
    assert not torn
    assert float(w.numpy()[0]) == 300.0


def test_a_function_that_calls_itself():
    @ef.function(static=("n",))
    def f(x, n):
        return x if n == 0 else f(x * 2, n - 1) + 1

    assert f(X, 3).tolist() == [11.0, 19.0, 27.0]


# What people read --------------------------------------------------------------------------------


def test_explain_lists_reasons_of_retraces():
    rate = [0.1]
    step = ef.function(lambda x, y: x * rate[0] + y)
    step(X, X)
    step(X, ef.ones((3, 3)))
    step(X, 1.0)
    rate[0] = 0.2
    step(X, X)
    text = step.explain()
    print(text)
    assert "traced 4 times" in text
    assert "the first call" in text
    assert "float32(3, 3)" in text
    assert "0.1" in text
    assert "0.2" in text
    assert "test_function.py" in text


def test_the_ledger_as_text():
    class Settings:
        rate = 0.5

    own = Settings()
    step = ef.function(lambda x: x * own.rate)
    step(X)
    text = step.ledger()
    print(text)
    assert "own.rate" in text
    assert "0.5" in text
    assert "test_function.py" in text


def test_printing_while_tracing_shows_shape_and_dtype(capsys):
    step = ef.function(lambda x: (print("x is", x), f"{x}", x * 2)[2])
    assert step(X).tolist() == [2.0, 4.0, 6.0]
    assert "shape=(3,), float32" in capsys.readouterr().out


def test_numpy_functions_with_an_op_of_their_own():
    step = ef.function(lambda x: np.sin(x) + np.add(x, 1.0) + np.sum(x))
    np.testing.assert_allclose(step(X).numpy(), np.sin(X) + (X + 1.0) + np.sum(X), rtol=1e-6)


def test_isinstance_and_facts_of_tensors():
    @ef.function
    def f(x):
        assert isinstance(x, ef.Tensor)
        assert not isinstance(x, np.ndarray)
        return x * len(x) * x.ndim * x.size * x.shape[0]

    assert f(X).tolist() == (X * 27).tolist()


def test_recorders_that_are_no_tapes_see_the_ops():
    step = ef.function(lambda x: ef.sin(x) * 2)
    rows = ef.vmap(step)(ef.ones((2, 3)))
    assert rows.tolist() == (ef.sin(ef.ones((2, 3))) * 2).tolist()
    _, dy = ef.jvp(step, (X,), (X,))
    np.testing.assert_allclose(dy.numpy(), (2 * ef.cos(X) * X).numpy(), rtol=1e-6)


def test_traces_that_fail_leave_nothing():
    seen = []

    @ef.function
    def f(x):
        w = seen[0]
        w.assign(w + x)
        if len(seen) == 1:
            raise KeyError("half way")
        return w.value

    seen.append(ef.Variable([0.0, 0.0, 0.0]))
    with pytest.raises(KeyError):
        f(X)
    assert seen[0].numpy().tolist() == [0.0, 0.0, 0.0]
    assert f.graphs == []
    seen.append(1)
    assert f(X).tolist() == X.tolist()


def test_weights_that_the_first_call_makes():
    class Lazy:
        w = None

        @ef.function
        def call(self, x):
            if self.w is None:
                self.w = ef.Variable(ef.ones((3,)), name="w")
            return x * self.w

    own = Lazy()
    assert own.call(X).tolist() == X.tolist()
    own.w.assign([2.0, 2.0, 2.0])
    assert own.call(X).tolist() == (X * 2).tolist()


def test_errors_of_tracing_are_not_remembered():
    step = ef.function(lambda x: x if bool(ef.sum(x) > 0) else -x)
    for _ in range(2):
        with pytest.raises(CaptureError):
            step(X)
    assert step.graphs == []
