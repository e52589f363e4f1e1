"""Sessions: fetches are computed from feeds, and nothing else."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import Session
from eagerflow.errors import CaptureError, DTypeError, IndexRangeError, SessionError, ShapeError

SPEC = ef.TensorSpec((3,), "float32")
X = ef.tensor([1.0, 2.0, 3.0])


def network():
    """A graph with scopes, Variables, and a step that assigns them."""
    w = ef.Variable([1.0, 1.0, 1.0], name="w")
    steps = ef.Variable(0, name="steps")

    def f(x, y):
        with ef.capture.scope("hidden"):
            h = ef.tanh(x * w)
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.square(ef.tanh(x * w) - y))
        w.assign_sub(0.5 * tape.gradient(loss, w))
        steps.assign_add(1)
        return {"h": h, "loss": loss}

    return ef.capture.trace(f, SPEC, SPEC, name="network"), w, steps


def feeds(**more):
    return {"x": X, "y": X * 0.1, **more}


def test_session_runs_only_required_nodes():
    graph, w, steps = network()
    with Session(graph) as session:
        h = session.run("h", {"x": X})  # neither y nor an assignment is needed
        np.testing.assert_allclose(h.numpy(), np.tanh(X.numpy()), rtol=1e-6)
        session.run("loss", feeds())
        assert (w.tolist(), int(steps)) == ([1.0, 1.0, 1.0], 0)


def test_fetches_have_the_nest_that_was_asked_for():
    graph, w, _ = network()
    session = Session(graph)
    found = session.run({"a": "h", "b": ["loss", ("w", graph.outputs["h"])]}, feeds())
    assert set(found) == {"a", "b"}
    assert isinstance(found["b"][1], tuple)
    assert found["b"][1][0].tolist() == [1.0, 1.0, 1.0]
    assert session.run(w, {}).tolist() == [1.0, 1.0, 1.0]
    assert session.run([], {}) == []
    twice = session.run(("h", "h"), feeds())
    assert [h.tolist() for h in twice] == [session.run("h", feeds()).tolist()] * 2


def test_targets_are_done_for_their_effect():
    graph, w, steps = network()
    session = Session(graph)
    assert session.run((), feeds(), targets="steps/assign") == ()
    assert (int(steps), w.tolist()) == (1, [1.0] * 3)
    session.run("loss", feeds(), targets=["w/assign"])
    assert w.tolist() != [1.0] * 3
    assert int(steps) == 1
    before = w.tolist()
    loss = session.run("loss", feeds(), targets=graph)
    assert int(steps) == 2
    assert w.tolist() != before
    assert float(session.run("loss", feeds())) < float(loss)
    new = session.run("w/assign", feeds())
    assert new.tolist() == w.tolist()


def test_a_session_trains_as_the_function_does():
    graph, w, _ = network()
    other, v, _ = network()
    session = Session(graph)
    for _ in range(10):
        session.run("loss", feeds(), targets=graph)
        other(X, X * 0.1)
    assert w.tolist() == v.tolist()


def test_any_value_can_be_fed():
    graph, w, _ = network()
    session = Session(graph)
    assert session.run("h", {"hidden/tanh": X}).tolist() == X.tolist()
    np.testing.assert_allclose(
        session.run("h", {"hidden/multiply": X}).numpy(), np.tanh(X.numpy()), rtol=1e-6
    )
    fed = session.run("h", {"x": X, "w": [0.0, 0.0, 0.0]})
    assert fed.tolist() == [0.0] * 3
    assert w.tolist() == [1.0] * 3
    value = graph.inputs["x"]
    assert session.run("h", {value: X}).tolist() == session.run("h", {"x": X}).tolist()


def test_feeds_are_numbers_lists_arrays_and_tensors():
    graph = ef.capture.trace(lambda x, n: {"y": x * n}, SPEC, ef.TensorSpec((), "float32"))
    session = Session(graph)
    for x in ([1.0, 2.0, 3.0], np.array([1, 2, 3], "float32"), X):
        for n in (2.0, np.float32(2), ef.tensor(2.0)):
            assert session.run("y", {"x": x, "n": n}).tolist() == [2.0, 4.0, 6.0]


def test_an_empty_session_grows():
    session = Session()
    with pytest.raises(SessionError, match="a graph first"):
        session.run("y")
    session.extend(ef.capture.trace(lambda x: {"y": x + 1}, SPEC, name="one"))
    assert session.run("y", {"x": X}).tolist() == [2.0, 3.0, 4.0]
    session.extend(ef.capture.trace(lambda z: {"y": z * 2, "u": z}, SPEC, name="two"))
    with pytest.raises(SessionError, match="one:y, two:y"):
        session.run("y", {"x": X, "z": X})
    both = session.run(["one:y", "two:y"], {"x": X, "z": X})
    assert [y.tolist() for y in both] == [[2.0, 3.0, 4.0], [2.0, 4.0, 6.0]]


def test_a_gradient_is_added_later():
    graph, *_ = network()
    session = Session(graph)
    first = float(session.run("loss", feeds()))
    session.extend(graph.gradient("loss", "x"))
    assert float(session.run("loss", feeds())) == first
    assert session.run("gradient/x", feeds()).shape == (3,)


def test_keys_of_results_that_are_alike_as_texts_are_two_names():
    graph = ef.capture.trace(lambda x: {1: x + 1, "1": x * 2}, SPEC)
    assert graph.outputs.names == ("1", "1_1")
    assert list(graph(ef.ones(3))) == [1, "1"]
    session = ef.capture.Session(graph)
    found = session.run(["1", "1_1"], {"x": ef.tensor([1.0, 2.0, 5.0])})
    assert [x.tolist() for x in found] == [[2.0, 3.0, 6.0], [2.0, 4.0, 10.0]]


def test_variables_of_one_name_are_one(tmp_path):
    graph, w, _ = network()
    graph.save(tmp_path / "n.ef")
    session = Session(graph)
    session.run((), feeds(), targets=graph)
    session.extend(ef.capture.load(tmp_path / "n.ef"))
    assert session.variables["w"] is w
    trained = w.tolist()
    found = session.run("network_1:w", {})
    assert found.tolist() == trained


def test_random_numbers_move_on():
    made = ef.random.Generator(1)
    graph = ef.capture.trace(lambda x: {"y": x + made.normal((3,)), "z": x}, SPEC)
    other = ef.random.Generator(1)
    session = Session(graph)
    for _ in range(3):
        assert session.run("y", {"x": X}).tolist() == (X + other.normal((3,))).tolist()
    session.run("z", {"x": X})
    assert session.run("y", {"x": X}).tolist() == (X + other.normal((3,))).tolist()


def test_named_sizes():
    graph = ef.capture.trace(
        lambda x, y: {"z": ef.concat([x, y])},
        ef.TensorSpec(("n",), "float32"),
        ef.TensorSpec(("m",), "float32"),
    )
    session = Session(graph)
    for n, m in ((1, 2), (4, 3)):
        assert session.run("z", {"x": ef.ones((n,)), "y": ef.ones((m,))}).shape == (n + m,)


def test_errors_leave_everything_as_it_was():
    w = ef.Variable([1.0, 2.0, 3.0], name="w")

    def f(x, i):
        w.assign(w + x)
        return {"y": ef.take(w.value, i), "z": x}

    session = Session(ef.capture.trace(f, SPEC, ef.TensorSpec((2,), "int64")))
    with pytest.raises(IndexRangeError, match=r"test_session\.py"):
        session.run("y", {"x": X, "i": [0, 9]}, targets="w/assign")
    assert w.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ShapeError):
        session.run("z", {"x": ef.ones((4,))}, targets="w/assign")
    with pytest.raises(DTypeError):
        session.run("z", {"x": X.astype("float64")}, targets="w/assign")
    assert w.tolist() == [1.0, 2.0, 3.0]
    assert session.run("y", {"x": X, "i": [0, 2]}, targets="w/assign").tolist() == [2.0, 6.0]


def test_several_threads():
    graph, _, steps = network()
    session = Session(graph)
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        for _ in range(20):
            session.run("loss", feeds(), targets="steps/assign")
            assert session.run("h", {"x": X * i}).shape == (3,)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert int(steps) == 160


def test_a_closed_session_lets_go():
    graph, _, steps = network()
    session = Session(graph)
    session.run("loss", feeds(), targets=graph)
    held = weakref.ref(graph)
    session.close()
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.run("h", {"x": X})
    with pytest.raises(SessionError, match="closed"):
        session.extend(graph)
    assert repr(session) == "<Session, closed>"
    del graph
    gc.collect()
    assert held() is None
    assert int(steps) == 1


def test_two_devices(monkeypatch):
    from eagerflow.devices import device_types

    monkeypatch.setattr(device_types["cpu"], "logical", 2)
    graph, w, steps = network()
    plain, v, _ = network()
    session, one = Session(graph, devices=["cpu:0", "cpu:1"]), Session(plain)
    for _ in range(3):
        a = session.run("loss", feeds(), targets=graph)
        b = one.run("loss", feeds(), targets=plain)
        np.testing.assert_allclose(float(a), float(b), rtol=1e-6)
    np.testing.assert_allclose(w.numpy(), v.numpy(), rtol=1e-6)
    assert int(steps) == 3


def test_two_graphs_that_update_one_variable_in_one_run():
    """The Variable is lent once, and its value is not written over while both read it."""
    w = ef.Variable(np.ones((100, 100), "float32"), name="w")
    spec = ef.TensorSpec((100, 100), "float32")
    graphs = [
        ef.capture.trace(lambda x, k=k: w.assign(w * 0.5 + x * k).value, spec, name=f"g{k}")
        for k in (1.0, 2.0)
    ]
    session = ef.capture.Session(graphs[0])
    session.extend(graphs[1])
    x = np.ones((100, 100), "float32")
    found = session.run(["g1.0:output", "g2.0:output"], {"x": x}, targets=graphs)
    assert [float(t[0, 0]) for t in found] == [1.5, 2.5]
    assert float(w.value[0, 0]) in (1.5, 2.5)


def test_one_graph_with_two_variables_of_one_name():
    """Neither is read in the other's place, where machine code would read beyond its memory."""
    v, w = ef.Variable(np.ones(1000, "float32"), name="v"), ef.Variable(2, name="w")
    graph = ef.capture.trace(lambda x: x * v + w, ef.TensorSpec((1000,), "float32"))
    for order in (1, -1):
        for cell, name in zip(graph.cells[::order], ("v", "v"), strict=True):
            cell.name = name
        graph.cells = graph.cells[::order]
        with pytest.raises(SessionError, match="there is a different Variable 'v' already"):
            Session(graph)
        with pytest.raises(CaptureError, match="its Variables do not have a name each"):
            graph.check()


