"""Values that captured code hands out: they come with the run, once, and change nothing else."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dispatch import own_recorder
from eagerflow.errors import CaptureError
from eagerflow.graph.walk import returned
from eagerflow.recorder import recorder_state
from tests.internals import entries_of


class Told:
    """A receiver of values, as a Writer is."""

    def __init__(self):
        self.rows = []

    def __call__(self, name, **tensors):
        def sink(*values):
            self.rows.append((name, *[v.numpy().tolist() for v in values]))

        emit(name, sink, tensors)


def emit(name, sink, tensors):
    tensors = {label.strip("_"): ef.asarray(x) for label, x in tensors.items()}
    recorder = recorder_state()[1] or own_recorder(tensors.values())
    if recorder is None:
        sink(*tensors.values())
    else:
        recorder.emit(name, sink, tensors)


@pytest.fixture
def told(monkeypatch):
    # The file counts as one of the package's, whose state is no part of what a trace relies on.
    from eagerflow.capture.guards import lookup

    monkeypatch.setitem(lookup.origins, __file__, lookup.CORE)
    return Told()


def programs():
    """Functions of a file that is watched, as users write them: (told) -> (x, i)."""
    text = """
import eagerflow as ef

def make(told):
    w = ef.Variable([1.0, 2.0], name="w")
    def step(x, i):
        loss = (x * w).sum()
        told("loss", _=loss, step=i)
        told("before", _=w)
        w.assign_sub(x * 0.5)
        told("after", _=w, step=i)
        return {"loss": loss, "twice": (loss * 2.0, "plain")}
    return step, w
