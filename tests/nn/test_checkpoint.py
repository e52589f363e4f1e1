"""Checkpoints: a training goes on bit for bit, whenever it was ended."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, FileFormatError
from tests.nn.checkpoint_worker import Rows, network
from tests.structure.sources import ROOT


def bits_of(model):
    return [a.tobytes() for a in model.get_weights()]


def steps(model, rows, count):
    for _ in range(count):
        model.train_on_batch(*rows.take())


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "captured"])
@pytest.mark.parametrize("fresh", [True, False], ids=["a new model", "the same model"])
def test_a_training_goes_on(tmp_path, eager, fresh):
    ef.random.seed(1)
    model, rows, checkpoint = network(), Rows(), ef.nn.Checkpoint(tmp_path)
    model.run_eagerly = eager
    steps(model, rows, 7)
    path = checkpoint.save(model, rows, epoch=3)
    steps(model, rows, 7)
    right = bits_of(model)
    if fresh:
        ef.random.seed(2)
        model, rows = network(), Rows()
        model.run_eagerly = eager
    assert checkpoint.restore(model, rows) == (path, 7, 3, None)
    steps(model, rows, 7)
    assert bits_of(model) == right


def test_back_to_before_the_first_step(tmp_path):
    ef.random.seed(1)
    model, rows, checkpoint = network(), Rows(), ef.nn.Checkpoint(tmp_path)
    checkpoint.save(model, rows)
    steps(model, rows, 3)
    right = bits_of(model)
    assert checkpoint.restore(model, rows).step == 0
    steps(model, rows, 3)
    assert bits_of(model) == right


def test_the_newest_stay(tmp_path):
    model, checkpoint = network(), ef.nn.Checkpoint(tmp_path / "a" / "b", keep=2)
    assert checkpoint.latest is None and checkpoint.restore(model) is None
    (checkpoint.folder / "notes.txt").write_text("mine")
    made = [checkpoint.save(model, step=10 - i) for i in range(4)]
    assert checkpoint.paths == made[-2:] and checkpoint.latest == made[-1]
    assert checkpoint.restore(model).step == 7
    assert (checkpoint.folder / "notes.txt").exists()
    assert repr(checkpoint).endswith("2 of 2>")


def test_a_broken_one_is_passed_over(tmp_path):
    model, checkpoint = network(), ef.nn.Checkpoint(tmp_path)
    made = [checkpoint.save(model, step=i) for i in range(3)]
    made[2].write_bytes(made[2].read_bytes()[:-7])
    made[1].write_bytes(b"")
    with pytest.warns(UserWarning, match="is passed over") as warned:
        assert checkpoint.restore(model).step == 0
    assert len(warned) == 2


def test_wrong_uses(tmp_path):
    model, checkpoint = network(), ef.nn.Checkpoint(tmp_path)
    steps(model, Rows(), 1)
    checkpoint.save(model)
    before = bits_of(other := ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3)]))
    other.compile("adam", "mse")
    with pytest.raises(FileFormatError, match="does not fit the model"):
        checkpoint.restore(other)
    assert bits_of(other) == before
    with pytest.raises(FileFormatError, match="does not fit the model"):
        sgd = network()
        sgd.compile("sgd", "mse")
        checkpoint.restore(sgd)
    with pytest.raises(ArgumentError, match="without a loader"):
        checkpoint.restore(model, Rows())
    with pytest.raises(ArgumentError, match="no optimizer"):
        checkpoint.restore(ef.nn.Sequential(network().layers))
    with pytest.raises(ArgumentError, match="not a number of files"):
        ef.nn.Checkpoint(tmp_path, keep=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError, match="the folder cannot be made"):
        ef.nn.Checkpoint(tmp_path / "file")
    with pytest.raises(FileFormatError, match="it is a checkpoint"):
        ef.nn.load_model(checkpoint.latest)
    model.load_weights(checkpoint.latest)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the worker forks")
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_trainings_go_on(tmp_path, kills):
    done = subprocess.run(
        [sys.executable, "-m", "tests.nn.checkpoint_worker", str(kills), "0", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found.pop("trainings") > kills / 20
    assert found == {"other": 0, "lost": 0, "litter": 0}


def test_the_rows_come_in_another_order_each_epoch():
    rows = Rows()
    first, second = ([rows.take()[0] for _ in range(5)] for _ in range(2))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
