"""Checkpoints that tasks write: whole, of one moment, beside training; and training from them."""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import plan, ray_hosts, server
from eagerflow.errors import FileFormatError, TaskLostError
from eagerflow.nn import files, shards
from tests.capture.placement.several_devices import COSTS
from tests.cluster.counting import X, counting, counts
from tests.cluster.kills import network
from tests.cluster.processes import ProcessHosts
from tests.cluster.test_copies import kill
from tests.cluster.test_faults import wait_for
from tests.cluster.test_sessions import digits
from tests.internals import end_steps
from tests.structure.sources import ROOT

STRATEGIES = {
    "data parallel": ef.cluster.DataParallel,
    "servers": ef.cluster.ParameterServer,
    "pipeline": lambda cluster: ef.cluster.Pipeline(cluster, costs=COSTS),
}


def examples():
    x, labels = digits()
    return x, np.argmax(labels, axis=1)


def shards_in(strategy):
    return strategy.tables._shards


def begun(strategy, steps=3):
    """A model of which some steps were made, and what makes another one."""
    x, y = examples()
    model = network()
    model(x[:2])
    step = strategy.step(model.python_step("train")[0])

    def go_on(count):
        for i in range(count):
            step(x[i % 4 :: 4], y[i % 4 :: 4])

    go_on(steps)
    return model, go_on


def arrays(path):
    return {name: a.tobytes() for name, a in shards.read(path, "test").arrays.items()}


def merged(path):
    """Without what each replica has for itself."""
    return {n: a for n, a in arrays(path).items() if not n.startswith("replicas/")}


def bits(model):
    return [v.numpy().tobytes() for v in (*model.weights, *model.optimizer.variables)]


# Saving ------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)
def test_the_values_are_those_of_a_plain_checkpoint(local, tmp_path, make):
    strategy = make(local)
    model, go_on = begun(strategy)
    checkpoint = ef.nn.Checkpoint(tmp_path / "tasks")
    first = checkpoint.save(model, strategy=strategy)
    go_on(2)
    second = checkpoint.save(model, strategy=strategy)
    assert any(path.suffix == ".shard" for path in checkpoint.folder.iterdir())
    strategy.merge()
    plain = ef.nn.Checkpoint(tmp_path / "plain").save(model)
    assert merged(second) == arrays(plain) != merged(first)
    assert [json.loads(files.read(p, "")[0]["progress"])["step"] for p in (first, second)] == [3, 5]


def test_devices_of_this_process_need_one_file(tmp_path):
    strategy = ef.cluster.DataParallel(devices=["cpu:0", "cpu:1"])
    model, _ = begun(strategy)
    checkpoint = ef.nn.Checkpoint(tmp_path)
    path = checkpoint.save(model, strategy=strategy, wait=False)
    checkpoint.wait()
    strategy.merge()
    assert [*tmp_path.iterdir()] == [path]
    assert merged(path) == arrays(checkpoint.save(model))


def test_values_assigned_by_the_program_are_saved(local, tmp_path):
    strategy = ef.cluster.DataParallel(local)
    model, _ = begun(strategy)
    model.weights[0].assign(np.full(model.weights[0].shape, 7.0))
    ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
    other = network()
    other(examples()[0][:2])
    ef.nn.Checkpoint(tmp_path).restore(other)
    assert (other.weights[0].numpy() == 7.0).all()


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_all_values_are_of_one_moment(tmp_path, mode):
    with ef.cluster.Cluster({"worker": 2, "ps": 2}, local=True, costs=COSTS) as cluster:
        strategy = ef.cluster.ParameterServer(cluster, mode=mode)
        model, step = counting()
        step, checkpoint = strategy.step(step), ef.nn.Checkpoint(tmp_path, keep=40)
        for _ in range(20):
            step(X)
            step(X)
            checkpoint.save(model, strategy=strategy, wait=False)
        strategy.merge()
    checkpoint.wait()
    found = [counts(path) for path in checkpoint.paths]
    assert [len(own) for own in found] == [1] * 20
    if mode == "synchronous":
        assert [*map(min, found)] == [*range(2, 41, 2)]


