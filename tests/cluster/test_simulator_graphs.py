"""What the simulator reads from captured steps and models, and the bill that it makes of it."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster.simulation.pipeline import balanced
from eagerflow.errors import ArgumentError

Machines, Workload = ef.cluster.Machines, ef.cluster.Workload
RATES = ef.capture.Rates(products=1e10, memory=1e10)
MACHINES = Machines(2, rates=RATES)


def model_of(*widths):
    layers = [ef.nn.Dense(n, activation="tanh") for n in widths]
    model = ef.nn.Sequential([ef.nn.Input((64,)), *layers, ef.nn.Dense(10)], name="net")
    model.compile("adam", loss="mse")
    return model


@pytest.fixture(scope="module")
def model():
    made = model_of(128, 96, 32)
    made.train_on_batch(np.ones((48, 64), np.float32), np.ones((48, 10), np.float32))
    return made


def test_workload_lists_gradients_in_backward_order(model):
    work = Workload.of(model, MACHINES)
    weights = [4.0 * np.prod(w.shape) for w in model.trainable_weights]
    assert sorted(work.gradients) == sorted(weights)
    # The last layer's come first; of a layer, kernel and bias are made about together.
    last, first = {4.0 * 32 * 10, 40.0}, {4.0 * 64 * 128, 4.0 * 128}
    assert set(work.gradients[:2]) == last
    assert set(work.gradients[-2:]) == first
    assert list(work.ready) == sorted(work.ready)
    assert work.ready[-1] == pytest.approx(1.0)
    assert work.batch == 48
    # Weights, two moments of Adam's, and few numbers besides.
    assert work.kept == pytest.approx(3 * sum(weights), abs=100)
    assert 0.25 < work.forward < 0.45


def test_the_time_is_that_of_the_partitioner(model):
    work = Workload.of(model, MACHINES)
    costs = ef.capture.CostModel({"*": RATES})
    bill = ef.capture.partition(model.step_graphs("train")[-1], ["cpu:0"], costs=costs).bill
    assert work.compute_seconds + work.update == pytest.approx(bill.one)


def test_the_smaller_batch_at_the_end_is_not_taken_for_the_step():
    model = model_of(16)
    model.compile("sgd", loss="mse")
    model.fit(np.ones((20, 64), "float32"), np.ones((20, 10), "float32"), batch_size=8, verbose=0)
    assert [graph.inputs[0].shape[0] for graph in model.step_graphs("train")] == [8, 4]
    assert Workload.of(model, MACHINES).batch == 8


def test_a_function_its_graph_and_the_model_say_the_same():
    model = model_of(16)
    optimizer = ef.nn.optimizers.SGD(0.1)

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.mean((model(x) - y) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with pytest.raises(ArgumentError, match="no captured step"):
        Workload.of(step, MACHINES)
    graph = step.graph(ef.TensorSpec((8, 64), "float32"), ef.TensorSpec((8, 10), "float32"))
    by_graph = Workload.of(graph, MACHINES)
    assert by_graph == Workload.of(step, MACHINES)
    assert len(by_graph.gradients) == 4
    assert by_graph.update > 0


def test_named_sizes_are_given():
    def step(x, w):
        with ef.GradientTape() as tape:
            tape.watch(w)
            loss = ef.sum((x @ w) ** 2)
        return tape.gradient(loss, w)

    specs = ef.TensorSpec(("batch", 256), "float32"), ef.TensorSpec((256, 32), "float32")
    graph = ef.capture.trace(step, *specs)
    few, many = (Workload.of(graph, MACHINES, {"batch": n}) for n in (64, 640))
    assert (few.batch, many.batch) == (64, 640)
    assert many.compute_seconds > 5 * few.compute_seconds
    # What a smaller batch saves is what that graph would cost, but for what calls cost.
    assert many.seconds(64) == pytest.approx(few.compute_seconds, rel=0.15)


def test_graphs_without_gradients_are_refused(model):
    with pytest.raises(ArgumentError, match="makes no gradients"):
        ef.cluster.bill(model.prediction_graph(), MACHINES, sizes={"batch": 4})
    with pytest.raises(ArgumentError, match="no captured step"):
        ef.cluster.bill(model_of(4), MACHINES)


def test_gradients_that_are_clipped_first_are_found():
    w = ef.Variable(np.ones((4, 3), np.float32), name="w")

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.sum(ef.tanh(x @ w))
        gradient = tape.gradient(loss, w)
        w.assign(w - 0.1 * gradient / ef.sqrt(ef.sum(gradient**2)))
        return loss

    step(ef.ones((2, 4)))
    assert Workload.of(step, MACHINES).gradients == (48.0,)


def test_stages_are_cut_where_time_is_even(model):
    work = Workload.of(model, MACHINES)
    for count in (1, 2, 3, 4):
        cuts = balanced(work, count)
        assert len(cuts) == count
        shares = [c.share for c in cuts]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    with pytest.raises(ArgumentError, match="so many stages"):
        balanced(work, len(work.cuts) + 2)
    # What crosses the middle is a hidden layer's result, of 48 examples.
    sizes = [c.size for c in work.cuts]
    assert max(sizes) <= 4 * 48 * 128 * 2
    assert min(sizes) > 0


# The bill ----------------------------------------------------------------------------------------


def test_small_steps_are_not_worth_it_and_large_ones_are(model):
    small = ef.cluster.bill(model, Machines(2, rates=RATES, link=ef.cluster.Link(1e-3)))
    assert not small.worth
    assert "one machine would do" in str(small)
    large = ef.cluster.bill(model, MACHINES, batch=48_000)
    assert large.worth
    assert "times as fast as one machine" in str(large)
    assert large.ways[large.best].seconds < large.one.seconds


def test_one_machine_has_nothing_to_win(model):
    assert "nothing to win" in str(ef.cluster.bill(model, MACHINES.of(1)))


def test_bill_divides_the_batch_and_counts_traffic():
    work = Workload(compute_seconds=1.0, gradients=[1e6], batch=64, activations=64e6)
    bill = ef.cluster.bill(work, Machines(4, memory=1e6))
    assert bill.one.seconds == pytest.approx(1.0)
    best = bill.ways["all-reduce"]
    assert best.parts["compute"] == pytest.approx(0.25)
    assert best.memory == pytest.approx(2e6 + 16e6)
    assert best.traffic == {"link between machines": pytest.approx(2 * 3 / 4 * 1e6)}
    assert "it does not fit" in str(bill)


# Display -----------------------------------------------------------------------------------------


def test_the_table_names_times_prices_and_the_bottleneck():
    work = Workload(compute_seconds=0.01, gradients=[1e8], batch=8, name="wide")
    found = ef.cluster.simulate(work, Machines(4, price=3.6))
    text = str(found)
    assert "simulation of wide: all-reduce" in text
    assert found.last.bottleneck == "link between machines"
    assert "bottleneck: link between machines" in text
    assert "price of 1M" in text
    assert "not worth it: one machine would do" in text
    one = found.rows[0]
    # 8 examples take 10 ms, a million of them 1250 s, at 3.6 an hour.
    assert one.cost == pytest.approx(1.25)
    assert repr(found).startswith("<Simulation of wide: 4 machines")


def test_a_notebook_shows_the_table():
    work = Workload(compute_seconds=0.01, gradients=[1e8], name="<b>")
    shown = ef.cluster.simulate(work, Machines(2))._repr_html_()
    assert "<table" in shown
    assert "no view" not in shown
    assert "<b>" not in shown


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn(tmp_path, ending):
    pytest.importorskip("matplotlib")
    work = Workload(compute_seconds=0.1, gradients=[1e7] * 4)
    failing = ef.cluster.Failures(600.0)  # rows that never end have no bars
    for machines in (Machines(1), Machines(1024), Machines(10_000, failures=failing)):
        path = tmp_path / f"plot.{ending}"
        ef.cluster.simulate(work, machines).plot(path)
        assert path.stat().st_size > 5_000
