"""Pipelines: what one step on the whole batch gives, wherever the layers are."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster.replication import varying_in
from eagerflow.cluster.stages import Positions, cuts_by_costs
from eagerflow.nn.replicas import as_replica
from tests.cluster.programs import trained_on
from tests.cluster.test_data_parallel import DEVICES, OPTIMIZERS, assert_same, batch, dense, network
from tests.internals import last_run_of

COSTS = ef.capture.CostModel(
    {"*": ef.capture.Rates(products=1e10, memory=1e11)}, latency=1e-6
)  # that layers of one size have the same, whatever this machine is doing
RNG = np.random.default_rng(1)
SCHEDULES = ("fill-drain", "one-forward-one-backward")


def strategy(count, microbatches=4, **options):
    return ef.cluster.Pipeline(
        devices=DEVICES[:count], microbatches=microbatches, **{"costs": COSTS, **options}
    )


def graph_of(own):
    """The graph of a strategy's first step."""
    return own.graphs[0]


def plan_of(step):
    return next(iter(step._prepared.values())).plan


def deep(layers=8, width=64):
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(width, activation="tanh") for _ in range(layers)])
    model.compile("sgd", loss="mse")
    return model


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["sgd", "adam", "norm", "means", "in turn", "scaled"])
def test_steps_are_those_of_the_whole_batch(name):
    def make():
        return network(*dense(), *dense(), optimizer=OPTIMIZERS[name]())

    batches = [batch(n) for n in (8, 8, 7, 2, 1, 8)]
    assert_same(trained_on(make, batches, strategy(3)), trained_on(make, batches), 1e-7)


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(SCHEDULES),
)
def test_any_numbers_of_examples_stages_and_microbatches(sizes, stages, microbatches, schedule):
    batches = [batch(n) for n in sizes]

    def make():
        return network(*dense())

    own = strategy(stages, microbatches, schedule=schedule)
    assert_same(trained_on(make, batches, own), trained_on(make, batches))


def words(rows, length=6):
    return RNG.integers(0, 30, (rows, length)), RNG.integers(0, 30, (rows, length))


def language_model(make, **options):
    ef.random.seed(0)
    model = make(**options)
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


def test_layers_of_lstm():
    def make():
        more = {"vocabulary": 30, "units": 32, "depth": 3}
        return language_model(ef.nn.networks.lstm_language_model, size="small", **more)

    batches = [words(n) for n in (8, 7)]
    own = strategy(3)
    assert_same(trained_on(make, batches, own), trained_on(make, batches), 1e-5)
    homes = {c.name: c.value.device for c in graph_of(own).cells if c.name.endswith("_kernel")}
    assert sorted(homes.values()) == DEVICES[:3]


def test_a_gpt_whose_embedding_two_stages_read():
    def make():
        more = {"width": 8, "depth": 2, "heads": 2, "dropout": 0.0, "dtype": "float64"}
        return language_model(ef.nn.networks.GPT, vocabulary=30, context=8, **more)

    batches = [words(n) for n in (8, 7)]
    own = strategy(2)
    model, logs = trained_on(make, batches, own)
    assert_same((model, logs), trained_on(make, batches), 1e-7)
    graph = graph_of(own)
    assert len(graph.cells) == len({c.variable for c in graph.cells})  # nothing has copies
    homes = {c.name: c.value.device for c in graph.cells}
    assert homes["tokens/embeddings"] == homes["adam/tokens/embeddings/momentum"] == "cpu:0"
    assert homes["norm/gamma"] == "cpu:1"
    cuts = plan_of_graph(graph).cuts
    read = [c for c in cuts if c.value == "tokens/embeddings" or c.bytes == 30 * 8 * 8]
    ways = {(c.source, c.target) for c in read}
    assert ways == {("cpu:0", "cpu:1"), ("cpu:1", "cpu:0")}
    assert sum(c.source == "cpu:0" for c in read) == 1  # once, not for each micro-batch


def plan_of_graph(graph):
    names = list(dict.fromkeys(n.device for n in graph.nodes))
    return ef.capture.partition(graph, sorted(names), costs=COSTS)


def test_running_means_are_handed_on():
    def make():
        return network(ef.nn.BatchNormalization(momentum=0.5, dtype="float64"), *dense())

    x, y = batch(8)
    model, _ = trained_on(make, [(x, y)], strategy(2, 2))
    wanted = 0.5 * (0.5 * x[:4].mean(0)) + 0.5 * x[4:].mean(0)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), wanted, 1e-4)


def test_random_numbers_are_those_of_one_part_after_the_other():
    generator = ef.random.Generator(3)
    own = strategy(1, 3)
    found = own.step(lambda x: x + generator.normal(x.shape))(ef.zeros((7, 2))).numpy()
    own.merge()
    generator.seed(3)
    wanted = [generator.normal((n, 2)).numpy() for n in (3, 2, 2)]
    np.testing.assert_array_equal(found, np.concatenate(wanted))


