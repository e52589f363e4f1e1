"""Tables by rows: whole or in shards, on servers or replicas, they learn as on one machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.cluster import ray_hosts
from tests.capture.placement.several_devices import COSTS
from tests.cluster.processes import ProcessHosts
from tests.cluster.programs import trained_on

ROWS, WIDTH = 23, 4
WORKERS, SERVERS = ["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]
RNG = np.random.default_rng(0)
SHARDED = {"min_shard_bytes": 64}


def replicas(**options):
    return ef.cluster.DataParallel(devices=WORKERS, **options)


def servers(**options):
    return ef.cluster.ParameterServer(devices=WORKERS, servers=SERVERS, **options)


STRATEGIES = {
    "replicas": replicas,
    "replicas, shards": lambda: replicas(**SHARDED),
    "servers": servers,
    "servers, shards": lambda: servers(**SHARDED),
}
ALL_MODES = {
    **STRATEGIES,
    "asynchronous": lambda: servers(mode="asynchronous"),
    "asynchronous, shards": lambda: servers(mode="asynchronous", **SHARDED),
}
BY_ROWS = {
    "sgd": lambda: ef.nn.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: ef.nn.optimizers.Adam(0.01, weight_decay=0.01),
    "adagrad": lambda: ef.nn.optimizers.Adagrad(0.1),
    "rmsprop": lambda: ef.nn.optimizers.RMSprop(0.01, centered=True),
    "norm": lambda: ef.nn.optimizers.SGD(0.5, global_clipnorm=0.1),
    "norms": lambda: ef.nn.optimizers.SGD(0.5, clipnorm=0.05),
}
DENSE = {
    "adafactor": lambda: ef.nn.optimizers.Adafactor(0.01),
    "means": lambda: ef.nn.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "in turn": lambda: ef.nn.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: ef.nn.optimizers.LossScaleOptimizer(ef.nn.optimizers.SGD(0.1)),
}


def embedding(sparse=True, rows=ROWS):
    return ef.nn.Embedding(rows, WIDTH, sparse=sparse, dtype="float64")


def network(optimizer="adam", *layers):
    ef.random.seed(0)
    first = layers or [embedding()]
    model = ef.nn.Sequential([*first, ef.nn.Flatten(), ef.nn.Dense(3, dtype="float64")])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    return model


def batch(n, rows=ROWS):
    return RNG.integers(-rows, rows, (n, 2)), RNG.integers(0, 3, n)


BATCHES = [batch(n) for n in (8, 7, 1, 8)]


def trained(make, own=None, batches=BATCHES):
    return trained_on(make, batches, own)[0]


def values(model):
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def bits(model):
    return [v.tobytes() for v in values(model)]


def assert_same(found, wanted, tolerance=1e-6):  # float32 in its slots
    for a, b in zip(values(found), values(wanted), strict=True):
        np.testing.assert_allclose(a, b, tolerance, tolerance)


def sent(own):
    """The bytes that cross devices in each of a strategy's graphs."""
    plans = [ef.capture.partition(graph, own.devices, costs=COSTS) for graph in own.graphs]
    return [sum(cut.bytes for cut in plan.cuts) for plan in plans]


def table_step(table, optimizer, use=None):
    """A step on one table: the mean of what it looks up, or of what ``use`` makes of it."""

    def step(ids):
        with ef.GradientTape() as tape:
            found = ef.embedding_lookup(table, ids, sparse_gradient=True)
            loss = found.mean() if use is None else use(found, ids)
        optimizer.apply(tape.gradient(loss, [table]), [table])
        return loss

    return step


# Numbers -----------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "adam") for kind in STRATEGIES)]
    + [("servers, shards", name) for name in (*BY_ROWS, *DENSE) if name != "adam"],
)
def test_steps_are_those_of_the_whole_batch(kind, name):
    own = STRATEGIES[kind]()
    batches = BATCHES if name == "adam" else BATCHES[:2]

    def make():
        return network((BY_ROWS | DENSE)[name]())

    assert_same(trained(make, own, batches), trained(make, None, batches))
    assert bool(own.tables.places) == (name in BY_ROWS)


@settings(max_examples=5, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([1, 40, 1 << 20]),
    st.booleans(),
)
def test_any_sizes_and_any_number_of_shards(rows, sizes, workers, count, least, asynchronous):
    batches = [batch(n, rows) for n in sizes]

    def make():
        return network("adam", embedding(rows=rows))

    own = ef.cluster.ParameterServer(
        devices=WORKERS[: 1 if asynchronous else workers],
        servers=SERVERS[:count],
        mode="asynchronous" if asynchronous else "synchronous",
        min_shard_bytes=least,
    )
    assert_same(trained(make, own, batches), trained(make, None, batches))