# Names ------------------------------------------------------------------------------------------


def _counting(name):
    counter = ef.Variable(np.array([1, 2, 3], "uint64"), name=name, trainable=False)
    generator = ef.random.Generator(0)

    def f(x):
        counter.assign_add(np.array([1, 1, 1], "uint64"))
        return {"y": x + generator.uniform((2,)), "n": counter.value * 1}

    return counter, ef.capture.trace(f, ef.zeros(2))


@pytest.mark.parametrize("name", ["my_random_state_counter", "random_state", "random_state_1"])
@pytest.mark.parametrize("loaded", [False, True])
def test_random_state_is_a_fact_and_no_name(name, loaded, tmp_path):
    counter, graph = _counting(name)
    if loaded:
        graph.save(tmp_path / "g.ef")
        graph = ef.capture.load(tmp_path / "g.ef")
        counter = next(v for v in graph.variables.values() if v.tolist() == [1, 2, 3])
    with ef.capture.Session(graph) as session:
        first = session.run("y", {"x": [0.0, 0.0]})
        assert session.run("n", {"x": [0.0, 0.0]}).tolist() == [2, 3, 4]
        assert counter.tolist() == [1, 2, 3], "it was not asked for"
        assert session.run("y", {"x": [0.0, 0.0]}).tolist() != first.tolist()
    states = [v for v in graph.variables.values() if v.is_random_state]
    assert len(states) == 1
    assert counter is not states[0]