def test_steps_are_made_while_tasks_write(local, tmp_path, monkeypatch):
    """A save that waits takes no longer than the moment, and later steps change nothing of it."""
    strategy = ef.cluster.ParameterServer(local)
    model, step = counting()
    step, checkpoint = strategy.step(step), ef.nn.Checkpoint(tmp_path)
    written, may_write = shards.write, threading.Event()

    def slowly(*args):
        assert may_write.wait(60)
        return written(*args)

    monkeypatch.setattr(server.shards, "write", slowly)
    for _ in range(3):
        step(X)
    path = checkpoint.save(model, strategy=strategy, wait=False)
    for _ in range(5):
        step(X)
    assert not path.exists()
    may_write.set()
    checkpoint.wait()
    assert counts(path) == {3}


def test_cluster_shutdown_waits_for_checkpoint_writes(tmp_path):
    with ef.cluster.Cluster({"worker": 1, "ps": 1}, local=True, costs=COSTS) as cluster:
        strategy = ef.cluster.ParameterServer(cluster)
        model, step = counting()
        strategy.step(step)(X)
        checkpoint = ef.nn.Checkpoint(tmp_path)
        path = checkpoint.save(model, strategy=strategy, wait=False)
    checkpoint.wait()
    assert counts(path) == {1}


@pytest.mark.parametrize("moment", ["before", "in between"])
def test_copies_are_saved_where_a_task_is_lost(tmp_path, monkeypatch, moment):
    options = {"local": True, "costs": COSTS, "redundant": True}
    with ef.cluster.Cluster({"worker": 2, "ps": 2}, **options) as cluster:
        strategy = ef.cluster.ParameterServer(cluster)
        model, step = counting()
        step, written = strategy.step(step), shards.write
        step(X)
        step(X)

        def write(*args):
            monkeypatch.setattr(server.shards, "write", written)
            cluster.kill("/job:ps/task:0")
            return written(*args)

        if moment == "before":
            cluster.kill("/job:ps/task:0")
            cluster.wait()
        else:
            monkeypatch.setattr(server.shards, "write", write)
        path = ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
        assert counts(path) == {2}
        step(X)
        assert counts(ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)) == {3}


# What cannot be saved ----------------------------------------------------------------------------


def test_a_task_that_cannot_write_says_so(processes, tmp_path):
    strategy = ef.cluster.DataParallel(processes)
    model, _ = begun(strategy)
    checkpoint = ef.nn.Checkpoint(tmp_path)
    kept = checkpoint.save(model, strategy=strategy)
    snapshot = strategy.snapshot

    def elsewhere(variables, here, folder, prefix):
        return snapshot(variables, here, f"{folder}/not there", prefix)

    strategy.snapshot = elsewhere
    with pytest.raises(FileFormatError, match=r"in /job:worker/task:\d on ") as caught:
        checkpoint.save(model, strategy=strategy)
    assert "No such file or directory" in caught.value.problem
    assert caught.value.argument.startswith(str(tmp_path / "not there" / "checkpoint-00000002-"))
    assert checkpoint.paths == [kept]
    strategy.snapshot = snapshot
    assert checkpoint.save(model, strategy=strategy).stem == "checkpoint-00000002"


def test_checkpoint_files_not_visible_to_the_client_are_refused(local, tmp_path, monkeypatch):
    strategy = ef.cluster.DataParallel(local)
    model, _ = begun(strategy)
    checkpoint = ef.nn.Checkpoint(tmp_path)
    monkeypatch.setattr(server.shards, "write", lambda *_: files.Seal(10, "0"))
    with pytest.raises(FileFormatError, match="cannot be seen from here"):
        checkpoint.save(model, strategy=strategy)
    assert checkpoint.latest is None


def test_a_task_writes_files_of_checkpoints_alone(local, tmp_path):
    task = local.tasks[0]
    for folder, name in ((str(tmp_path), "../x.shard"), (str(tmp_path), "weights"), ("a", "b")):
        message = {"do": "save", "folder": folder, "file": name, "variables": [], "names": []}
        with pytest.raises(FileFormatError, match="not the name of a shard"):
            local.client.ask(task, message)


def test_a_lost_value_fails_the_save_as_a_whole(processes, tmp_path):
    strategy = ef.cluster.ParameterServer(processes)
    model, _ = begun(strategy)
    checkpoint = ef.nn.Checkpoint(tmp_path)
    kept = checkpoint.save(model, strategy=strategy)
    kill(processes, "/job:ps/task:0")
    with pytest.raises(TaskLostError, match="was lost with /job:ps/task:0"):
        checkpoint.save(model, strategy=strategy)
    assert checkpoint.paths == [kept]
    checkpoint.restore(model)
    again = checkpoint.save(model, strategy=strategy)
    assert merged(again) == merged(kept)