def test_one_worker_side_by_side_is_one_machine():
    for more in ({}, SHARDED):
        how = {"devices": ["cpu:0"], "mode": "asynchronous", **more}
        own = ef.cluster.ParameterServer(servers=SERVERS, **how)
        assert_same(trained(network, own), trained(network))


def test_sums_over_examples():
    found = []
    for own in (replicas(loss="sum", **SHARDED), servers(loss="sum"), None):
        table = ef.Variable(np.ones((ROWS, WIDTH)))
        step = table_step(table, ef.nn.optimizers.SGD(0.1), lambda x, ids: (x * x).sum())
        step = step if own is None else own.step(step)
        for x, _ in BATCHES:
            step(x % ROWS)
        if own is not None:
            own.merge()
        found.append(table.numpy())
    np.testing.assert_allclose(found[0], found[2], 1e-12)
    np.testing.assert_allclose(found[1], found[2], 1e-12)


def test_look_ups_that_do_not_grow_with_the_batch():
    """Positions, besides ids: parts of 4 and 3 examples have other shares of all rows."""
    for make_own in (replicas, lambda: servers(**SHARDED)):
        found = []
        for own in (make_own(), None):
            table = ef.Variable(np.linspace(0, 1, ROWS * WIDTH).reshape(ROWS, WIDTH))

            def use(x, ids, table=table):
                places = ef.embedding_lookup(table, np.arange(3), sparse_gradient=True)
                return (x.sum(axis=1) * places[0] * places[2]).mean()

            step = table_step(table, ef.nn.optimizers.SGD(0.5), use)
            step = step if own is None else own.step(step)
            losses = [float(step(x % ROWS)) for x, _ in BATCHES]
            if own is not None:
                own.merge()
            found.append((table.numpy(), losses))
        np.testing.assert_allclose(found[0][0], found[1][0], 1e-9)
        np.testing.assert_allclose(found[0][1], found[1][1], 1e-6)


