"""Steps on several devices: what one step on the whole batch gives, whatever the devices do."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster import data_parallel
from eagerflow.cluster.replication import replicated
from eagerflow.masks import mask_of
from eagerflow.nn.replicas import as_replica
from tests.cluster.programs import trained_on

DEVICES = [f"cpu:{i}" for i in range(4)]
RNG = np.random.default_rng(0)


def strategy(count, **options):
    return ef.cluster.DataParallel(devices=DEVICES[:count], **options)


def network(*layers, optimizer="sgd", metrics=("accuracy",)):
    ef.random.seed(0)
    model = ef.nn.Sequential([*layers, ef.nn.Dense(3, dtype="float64")])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=list(metrics))
    return model


def dense():
    return [ef.nn.Dense(6, activation="tanh", dtype="float64")]


def batch(rows, shape=(5,)):
    return RNG.standard_normal((rows, *shape)), RNG.integers(0, 3, rows)


def trained(make, batches, count=None, **options):
    """A model after steps on batches, on so many replicas, and its numbers."""
    return trained_on(make, batches, None if count is None else strategy(count, **options))


def assert_same(found, wanted, tolerance=1e-11):
    for a, b in zip(found[0].variables, wanted[0].variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), tolerance, tolerance, err_msg=a.name)
    for name, value in wanted[1].items():
        assert found[1][name] == pytest.approx(value, rel=1e-5), name


OPTIMIZERS = {
    "sgd": lambda: ef.nn.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: ef.nn.optimizers.Adam(0.01, weight_decay=0.01),
    "amsgrad": lambda: ef.nn.optimizers.Adam(0.01, amsgrad=True),
    "adafactor": lambda: ef.nn.optimizers.Adafactor(0.01),
    "rmsprop": lambda: ef.nn.optimizers.RMSprop(0.01, centered=True),
    "norm": lambda: ef.nn.optimizers.SGD(0.5, global_clipnorm=0.1),
    "norms": lambda: ef.nn.optimizers.SGD(0.5, clipnorm=0.05),
    "means": lambda: ef.nn.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "in turn": lambda: ef.nn.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: ef.nn.optimizers.LossScaleOptimizer(ef.nn.optimizers.SGD(0.1)),
    "schedule": lambda: ef.nn.optimizers.SGD(ef.nn.schedules.ExponentialDecay(0.5, 2, 0.5)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_the_whole_batch(name):
    def make():
        return network(*dense(), optimizer=OPTIMIZERS[name]())

    batches = [batch(n) for n in (8, 8, 7, 2, 1, 8)]
    assert_same(trained(make, batches, 3), trained(make, batches), 1e-7)  # float32 in its slots


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_any_numbers_of_examples_and_replicas(sizes, count):
    batches = [batch(n) for n in sizes]

    def make():
        return network(*dense())

    assert_same(trained(make, batches, count), trained(make, batches))


def test_statistics_of_the_whole_batch():
    def make():
        return network(
            ef.nn.Conv2D(4, 3, dtype="float64"),
            ef.nn.BatchNormalization(synchronized=True, dtype="float64"),
            ef.nn.Flatten(),
        )

    batches = [batch(n, (6, 6, 2)) for n in (8, 7, 8)]
    assert_same(trained(make, batches, 2), trained(make, batches), 1e-6)


def test_running_means_of_parts_are_averaged():
    def make():
        return network(ef.nn.BatchNormalization(momentum=0.5, dtype="float64"))

    x, y = batch(8)
    model, _ = trained(make, [(x, y)], 2)
    means = [x[:4].mean(0), x[4:].mean(0)]
    wanted = np.mean([0.5 * m for m in means], axis=0)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), wanted, 1e-5, 1e-6)


def test_each_run_has_the_same_bits():
    def make():
        return network(ef.nn.Dense(6, dtype="float64"), ef.nn.Dropout(0.5), optimizer="adam")

    batches = [batch(n) for n in (8, 7, 8)]
    first, *others = [trained(make, batches, 3)[0] for _ in range(3)]
    for other in others:
        for a, b in zip(first.variables, other.variables, strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes()


def test_replicas_draw_numbers_of_their_own():
    generator = ef.random.Generator(3)
    own = strategy(2)
    draw = own.step(lambda x: x + generator.normal(x.shape))
    zeros = ef.zeros((4, 3))
    one, two = draw(zeros).numpy(), draw(zeros).numpy()
    assert not np.array_equal(one[:2], one[2:])
    assert not np.array_equal(one, two)
    generator.seed(3)
    np.testing.assert_array_equal(draw(zeros).numpy(), one)


def test_results_are_joined():
    own = strategy(3)
    found = own.step(lambda x: {"rows": x * 2, "mean": x.mean(), "count": ef.tensor(7)})(
        ef.tensor(np.arange(7.0))
    )
    np.testing.assert_array_equal(found["rows"].numpy(), np.arange(7.0) * 2)
    assert float(found["mean"]) == pytest.approx(3.0)
    assert int(found["count"]) == 7


def test_arguments_that_are_no_batch_go_to_each_replica():
    own = strategy(2)
    table = ef.tensor([[1.0, 2.0, 3.0]] * 3)
    found = own.step(lambda x, table, k: x @ table * k)(ef.ones((4, 3)), table, 2)
    np.testing.assert_array_equal(found.numpy(), np.ones((4, 3)) @ table.numpy() * 2)


def weighted(w, optimizer):
    """A step that changes ``w`` by the means of what it is given."""

    def step(x):
        with ef.GradientTape() as tape:
            loss = (x * w).sum(axis=1).mean()
        optimizer.apply(tape.gradient(loss, [w]), [w])
        return loss

    return step


def check_changes_between_steps(own, merges):
    """What a program assigns between steps goes to all replicas, merged before or not."""
    w, optimizer = ef.Variable([1.0, 2.0], name="w"), ef.nn.optimizers.SGD(1.0)
    step = own.step(weighted(w, optimizer))
    x = ef.tensor([[1.0, 0.0], [3.0, 2.0]])
    assert float(step(x)) == 4.0
    w.assign([10.0, 20.0])
    optimizer.learning_rate = 0.5
    for _ in range(merges):
        own.merge()
        np.testing.assert_array_equal(w.numpy(), [10.0, 20.0])
    assert float(step(x)) == 40.0
    own.merge()
    np.testing.assert_array_equal(w.numpy(), [9.0, 19.5])


@pytest.mark.parametrize("merges", [0, 1, 2])
def test_external_changes_between_steps_are_respected(merges):
    check_changes_between_steps(strategy(2), merges)


def test_metrics_that_begin_anew_count_from_there():
    x, y = batch(8)
    model = network(*dense())
    model(x)
    own = strategy(2)
    step = own.step(model.python_step("train")[0])
    step(x, y)
    model.reset_metrics()
    step(x[:6], y[:6])  # another size: a graph is made, for which values are merged
    own.merge()
    assert float(model.metrics[0].count) == 6


def test_copies_of_models_count_as_the_models_do():
    x, y = batch(8)
    model = network(*dense())
    model(x)
    model.python_step("train")[0](x, y)
    for made in (copy.deepcopy(model.metrics[0]), pickle.loads(pickle.dumps(model.metrics[0]))):
        assert {v.aggregation for v in made.variables} == {"sum"}


def test_graphs_of_many_sizes_are_forgotten(monkeypatch):
    monkeypatch.setattr(data_parallel, "MAX_KEPT_GRAPHS", 2)
    own = strategy(2)
    step = own.step(lambda x: x * 2.0)
    for rows in range(2, 9):
        assert step(ef.ones((rows, 1))).shape == (rows, 1)
    assert len(own.graphs) == 2


def test_a_sum_for_a_loss():
    w = ef.Variable(0.0)
    optimizer = ef.nn.optimizers.SGD(1.0)

    def step(x):
        with ef.GradientTape() as tape:
            loss = (x * w).sum()
        optimizer.apply(tape.gradient(loss, [w]), [w])

    own = strategy(2, loss="sum")
    own.step(step)(ef.tensor([1.0, 2.0, 4.0]))
    own.merge()
    assert float(w) == -7.0


def test_an_embedding_with_sparse_gradients():
    def make():
        return network(ef.nn.Embedding(10, 4), ef.nn.Flatten(), optimizer="adam")

    batches = [(RNG.integers(0, 10, (n, 3)), RNG.integers(0, 3, n)) for n in (6, 5)]
    assert_same(trained(make, batches, 2), trained(make, batches), 1e-4)


def test_fit_matches_a_single_device():
    x, y = batch(50)
    rates = ef.nn.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 / (epoch + 1))

    def fitted(own):
        model = network(*dense())
        model(x[:2])
        more = {"validation_data": (x[:20], y[:20]), "callbacks": [rates], "verbose": 0}
        return model.fit(x, y, 16, 3, strategy=own, **more).history

    wanted, found = fitted(None), fitted(strategy(2))
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, 1e-5, err_msg=name)


def test_batch_logs_are_those_of_all_replicas():
    x, y = batch(14)
    seen = []

    class Log(ef.nn.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["loss"])

    def fitted(own):
        seen.clear()
        model = network(*dense())
        model(x[:2])
        more = {"shuffle": False, "verbose": 0, "callbacks": [Log()]}
        history = model.fit(x, y, 4, 2, strategy=own, **more).history
        return [*seen, *history["loss"]]  # the last batch of an epoch is smaller

    np.testing.assert_allclose(fitted(strategy(2)), fitted(None), 1e-5)


def test_merging_twice_changes_nothing():
    model = network(ef.nn.BatchNormalization(dtype="float64"))
    x, y = batch(8)
    model(x[:2])
    own = strategy(2)
    own.step(model.python_step("train")[0])(x, y)
    own.merge()
    found, logs = model.get_weights(), model.logs()
    own.merge()
    for a, b in zip(model.get_weights(), found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.logs() == logs


def test_a_strategy_shows_its_graphs():
    model = network(*dense())
    model(batch(2)[0])
    own = strategy(2)
    step = own.step(model.python_step("train")[0])
    for rows in (8, 8, 6):
        step(*batch(rows))
    large, small = own.graphs
    assert (large.inputs[0].shape, small.inputs[0].shape) == ((4, 5), (3, 5))
    assert len(ef.capture.partition(large, own.devices).cuts) == 2 * len(model.trainable_weights)


# The graph ----------------------------------------------------------------------------------------


def step_graphs(model, sizes):
    step = ef.capture.Function(lambda share, x, y: model._train_batch(x, y), static=("share",))
    total = sum(sizes)
    return [as_replica(n / total, step.graph, n / total, *map(ef.tensor, batch(n))) for n in sizes]


def shadow_of(table):
    def shadow(variable, r):
        key = id(variable), r
        if key not in table:
            table[key] = ef.Variable(variable.value, f"{variable.name}@{r}", False)
        return table[key]

    return shadow


def test_each_weights_state_is_on_one_device():
    model = network(*dense(), optimizer="adam")
    model(batch(2)[0])
    found = replicated(step_graphs(model, (4, 4)), DEVICES[:2], shadow_of({}))
    names = [cell.name for cell in found.graph.cells]
    for name in ("momentum", "velocity"):
        assert sum(n.endswith(name) for n in names) == len(model.trainable_weights)
    assert sum("kernel" in n and "adam" not in n for n in names) == 4
    homes = {c.value.device for c in found.graph.cells if c.name.endswith("momentum")}
    assert homes == {"cpu:0", "cpu:1"}
    assert {v.name for v in found.local} >= {"loss/total", "accuracy/count"}
    assert found.graph.check() is None


def test_cut_over_devices_it_equals_the_whole_bitwise():
    model = network(*dense(), optimizer="adam")
    model(batch(2)[0])
    found = replicated(step_graphs(model, (4, 3)), DEVICES[:2], shadow_of({}))
    rows = batch(7)
    inputs = [ef.tensor(x) for x in (rows[0][:4], rows[1][:4], rows[0][4:], rows[1][4:])]
    cells = [c.variable for c in found.graph.cells]
    before = [v.value for v in cells]

    def after(run):
        for v, value in zip(cells, before, strict=True):
            v.assign(value)
        run()
        return [v.numpy().tobytes() for v in cells]

    whole = after(lambda: found.graph(*inputs))
    cut = ef.capture.partition(found.graph, DEVICES[:2], numerics="exact")
    assert after(lambda: cut.run(inputs)) == after(lambda: cut.run(inputs))
    exact = ef.capture.partition(found.graph, DEVICES[:2], numerics="exact")
    assert after(lambda: exact.run(inputs)) == after(lambda: cut.run(inputs))
    assert len(whole) == len(cells)


# Errors -------------------------------------------------------------------------------------------


def test_invalid_use_is_refused():
    with pytest.raises(ef.errors.ArgumentError, match="there are no devices"):
        ef.cluster.DataParallel()
    with pytest.raises(ef.errors.ArgumentError, match="is not a choice"):
        strategy(2, loss="max")
    with pytest.raises(ef.errors.ShapeError, match="no examples"):
        strategy(2).step(lambda x: x)(ef.tensor(1.0))

    def step(x):
        return x * 2 if x.shape[0] > 2 else x + 1 + 1

    with pytest.raises(ef.errors.ArgumentError, match="other things for parts of other sizes"):
        strategy(2).step(step)(ef.ones((5, 2)))


def test_a_step_that_fails_changes_nothing():
    model = network(*dense())
    x, y = batch(6)
    model(x)
    own = strategy(2)
    step = own.step(model.python_step("train")[0])
    step(x, y)
    own.merge()
    before = [v.numpy() for v in model.variables]
    with pytest.raises(ef.errors.ShapeError):
        step(x[:, :3], y)
    own.merge()
    for v, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)


def test_replicas_get_their_part_of_a_mask():
    embedding = ef.nn.Embedding(5, 3, mask_zero=True)
    sequence = embedding([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 2]])
    target = ef.ones((3, 4))

    def trained_by(strategy):
        ef.random.seed(0)
        model = ef.nn.Sequential([ef.nn.LSTM(4)])
        model.build((None, 4, 3))
        weights = model.trainable_variables
        optimizer = ef.nn.optimizers.SGD(0.5)

        def step(x, y):
            with ef.GradientTape() as tape:
                loss = ef.mean((model(x) - y) ** 2)
            optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss, "sequence": x}

        run = step if strategy is None else strategy.step(step)
        steps = [run(sequence, target) for _ in range(3)]
        return [float(found["loss"]) for found in steps], steps[0]["sequence"], model.variables

    losses, came, weights = trained_by(strategy(3))
    wanted, _, others = trained_by(None)
    np.testing.assert_allclose(losses, wanted, 1e-5)
    np.testing.assert_array_equal(mask_of(came).numpy(), mask_of(sequence).numpy())
    for ours, theirs in zip(weights, others, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-4, 1e-6)