# Going on ----------------------------------------------------------------------------------------


def test_another_number_of_workers_goes_on(tmp_path):
    x, y = examples()

    def made():
        model = plain()
        model(x[:2])
        return model

    with ef.cluster.Cluster({"worker": 2}, local=True, costs=COSTS) as cluster:
        model, strategy = made(), ef.cluster.DataParallel(cluster)
        strategy.step(model.python_step("train")[0])(x[:12], y[:12])
        ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
        strategy.merge()
    right, found = bits(model), []
    for workers in (0, 1, 3):
        other = made()
        assert ef.nn.Checkpoint(tmp_path).restore(other).step == 1
        assert bits(other) == right
        if workers:
            with ef.cluster.Cluster({"worker": workers}, local=True, costs=COSTS) as cluster:
                strategy = ef.cluster.DataParallel(cluster)
                strategy.step(other.python_step("train")[0])(x[:12], y[:12])
                strategy.merge()
        else:
            other.train_on_batch(x[:12], y[:12])
        found.append(other.get_weights())
    for weights in found[1:]:
        for a, b in zip(weights, found[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def plain(*layers):
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(32, activation="relu"), *layers, ef.nn.Dense(10)])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


class Kills(ef.nn.callbacks.Callback):
    """Kills tasks after so many batches, counted over all epochs."""

    reads_batches = False

    def __init__(self, cluster, tasks):
        self.cluster, self.tasks, self.batches = cluster, tasks, 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches in self.tasks:
            os.kill(self.cluster.task(self.tasks[self.batches]).pid, signal.SIGKILL)


def fitted(strategy, folder, tasks=(), epochs=2, size=6, more=(), **options):
    x, y = examples()
    model = plain(ef.nn.BatchNormalization(), ef.nn.Dropout(0.2))
    model(x[:2])
    loader = ef.nn.Loader((x, y), size, shuffle=True, seed=3)
    backup = ef.nn.callbacks.BackupAndRestore(folder, loader=loader, **options)
    callbacks = [backup, Kills(strategy.cluster, dict(tasks)), *more]
    history = model.fit(loader, epochs=epochs, verbose=0, callbacks=callbacks, strategy=strategy)
    return bits(model), history


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)
def test_fit_goes_back_and_ends_with_the_same_bits(processes, tmp_path, make, monkeypatch):
    monkeypatch.setattr(plan, "FOLLOWING_BYTES", 0)  # as with larger state
    right, history = fitted(make(processes), tmp_path / "a", save_freq=3)
    kills = {5: "/job:worker/task:1", 14: "/job:worker/task:0"}
    with pytest.warns(UserWarning, match="training goes on from checkpoint-0") as warned:
        found, again = fitted(make(processes), tmp_path / "b", kills, save_freq=3)
    words = [str(w.message) for w in warned if "goes on" in str(w.message)]
    assert len(words) == 2 and "was lost with /job:worker/task:1" in words[0]
    assert "steps back" in words[0]
    assert found == right
    assert again.epoch == history.epoch == [0, 1]
    assert [*tmp_path.iterdir()] == []


class Cut(Exception):
    pass


class Ends(ef.nn.callbacks.Callback):
    reads_batches = False

    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            raise Cut


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [7, 10])
def test_replicas_have_their_own_means_again_in_another_program(local, tmp_path, size):
    """Also where the graph for a last, smaller batch is made at another moment."""
    right, _ = fitted(ef.cluster.DataParallel(local), tmp_path / "a", size=size, save_freq=2)
    with pytest.raises(Cut):
        fitted(
            ef.cluster.DataParallel(local), tmp_path / "b", more=[Ends()], size=size, save_freq=2
        )
    found, _ = fitted(ef.cluster.DataParallel(local), tmp_path / "b", size=size, save_freq=2)
    assert found == right


def test_fit_goes_back_to_its_begin(processes, tmp_path):
    strategy = ef.cluster.ParameterServer(processes)
    right, _ = fitted(strategy, tmp_path / "a", epochs=1)
    with pytest.warns(UserWarning, match="from checkpoint-00000001.ef, 2 steps back"):
        found, _ = fitted(strategy, tmp_path / "b", {2: "/job:ps/task:0"}, epochs=1)
    assert found == right