@pytest.mark.parametrize("kind", ["replicas", "servers, shards"])
def test_two_look_ups_of_one_table(kind):
    class Two(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = embedding()

        def call(self, ids):
            return self.table(ids[:, :1]) * ef.tanh(self.table(ids[:, 1:]))

    def make():
        return network("adam", Two())

    own = STRATEGIES[kind]()
    assert_same(trained(make, own), trained(make))
    assert own.tables.places


@pytest.mark.parametrize("kind", ["replicas", "servers, shards"])
def test_tables_that_all_of_is_used_are_weights_like_others(kind):
    class Tied(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = ef.nn.ReversibleEmbedding(ROWS, WIDTH, dtype="float64")

        def call(self, ids):
            return self.table(self.table(ids), reverse=True)

    def make():
        return network("adam", Tied())

    own = STRATEGIES[kind]()
    assert_same(trained(make, own), trained(make))
    assert not own.tables.places


@pytest.mark.parametrize("kind", STRATEGIES)
def test_all_of_a_table_is_used_later(kind):
    """Another step reads and writes the whole of what the first one has by rows."""
    found = []
    for own in (STRATEGIES[kind](), None):
        table = ef.Variable(np.linspace(0, 1, ROWS * WIDTH).reshape(ROWS, WIDTH), name="table")
        optimizer, plain = ef.nn.optimizers.Adam(0.1), ef.nn.optimizers.SGD(0.1)

        def shrink(x, table=table, plain=plain):
            with ef.GradientTape() as tape:
                loss = (table * table * x.mean()).sum()
            (g,) = tape.gradient(loss, [table])
            plain.apply([g], [table])
            return loss, table.value

        steps = [table_step(table, optimizer, lambda x, ids: (x * x).mean()), shrink]
        by_rows, shrinks = steps if own is None else map(own.step, steps)
        results = []
        for ids, _ in (BATCHES[0], BATCHES[3]):
            by_rows(ids % ROWS)
            results += shrinks(np.linspace(1.0, 2.0, 8))
        if own is not None:
            own.merge()
            assert own.tables.places
        found.append([np.asarray(x) for x in (*results, table)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, 1e-9)


def test_pipelines_take_slices_as_tensors():
    own = ef.cluster.Pipeline(devices=WORKERS, microbatches=2, costs=COSTS)
    assert_same(trained(network, own, BATCHES[:1]), trained(network, None, BATCHES[:1]))


# Values between steps ----------------------------------------------------------------------------


def check_assigned(own, merges):
    """A step uses the values that the program has assigned to a table."""
    table = ef.Variable(np.ones((ROWS, WIDTH)))
    step = own.step(table_step(table, ef.nn.optimizers.SGD(WIDTH * 2.0)))
    ids = np.array([0, ROWS - 1])
    assert float(step(ids)) == 1.0
    table.assign(np.full((ROWS, WIDTH), 5.0))
    for _ in range(merges):
        own.merge()
        np.testing.assert_array_equal(table.numpy(), 5.0)
    assert float(step(ids)) == 5.0
    own.merge()
    np.testing.assert_array_equal(table.numpy()[[0, -1]], 4.0)
    np.testing.assert_array_equal(table.numpy()[1:-1], 5.0)
    assert float(step(ids)) == 4.0


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("merges", [0, 1, 2])
def test_values_assigned_to_a_table_are_used(kind, merges):
    check_assigned(STRATEGIES[kind](), merges)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_fit_leaves_whole_tables(mode, tmp_path):
    x, y = batch(32)
    own = servers(mode=mode, **SHARDED)
    model = network()
    model(x[:2])
    before = model.get_weights()[0]
    model.fit(x, y, 8, 2, shuffle=False, verbose=0, strategy=own)
    after = model.get_weights()[0]
    looked_up = np.unique(x % ROWS)
    others = np.setdiff1d(np.arange(ROWS), looked_up)
    np.testing.assert_array_equal(after[others], before[others])
    assert (after[looked_up] != before[looked_up]).any(axis=1).all()
    ef.nn.Checkpoint(tmp_path).save(model)
    other = network()
    other(x[:2])
    ef.nn.Checkpoint(tmp_path).restore(other)
    assert bits(other) == bits(model)


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [(kind, ROWS + 5) for kind in ALL_MODES] + [("servers, shards", wrong) for wrong in (ROWS, -1)],
)
def test_indices_out_of_range_are_refused(kind, wrong):
    own = ALL_MODES[kind]()
    table = ef.Variable(np.ones((ROWS, WIDTH)))
    step = own.step(table_step(table, ef.nn.optimizers.SGD(1.0)))
    words = f"gather: index {wrong} is out of range for axis 0 of length {ROWS}"
    with pytest.raises(ef.errors.IndexRangeError, match=words):
        step(np.array([0, wrong]))
        own.merge()
    own.merge()
    np.testing.assert_array_equal(table.numpy(), 1.0)
    step(np.array([0, 1]))
    own.merge()
    assert (table.numpy()[:2] < 1.0).all()


def test_invalid_use_is_refused():
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ef.errors.ArgumentError, match="not a number of bytes"):
            servers(min_shard_bytes=wrong)


# Places and traffic ------------------------------------------------------------------------------


def test_shards_and_their_state_lie_together_and_are_spread():
    own = servers(**SHARDED)
    trained(network, own)
    (graph, *_) = own.graphs
    places = {c.name: c.value.device for c in graph.cells if "/shard_" in c.name}
    assert len(places) == 6  # the table, momentum and velocity
    for i in (0, 1):
        assert {d for name, d in places.items() if name.endswith(f"/shard_{i}")} == {SERVERS[i]}
    assert {c.value.shape[0] for c in graph.cells if "/shard_" in c.name} == {12 + 1, 11 + 1}


def test_tables_are_spread_over_servers():
    own = servers()
    tables = [ef.Variable(np.ones((ROWS, WIDTH)), name=f"table{i}") for i in range(4)]
    optimizer = ef.nn.optimizers.Adam(0.1)

    def step(ids):
        with ef.GradientTape() as tape:
            found = [ef.embedding_lookup(t, ids, sparse_gradient=True) for t in tables]
            loss = sum(x.mean() for x in found)
        optimizer.apply(tape.gradient(loss, tables), tables)

    own.step(step)(np.arange(6))
    places = [own.tables.places[t] for t in tables]
    assert sorted(places) == [2, 2, 3, 3]
    slots = optimizer.variables[2:]
    for i, place in enumerate(places):
        assert {own.tables.places[v] for v in slots if f"table{i}/" in v.name} == {place}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ALL_MODES)
def test_rows_travel_and_no_tables(kind):
    own = ALL_MODES[kind]()
    table = ef.Variable(ef.zeros((100_000, 32)), name="table")
    step = own.step(table_step(table, ef.nn.optimizers.Adam(0.1)))
    for n in (64, 63, 5):
        step(RNG.integers(0, 100_000, n))
    own.merge()
    found = sent(own)
    assert 64 * 32 * 4 / 2 < max(found) < 100_000
    assert max(found) < table.nbytes / 100