"""
    names = {}
    exec(compile(text, "<programs of taps>", "exec"), names)
    return names["make"]


def test_captured_code_reports_the_same_as_eager(told):
    make = programs()
    rows = []
    for capture in (lambda f: f, ef.function):
        step, w = make(told)
        step = capture(step)
        results = [step(ef.tensor([1.0, -1.0]), i) for i in range(4)]
        rows.append((told.rows[:], [float(r["twice"][0]) for r in results], w.numpy().tolist()))
        assert results[0]["twice"][1] == "plain"
        told.rows.clear()
    assert rows[0] == rows[1]
    assert [row[0] for row in rows[0][0]] == ["loss", "before", "after"] * 4


def test_they_are_plain_outputs_of_the_graph_behind_the_result(told, tmp_path):
    step, _ = programs()(told)
    step = ef.function(step)
    x = ef.tensor([1.0, -1.0])
    step(x, 3)
    (graph,) = step.graphs
    assert returned(graph).names == ("output_0", "output_1")
    assert graph.outputs.names[2:] == ("loss", "loss/step", "before", "after")
    graph.check()
    told.rows.clear()
    graph.save(tmp_path / "g.ef")
    for other in (graph, graph.optimized(), ef.capture.load(tmp_path / "g.ef")):
        other.check()
        assert other.outputs.names == graph.outputs.names
        found = other(x, ef.tensor(3))
        assert set(found) == {"loss", "twice"}
    partition = ef.capture.partition(graph, ["cpu:0"])
    assert len(partition.run([x, ef.tensor(3)])) == 6
    session = ef.capture.Session(graph)
    before = session.run("before", {"x": x, "i": 3})
    assert before.shape == (2,)
    assert not told.rows  # running a graph reports nothing


def test_the_same_value_comes_out_once(told):
    def step(x):
        y = ef.tanh(x)
        told("a", _=y, step=x)
        told("b", _=y, step=x)
        return y

    step = ef.function(step)
    step(ef.tensor(0.5))
    assert [row[0] for row in told.rows] == ["a", "b"]
    assert step.graphs[0].outputs.names == ("output", "a", "a/step")


def test_error_reports_nothing_and_changes_nothing(told):
    n = ef.Variable(0)

    @ef.function
    def step(x, i):
        n.assign_add(1)
        told("x", _=x)
        return x[i]

    step(ef.ones(3), ef.tensor(2))
    told.rows.clear()
    with pytest.raises(IndexError):
        step(ef.ones(3), ef.tensor(5))
    assert int(n) == 1 and not told.rows


def test_the_state_is_new_when_a_sink_fails(told):
    n = ef.Variable(0)

    def fail(*_):
        assert int(n) == 1
        raise OSError("full")

    def step(x):
        n.assign_add(1)
        emit("x", fail, {"": x})
        return x

    with pytest.raises(OSError, match="full"):
        ef.function(step)(ef.ones(3))
    assert int(n) == 1


def test_functions_within_functions_and_tapes(told):
    w = ef.Variable([1.0, 2.0])

    @ef.function
    def loss_of(x):
        loss = (x * w).sum()
        told("loss", _=loss)
        return loss

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = loss_of(x)
        gradient = tape.gradient(loss, w)
        told("gradient", _=gradient)
        return gradient

    x = ef.tensor([3.0, 4.0])
    step(x)
    step(x)
    assert told.rows == [("loss", 11.0), ("gradient", [3.0, 4.0])] * 2
    told.rows.clear()
    with ef.GradientTape() as tape:  # a call that a tape records
        loss = loss_of(x)
    assert tape.gradient(loss, w).numpy().tolist() == [3.0, 4.0]
    assert told.rows == [("loss", 11.0)]
    told.rows.clear()
    assert ef.hessian(lambda x: loss_of(x * x))(x).shape == (2, 2)
    assert told.rows == [("loss", 41.0)]


@pytest.mark.parametrize("captured", [False, True])
def test_recomputation_does_not_report_again(told, captured):
    def f(x):
        y = ef.sin(x)
        told("y", _=y)
        return ef.cos(y)

    gradient = ef.grad(ef.checkpoint(f))
    gradient = ef.function(gradient) if captured else gradient
    x = ef.tensor(0.5)
    expected = ef.grad(lambda x: ef.cos(ef.sin(x)))(x)
    np.testing.assert_allclose(gradient(x).numpy(), expected.numpy())
    assert len(told.rows) == 1


def test_forward_mode_passes_them_on(told):
    def f(x):
        told("x", _=x)
        return x * x

    y, tangent = ef.jvp(f, (ef.tensor(3.0),), (ef.tensor(1.0),))
    assert (float(y), float(tangent), told.rows) == (9.0, 6.0, [("x", 3.0)])


def test_vmap_reports_shared_values_and_refuses_per_example_ones(told):
    def f(x, c):
        told("shared", _=c)
        return x * c

    ef.vmap(f, in_axes=(0, None))(ef.ones(3), ef.tensor(2.0))
    assert told.rows == [("shared", 2.0)]
    with pytest.raises(CaptureError, match="differs between examples") as caught:
        ef.vmap(f)(ef.ones(3), ef.ones(3))
    assert "outside" in caught.value.hint


LOOPS = {
    "scan": lambda f, x: ef.scan(lambda c, v: (c + f(v), c), ef.zeros(()), x),
    "while_loop": lambda f, x: ef.while_loop(lambda i: f(i) < 3.0, lambda i: i + 1.0, ef.zeros(())),
    "fori_loop": lambda f, x: ef.fori_loop(0, 3, lambda i, c: c + f(c), ef.zeros(())),
    "cond": lambda f, x: ef.cond(x[0] > 0, lambda: f(x[0]), lambda: x[0]),
    "switch": lambda f, x: ef.switch(ef.tensor(0), [lambda v: f(v), lambda v: v], x[0]),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_taps_in_captured_bodies_are_refused_with_a_hint(told, loop):
    def f(v):
        told("inside", _=v)
        return v

    def run(x):
        return LOOPS[loop](f, x)

    run(ef.ones(4))  # Python runs these, step by step
    assert told.rows
    with pytest.raises(CaptureError, match="only available through its results") as caught:
        ef.function(run)(ef.ones(4))
    assert caught.value.op == "inside" and "outside" in caught.value.hint
    assert "test_taps.py" in caught.value.at


def test_symbolic_tensors_of_models(told):
    class Shown(ef.nn.Layer):
        def call(self, x):
            told("x", _=x)
            return x * 2.0

    inputs = ef.nn.Input((2,))
    model = ef.nn.Model(inputs, Shown()(inputs))
    assert not told.rows  # nothing is known yet
    model(ef.ones((1, 2)))
    assert told.rows == [("x", [[1.0, 1.0]])]
    with pytest.raises(CaptureError, match="has no value"):
        told("x", _=inputs * 2.0)


def test_trained_model_reports_once_per_step(told):
    class Shown(ef.nn.Layer):
        def call(self, x):
            told("mean", _=x.mean())
            return x

    model = ef.nn.Sequential([ef.nn.Input((2,)), Shown(), ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(12, dtype="float32").reshape(6, 2)
    model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0)
    assert [row[1] for row in told.rows] == [1.5, 5.5, 9.5]


def test_verify_accepts_functions_with_taps(told):
    def f(x):
        told("x", _=ef.tanh(x))
        return x * 2.0

    assert ef.capture.verify(f, [ef.ones(3)])


def test_programs_for_numpy_leave_them_out(told, tmp_path):
    def f(x):
        told("x", _=ef.tanh(x))
        return x * 2.0

    graph = ef.function(f).graph(ef.TensorSpec((3,), "float32"))
    ef.capture.export_python(graph, tmp_path / "p.py")
    assert "tanh" not in (tmp_path / "p.py").read_text()


def test_nothing_is_kept_without_taps():
    step = ef.function(lambda x: x * 2.0)
    step(ef.ones(3))
    (entry,) = entries_of(step)
    assert entry.nest.__func__ is type(entry.graph).nest


# Sinks that have something to do at every so many steps -------------------------------------------


class Every:
    """Told at every so many steps, which are its last value."""

    def __init__(self, rows, every):
        self.rows, self.every = rows, every

    def __call__(self, value, step):
        number = int(step)
        if number % self.every == 0:
            self.rows.append((number, float(value)))


def rated_step(rows, rates, told_step=lambda i: i):
    w = ef.Variable(1.0)

    @ef.function
    def step(x, i):
        loss = (x * w).sum()
        w.assign_sub(loss * 0.125)
        for every in rates:
            emit("loss", Every(rows, every), {"_": loss, "step": told_step(i)})
        return loss

    return step, w


@pytest.fixture
def watched(monkeypatch):
    from eagerflow.capture.guards import lookup

    monkeypatch.setitem(lookup.origins, __file__, lookup.CORE)


@pytest.mark.parametrize("rates", [(3,), (2, 6), (2, 3)])
def test_nothing_comes_out_while_no_sink_is_due(watched, rates, monkeypatch):
    told, rows = [], []
    from eagerflow.capture import taps

    tell = taps.tell
    monkeypatch.setattr(taps, "tell", lambda *given: (told.append(1), tell(*given)))
    (step, w), x = rated_step(rows, rates), ef.tensor([0.5])
    losses = [float(step(x, i)) for i in range(12)]
    due = [i for i in range(12) if any(i % every == 0 for every in rates)]
    assert len(told) == len(due)
    assert rows == [(i, losses[i]) for i in due for every in rates if i % every == 0]
    plain, other = rated_step([], ())
    assert [float(plain(x, i)) for i in range(12)] == losses and float(other) == float(w)


def test_step_computed_or_without_rate_is_reported_every_run(watched):
    rows, x = [], ef.tensor([0.5])
    step, _ = rated_step(rows, (2,), lambda i: i + 1)
    for i in range(6):
        step(x, i)
    assert [number for number, _ in rows] == [2, 4, 6]
    rows.clear()
    step, _ = rated_step(rows, (1, 4))
    for i in range(6):
        step(x, i)
    assert [number for number, _ in rows] == [0, 0, 1, 2, 3, 4, 4, 5]


def test_steps_may_be_arrays_and_tensors(watched):
    rows, x = [], ef.tensor([0.5])
    step, _ = rated_step(rows, (2,))
    for number in (np.int64(0), np.asarray(1), ef.tensor(2), 3, ef.tensor(3, dtype="int32")):
        step(x, number)
    assert [number for number, _ in rows] == [0, 2]