def test_variable_keeps_the_value_of_the_last_microbatch():
    last = ef.Variable(np.zeros((2, 2)))

    def step(x):
        before = last.value
        last.assign(x)
        return before.sum(axis=1) + x.sum(axis=1)

    own = strategy(1, 2)
    found = own.step(step)(ef.tensor(np.arange(8.0).reshape(4, 2)))
    own.merge()
    np.testing.assert_array_equal(found.numpy(), [1, 5, 10, 18])
    np.testing.assert_array_equal(last.numpy(), [[4, 5], [6, 7]])


def bits_after(batches, **options):
    def make():
        more = [ef.nn.Dense(6, dtype="float64"), ef.nn.Dropout(0.5)]
        return network(*more, *dense(), optimizer="adam")

    model = trained_on(make, batches, strategy(2, **options))[0]
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_run_has_the_same_bits(schedule):
    batches = [batch(n) for n in (8, 7, 8)]
    first, second = (bits_after(batches, schedule=schedule) for _ in range(2))
    assert first == second


def test_both_schedules_have_the_same_bits():
    batches = [batch(4)]
    first, second = (bits_after(batches, schedule=s, numerics="exact") for s in SCHEDULES)
    assert first == second


def test_fit_matches_a_single_device():
    x, y = batch(50)

    def fitted(own):
        model = network(*dense())
        model(x[:2])
        more = {"validation_data": (x[:20], y[:20]), "verbose": 0}
        return model.fit(x, y, 16, 3, strategy=own, **more).history

    wanted, found = fitted(None), fitted(strategy(2))
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, 1e-5, err_msg=name)


# Stages -------------------------------------------------------------------------------------------


def positions_of(model, x, y):
    model(x)
    step = model.python_step("train")[0]
    own = ef.capture.Function(lambda share, x, y: step(x, y), static=("share",))
    graph = as_replica(0.5, own.graph, 0.5, ef.tensor(x), ef.tensor(y))
    return Positions(graph, varying_in(graph)[0], {})


def test_layers_of_one_size_are_divided_evenly():
    x = np.zeros((32, 64), "float32")
    found = positions_of(deep(), x, x)
    cuts = cuts_by_costs(found, DEVICES, COSTS, 4)
    stages = found.stages(cuts)
    products = [stages.nodes[n] for n in found.graph.nodes if n.op.name == "matmul"]
    forward, backward = products[:8], products[8:]
    assert forward == [0, 0, 1, 1, 2, 2, 3, 3]
    # Each layer has two products on its way back, the first one only that for its weights.
    assert backward == [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0]
    homes = [stages.entries[c.value] for c in found.graph.cells if c.name.endswith("kernel")]
    assert homes == forward


def test_little_is_sent_where_stages_take_about_the_same():
    ef.random.seed(0)
    widths = (64, 64, 256, 8, 256, 64, 64)
    model = ef.nn.Sequential([ef.nn.Dense(n) for n in widths])
    model.compile("sgd", loss="mse")
    x = np.zeros((32, 64), "float32")
    found = positions_of(model, x, x)
    stages = found.stages(cuts_by_costs(found, DEVICES[:2], COSTS, 4))
    sent = {v.shape for n in found.graph.nodes for v in n.values() if crosses(stages, n, v)}
    assert (32, 8) in sent
    assert (32, 256) not in sent


def crosses(stages, node, v):
    return v.node is not None and stages.nodes[v.node] != stages.nodes[node]


@pytest.mark.parametrize("how", ["with", "to"])
def test_stages_by_hand(how):
    first, second = RNG.standard_normal((5, 6)), RNG.standard_normal((6, 3))
    x = ef.tensor(RNG.standard_normal((7, 5)))

    def after_steps(own):
        a = ef.Variable(first, name="a")
        with ef.device("cpu:1" if how == "to" else "cpu:0"):
            b = ef.Variable(second, name="b")
        optimizer = ef.nn.optimizers.Adam(0.1)

        def step(x):
            with ef.GradientTape() as tape:
                hidden = ef.tanh(x @ a)
                if how == "to":
                    loss = ef.square(hidden.to("cpu:1") @ b).mean()
                else:
                    with ef.device("cpu:1"):
                        found = hidden @ b
                    loss = ef.square(found).mean()
            optimizer.apply(tape.gradient(loss, [a, b]), [a, b])
            return loss

        made = step if own is None else own.step(step)
        losses = [float(made(x)) for _ in range(3)]
        if own is not None:
            own.merge()
        return losses, a.numpy(), b.numpy()

    own = strategy(2, 3)
    for a, b in zip(after_steps(own), after_steps(None), strict=True):
        np.testing.assert_allclose(a, b, 1e-10)
    graph = graph_of(own)
    homes = {c.name: c.value.device for c in graph.cells}
    assert (homes["a"], homes["adam/a/momentum"]) == ("cpu:0", "cpu:0")
    assert (homes["b"], homes["adam/b/momentum"]) == ("cpu:1", "cpu:1")
    places = [(n.device, n.name) for n in graph.nodes if n.op.name == "matmul"]
    assert sum(d == "cpu:0" for d, _ in places) == 2 * 3  # for x @ a and the gradient of a
    assert sum(d == "cpu:1" for d, _ in places) == 3 * 3