def test_random_state_stays_one_in_copies():
    state = ef.random.Generator(0).state
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert other.is_random_state
    assert not pickle.loads(pickle.dumps(ef.Variable(1.0))).is_random_state
    own = ef.Variable(np.array([1, 2, 3], "uint64"))
    assert ef.random.Generator(own).state is own
    assert own.is_random_state


def test_assignments_are_found_after_a_value_was_looked_up():
    w = ef.Variable([1.0, 2.0], name="w")
    graph = ef.capture.trace(lambda x: {"y": w.assign_add(x) * 2.0}, ef.zeros(2))
    assert graph.value("y") is graph.outputs["y"]
    with ef.capture.Session(graph) as session:
        session.run([], {"x": [1.0, 1.0]}, targets="w/assign")
    assert w.tolist() == [2.0, 3.0]


def test_a_fetch_means_the_output_and_a_feed_the_input():
    """A state that an input and an output share the name of moves from run to run."""

    def stream(x, state):
        state = state * 0.5 + x
        return {"y": state * 2.0, "state": state}

    spec = ef.TensorSpec((2,), "float32")
    graph = ef.capture.trace(stream, spec, spec)
    state = np.zeros(2, "float32")
    expected = state
    with ef.capture.Session(graph) as session:
        for step in range(3):
            x = np.full(2, step + 1.0, "float32")
            y, state = session.run(["y", "state"], feeds={"x": x, "state": state})
            expected = expected * np.float32(0.5) + x
            np.testing.assert_array_equal(state, expected)
            np.testing.assert_array_equal(y, expected * 2)
            (alone,) = session.run(["stream:state"], {"x": x, "stream:state": expected})
            np.testing.assert_array_equal(alone, expected * np.float32(0.5) + x)