def test_lookup_by_computed_indices_reads_a_copy():
    """Side by side, which rows are pulled has to be known before anything is computed."""
    found = []
    for own in (
        ef.cluster.ParameterServer(devices=["cpu:0"], servers=SERVERS, mode="asynchronous"),
        servers(**SHARDED),
        None,
    ):
        table = ef.Variable(np.linspace(0, 1, ROWS * WIDTH).reshape(ROWS, WIDTH))
        scores = ef.Variable(np.linspace(-1.0, 1.0, 6))
        optimizer = ef.nn.optimizers.SGD(0.5)

        def step(x, table=table, scores=scores, optimizer=optimizer):
            with ef.GradientTape() as tape:
                ids = ef.argmax(x * scores, axis=1)
                rows = ef.embedding_lookup(table, ids, sparse_gradient=True)
                loss = (rows.sum(axis=1) * (x * scores).sum(axis=1)).mean()
            both = [table, scores]
            optimizer.apply(tape.gradient(loss, both), both)

        step = step if own is None else own.step(step)
        rng = np.random.default_rng(1)
        for _ in range(3):
            step(rng.standard_normal((8, 6)))
        if own is not None:
            own.merge()
        found.append([table.numpy(), scores.numpy()])
    for other in found[:2]:
        for a, b in zip(other, found[2], strict=True):
            np.testing.assert_allclose(a, b, 1e-9)


# Over tasks --------------------------------------------------------------------------------------


JOBS = {"worker": 2, "ps": 2}


@pytest.fixture
def cluster():
    """Two workers and two parameter servers, in threads."""
    with ef.cluster.Cluster(JOBS, local=True, costs=COSTS) as made:
        yield made


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    with ef.cluster.Cluster(JOBS, costs=COSTS) as made:
        yield made


def test_processes_equal_devices_bitwise(processes):
    check_bits(processes, SHARDED)


def test_tasks_equal_devices_bitwise(cluster):
    check_bits(cluster, {})
    wanted = trained(network, replicas(**SHARDED))
    assert bits(trained(network, ef.cluster.DataParallel(cluster, **SHARDED))) == bits(wanted)


def check_bits(cluster, more):
    batches = BATCHES[1:]
    found = trained(network, ef.cluster.ParameterServer(cluster, **more), batches)
    assert bits(found) == bits(trained(network, servers(**more), batches))
    own = ef.cluster.ParameterServer(cluster, mode="asynchronous", staleness=1, **more)
    first = bits(trained(network, own, batches))
    more = more | {"mode": "asynchronous", "schedule": own.schedule}
    assert bits(trained(network, ef.cluster.ParameterServer(cluster, **more), batches)) == first
    assert bits(trained(network, servers(**more), batches)) == first


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_kills_cost_no_row(mode, monkeypatch):
    """With copies, shards of killed servers and rows of killed workers are there again."""
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    more = {"mode": mode, **SHARDED}
    with ef.cluster.Cluster(JOBS, costs=COSTS, redundant=True) as killed:
        tasks = {2: "/job:ps/task:0", 4: "/job:worker/task:1", 6: "/job:ps/task:1"}

        def strike(step):
            if step in tasks:
                killed.wait()
                killed.kill(tasks[step])

        own = ef.cluster.ParameterServer(killed, **more)
        found = _struck(own, strike)
    schedule = own.schedule if mode == "asynchronous" else None
    assert _struck(servers(**more, schedule=schedule), lambda step: None) == found


def _struck(own, strike):
    """The bits of a model after some steps, before which ``strike`` is called."""
    model = network()
    model(BATCHES[0][0])
    step = own.step(model.python_step("train")[0])
    for i in range(8):
        strike(i)
        step(*BATCHES[3 * (i % 2)])
    own.merge()
    return bits(model)


def test_tasks_send_rows(cluster):
    for mode in ("synchronous", "asynchronous"):
        own = ef.cluster.ParameterServer(cluster, mode=mode, min_shard_bytes=1 << 20)
        table = ef.Variable(ef.zeros((100_000, 32)), name="table")
        step = own.step(table_step(table, ef.nn.optimizers.SGD(0.1)))
        before = _between_tasks(cluster)
        for _ in range(5):
            step(RNG.integers(0, 100_000, 64))
        own.merge()
        assert 5 * 64 * 32 * 4 < _between_tasks(cluster) - before < 5 * 100_000


def _between_tasks(cluster):
    return sum(sum(task.to_tasks.values()) for task in cluster.status().tasks)


def test_a_program_assigns_between_steps_of_tasks(cluster):
    for more in ({}, SHARDED):
        for merges in (0, 1):
            check_assigned(ef.cluster.ParameterServer(cluster, **more), merges)


def test_rows_keep_their_digits_where_they_lie(cluster):
    """Compression on the way between tasks is of gradients and look-ups, not of the table."""
    own = ef.cluster.ParameterServer(cluster, transfer="bfloat16", **SHARDED)
    table = ef.Variable(ef.ones((ROWS, WIDTH)))
    optimizer = ef.nn.optimizers.SGD(2.0**-12)
    step = own.step(table_step(table, optimizer, lambda x, ids: x.sum(axis=1).mean()))
    ids = np.arange(ROWS - 1)  # of which each replica has a half
    step(ids)
    own.merge()
    change = 1.0 - table.numpy()
    np.testing.assert_allclose(change[:-1], 2.0**-12 / len(ids), 0.01)
    assert not change[-1].any()
