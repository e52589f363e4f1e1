"""Checkpoints in several files: what belongs together is read as one, and nothing else is."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import FileFormatError
from eagerflow.nn import files, shards
from tests.nn.checkpoint_worker import network


def sharded(folder, **texts):
    """A checkpoint whose kernels others have written; the model, and the paths of its files."""
    ef.random.seed(3)
    model, checkpoint = network(), ef.nn.Checkpoint(folder)
    path = checkpoint.save(model)
    found = files.read(path, "test")
    mine = {n: a for n, a in found.arrays.items() if not n.endswith("kernel")}
    prefix, written = shards.new_prefix(path.stem), []
    for i, name in enumerate(sorted(found.arrays.keys() - mine.keys())):
        other = folder / f"{prefix}-{i:04}.shard"
        seal = shards.write(other, {name: found.arrays[name]}, "test")
        written.append(shards.ShardFile(other.name, f"/job:worker/task:{i}", seal))
    texts = found.texts | {shards.ENTRY: shards.listed(written)} | texts
    files.write(path, texts, mine, "test")
    return model, path, [folder / one.name for one in written]


def restored(folder):
    ef.random.seed(4)
    other = network()
    found = ef.nn.Checkpoint(folder).restore(other)
    return found, other


def bits(model):
    return [a.tobytes() for a in model.get_weights()]


def test_all_files_are_one_state(tmp_path):
    model, path, others = sharded(tmp_path)
    assert len(others) == 2
    found, other = restored(tmp_path)
    assert found.path == path and bits(other) == bits(model)
    ef.random.seed(5)
    other = network()
    other.load_weights(path)
    assert bits(other) == bits(model)


@pytest.mark.parametrize("harm", ["missing", "cut", "changed", "exchanged"])
def test_without_one_of_them_it_is_passed_over(tmp_path, harm):
    model, _, (first, second) = sharded(tmp_path)
    data = first.read_bytes()
    if harm == "missing":
        first.unlink()
    elif harm == "cut":
        first.write_bytes(data[:-1])
    elif harm == "changed":
        first.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        first.write_bytes(second.read_bytes())
    before = bits(model)
    with pytest.warns(UserWarning, match="is passed over"):
        assert ef.nn.Checkpoint(tmp_path).restore(model) is None
    assert bits(model) == before


@pytest.mark.parametrize("row", [
    ["../secret", "task", 1, "0"],
    ["checkpoint-00000002-0123456789abcdef-0000.shard", "task", 1, "0"],
    ["checkpoint-00000001-0123456789abcdef-0000.shard/../x", "task", 1, "0"],
    ["checkpoint-00000001-0123456789abcdef-0000.shard", "task", True, "0"],
    ["checkpoint-00000001-0123456789abcdef-0000.shard", "task", 1],
    "checkpoint-00000001-0123456789abcdef-0000.shard",
    None,
])  # fmt: skip
def test_it_lists_its_own_files_alone(tmp_path, row):
    _, path, _ = sharded(tmp_path, **{shards.ENTRY: json.dumps([row])})
    with pytest.raises(FileFormatError, match="lists other files"):
        shards.read(path, "test")


def test_a_list_that_is_none(tmp_path):
    _, path, _ = sharded(tmp_path, **{shards.ENTRY: '{"a": 1}'})
    with pytest.raises(FileFormatError, match="lists other files"):
        shards.read(path, "test")


def test_nothing_is_there_twice(tmp_path):
    _, path, (first, _) = sharded(tmp_path)
    found = files.read(path, "test")
    found.arrays.update(files.read(first, "test").arrays)
    files.write(path, found.texts, found.arrays, "test")
    with pytest.raises(FileFormatError, match="two files of the checkpoint have"):
        shards.read(path, "test")


def test_they_go_with_their_checkpoint(tmp_path):
    model, path, others = sharded(tmp_path)
    lost = tmp_path / f"{shards.new_prefix('checkpoint-00000009')}-0000.shard"
    notes = tmp_path / "checkpoint-00000001-notes.txt"
    lost.touch(), notes.touch()
    checkpoint = ef.nn.Checkpoint(tmp_path, keep=2)
    checkpoint.save(model)
    assert all(one.exists() for one in others) and not lost.exists()
    checkpoint.save(model)
    assert not path.exists() and not any(one.exists() for one in others)
    checkpoint.clear()
    assert [*tmp_path.iterdir()] == [notes]


def test_a_state_is_written_beside_the_program(tmp_path, monkeypatch):
    model, checkpoint = network(), ef.nn.Checkpoint(tmp_path)
    right = bits(model)
    path = checkpoint.save(model, step=1, wait=False)
    model.set_weights([np.zeros(w.shape) for w in model.weights])
    checkpoint.wait()
    assert checkpoint.paths == [path]
    assert checkpoint.restore(model).step == 1 and bits(model) == right


def test_background_save_error_is_raised_once(tmp_path, monkeypatch):
    model, checkpoint = network(), ef.nn.Checkpoint(tmp_path)
    checkpoint.save(model, step=1)

    def full(*_):
        raise FileFormatError("the file cannot be written: No space left on device")

    restore, save = (lambda: checkpoint.restore(model)), (lambda: checkpoint.save(model))
    for tell in (checkpoint.wait, restore, save):
        with monkeypatch.context() as patch:
            patch.setattr("eagerflow.nn.checkpoint.write_state", full)
            checkpoint.save(model, step=2, wait=False)
            with pytest.raises(FileFormatError, match="No space left"):
                tell()
    checkpoint.wait()
    assert checkpoint.restore(model).step == 1