def exchanged(a, b, c):
    p, q = a.value, b.value
    a.assign(q)
    b.assign(p)


def assigned_one_value(a, b, c):
    v = c * 5.0
    a.assign(v)
    b.assign(v)


def assigned_in_a_ring(a, b, c):
    p, q, r = a.value, b.value, c.value
    a.assign(q)
    b.assign(r)
    c.assign(p)


def assigned_from_one(a, b, c):
    a.assign(b)
    c.assign(b)


@pytest.mark.parametrize("devices", [None, ["cpu:0"]])
@pytest.mark.parametrize(
    "f", [exchanged, assigned_one_value, assigned_in_a_ring, assigned_from_one]
)
def test_variables_are_assigned_values_of_each_other(f, devices):
    def made():
        return [ef.Variable([k, k + 0.5], name=n) for k, n in ((1.0, "a"), (2.0, "b"), (3.0, "c"))]

    expected, own = made(), made()
    f(*expected)

    def g(x):
        f(*own)
        return x * 2

    graph = ef.capture.trace(g, ef.zeros(2))
    Session(graph, devices).run(list(graph.outputs), {"x": [1.0, 2.0]}, targets=graph)
    assert [v.tolist() for v in own] == [v.tolist() for v in expected]


def test_reading_a_variable_by_name_runs_no_assignment():
    a, b = ef.Variable([1.0], name="a"), ef.Variable([2.0], name="b")
    graph = ef.capture.trace(lambda x: (a.assign(b), b * x)[1], ef.zeros(1))
    session = Session(graph)
    assert session.run("b").tolist() == [2.0]
    assert (a.tolist(), b.tolist()) == ([1.0], [2.0])
    session.run([], targets="a/assign")
    assert a.tolist() == [2.0]


def test_target_assigns_only_the_named_variable_of_a_shared_value():
    a, b = ef.Variable([1.0], name="a"), ef.Variable([2.0], name="b")

    def f(x):
        v = x * 3.0
        a.assign(v)
        b.assign(v)
        return x

    session = Session(ef.capture.trace(f, ef.zeros(1)))
    session.run([], {"x": [1.0]}, targets="b/assign")
    assert (a.tolist(), b.tolist()) == ([1.0], [3.0])