def test_fit_without_backup_reports_the_lost_task(monkeypatch):
    monkeypatch.setattr(ray_hosts, "RayHosts", ProcessHosts)
    x, y = examples()
    with (
        pytest.raises(TaskLostError, match="was lost with /job:ps/task:0"),
        ef.cluster.Cluster({"worker": 2, "ps": 1}, costs=COSTS) as cluster,
    ):
        strategy = ef.cluster.ParameterServer(cluster)
        plain().fit(x, y, 6, callbacks=Kills(cluster, {2: "/job:ps/task:0"}), strategy=strategy)


def test_a_state_that_does_not_help_is_tried_three_times(processes, tmp_path):
    """The program has a Variable of its own, which is in no checkpoint."""
    count = ef.Variable(0.0, name="mine")

    class Counting(ef.nn.Sequential):
        def train_step(self, data):
            count.assign_add(1.0)
            return super().train_step(data)

    x, y = examples()
    model = Counting([ef.nn.Dense(10)])
    model.compile("sgd", ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True))
    model(x[:2])
    strategy = ef.cluster.ParameterServer(processes)
    callbacks = [
        ef.nn.callbacks.BackupAndRestore(tmp_path, save_freq=2),
        Kills(processes, {4: "/job:worker/task:0", 5: "/job:ps/task:0"}),
    ]
    with (
        pytest.warns(UserWarning, match="goes on from") as warned,
        pytest.raises(TaskLostError, match="'mine"),
    ):
        model.fit(x, y, 6, 2, verbose=0, callbacks=callbacks, strategy=strategy)
    count.assign(0.0)
    assert [*tmp_path.iterdir()] and len(warned) >= 3


SAVING = {
    "a backup": lambda folder: ef.nn.callbacks.BackupAndRestore(folder, 4),
    "models of epochs": lambda folder: ef.nn.callbacks.ModelCheckpoint(folder / "{epoch}.ef"),
}


@pytest.mark.parametrize("saving", SAVING.values(), ids=SAVING)
def test_saving_callbacks_do_not_merge_after_each_batch(local, tmp_path, monkeypatch, saving):
    strategy, merges, (x, y) = ef.cluster.DataParallel(local), [], examples()
    merge = strategy.merge
    monkeypatch.setattr(strategy, "merge", lambda: merges.append(1) or merge())
    network().fit(x, y, epochs=1, verbose=0, callbacks=saving(tmp_path), strategy=strategy)
    assert len(merges) < 5  # of ten batches: at the first one, and the end


# Asynchronous training ---------------------------------------------------------------------------


def test_a_lost_server_is_as_in_the_last_checkpoint(processes, tmp_path):
    strategy = ef.cluster.ParameterServer(processes, mode="asynchronous")
    model, step = counting()
    step = strategy.step(step)
    for _ in range(4):
        step(X)
    strategy.merge()
    path = ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
    for _ in range(6):
        step(X)
    strategy.merge()
    assert int(model.optimizer.iterations) == 10
    for _ in range(2):
        step(X)
    wait_for(lambda: len(strategy.schedule) == 24)
    words = f"/job:ps/task:0 was lost: 9 Variables are as in {path.name}, 8 steps ago"
    with pytest.warns(UserWarning, match=words):
        kill(processes, "/job:ps/task:0")
        for _ in range(4):
            step(X)
        strategy.merge()
    assert len(strategy.schedule) == 32
    assert int(model.optimizer.iterations) == 8
    assert {float(x) for w in model.weights for x in w.numpy().flat} == {-8.0}


def test_a_lost_worker_costs_no_batch(processes):
    strategy = ef.cluster.ParameterServer(processes, mode="asynchronous")
    model, step = counting()
    step = strategy.step(step)
    with pytest.warns(UserWarning, match=r"/job:worker/task:\d was lost"):
        for i in range(30):
            step(X)
            if i % 10 == 5:
                kill(processes, f"/job:worker/task:{i // 10 % 2}")
        strategy.merge()
    assert int(model.optimizer.iterations) == 30
    assert {float(x) for w in model.weights for x in w.numpy().flat} == {-30.0}
    assert len(strategy.schedule) == 60


