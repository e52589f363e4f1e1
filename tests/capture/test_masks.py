"""Masks of sequences pass every border: a captured call is what the layers give one by one."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.masks import mask_of
from tests.structure.sources import ROOT

IDS = ef.tensor([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 2]])
embedding = ef.nn.Embedding(5, 3, mask_zero=True)
lstm, gru = ef.nn.LSTM(4), ef.nn.GRU(3, return_sequences=True)
SEQUENCE = embedding(IDS)  # with its mask
WANTED = lstm(SEQUENCE).numpy()
BARE = lstm(SEQUENCE * 1).numpy()
identity = ef.nn.Activation("linear")
read = ef.function(lambda x: lstm(x))
make = ef.function(lambda ids: embedding(ids))


def saved(graph, folder):
    graph.save(folder / "graph.ef")
    return ef.capture.load(folder / "graph.ef")


def by_value(graph, x):
    return ef.capture.Session(graph).run("output", {graph.inputs[0]: x})


def assert_same(found, wanted=WANTED):
    np.testing.assert_allclose(found.numpy(), wanted, 1e-5, 1e-6)


def test_the_mask_matters():
    assert np.abs(WANTED - BARE).max() > 1e-3


READERS = {  # what gets a tensor with a mask
    "captured": read,
    "exact": ef.function(lambda x: lstm(x), numerics="exact"),
    "in a nest": lambda x: ef.function(lambda d: lstm(d["x"][0]))({"x": [x]}),
    "by name": lambda x: ef.function(lambda *, x: lstm(x))(x=x),
    "one in another": lambda x: ef.function(lambda x: read(x))(x),
    "a copy": lambda x: read(copy.copy(x)),
    "a deep copy": lambda x: read(copy.deepcopy([x])[0]),
    "a pickle": lambda x: read(pickle.loads(pickle.dumps(x))),
    "a graph": lambda x: read.graph(x)(x),
    "a graph by name": lambda x: read.graph(x)(x=x),
    "a session": lambda x: ef.capture.Session(read.graph(x)).run("output", {"x": x}),
    "a session by value": lambda x: by_value(read.graph(x), x),
    "a trace": lambda x: ef.capture.trace(lambda x: lstm(x), x)(x),
    "a partition": lambda x: ef.capture.partition(read.graph(x), ["cpu:0"])(x),
    "jvp": lambda x: ef.jvp(lstm, (x,), (ef.ones_like(x),))[0],
    "vjp": lambda x: ef.vjp(lstm, x)[0],
    "checkpoint": ef.checkpoint(lambda x: lstm(x)),
    "vmap": lambda x: ef.vmap(lambda row: lstm(row)[0])(embedding(ef.expand_dims(IDS, 1))),
}
MAKERS = {  # what gives one
    "captured": make,
    "exact": ef.function(lambda ids: embedding(ids), numerics="exact"),
    "one of several": lambda ids: ef.function(lambda ids: {"a": ids, "b": embedding(ids)})(ids)[
        "b"
    ],
    "as it came": lambda ids: ef.function(lambda x: x)(embedding(ids)),
    "passed on": lambda ids: ef.function(lambda x: identity(x))(embedding(ids)),
    "a graph": lambda ids: make.graph(ids)(ids),
    "a session": lambda ids: ef.capture.Session(make.graph(ids)).run("output", {"ids": ids}),
    "checkpoint": ef.checkpoint(lambda ids: embedding(ids)),
    "custom gradient": lambda ids: kept(embedding(ids)),
    "vmap": ef.vmap(lambda ids: embedding(ids)),
}
kept = ef.custom_gradient(lambda x: (identity(x), lambda g: g))
kept(SEQUENCE)


def branches(x):
    return ef.cond(ef.sum(x) < 1e9, lambda y: lstm(y), lambda y: lstm(y) * 0, x)


def chosen(x):
    return ef.switch(ef.tensor(1), [lambda y: lstm(y) * 0, lambda y: lstm(y)], x)


def carried(x):
    return ef.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1], lstm(s[1])), (0, x, lstm(x))
    )[2]


def counted(x):
    return ef.fori_loop(0, 2, lambda i, s: (s[0], lstm(s[0])), (x, lstm(x)))[1]


def scanned(x):
    return ef.scan(lambda c, t: (c, lstm(c)), x, ef.arange(2.0))[1][1]


@pytest.mark.parametrize("reader", READERS)
def test_an_argument_keeps_its_mask(reader):
    for _ in range(2):  # the second call is a replay
        assert_same(READERS[reader](SEQUENCE))
    if not reader.startswith("vmap"):
        assert_same(READERS[reader](SEQUENCE * 1), BARE)
        assert_same(READERS[reader](SEQUENCE))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("taped", [False, True])
def test_a_result_has_its_mask(maker, taped):
    def loss():
        found = MAKERS[maker](IDS)
        np.testing.assert_array_equal(mask_of(found).numpy(), IDS.numpy() != 0)
        return lstm(found)

    if not taped:
        assert_same(loss())
        assert_same(loss())
        return
    weights = lstm.trainable_variables
    with ef.GradientTape() as tape:
        found = loss()
        total = ef.sum(found**2)
    with ef.GradientTape() as plain:
        wanted = ef.sum(lstm(embedding(IDS)) ** 2)
    assert_same(found)
    for ours, theirs in zip(
        tape.gradient(total, weights), plain.gradient(wanted, weights), strict=True
    ):
        assert_same(ours, theirs.numpy())


@pytest.mark.parametrize("f", [branches, chosen, carried, counted, scanned])
def test_control_flow_keeps_masks(f):
    assert_same(f(SEQUENCE))
    captured = ef.function(f)
    assert_same(captured(SEQUENCE))
    assert_same(captured(SEQUENCE))
    with ef.GradientTape() as tape:
        tape.watch(SEQUENCE)
        found = f(SEQUENCE)
    assert_same(found)


def test_files_keep_masks(tmp_path):
    reads, makes = saved(read.graph(SEQUENCE), tmp_path), saved(make.graph(IDS), tmp_path)
    assert makes.outputs.names == ("output", "output_mask")
    assert reads.inputs.names == ("x", "x_mask")
    assert_same(reads(makes(IDS)))
    assert_same(lstm(makes(IDS)))


def test_results_of_one_value_have_masks_of_their_own():
    def twice(x, y):
        return identity(x) * 1, x, y

    x, y = embedding(IDS), embedding(ef.flip(IDS, 1))
    bare, first, second = ef.function(twice)(x, y)
    assert mask_of(bare) is None
    np.testing.assert_array_equal(mask_of(first).numpy(), IDS.numpy() != 0)
    np.testing.assert_array_equal(mask_of(second).numpy(), IDS.numpy()[:, ::-1] != 0)
    np.testing.assert_array_equal(mask_of(x).numpy(), IDS.numpy() != 0)


def test_other_masks_need_no_other_trace():
    seen = []

    @ef.function
    def f(x):
        seen.append(1)
        return lstm(x)

    for ids in (IDS, ef.flip(IDS, 0), ef.ones_like(IDS)):
        assert_same(f(embedding(ids)), lstm(embedding(ids)).numpy())
    traces = len(seen)
    assert_same(f(SEQUENCE * 1), BARE)
    assert len(seen) > traces


def test_graphs_without_mask_input_refuse_masks():
    graph = ef.capture.trace(lambda x: lstm(x), SEQUENCE * 1)
    with pytest.raises(ef.errors.ArgumentError, match="mask"):
        graph(SEQUENCE)
    with pytest.raises(ef.errors.ArgumentError, match="mask"):
        ef.capture.Session(graph).run("output", {"x": SEQUENCE})
    declared = ef.function(lambda x: lstm(x), input_signature=[ef.TensorSpec((3, 4, 3), "float32")])
    with pytest.raises(ef.errors.ArgumentError, match="mask"):
        declared(SEQUENCE)
    assert_same(declared(SEQUENCE * 1), BARE)


def test_an_input_that_is_named_like_a_mask_is_none():
    def scaled(x, x_mask):
        return lstm(x) * ef.sum(ef.astype(x_mask, "float32"))

    own = ef.ones((3, 4), "bool")
    plain = ef.capture.trace(scaled, SEQUENCE * 1, own)
    session = ef.capture.Session(plain)
    calls = (
        lambda: plain(SEQUENCE, own),
        lambda: plain(x=SEQUENCE, x_mask=own),
        lambda: ef.capture.partition(plain, ["cpu:0"])(SEQUENCE, own),
        lambda: session.run("output", {"x": SEQUENCE, "x_mask": own}),
        lambda: session.run("output", {"x": SEQUENCE}),
    )
    for call in calls:
        with pytest.raises(ef.errors.ArgumentError, match="mask"):
            call()
    graph = ef.capture.trace(scaled, SEQUENCE, own)
    assert graph.inputs.names == ("x", "x_mask", "x_mask_1")
    assert_same(graph(SEQUENCE, own), WANTED * 12)
    assert_same(graph(x=SEQUENCE, x_mask_1=own), WANTED * 12)
    session = ef.capture.Session(graph)
    assert_same(session.run("output", {"x": SEQUENCE, "x_mask_1": own}), WANTED * 12)


def test_a_feed_of_two_graphs_reaches_both_with_its_mask():
    session = ef.capture.Session(ef.capture.trace(lambda x: {"first": lstm(x)}, SEQUENCE))
    session.extend(ef.capture.trace(lambda x: {"second": lstm(x)}, SEQUENCE))
    for found in session.run(["first", "second"], {"x": SEQUENCE}):
        assert_same(found)
    session.extend(ef.capture.trace(lambda x: {"third": lstm(x)}, SEQUENCE * 1, name="bare"))
    with pytest.raises(ef.errors.ArgumentError, match="mask"):
        session.run(["first", "third"], {"x": SEQUENCE})


def test_a_carry_that_loses_its_mask_is_refused():
    def halved(x):
        return ef.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] / 2), (0, x))[1]

    for f in (halved, ef.function(halved)):
        with pytest.raises(ef.errors.CaptureError, match="mask"):
            f(SEQUENCE)
        assert_same(f(SEQUENCE * 1), (SEQUENCE / 4).numpy())


def test_composed_graphs_hand_masks_on():
    makes, reads = make.graph(IDS), read.graph(SEQUENCE)
    assert_same(makes.compose(reads, {"x": "output"})(IDS))
    assert_same(makes.compose(reads, {"x": "output", "x_mask": "output_mask"})(IDS))
    with pytest.raises(ef.errors.CaptureError, match="mask"):
        makes.compose(ef.capture.trace(lambda x: lstm(x), SEQUENCE * 1), {"x": "output"})


def test_tensors_with_masks_are_let_go_at_the_end_of_a_process():
    """Python sets the names of modules to None then, in no order that is told."""
    text = (
        "import sys, eagerflow as ef\n"
        "sequence = ef.nn.Embedding(5, 3, mask_zero=True)(ef.tensor([[1, 0]]))\n"
        "sys.modules['eagerflow.tensor'].known_masks = None\n"
        "del sequence\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
