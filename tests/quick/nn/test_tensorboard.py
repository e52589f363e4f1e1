"""The TensorBoard callback: what fit and evaluate tell is in the files, by TensorBoard's reader."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.nn.callbacks import tensorboard

pytest.importorskip("tensorboard")
from eagerflow.profiling import log
from tests.summary import reading

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")


def network():
    ef.random.seed(0)
    layers = [ef.nn.Input((6,)), ef.nn.Dense(8, "relu", name="hidden"), ef.nn.Dense(1, name="out")]
    model = ef.nn.Sequential(layers)
    model.compile("adam", "mse", metrics=["mae"])
    return model


def told(folder):
    """By tag the (step, number) of all scalars."""
    found = {}
    for tag, step, array, plugin in reading.values(folder):
        if plugin == "scalars":
            found.setdefault(tag, []).append((step, float(array)))
    return found


def test_numbers_of_epochs_are_those_of_the_history(tmp_path):
    model = network()
    board = ef.nn.callbacks.TensorBoard(tmp_path)
    history = model.fit(
        X, Y, 8, epochs=3, validation_split=0.2, callbacks=[board], verbose=0
    ).history
    for part, prefix in (("train", ""), ("validation", "val_")):
        found = told(tmp_path / part)
        for name in ("loss", "mae"):
            steps, numbers = zip(*found[f"epoch_{name}"], strict=True)
            assert steps == (0, 1, 2)
            np.testing.assert_allclose(numbers, history[prefix + name], rtol=1e-6)
    assert [x for _, x in told(tmp_path / "train")["epoch_learning_rate"]] == pytest.approx(
        [1e-3] * 3
    )
    evaluated = told(tmp_path / "validation")["evaluation_loss_vs_iterations"]
    assert [step for step, _ in evaluated] == [4, 8, 12]
    (graph,) = [e for e in reading.events(tmp_path / "train") if e.graph_def]
    assert b"gradient/matmul" in graph.graph_def
    assert not any(tag.startswith("batch_") for tag in told(tmp_path / "train"))


@pytest.mark.parametrize(("frequency", "batches"), [("batch", [1, 2, 3, 4, 5]), (2, [2, 4])])
def test_numbers_of_batches(tmp_path, frequency, batches):
    seen = []
    watch = ef.nn.callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: seen.append(logs))
    board = ef.nn.callbacks.TensorBoard(
        tmp_path, update_freq=frequency, write_graph=False, write_steps_per_second=True
    )
    network().fit(X, Y, 8, callbacks=[watch, board], verbose=0)
    found = told(tmp_path / "train")
    assert [step for step, _ in found["batch_loss"]] == batches
    np.testing.assert_allclose(
        [x for _, x in found["batch_mae"]], [seen[i - 1]["mae"] for i in batches], rtol=1e-6
    )
    assert all(x > 0 for _, x in found["batch_steps_per_second"] + found["epoch_steps_per_second"])
    assert not any(e.graph_def for e in reading.events(tmp_path / "train"))


def test_weights_are_histograms_and_pictures(tmp_path):
    model = network()
    board = ef.nn.callbacks.TensorBoard(tmp_path, histogram_freq=2, write_images=True)
    model.fit(X, Y, 8, epochs=4, callbacks=[board], verbose=0)
    rows = {(tag, step): array for tag, step, array, _ in reading.values(tmp_path / "train")}
    for weight in model.weights:
        assert {step for tag, step in rows if tag == f"{weight.name}/histogram"} == {0, 2}
        assert rows[f"{weight.name}/histogram", 2][:, 2].sum() == weight.size
        assert (f"{weight.name}/image", 2) in rows
    width, height, *pictures = rows["hidden/kernel/image", 2]
    assert (width, height, len(pictures)) == (b"8", b"6", 1)


@pytest.mark.parametrize("axes", [(3,), (4, 2), (2, 4), (3, 3, 2), (3, 3, 1, 2), (2, 2, 2, 2)])
def test_pictures_of_weights(axes):
    found = tensorboard.picture(RNG.normal(size=axes))
    if axes == (2, 2, 2, 2):
        assert found is None
    else:
        expected = {(3,): (1, 1, 3), (4, 2): (1, 2, 4), (2, 4): (1, 2, 4)}
        assert found.shape == (*expected.get(axes, (2, 3, 3)), 1)
        assert (found.min(), found.max()) == (0.0, 1.0)


def test_evaluate_alone_and_again(tmp_path):
    model = network()
    board = ef.nn.callbacks.TensorBoard(tmp_path)
    model.fit(X, Y, 8, callbacks=[board], verbose=0)
    result = model.evaluate(X, Y, callbacks=[board], verbose=0)
    assert told(tmp_path / "validation")["evaluation_loss_vs_iterations"] == [
        (5, pytest.approx(result[0]))
    ]
    model.fit(X, Y, 8, callbacks=[board], verbose=0)  # into files of its own
    assert len(told(tmp_path / "train")["epoch_loss"]) == 2


def test_rows_of_embeddings_have_their_labels(tmp_path):
    (tmp_path / "names.tsv").write_text("word\tcount\n" + "".join(f"w{i}\t{i}\n" for i in range(5)))
    model = ef.nn.Sequential([ef.nn.Embedding(5, 3, name="words"), ef.nn.Flatten(), ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    x = RNG.integers(0, 5, (8, 2))
    board = ef.nn.callbacks.TensorBoard(
        tmp_path, embeddings_freq=1, embeddings_metadata={"words": tmp_path / "names.tsv"}
    )
    model.fit(x, np.ones((8, 1), "float32"), callbacks=[board], verbose=0)
    folder = tmp_path / "train" / "embeddings"
    table = np.loadtxt(folder / "words_0.tsv", dtype="float32")
    np.testing.assert_array_equal(table, model.layers[0].weights[0].numpy())
    assert (folder / "words_0_labels.tsv").read_text() == (tmp_path / "names.tsv").read_text()
    wrong = ef.nn.callbacks.TensorBoard(
        tmp_path, embeddings_freq=1, embeddings_metadata={"wrds": tmp_path / "names.tsv"}
    )
    with pytest.raises(ArgumentError, match="wrds"):
        model.fit(x, np.ones((8, 1), "float32"), callbacks=[wrong], verbose=0)


def test_batches_are_profiled(tmp_path):
    board = ef.nn.callbacks.TensorBoard(tmp_path, profile_batch=(2, 3))
    open_in = []
    note = ef.nn.callbacks.LambdaCallback(
        on_train_batch_end=lambda i, logs: open_in.append(bool(log._open))
    )
    network().fit(X, Y, 8, callbacks=[note, board], verbose=0)
    assert open_in == [False, True, True, False, False]
    trace = json.loads((tmp_path / "train" / "batch_2.trace.json").read_text())
    names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert any("call of" in name for name in names), names
    (space,) = (tmp_path / "train" / "plugins" / "profile" / "batch_2").glob("*.xplane.pb")
    assert space.stat().st_size > 0


def test_an_exception_closes_the_files(tmp_path):
    def fail(epoch, logs):
        raise KeyError("stop")

    board = ef.nn.callbacks.TensorBoard(tmp_path)
    stop = ef.nn.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.raises(KeyError):
        network().fit(X, Y, 8, callbacks=[board, stop], verbose=0)
    assert not board._writers and told(tmp_path / "train")["epoch_loss"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"update_freq": "step"},
        {"update_freq": 0},
        {"histogram_freq": -1},
        {"embeddings_freq": 0.5},
        {"profile_batch": "a"},
        {"profile_batch": ()},
        {"profile_batch": (3, 2)},
        {"profile_batch": (1, 2, 3)},
        {"profile_batch": -1},
    ],
    ids=str,
)
def test_arguments_are_checked(tmp_path, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        ef.nn.callbacks.TensorBoard(tmp_path, **wrong)
    for given, pair in ((5, (5, 5)), ((2, 4), (2, 4)), ("2,4", (2, 4)), ("3", (3, 3))):
        board = ef.nn.callbacks.TensorBoard(tmp_path, profile_batch=given)
        assert board.profile_batch == pair