@pytest.mark.parametrize("has", ["nothing", "a schedule"])
def test_unrecoverable_training_reports_the_lost_task(processes, tmp_path, has):
    """There is no checkpoint, or the training repeats another one, whose numbers it would leave."""
    schedule = [(what, i % 2) for i in range(4) for what in ("pull", "push")]
    more = {"schedule": schedule} if has == "a schedule" else {}
    strategy = ef.cluster.ParameterServer(processes, mode="asynchronous", **more)
    model, step = counting()
    step = strategy.step(step)
    step(X)
    step(X)
    wait_for(lambda: len(strategy.schedule) == 4)
    if has == "a schedule":
        ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
    kill(processes, "/job:ps/task:0")
    with pytest.raises(TaskLostError, match="was lost with /job:ps/task:0"):
        step(X)
        step(X)
        strategy.merge()
    for v in (*model.weights, *model.optimizer.variables):
        v.assign(v.numpy())


# Kills of the client -----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_programs_leave_a_whole_checkpoint(tmp_path, kills):
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.counting", str(kills), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found == {"saved": kills, "lost": 0, "mixed": 0, "litter": 0}


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_tasks_leave_a_whole_checkpoint(processes, tmp_path, kills):
    rng = np.random.default_rng(kills)
    strategy = ef.cluster.ParameterServer(processes, mode="asynchronous")
    model, step = counting(64)
    step, checkpoint = strategy.step(step), ef.nn.Checkpoint(tmp_path, keep=3)
    step(X)
    strategy.merge()
    checkpoint.save(model, strategy=strategy)
    names = [task.name for task in processes.tasks]
    with pytest.warns(UserWarning, match="was lost"):
        for _ in range(kills):
            step(X)
            timer = threading.Timer(rng.uniform(0, 0.02), kill, (processes, rng.choice(names)))
            timer.start()
            for _ in range(20):
                step(X)
                try:
                    checkpoint.save(model, strategy=strategy, wait=False)
                except TaskLostError:
                    pass  # of the save before, or of what no step has met yet
                assert shards.read(checkpoint.latest, "test").arrays
            timer.join()
        strategy.merge()


# Large tables ------------------------------------------------------------------------------------


def words():
    """A network on a table that is large enough to be in shards, and its batches."""
    ef.random.seed(0)
    layers = [ef.nn.Embedding(64, 4, sparse=True), ef.nn.Flatten(), ef.nn.Dense(3)]
    model = ef.nn.Sequential(layers)
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss)
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 64, (8, 2)), rng.integers(0, 3, 8)) for _ in range(4)]
    model(batches[0][0])
    return model, batches


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_tables_in_shards_are_saved_whole(local, tmp_path, mode):
    local.add("ps")
    strategy = ef.cluster.ParameterServer(local, mode=mode, min_shard_bytes=256)
    model, batches = words()
    step = strategy.step(model.python_step("train")[0])
    for x, y in batches:
        step(x, y)
    if mode == "asynchronous":
        strategy.merge()
        step(*batches[0])
        end_steps(strategy)
    assert shards_in(strategy)  # else there is nothing to see here
    path = ef.nn.Checkpoint(tmp_path / "tasks").save(model, strategy=strategy)
    strategy.merge()
    plain = ef.nn.Checkpoint(tmp_path / "plain").save(model)
    assert arrays(path) == arrays(plain)


def test_a_lost_shard_is_as_in_the_last_checkpoint(processes, tmp_path):
    processes.add("ps")
    strategy = ef.cluster.ParameterServer(processes, mode="asynchronous", min_shard_bytes=256)
    model, batches = words()
    step = strategy.step(model.python_step("train")[0])
    for x, y in batches:
        step(x, y)
    strategy.merge()
    table = model.weights[0]
    saved = table.numpy().copy()
    ef.nn.Checkpoint(tmp_path).save(model, strategy=strategy)
    for x, y in batches:
        step(x, y)
    end_steps(strategy)
    shards_of = shards_in(strategy)[table]
    (place,) = {strategy.devices[strategy.tables.places[shards_of[0].variable]]}
    processes.kill(place.partition("/device")[0])
    with pytest.warns(UserWarning, match="steps ago"):
        strategy.merge()
    found, own = table.numpy(), slice(shards_of[0].begin, shards_of[0].end)
    assert found[own].tobytes() == saved[own].tobytes()
    assert (found != saved).any()