def test_parts_of_other_sizes_are_cut_at_the_same_places():
    model = deep(4)
    own = strategy(2, 2)
    step = own.step(model.python_step("train")[0])
    for rows in (64, 63, 2):
        x = np.ones((rows, 64), "float32")
        step(x, x)
    homes = [
        {c.name: c.value.device for c in graph.cells if c.name.endswith("kernel")}
        for graph in own.graphs
    ]
    assert len(homes) == 3
    assert homes[0] == homes[1] == homes[2]


# Schedules ----------------------------------------------------------------------------------------


def most_at_once(plan, device):
    """The most micro-batches of which a device had begun the way there, and not ended that back."""
    ready, events = last_run_of(plan)
    way = []
    for event in sorted(events, key=lambda e: e.begin):
        task = ready.program.tasks[event.task]
        if str(task.device) != device:
            continue
        for name in task.nodes:
            found = re.match(r"micro_batch_(\d+)/(.*)", name)
            if found and "/matmul" in name and not name.endswith("turn"):
                way.append((int(found[1]), found[2].startswith("gradient/")))
    ends = {k: max(i for i, one in enumerate(way) if one == (k, True)) for k, _ in way}
    begins = {k: min(i for i, one in enumerate(way) if one == (k, False)) for k, _ in way}
    return max(sum(begins[k] <= i <= ends[k] for k in ends) for i in range(len(way)))


def run_deep(schedule, stages=3, microbatches=6):
    model = deep(6)
    x = np.ones((microbatches * 16, 64), "float32")
    model(x[:2])
    step = strategy(stages, microbatches, schedule=schedule).step(model.python_step("train")[0])
    for _ in range(3):
        step(x, x)
    return plan_of(step)


def test_one_forward_one_backward_bounds_kept_activations():
    plan = run_deep("one-forward-one-backward")
    for stage in range(3):
        assert most_at_once(plan, DEVICES[stage]) <= 3 - stage


def test_fill_drain_keeps_all():
    assert most_at_once(run_deep("fill-drain"), "cpu:0") == 6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_wait_no_longer_than_in_theory(schedule):
    """By a model of costs: what is measured depends on what else the machine does."""
    stages, microbatches = 4, 8
    model = deep(8)
    x = np.ones((microbatches * 32, 64), "float32")
    step = strategy(stages, microbatches, schedule=schedule).step(model.python_step("train")[0])
    step(x, x)
    placement = ef.capture.partition(plan_of(step).graph, DEVICES, costs=COSTS).placement
    work = sum(g.costs[k] for g, k in zip(placement.groups, placement.group_devices, strict=True))
    waiting = 1 - work / stages / placement.schedule.seconds
    assert waiting < (stages - 1) / (microbatches + stages - 1)


# Errors -------------------------------------------------------------------------------------------


def test_invalid_use_is_refused():
    with pytest.raises(ef.errors.ArgumentError, match="not a number of micro-batches"):
        strategy(2, 0)
    with pytest.raises(ef.errors.ArgumentError, match="is not a choice"):
        strategy(2, schedule="backward")
    with pytest.raises(ef.errors.ArgumentError, match="no devices"):
        ef.cluster.Pipeline()

    def short(x):
        return x * 2

    with pytest.raises(ef.errors.ArgumentError, match="1 nodes cannot be cut into 3 stages"):
        strategy(3).step(short)(ef.ones((4, 2)))

    def pinned(x):
        with ef.device("cpu:3"):
            return x * 2

    with pytest.raises(ef.errors.PlacementError, match="pinned to cpu:3, which has no stage"):
        strategy(2).step(pinned)(ef.ones((4, 2)))


def test_statistics_of_all_micro_batches_are_refused():
    layer = ef.nn.BatchNormalization(synchronized=True, dtype="float64")
    model = network(layer, *dense())
    x, y = batch(8)
    model(x)
    with pytest.raises(ef.errors.CaptureError, match="continues from a mean") as found:
        strategy(2).step(model.python_step("train")[0])(x, y)
    assert "synchronized=False" in str(found.value)


def test_a_step_that_fails_changes_nothing():
    model = network(*dense())
    x, y = batch(6)
    model(x)
    own = strategy(2, 3)
    step = own.step(model.python_step("train")[0])
    step(x, y)
    own.merge()
    before = [v.numpy() for v in model.variables]
    with pytest.raises(ef.errors.IndexRangeError):
        step(x, y + 5)
    own.merge()
    for v, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)
